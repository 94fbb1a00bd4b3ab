"""Checks on a training, a file for each family: what it proves, how it decides, its cases."""
