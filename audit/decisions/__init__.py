"""Decisions of reviewers: the log, which decisions still apply, and their consequences.

In: a finished run, and decisions by hand, by SQL condition or by keeper rule. Out: rows that are
only ever added to RUN/decisions.sqlite, the decisions in effect (`status`), and the tables of an
export. No file of the dataset is ever opened or changed. Cost: 100,000 decisions in one batch take
about two seconds to record and one to apply; a single one costs two syncs of the disk.
"""
