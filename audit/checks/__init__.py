"""One file per check: documentation, thresholds, code and cases together."""
