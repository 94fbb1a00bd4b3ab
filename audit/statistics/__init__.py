"""Statistics on plain arrays: intervals, rank tests, rare combinations, outliers."""
