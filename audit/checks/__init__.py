"""The checks of an image dataset, one file for each check or for one rule with several codes.

In: a store with what the scan measured, and the thresholds of the configuration.
Out: findings, and one sentence on what was and was not examined.
Cost: a few SQL queries per check; no check opens a file, changes a row or imports another file of
checks.
"""
