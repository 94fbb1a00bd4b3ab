"""The base class of a check, and the runner of all checks.

In: the files of `audit/checks/` (and entry points), audit.toml, a `Store` with measurements. Out: a
findings database, and the reason of each check that failed or was skipped.
"""
