"""What to do first: three findings of three kinds, the most severe first.

The order is the severity of the worst finding, then how much the kind of problem falsifies a result
(leaks and wrong labels change the number that is reported; a dark image hardly does), then how many
files are concerned. One step a family, so that three steps are three different problems.

Counted are the findings that are open, by the statuses of the store, and the worst of a check is
the first line of the list that its step leads to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from audit.browse.findings import INDEX, OPEN, STATUS
from audit.records import Severity
from audit.run.store import Store

FAMILIES = ("SPLIT", "LABEL", "BOX", "DUP", "FILE", "DIST", "IMG")
STEPS = 3
STEPS_SQL = f"""
    WITH left_open AS (
        SELECT x.* FROM {INDEX} x LEFT JOIN {STATUS} t USING (fingerprint)
        WHERE coalesce(t.status, '{OPEN}') = '{OPEN}'
    ),
    worst AS (
        SELECT code, any_value(name) AS name, count(*) AS findings,
            arg_min(severity, place) AS severity, arg_min(fingerprint, place) AS fingerprint
        FROM left_open GROUP BY code
    ),
    files AS (
        SELECT code, count(DISTINCT sample_id) AS files
        FROM left_open JOIN finding_samples USING (fingerprint) GROUP BY code
    )
    SELECT w.code, w.name, w.severity, w.findings, coalesce(files, 0) AS files, f.message,
        w.fingerprint
    FROM worst w JOIN findings f USING (fingerprint) LEFT JOIN files ON files.code = w.code
    WHERE w.severity <> 'info' ORDER BY w.code
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: the check, how severe, its open findings and files, the worst of them."""

    code: str
    name: str
    severity: Severity
    findings: int
    files: int
    message: str
    fingerprint: str


def first_steps(store: Store) -> tuple[Step, ...]:
    """Return up to three steps."""
    found = store.rows(STEPS_SQL)
    steps = [Step(**row | {"severity": Severity(row["severity"])}) for row in found]
    chosen: dict[str, Step] = {}
    for step in sorted(steps, key=_severity_order):
        chosen.setdefault(family(step.code), step)
    return tuple(chosen.values())[:STEPS]


@dataclass(frozen=True, slots=True)
class FindingTally:
    """How many findings there are, whatever was decided about them, and how many are open."""

    total: int = 0
    open: int = 0

    @property
    def decided(self) -> int:
        """How many were decided or waived."""
        return self.total - self.open


def count_progress(store: Store, column: str) -> Mapping[str, FindingTally]:
    """Return the progress of each `code` or `severity` that has findings."""
    rows = store.rows(
        f"SELECT x.{column} AS value, count(*) AS total, "
        f"count(*) FILTER (WHERE coalesce(t.status, '{OPEN}') = '{OPEN}') AS open "
        f"FROM {INDEX} x LEFT JOIN {STATUS} t USING (fingerprint) GROUP BY 1 ORDER BY 1"
    )
    return {row["value"]: FindingTally(row["total"], row["open"]) for row in rows}


def count_files_left(store: Store) -> int:
    """Return how many files an open error or warning names."""
    return int(
        store.scalar(
            f"SELECT count(DISTINCT n.sample_id) FROM finding_samples n JOIN {INDEX} x "
            f"USING (fingerprint) LEFT JOIN {STATUS} t USING (fingerprint) "
            f"WHERE coalesce(t.status, '{OPEN}') = '{OPEN}' AND x.severity <> 'info'"
        )
    )


def family(code: str) -> str:
    """Return the letters of a code: DUP for DUP003."""
    return re.sub(r"\d+$", "", code)


def _severity_order(step: Step) -> tuple[int, int, int, str]:
    name = family(step.code)
    rank = FAMILIES.index(name) if name in FAMILIES else len(FAMILIES)
    return step.severity.rank, rank, -step.files, step.code
