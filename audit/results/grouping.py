"""What is shown as one line: many findings of one kind, decided here for every report and page.

Findings of one code, severity and set of splits are a *fold* where they are over 20, in over 20
files and over 1 % of a split. The rule looks at all findings of a version, waived or not, so that a
list keeps its form during a review.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit.run.store import Store

FEWEST = 20  # findings, and files: a fold has more of both
LEAST_SHARE = 0.01  # of the files of a split: a fold has more
FOLDS = "memory.main.finding_folds"
OPEN = "memory.main.open_findings"  # rows of `findings` that count, and `place`, their order
SAME_FAULTS = "memory.main.same_faults"  # fingerprint, repeated_by: one fault of two checks
FOLDS_SQL = f"""
    CREATE OR REPLACE TABLE {FOLDS} AS
    WITH placed AS (
        SELECT f.fingerprint, f.code, f.severity, m.sample_id, coalesce(s.split, '') AS split
        FROM findings f JOIN finding_samples m USING (fingerprint)
        JOIN samples s ON s.id = m.sample_id
    ), spread AS (
        SELECT fingerprint, code, severity, list_sort(list(DISTINCT split)) AS splits
        FROM placed GROUP BY ALL
    ), alike AS (
        SELECT code, severity, splits FROM spread GROUP BY ALL HAVING count(*) > {FEWEST}
    ), reached AS (
        SELECT t.code, t.severity, t.splits, p.split, count(DISTINCT p.sample_id) AS n
        FROM alike JOIN spread t USING (code, severity, splits) JOIN placed p USING (fingerprint)
        GROUP BY ALL
    ), sizes AS (SELECT coalesce(split, '') AS split, count(*) AS files FROM samples GROUP BY ALL),
    crowded AS (
        SELECT DISTINCT r.code, r.severity, r.splits FROM reached r JOIN sizes USING (split)
        WHERE r.n > {FEWEST} AND r.n > {LEAST_SHARE} * files
    )
    SELECT t.fingerprint, t.splits,
        trim(concat_ws(' ', t.code, t.severity, array_to_string(t.splits, ' + '))) AS fold
    FROM spread t JOIN crowded USING (code, severity, splits)
"""


def fold_findings(store: Store) -> None:
    """Make the table `FOLDS`: fingerprint, splits and `fold`; without findings on their own."""
    store.execute(FOLDS_SQL)


def split_names(splits: Sequence[str]) -> str:
    """Return the splits of a fold in words: `train`, `test and train`; `the dataset` without."""
    named = [split or "no split" for split in splits]
    if named in ([], ["no split"]):
        return "the dataset"
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
