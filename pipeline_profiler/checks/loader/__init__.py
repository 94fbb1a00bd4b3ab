"""Checks on a loader, a file for each family: what it proves, how it decides, and its cases."""
