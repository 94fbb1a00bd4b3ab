"""Decisions of reviewers: the log, which decisions still apply, and their consequences.

No file of the dataset is ever opened or changed.
"""
