"""Checks on a log of metrics: what each proves, how it decides, and its cases."""
