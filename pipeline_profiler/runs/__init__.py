"""The table of runs: one row for each measurement and each run of checks, in one SQLite file.

In: what a command measured, how it was called, and the state of the code it was called on. Out:
rows to filter and sort, so that a figure can be traced to the command and the changes behind it.
Cost: three short calls of git and one commit to disk a command. It never fails a measurement.
"""
