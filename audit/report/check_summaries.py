"""What the checks of a run found, a summary each, with the few worst findings and their files.

Reads the views that `audit.report.collect` makes, in which waived findings are not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from audit.checking.check import all_checks, page
from audit.records import Severity
from audit.report.contents import (
    FINDING_COLUMNS,
    LISTED,
    CheckSummary,
    Counts,
    Example,
    Fold,
    Member,
    ReportedFinding,
)
from audit.run.store import Store

COLUMNS = ", ".join(FINDING_COLUMNS)
SEVERITY_RANK = "CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END"
MEMBERS = 6  # files shown of one example
FOLD_COUNTS = """
    SELECT d.code, d.fold, d.severity, d.splits, count(DISTINCT d.fingerprint) AS n_findings,
        count(DISTINCT m.sample_id) AS n_files, (
            SELECT count(*) FROM samples WHERE list_contains(d.splits, coalesce(split, ''))
        ) AS n_of
    FROM folded d JOIN judged.finding_samples m USING (fingerprint)
    GROUP BY d.code, d.fold, d.severity, d.splits ORDER BY d.code, n_files DESC, d.fold
"""
FOLD_FILES = f"""
    SELECT fold, list(sample_id ORDER BY place, position) AS ids FROM (
        SELECT d.fold, m.sample_id, d.place, m.position
        FROM folded d JOIN judged.finding_samples m USING (fingerprint)
        QUALIFY row_number() OVER (PARTITION BY d.fold ORDER BY d.place, m.position) <= {LISTED}
    ) GROUP BY fold
"""


def summarise_checks(store: Store, worst: int) -> tuple[CheckSummary, ...]:
    """Return the checks that ran, the most severe first, with `worst` examples of each."""
    counts = _counts(store)
    files = dict(
        store.query(
            "SELECT f.code, count(DISTINCT m.sample_id) FROM reported f "
            "JOIN judged.finding_samples m USING (fingerprint) GROUP BY 1"
        ).iter_rows()
    )
    examples = _examples(store, worst)
    folds = _folds(store, examples)
    known = all_checks()
    summaries = [
        CheckSummary(
            code=row["code"],
            name=row["name"],
            counts=counts.get(row["code"], Counts()),
            n_files=files.get(row["code"], 0),
            seconds=row["seconds"],
            memory_growth=row.get("memory_growth"),
            completeness=row["completeness"] or "",
            params=json.loads(row["params"] or "{}"),
            # A check of a package that is no longer installed still has findings, but no page.
            page=page(known[row["code"]]) if row["code"] in known else "",
            worst=tuple(examples.get((row["code"], ""), ())),
            folds=tuple(folds.get(row["code"], ())),
        )
        for row in store.rows("SELECT * FROM judged.check_runs ORDER BY code")
    ]
    return tuple(sorted(summaries, key=_severity_order))


def _severity_order(summary: CheckSummary) -> tuple[int, str]:
    worst = summary.counts.worst
    return (len(Severity) if worst is None else worst.rank, summary.code)


def _counts(store: Store) -> dict[str, Counts]:
    sql = "SELECT code, severity, count(*) FROM reported GROUP BY ALL"
    by_code: dict[str, dict[str, int]] = {}
    for code, severity, count in store.query(sql).iter_rows():
        by_code.setdefault(code, {})[severity] = count
    return {code: Counts(**counts) for code, counts in by_code.items()}


def total_counts(checks: Sequence[CheckSummary]) -> Counts:
    """Return the findings of all checks by severity."""
    return Counts(
        error=sum(c.counts.error for c in checks),
        warning=sum(c.counts.warning for c in checks),
        info=sum(c.counts.info for c in checks),
    )


def _examples(store: Store, worst: int) -> dict[tuple[str, str], list[Example]]:
    """Return the worst examples by code and fold; the fold of a finding on its own is empty."""
    sql = f"""
        WITH ranked AS (
            SELECT *, row_number() OVER (
                PARTITION BY code, fold ORDER BY {SEVERITY_RANK}, n_samples DESC, place
            ) AS rank
            FROM reported LEFT JOIN (SELECT fingerprint, fold FROM folded) USING (fingerprint)
        )
        SELECT {COLUMNS}, coalesce(fold, '') AS fold FROM ranked WHERE rank <= ?
        ORDER BY code, fold, rank
    """
    rows = store.rows(sql, [worst])
    members = _members(store, [row["fingerprint"] for row in rows])
    examples: dict[tuple[str, str], list[Example]] = {}
    for row in rows:
        shown = members.get(row["fingerprint"], [])
        ids = [member.id for member in shown]
        finding = ReportedFinding.from_row(row, ids, fold=row["fold"])
        examples.setdefault((finding.code, finding.fold), []).append(Example(finding, tuple(shown)))
    return examples


def _folds(
    store: Store, examples: Mapping[tuple[str, str], Sequence[Example]]
) -> dict[str, list[Fold]]:
    """Return the folds of each code, the more severe first, then those of more files."""
    files = dict(store.query(FOLD_FILES).iter_rows())
    folds: dict[str, list[Fold]] = {}
    for row in store.rows(FOLD_COUNTS):
        code, name = row["code"], row["fold"]
        fold = Fold(
            name, Severity(row["severity"]), tuple(row["splits"]), row["n_findings"],
            row["n_files"], row["n_of"], tuple(examples.get((code, name), ())), tuple(files[name]),
        )  # fmt: skip
        folds.setdefault(code, []).append(fold)
    return {code: sorted(some, key=lambda f: f.severity.rank) for code, some in folds.items()}


def _members(store: Store, fingerprints: Sequence[str]) -> dict[str, list[Member]]:
    sql = """
        SELECT m.fingerprint, m.sample_id, coalesce(s.uri, ''), s.split, s.label, f.status,
            f.error_kind, f.error, f.content_hash
        FROM judged.finding_samples m
        LEFT JOIN samples s ON s.id = m.sample_id LEFT JOIN features f ON f.sample_id = m.sample_id
        WHERE m.position < ? AND m.fingerprint IN (SELECT unnest(?))
        ORDER BY m.fingerprint, m.position
    """
    members: dict[str, list[Member]] = {}
    if fingerprints:
        for fingerprint, *row in store.query(sql, [MEMBERS, list(fingerprints)]).iter_rows():
            members.setdefault(fingerprint, []).append(Member(*row))
    return members
