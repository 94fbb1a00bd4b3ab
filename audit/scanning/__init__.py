"""The steps of a scan: list, measure, match, check, publish, verify."""
