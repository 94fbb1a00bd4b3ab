"""The base class of a check, and the runner of all checks.

For: finding checks, configuring them, running them over a measured run, documenting them.
In: the files of `audit/checks/` (and entry points), audit.toml, a `Store` with measurements.
Out: a findings database; what failed or was skipped, with the reason; checks/README.md.
Cost: all checks over 100,000 samples take 1 to 3 s; no picture is opened.
"""
