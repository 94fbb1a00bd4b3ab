"""From a run to a `Report`, and the stream of all its findings: the SQL of the report, no more.

`collect_report` reads counts and the few worst findings of each code, so it costs little more for a
hundred thousand findings than for ten. What is *worst* within a code: the more
severe, then more samples, then the order in which the check gave them. Findings that a reviewer
waived as false positives are counted, and left out of everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from audit.annotations.box_summary import load_box_statistics
from audit.annotations.summary import annotation_sentences
from audit.checking.check import all_checks
from audit.records import Action, FailedPart, Layout, SkippedFiles
from audit.report.check_summaries import (
    COLUMNS,
    SEVERITY_RANK,
    summarise_checks,
    total_counts,
)
from audit.report.contents import (
    LOCATED,
    CheckSummary,
    ClassCount,
    Dataset,
    Report,
    ReportedFinding,
    Spread,
)
from audit.report.cost import measure_costs
from audit.report.folding import FOLDS, fold_findings
from audit.review.applied_fixes import count_fixes
from audit.review.rates import reviewed_rates
from audit.review.status import Applied, apply_decisions
from audit.run import generations
from audit.run.store import Store
from audit.sources.python_objects import GIVEN_AS_OBJECTS

PICTURED = 12  # examples of each code in a report to look at; a scan prints fewer
NOTES = 20  # notes of the source kept in a report; the rest is counted
# Every query of findings reads this view, so that a waived one is silent everywhere.
REPORTED = """
    CREATE VIEW memory.main.reported AS
    SELECT f.*, f.rowid AS place FROM judged.main.findings f
    ANTI JOIN memory.main.waived USING (fingerprint)
"""
# Of a fold that was waived but for one finding, that one stands on its own.
FOLDED = f"""
    CREATE TABLE memory.main.folded AS
    SELECT d.*, f.code, f.severity, f.place FROM {FOLDS} d JOIN reported f USING (fingerprint)
    QUALIFY count(*) OVER (PARTITION BY d.fold) > 1
"""
WAIVED = """
    SELECT f.code, count(*) FROM judged.main.findings f SEMI JOIN waived USING (fingerprint)
    GROUP BY f.code ORDER BY f.code
"""
FAILED = "FROM failed_readers UNION ALL FROM judged.failed_checks ORDER BY kind, code, name"
GIVEN = "SELECT message FROM source_notes WHERE kind = ? ORDER BY rowid"
CONCERNED = """
    SELECT count(DISTINCT m.sample_id) FROM reported f
    JOIN judged.finding_samples m USING (fingerprint) WHERE f.severity <> 'info'
"""
SIZES = (
    ("width, px", "width"),
    ("height, px", "height"),
    ("file size, bytes", "nullif(n_bytes, -1)"),
)


def collect_report(
    run: Path,
    *,
    worst: int = 5,
    scan_seconds: Mapping[str, float] | None = None,
    reviewed: Path | None = None,
) -> Report:
    """Return what there is to report about a run, with the `worst` examples of each code.

    `scan_seconds` are the seconds by phase of a scan that just ended; a run does not keep them.
    `reviewed`: labels drawn by `audit labels --draw`, answered. Raises RunError for a run that is
    absent, unfinished or damaged, UsageError for a file that is no such draw.
    """
    generation = generations.require(run)
    # Read once: of 10,000 decisions that takes half a second.
    applied = apply_decisions(run, generation)
    waived = tuple(sorted(applied.waived))
    with generations.open_generation(generation) as store:
        _hide(store, waived)
        facts = store.meta()
        dataset = _dataset(store, facts)
        checks = summarise_checks(store, worst)
        concerned = store.scalar(CONCERNED)
        annotated = annotation_sentences(store)
        given = store.query(GIVEN, [GIVEN_AS_OBJECTS]).to_series().to_list()
        boxes = load_box_statistics(store)
        costs = measure_costs(store, run, reviewed)
        hidden = dict(store.query(WAIVED).iter_rows())
        failed = tuple(FailedPart(**row) for row in store.rows(FAILED))
        skipped = store.rows("FROM judged.skipped_checks ORDER BY code")
    ran = {check.code for check in checks} | {part.code for part in failed}
    ran |= {row["code"] for row in skipped}
    not_run = tuple(f"{c.code} {c.name}" for c in all_checks().values() if c.code not in ran)
    return Report(
        run=str(run),
        generation=generation,
        dataset=dataset,
        counts=total_counts(checks),
        checks=checks,
        not_run=not_run,
        n_files_concerned=concerned,
        completeness=(
            *(part.sentence() for part in failed),
            *(f"{row['code']} {row['name']} {row['reason']}" for row in skipped),
            *given,
            *annotated,
            *_completeness(dataset, checks, not_run),
            *_waived_findings(hidden),
            *_decided_fixes(run, applied),
            *reviewed_rates(run, generation, applied),
        ),
        tool=facts.get("tool", "dataset-preflight"),
        machine=facts.get("machine", ""),
        created=facts.get("created", ""),
        timing=_timing(checks, scan_seconds),
        waived=waived,
        failed=failed,
        boxes=boxes,
        costs=costs,
    )


def stream_findings(report: Report, code: str = "") -> Iterator[ReportedFinding]:
    """Yield every finding that the report counts, worst severity first, then by code.

    `code`: of this check alone.
    """
    # `pages` takes no parameters, and a code of another package's check may be anything.
    only = "f.code = '{}'".format(code.replace("'", "''")) if code else "true"
    # `pages` reads through a cursor of its own, which does not know the search path.
    sql = f"""
        WITH members AS (
            SELECT m.fingerprint, list(m.sample_id ORDER BY m.position) AS ids,
                list(coalesce(s.uri, '') ORDER BY m.position)
                    FILTER (WHERE m.position < {LOCATED}) AS uris
            FROM judged.main.finding_samples m
            SEMI JOIN (SELECT fingerprint FROM memory.main.reported f WHERE {only})
                USING (fingerprint)
            LEFT JOIN measurements.main.samples s ON s.id = m.sample_id GROUP BY m.fingerprint
        )
        SELECT {COLUMNS}, m.ids, m.uris, d.fold
        FROM memory.main.reported f LEFT JOIN members m USING (fingerprint)
        LEFT JOIN (SELECT fingerprint, fold FROM memory.main.folded) d USING (fingerprint)
        WHERE {only} ORDER BY {SEVERITY_RANK}, f.code, f.place
    """
    with generations.open_generation(report.generation) as store:
        _hide(store, report.waived)
        for row in store.pages(sql):
            yield ReportedFinding.from_row(row, *row[-3:])


def _hide(store: Store, fingerprints: Sequence[str]) -> None:
    """Give the store the view `reported`, the findings that nobody waived, and their folds."""
    store.execute("SET search_path = 'memory.main,measurements.main,judged.main'")
    store.create_from(
        "waived", pl.DataFrame({"fingerprint": fingerprints}, {"fingerprint": pl.String})
    )
    store.execute(REPORTED)
    fold_findings(store)
    store.execute(FOLDED)


# ---- the dataset ----


def _dataset(store: Store, facts: Mapping[str, str]) -> Dataset:
    (totals,) = store.rows(
        "SELECT count(*) AS n, coalesce(sum(n_bytes) FILTER (WHERE n_bytes > 0), 0)::BIGINT AS b "
        "FROM samples"
    )
    notes = store.query(
        "SELECT message FROM source_notes WHERE kind <> ? ORDER BY kind, sample_id",
        [GIVEN_AS_OBJECTS],
    )
    skipped = store.rows(
        "SELECT reason, extension, count, example FROM skipped_files ORDER BY count DESC, reason"
    )
    return Dataset(
        name=facts.get("dataset", ""),
        roots=json.loads(facts.get("roots", "{}")),
        layout=Layout(
            facts.get("layout", ""),
            facts.get("layout_reason", ""),
            facts.get("annotations") or None,
        ),
        n_samples=totals["n"],
        n_bytes=totals["b"],
        classes=_classes(store),
        formats=_tally(store, "format"),
        status=_tally(store, "status"),
        sizes=_sizes(store),
        skipped=tuple(SkippedFiles(**row) for row in skipped),
        notes=tuple(notes["message"].head(NOTES)),
        n_notes=notes.height,
    )


def _classes(store: Store) -> tuple[ClassCount, ...]:
    sql = """
        SELECT split, label, sum(n)::BIGINT AS n FROM (
            SELECT split, label, count(*) AS n FROM samples GROUP BY ALL
            UNION ALL SELECT DISTINCT split, label, 0 FROM declared_classes
        ) GROUP BY split, label
        ORDER BY CASE lower(split) WHEN 'train' THEN 0 WHEN 'val' THEN 1 WHEN 'valid' THEN 1
            WHEN 'validation' THEN 1 WHEN 'test' THEN 2 ELSE 3 END, split, label
    """
    return tuple(ClassCount(*row) for row in store.query(sql).iter_rows())


def _tally(store: Store, column: str) -> dict[str, int]:
    sql = f"SELECT coalesce({column}, 'none'), count(*) FROM features GROUP BY 1 ORDER BY 2 DESC, 1"
    return dict(store.query(sql).iter_rows())


def _sizes(store: Store) -> tuple[Spread, ...]:
    spreads = []
    for name, value in SIZES:
        sql = f"SELECT min({value}), quantile_cont({value}, 0.5), max({value}) FROM images"
        low, median, high = store.query(sql).row(0)
        if low is not None:
            spreads.append(Spread(name, float(low), float(median), float(high)))
    return tuple(spreads)


# ---- completeness and time ----


def _completeness(
    dataset: Dataset, checks: Sequence[CheckSummary], not_run: Sequence[str]
) -> Iterator[str]:
    """Yield the sentences that say what was and was not examined."""
    yield _read_files(dataset)
    if dataset.skipped:
        yield _skipped_files(dataset)
    for check in sorted(checks, key=lambda c: c.code):
        if check.completeness:
            yield f"{check.code} {check.name}: {check.completeness}"
    silent = sorted(check.code for check in checks if not check.completeness)
    if silent:
        yield f"{len(silent):,} checks give no statement of their own: {', '.join(silent)}."
    if not_run:
        yield f"{len(not_run):,} checks did not run, so they say nothing: {', '.join(not_run)}."


def _waived_findings(hidden: Mapping[str, int]) -> Iterator[str]:
    if hidden:
        codes = ", ".join(f"{code} {n:,}" for code, n in hidden.items())
        yield f"Waived as false positives and left out of the counts: {codes}."


def _decided_fixes(run: Path, applied: Applied) -> Iterator[str]:
    if Action.FIX.value not in set(applied.settled["verb"]):
        return
    findings, fixes = count_fixes(run)
    if fixes:
        yield (
            f"Fixes of annotations decided: {fixes:,}, of {findings:,} findings; `audit export RUN "
            "--out FOLDER --format coco` writes the annotations with them."
        )


def _read_files(dataset: Dataset) -> str:
    whole, measured = dataset.status.get("ok", 0), sum(dataset.status.values())
    rest = ", ".join(f"{n:,} {status}" for status, n in dataset.status.items() if status != "ok")
    sentence = f"{measured:,} of {dataset.n_samples:,} listed files read: {whole:,} whole"
    return f"{sentence}, {rest}." if rest else f"{sentence}."


def _skipped_files(dataset: Dataset) -> str:
    reasons: dict[str, int] = {}
    for skipped in dataset.skipped:
        reasons[skipped.reason] = reasons.get(skipped.reason, 0) + skipped.count
    by_reason = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    return f"{sum(reasons.values()):,} other files are no samples and were left out: {by_reason}."


def _timing(
    checks: Sequence[CheckSummary], scan_seconds: Mapping[str, float] | None
) -> dict[str, Any]:
    timing: dict[str, Any] = {
        "checks_s": {c.code: round(c.seconds, 4) for c in checks},
        "checks_memory_bytes": {c.code: c.memory_growth for c in checks},
    }
    if scan_seconds is not None:
        timing["phases_s"] = dict(scan_seconds)
    return timing
