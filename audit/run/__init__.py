"""Storage of a run: its databases and the published version.

For: storing what a scan lists and measures and what checks find, so that readers never wait.
In: Arrow tables and rows (samples, features, pairs, findings); the run's folder.
Out: `Store` (SQL in, polars frames out) and `RunVersion` (the published pair of databases).
Cost: opening a run 20 ms; 100,000 rows read in 0.1 s; only this room imports duckdb.
"""
