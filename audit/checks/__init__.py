"""The checks of an image dataset, one file for each check or for one rule with several codes.

A check reads what the scan measured; it opens no file and imports no other file of checks.
"""
