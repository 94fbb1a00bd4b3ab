"""From a run to a `Report`, its findings and the facts of a data card: the SQL of the report.

The *worst* findings of a code: the more severe, then more samples, then the order of the check.
Findings waived as false positives are only counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import blake3

from audit.annotations.box_statistics import (
    annotation_sentences,
    load_box_statistics,
    sum_by_key,
)
from audit.checking.check import all_checks
from audit.checking.label_facts import read_label_facts
from audit.decisions.box_fixes import count_fixes
from audit.decisions.label_sample import reviewed_rates
from audit.decisions.waivers import Applied
from audit.machine.stopwatch import Stopwatch
from audit.records import Action, FailedPart, Layout, Severity, SkippedFiles
from audit.results.costs import measure_costs
from audit.results.finding_index import (
    FOLDED,
    INDEX,
    SEVERITY_RANK,
    count_open,
    count_settled,
    index_findings,
)
from audit.results.grouping import OPEN, SAME_FAULTS
from audit.results.priorities import rank_first
from audit.results.reader import RunReader, open_reader
from audit.results.report_data import (
    FINDING_COLUMNS,
    KEPT_NEEDS,
    LISTED,
    LOCATED,
    Card,
    CheckSummary,
    ClassCount,
    Counts,
    Dataset,
    Example,
    Fold,
    Needs,
    Report,
    ReportedFinding,
    Spread,
    WrongLabels,
)
from audit.run.store import Store, identifier
from audit.sources.python_objects import GIVEN_AS_OBJECTS
from dataset_preflight.foundation.files import read_regular

SAW_SOME = re.compile(r"(?!(The [a-z ]+ of )?0 (?!of [1-9]))")
"""How the sentence of a check begins that had boxes, outlines or predictions to judge."""
NEEDED = 12  # classes of which a report shows what varies most
# the columns of a `Card` in a report
MEMBER = """
    SELECT s.id, coalesce(s.uri, '') AS uri, s.split, s.label, f.status, f.error_kind, f.error,
        f.content_hash
"""
PICTURED = 12  # examples of each code in a report to look at; a scan prints fewer
SETTLED_AS = {
    "decided": "Decided", "retired": "Of retired checks", "waived": "Waived as false positives",
}  # fmt: skip
NOTES = 20  # notes of the source kept in a report; the rest is counted
FAILED = "FROM failed_readers UNION ALL FROM judged.failed_checks ORDER BY kind, code, name"
GIVEN = "SELECT message FROM source_notes WHERE kind = ? ORDER BY rowid"
CONCERNED = f"""
    SELECT count(DISTINCT m.sample_id) FROM {OPEN} f
    JOIN judged.finding_samples m USING (fingerprint) WHERE f.severity <> 'info'
"""
SIZES = (
    ("width, px", "width"),
    ("height, px", "height"),
    ("file size, bytes", "nullif(n_bytes, -1)"),
)


def collect_report(
    run: Path | RunReader,
    *,
    worst: int = 5,
    clock: Stopwatch | None = None,
    reviewed: Path | None = None,
) -> Report:
    """Return what there is to report about a run, with the `worst` examples of each code.

    `clock`: stages of a scan that just ended. `reviewed`: answers to `audit decide --draw-labels`.
    Raises RunError for a run that is absent, unfinished or damaged, UsageError for another draw.
    """
    results = run if isinstance(run, RunReader) else open_reader(run)
    run = results.run
    with results.connection(index_findings) as store:
        facts = store.meta()
        dataset = _dataset(store, facts)
        checks = summarise_checks(store, worst)
        concerned = store.scalar(CONCERNED)
        annotated = annotation_sentences(store)
        given = store.query(GIVEN, [GIVEN_AS_OBJECTS]).to_series().to_list()
        boxes = load_box_statistics(store)
        costs = measure_costs(store, run, reviewed)
        first = rank_first(store, costs)
        settled = count_settled(store)
        failed = tuple(FailedPart(**row) for row in store.rows(FAILED))
        wrong, labels = _wrong_labels(store), read_label_facts(store)
        skipped = store.rows("FROM judged.skipped_checks ORDER BY code")
        needs = _needs(store, results)
        counts = count_open(store)
    applied = results.decisions.applied
    ran = {check.code for check in checks} | {part.code for part in failed}
    ran |= {row["code"] for row in skipped}
    not_run = tuple(f"{c.code} {c.name}" for c in all_checks().values() if c.code not in ran)
    return Report(
        run=str(run),
        version=results.version,
        dataset=dataset,
        counts=counts,
        checks=checks,
        not_run=not_run,
        n_files_concerned=concerned,
        completeness=(
            *([results.version.notice] if results.version.notice else []),
            *(part.sentence() for part in failed),
            *(f"{row['code']} {row['name']} {row['reason']}" for row in skipped),
            *given,
            *annotated,
            *_completeness(dataset, checks, not_run, annotated=boxes is not None),
            *(
                f"{SETTLED_AS[status]} and not counted: "
                f"{', '.join(f'{code} {n:,}' for code, n in by_code.items())}."
                for status, by_code in settled.items()
            ),
            *_decided_fixes(run, applied),
            *reviewed_rates(run, results.version, applied),
        ),
        tool=facts.get("tool", "dataset-preflight"),
        machine=facts.get("machine", ""),
        created=facts.get("created", ""),
        timing=_timing(checks, clock),
        settled=settled,
        failed=failed,
        boxes=boxes,
        costs=costs,
        first=first,
        wrong_labels=wrong,
        labels=labels,
        needs=needs,
    )


def _needs(store: Store, results: RunReader) -> Needs | None:
    """Return the stored result of `audit input-study`; None if the run was scanned since."""
    sql = f"{MEMBER} FROM samples s LEFT JOIN features f ON f.sample_id = s.id WHERE s.id IN (?, ?)"
    try:
        kept = json.loads(read_regular(results.run / KEPT_NEEDS))
        if kept["of"] != results.version.path.name:
            return None
        varying = sorted(kept["varying"], key=lambda one: -one["ratio"])
        ends = []
        for one in varying[:NEEDED]:
            found = {row["id"]: Card(**row) for row in store.rows(sql, [one["low"], one["high"]])}
            much = f"{one['ratio']:.2f} times as much as in all images"
            said = f"{one['label']}: {one['what']}, {much}"
            ends.append((said, tuple(found[end] for end in (one["low"], one["high"]))))
        rows = tuple(
            (
                v["name"],
                f"{v['accuracy']:.1%}",
                "{:.1f} ({:.1f} to {:.1f})".format(
                    *(100 * v[part] for part in ("loss", "loss_low", "loss_high"))
                ),
                v["verdict"],
            )
            for v in (*kept["sizes"], *kept["versions"])
        )
        return Needs(str(kept["sentence"]), rows, tuple(ends), len(varying) - len(ends))
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return None


MANY_WRONG = 0.1
"""Share of wrong labels from which, with its lower limit, a report says so above all else."""


def _wrong_labels(store: Store) -> WrongLabels | None:
    """Return the share that LABEL007 reports, where it is large beyond doubt."""
    sql = f"SELECT evidence FROM {OPEN} WHERE code = 'LABEL007' AND subject = 'dataset'"
    known = json.loads(store.scalar(sql) or "{}")
    judged = max(float(known.get("judged", 0)), 1.0)
    wrong = [float(known.get(name, 0)) / judged for name in ("wrong", "wrong_low", "wrong_high")]
    return WrongLabels(*wrong) if wrong[1] >= MANY_WRONG else None


def stream_findings(report: Report, code: str = "") -> Iterator[ReportedFinding]:
    """Yield every open finding (`code`: of this check), the most expensive first."""
    only = "f.code = '{}'".format(code.replace("'", "''")) if code else "true"
    sql = f"""
        WITH members AS (
            SELECT m.fingerprint, list(m.sample_id ORDER BY m.position) AS ids,
                list(coalesce(s.uri, '') ORDER BY m.position)
                    FILTER (WHERE m.position < {LOCATED}) AS uris
            FROM judged.main.finding_samples m
            SEMI JOIN (SELECT fingerprint FROM {OPEN} f WHERE {only}) USING (fingerprint)
            LEFT JOIN measurements.main.samples s ON s.id = m.sample_id GROUP BY m.fingerprint
        )
        SELECT {COLUMNS}, m.ids, m.uris, d.fold, same.repeated_by
        FROM {OPEN} f JOIN {INDEX} x USING (fingerprint) LEFT JOIN members m USING (fingerprint)
        LEFT JOIN (SELECT fingerprint, fold FROM {FOLDED}) d USING (fingerprint)
        LEFT JOIN {SAME_FAULTS} same USING (fingerprint) WHERE {only} ORDER BY x.cost
    """
    results = open_reader(report.version.path.parent, report.version)
    with results.connection(index_findings) as store:
        for row in store.pages(sql):
            yield ReportedFinding.from_row(row, *row[-4:])


def _dataset(store: Store, facts: Mapping[str, str]) -> Dataset:
    (totals,) = store.rows(
        "SELECT count(*) AS n, coalesce(sum(n_bytes) FILTER (WHERE n_bytes > 0), 0)::BIGINT AS b "
        "FROM samples"
    )
    notes = store.query(
        "SELECT message FROM source_notes WHERE kind <> ? ORDER BY kind, sample_id",
        [GIVEN_AS_OBJECTS],
    )
    readings = [
        f"The label column {'of ' + row['source'] if row['source'] else ''} was read as follows: "
        f"{row['reading']}.".replace("  ", " ")
        for row in store.rows("SELECT * FROM label_columns WHERE reading <> '' ORDER BY source")
    ]
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
        notes=(*readings, *notes["message"].head(NOTES)),
        n_notes=notes.height + len(readings),
        **_several(store),
    )


def _classes(store: Store) -> tuple[ClassCount, ...]:
    sql = """
        SELECT split, label, sum(n)::BIGINT AS n FROM (
            SELECT s.split, coalesce(l.label, s.label) AS label, count(*) AS n FROM samples s
            LEFT JOIN several_labels l ON l.sample_id = s.id GROUP BY ALL
            UNION ALL SELECT DISTINCT split, label, 0 FROM declared_classes d
            WHERE split IS NOT NULL OR NOT EXISTS (  -- its folder is in no split, its files are
                FROM samples s WHERE s.label = d.label AND s.split IS NOT NULL)
        ) GROUP BY split, label
        ORDER BY CASE lower(split) WHEN 'train' THEN 0 WHEN 'val' THEN 1 WHEN 'valid' THEN 1
            WHEN 'validation' THEN 1 WHEN 'test' THEN 2 ELSE 3 END, split, label
    """
    return tuple(ClassCount(*row) for row in store.query(sql).iter_rows())


def _several(store: Store) -> dict[str, Any]:
    """Return how many files have several labels, and the files by split: then classes overlap."""
    several = int(store.scalar("SELECT count(DISTINCT sample_id) FROM several_labels"))
    sql = "SELECT string_agg(DISTINCT reading, '; ') FROM label_columns WHERE reading <> ''"
    reading = {"label_reading": store.scalar(sql) or ""}
    if not several:
        return reading
    counts = dict(store.query("SELECT split, count(*) FROM samples GROUP BY split").iter_rows())
    splits = {c.split: counts.get(c.split, 0) for c in _classes(store)}
    return reading | {"several": several, "splits": splits}


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


def _completeness(
    dataset: Dataset, checks: Sequence[CheckSummary], not_run: Sequence[str], *, annotated: bool
) -> Iterator[str]:
    idle = [
        check for check in checks
        if check.code.startswith("BOX") and not check.counts.total
        and not (annotated and SAW_SOME.match(check.completeness))
    ]  # fmt: skip
    checks = [check for check in checks if check not in idle]
    status = "".join(f", {n:,} {name}" for name, n in dataset.status.items() if name != "ok")
    yield (
        f"{sum(dataset.status.values()):,} of {dataset.n_samples:,} listed files read: "
        f"{dataset.status.get('ok', 0):,} intact{status}."
    )
    reasons = sum_by_key((skipped.reason, skipped.count) for skipped in dataset.skipped)
    if reasons:
        by_reason = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        total = sum(reasons.values())
        yield f"{total:,} other files are not samples and were skipped: {by_reason}."
    for check in sorted(checks, key=lambda c: c.code):
        if check.completeness:
            yield f"{check.code} {check.name}: {check.completeness}"
    if idle:
        why = ", ".join(check.code for check in idle) if annotated else "no image has annotations"
        yield f"{len(idle):,} checks of boxes are not applicable: {why}."
    silent = sorted(check.code for check in checks if not check.completeness)
    if silent:
        yield f"{len(silent):,} checks have no statement of their coverage: {', '.join(silent)}."
    if not_run:
        yield f"{len(not_run):,} checks were skipped: {', '.join(not_run)}."


def _decided_fixes(run: Path, applied: Applied) -> Iterator[str]:
    if Action.FIX.value not in set(applied.settled["verb"]):
        return
    findings, fixes = count_fixes(run)
    if fixes:
        yield (
            f"{fixes:,} fixes of annotations are decided, for {findings:,} findings. `audit "
            "export RUN --out FOLDER --format coco` writes the fixed annotations."
        )


def _timing(checks: Sequence[CheckSummary], clock: Stopwatch | None) -> dict[str, Any]:
    timing: dict[str, Any] = {
        "checks_s": {c.code: round(c.seconds, 4) for c in checks},
        "checks_memory_bytes": {c.code: c.memory_growth for c in checks},
    }
    if clock is not None:
        clock.lap("report")
        timing["phases_s"] = {name: lap.wall_s for name, lap in clock.laps.items()}
        timing["stages"] = clock.stages()
    return timing


COLUMNS = ", ".join(f"f.{column}" for column in FINDING_COLUMNS)
MEMBERS = 6  # files shown of one example
FOLD_COUNTS = f"""
    SELECT d.code, d.fold, d.severity, d.splits, count(DISTINCT d.fingerprint) AS n_findings,
        count(DISTINCT m.sample_id) AS n_files, (
            SELECT count(*) FROM samples WHERE list_contains(d.splits, coalesce(split, ''))
        ) AS n_of
    FROM {FOLDED} d JOIN judged.finding_samples m USING (fingerprint)
    GROUP BY d.code, d.fold, d.severity, d.splits ORDER BY d.code, n_files DESC, d.fold
"""
FILES_BY_CODE = f"""
    SELECT f.code, count(DISTINCT m.sample_id) FROM {OPEN} f
    JOIN judged.finding_samples m USING (fingerprint) GROUP BY 1
"""
COST_BY_CODE = f"""
    SELECT x.code, min(x.cost) FROM {OPEN} f JOIN {INDEX} x USING (fingerprint) GROUP BY 1
"""
FOLD_FILES = f"""
    SELECT fold, list(sample_id ORDER BY place, position) AS ids FROM (
        SELECT d.fold, m.sample_id, d.place, m.position
        FROM {FOLDED} d JOIN judged.finding_samples m USING (fingerprint)
        QUALIFY row_number() OVER (PARTITION BY d.fold ORDER BY d.place, m.position) <= {LISTED}
    ) GROUP BY fold
"""


def summarise_checks(store: Store, worst: int) -> tuple[CheckSummary, ...]:
    """Return the checks that ran, the most severe first, with `worst` examples of each."""
    counts = _counts(store, OPEN)
    repeats = _counts(store, f"(FROM {OPEN} SEMI JOIN {SAME_FAULTS} USING (fingerprint))")
    files = dict(store.query(FILES_BY_CODE).iter_rows())
    order = dict(store.query(COST_BY_CODE).iter_rows())
    examples = _examples(store, worst)
    folds = _folds(store, examples)
    summaries = [
        CheckSummary(
            code=row["code"],
            name=row["name"],
            counts=counts.get(row["code"], Counts()),
            n_files=files.get(row["code"], 0),
            seconds=row["seconds"],
            memory_growth=row.get("memory_growth"),
            repeats=repeats.get(row["code"], Counts()),
            completeness=row["completeness"] or "",
            params=json.loads(row["params"] or "{}"),
            own_page=row["page"] or "",
            worst=tuple(examples.get((row["code"], ""), ())),
            folds=tuple(folds.get(row["code"], ())),
        )
        for row in store.rows("SELECT * FROM judged.check_runs ORDER BY code")
    ]
    return tuple(sorted(summaries, key=lambda c: (order.get(c.code, math.inf), c.code)))


def _counts(store: Store, findings: str) -> dict[str, Counts]:
    sql = f"SELECT code, severity, count(*) FROM {findings} GROUP BY ALL"
    by_code: dict[str, dict[str, int]] = {}
    for code, severity, count in store.query(sql).iter_rows():
        by_code.setdefault(code, {})[severity] = count
    return {code: Counts(**counts) for code, counts in by_code.items()}


def _examples(store: Store, worst: int) -> dict[tuple[str, str], list[Example]]:
    """Return the worst examples by code and fold; the fold of a finding on its own is empty."""
    sql = f"""
        WITH ranked AS (
            SELECT *, row_number() OVER (
                PARTITION BY code, fold ORDER BY {SEVERITY_RANK}, n_samples DESC, place
            ) AS rank
            FROM {OPEN} LEFT JOIN (SELECT fingerprint, fold FROM {FOLDED}) USING (fingerprint)
        )
        SELECT {COLUMNS}, coalesce(fold, '') AS fold FROM ranked f WHERE rank <= ?
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


def _members(store: Store, fingerprints: Sequence[str]) -> dict[str, list[Card]]:
    sql = f"""
        {MEMBER.replace("s.id", "m.sample_id AS id")}, m.fingerprint
        FROM judged.finding_samples m
        LEFT JOIN samples s ON s.id = m.sample_id LEFT JOIN features f ON f.sample_id = m.sample_id
        WHERE m.position < ? AND m.fingerprint IN (SELECT unnest(?))
        ORDER BY m.fingerprint, m.position
    """
    members: dict[str, list[Card]] = {}
    for row in store.rows(sql, [MEMBERS, list(fingerprints)]) if fingerprints else ():
        members.setdefault(row.pop("fingerprint"), []).append(Card(**row))
    return members


LICENCE_COLUMNS = ("licence", "license")  # of a manifest, whatever their case
_LISTED = """
    SELECT s.id, f.content_hash, s.split, s.label FROM measurements.main.samples s
    LEFT JOIN measurements.main.features f ON f.sample_id = s.id ORDER BY s.id
"""
_PATTERNS = """
    SELECT regexp_extract(id, '\\.[^./]+$') AS ending, count(*) AS n FROM images
    WHERE format IS NOT NULL GROUP BY ALL ORDER BY n DESC, ending
"""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says beyond a report: `licences` and `decisions` are counts by name.

    `list_hash`: BLAKE3-256, hex, of a line of JSON a sample by id: id, content hash, split, class.
    `endings`: of files that are pictures, the most frequent first.
    """

    licences: Mapping[str, int]
    decisions: Mapping[str, int]
    n_stale: int
    list_hash: str
    endings: tuple[str, ...]


def collect_facts(report: Report, licence: str = "") -> CardFacts:
    """Return the facts of a card; `licence` is that of all files and goes before a manifest's."""
    results = open_reader(report.version.path.parent, report.version)
    applied = results.decisions.applied
    verbs = applied.effective["verb"].to_list()
    verbs += applied.settled.filter(applied.settled["status"] == "waived")["verb"].to_list()
    with results.connection() as store:
        digest = blake3.blake3()
        for row in store.pages(_LISTED):
            digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        return CardFacts(
            {licence: report.dataset.n_samples} if licence else _licences(store),
            {verb: verbs.count(verb) for verb in sorted(set(verbs))},
            applied.stale.height,
            digest.hexdigest(),
            tuple(row["ending"] for row in store.rows(_PATTERNS) if row["ending"]),
        )


def _licences(store: Store) -> dict[str, int]:
    for name in store.columns("metadata"):
        if name.lower() in LICENCE_COLUMNS:
            text = f"trim({identifier(name)}::VARCHAR)"
            sql = f"SELECT {text}, count(*) FROM metadata WHERE {text} <> '' GROUP BY 1"
            sql += " ORDER BY 2 DESC, 1"
            return dict(store.query(sql).iter_rows())
    return {}
