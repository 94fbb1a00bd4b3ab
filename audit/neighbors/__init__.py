"""Near-duplicates: complete candidates, verification by alignment, groups without chains.

Functions take and return plain arrays; only `pairs/` reads and writes a run. Import names from the
files, so that a caller loads no more than it needs.
"""
