"""audit: find what is wrong with an image dataset before anyone trains on it.

The library is used as `audit.scanning.scan(...)`, `audit.run.generations.open_run(...)`,
`audit.report.collect_report(...)`; this file imports nothing, so that `import audit` costs nothing.
"""
