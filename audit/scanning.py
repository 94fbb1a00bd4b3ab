"""Scan and re-check: source -> listing -> what is new -> workers -> related -> judged -> published.

A scan lists the source (one stat a file), keeps the rows of files whose size, mtime and ctime did
not change, measures the rest, looks for near-duplicates, runs the checks and publishes by rename.
Killed at any moment, the next scan goes on from the rows already stored, and nothing half-done is
ever visible. Where nothing changed at all, the published generation is confirmed and stays. The
library never prints: progress goes to a callback.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from audit.checking.config import Config
from audit.checking.runner import Judge, judge, judge_key, select_judges
from audit.executors import Executor, Failure, Processes, Serial, usable_cores
from audit.neighbors import SIGNATURE_VERSION, PairCache, SearchOptions
from audit.pairs.relate import RELATE_VERSION, load_pair_cache, relate_pictures
from audit.pairs.signature_store import write_signatures
from audit.picture.features import FEATURE_ROW, feature_versions
from audit.picture.measure import Job, Measured, Measurer, failed_rows
from audit.records import arrow_schema
from audit.run import generations
from audit.run.store import SAMPLES, SCHEMA_VERSION, Store
from audit.sources import Source
from audit.sources.paths import path_of

CHUNK_FILES = 64
CHUNK_BYTES = 32 << 20
APPEND_ROWS = 2048
APPEND_S = 2.0
FIRST_FINDINGS = "findings-0001.duckdb"
# The identity of a file's content as far as a directory listing can tell.
FILE_KEY = "s.n_bytes || ' ' || s.mtime_ns || ' ' || s.ctime_ns"
# Outcomes that may be another one the next time although the file did not change.
TRANSIENT = "('io', 'permission', 'crashed', 'timeout')"
LISTED = ("samples", "declared_classes", "skipped_files", "source_notes")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the work is: `phase` is list, measure, relate or judge; counts are files,
    pictures, or checks.
    """

    phase: str
    done: int
    total: int
    errors: int = 0


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan did, in files: all, read now, kept from before, resumed; seconds by phase."""

    run: Path
    total: int
    measured: int
    kept: int
    resumed: int
    unchanged: bool
    seconds: Mapping[str, float] = field(default_factory=dict)


Report = Callable[[Progress], None]


def quiet(_: Progress) -> None:
    """Ignore progress."""


def scan(
    source: Source,
    run: Path,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    checks: Sequence[str] | None = None,
    config: Config | None = None,
    progress: Report = quiet,
) -> ScanResult:
    """Measure what is new in `source`, judge everything, publish a generation of `run`.

    `checks` selects what is judged, never what is measured; `jobs` is the number of processes
    (default: the usable cores; 1: none but this one). Raises LockedError when another process
    scans into the same run, UsageError for unknown checks or thresholds.
    """
    config = config or Config()
    judges = select_judges(checks, config.thresholds)
    previous = generations.find_reusable(run)
    clock = _Stopwatch()
    with Store.create(generations.building(run) / generations.MEASUREMENTS) as store:
        _start_building(store, config)
        total = _list(store, source, progress)
        clock.lap("list")
        resumed, kept = _keep(store, previous, config)
        pending = store.scalar("SELECT count(*) FROM pending")
        unchanged = previous is not None and not pending and not resumed and kept is None
        if not unchanged:
            workers = executor or _executor(jobs, pending, config)
            parts = _Parts(store, run)
            _measure(parts, workers, config, progress, done=total - pending, total=total)
            clock.lap("measure")
            store.execute("DROP TABLE pending")
            _relate(store, run, previous, config, progress)
            clock.lap("relate")
            store.set_meta(_facts(source) | {"related_as": _related_as(config)})
            store.checkpoint()
    if unchanged:
        generations.discard_building(run)
        _judge_again_if_needed(run, judges, progress)
        clock.lap("judge")
        return ScanResult(run, total, 0, total, 0, True, clock.laps)
    building = generations.building(run)
    _judge(building / generations.MEASUREMENTS, building / FIRST_FINDINGS, judges, progress)
    clock.lap("judge")
    generations.publish(run, FIRST_FINDINGS)
    return ScanResult(run, total, pending, kept or 0, resumed, False, clock.laps)


def recheck(
    run: Path,
    *,
    checks: Sequence[str] | None = None,
    config: Config | None = None,
    progress: Report = quiet,
) -> None:
    """Judge a run's stored measurements again, touching no image; publishes new findings."""
    judges = select_judges(checks, (config or Config()).thresholds)
    generation = generations.require(run)
    name = generations.next_findings(generation)
    built = generation.path / f"{name}.building"
    _judge(generation.measurements, built, judges, progress)
    generations.publish_findings(run, generation, built, name)


# ---- listing, and what can be kept ----


def _start_building(store: Store, config: Config) -> None:
    """Make the tables; forget an unfinished build that measured otherwise than this scan would."""
    if store.columns("meta") and store.meta().get("schema_version") != str(SCHEMA_VERSION):
        store.drop_everything()
    store.create_measurements(FEATURE_ROW)
    store.set_meta({"schema_version": str(SCHEMA_VERSION)})
    stored, now = store.meta().get("measured_as"), _measured_as(config)
    if stored != now:
        store.execute("DELETE FROM features")
        store.set_meta({"measured_as": now})
    for table in LISTED:
        store.execute(f"DELETE FROM {table}")


def _measured_as(config: Config) -> str:
    return json.dumps(
        {
            "features": dict(feature_versions()),
            "signature": SIGNATURE_VERSION,
            "limits": asdict(config.limits),
        }
    )


def _list(store: Store, source: Source, progress: Report) -> int:
    total = 0
    for batch in source.batches():
        columns = [
            pa.array([getattr(sample, name) for sample in batch], kind)
            for name, kind in zip(FIELDS, SAMPLES_SCHEMA.types, strict=True)
        ]
        store.append("samples", pa.table(columns, SAMPLES_SCHEMA))
        total += len(batch)
        progress(Progress("list", total, 0))
    store.append("skipped_files", [asdict(s) for s in source.skipped])
    store.append("declared_classes", [{"split": s, "label": c} for s, c in source.declared_classes])
    notes = [{"kind": k, "sample_id": i, "message": m} for k, i, m in source.notes]
    store.append("source_notes", notes)
    store.execute("DROP TABLE IF EXISTS metadata")
    if source.metadata is not None:
        store.create_from("metadata", source.metadata)
    return total


FIELDS = ("id", "uri", "source", "split", "label", "group", "n_bytes", "mtime_ns", "ctime_ns")
SAMPLES_SCHEMA = arrow_schema(SAMPLES)


def _keep(
    store: Store, previous: generations.Generation | None, config: Config
) -> tuple[int, int | None]:
    """Settle which files need no reading; leave the rest in the temporary table `pending`.

    Returns the rows resumed from a killed scan, and the rows kept from the previous generation:
    None where nothing at all changed since, so that nothing needs to be copied.
    """
    unchanged = f"FROM samples s WHERE s.id = f.sample_id AND f.file_key = {FILE_KEY}"
    store.execute(f"DELETE FROM features f WHERE NOT EXISTS ({'SELECT 1 ' + unchanged})")
    resumed = store.scalar("SELECT count(*) FROM features")
    kept: int | None = 0
    store.execute("CREATE OR REPLACE TABLE pending AS SELECT id FROM samples LIMIT 0")
    if previous is not None:
        store.attach(previous.measurements, "previous")
        if not resumed and _nothing_changed(store, config):
            kept = None
        elif _same_measures(store):
            store.execute(
                f"INSERT INTO features SELECT f.* FROM previous.features f JOIN samples s "
                f"ON s.id = f.sample_id AND f.file_key = {FILE_KEY} "
                f"ANTI JOIN features had ON had.sample_id = f.sample_id "
                f"WHERE coalesce(f.error_kind, '') NOT IN {TRANSIENT}"
            )
            kept = store.scalar("SELECT count(*) FROM features") - resumed
        store.detach("previous")
    if kept is not None:
        store.execute(
            "CREATE OR REPLACE TABLE pending AS "
            f"SELECT s.id, s.uri, s.n_bytes, {FILE_KEY} AS file_key "
            "FROM samples s ANTI JOIN features f ON f.sample_id = s.id"
        )
    return resumed, kept


def _same_measures(store: Store) -> bool:
    question = "SELECT value FROM {}meta WHERE key = 'measured_as'"
    return bool(store.scalar(question.format("")) == store.scalar(question.format("previous.")))


def _nothing_changed(store: Store, config: Config) -> bool:
    """Say whether listing, notes and metadata equal those of the previous generation."""
    if not _same_measures(store):
        return False
    related = store.scalar("SELECT value FROM previous.meta WHERE key = 'related_as'")
    if related != _related_as(config):
        return False
    transient = f"SELECT count(*) FROM previous.features WHERE error_kind IN {TRANSIENT}"
    if store.scalar(transient):
        return False
    tables = [*LISTED]
    has = [bool(store.columns(f"{where}metadata")) for where in ("", "previous.")]
    if has[0] != has[1]:
        return False
    if has[0]:
        if store.columns("metadata") != store.columns("previous.metadata"):
            return False
        tables.append("metadata")
    return not any(_differs(store, table) for table in tables)


def _differs(store: Store, table: str) -> bool:
    counts = f"SELECT (SELECT count(*) FROM {table}) <> (SELECT count(*) FROM previous.{table})"
    if store.scalar(counts):
        return True
    fresh = f"SELECT * FROM {table} EXCEPT ALL SELECT * FROM previous.{table}"
    return store.scalar(f"SELECT 1 FROM ({fresh}) LIMIT 1") is not None


# ---- measuring ----


class _Parts:
    """Feature rows and signatures that wait to be stored: what waits is lost by a kill."""

    def __init__(self, store: Store, run: Path) -> None:
        self.store, self.run = store, run
        self.waiting: list[Measured] = []
        self.flushed = time.monotonic()

    def add(self, measured: Measured) -> None:
        """Keep one chunk; store what waits when that is worth an append."""
        self.waiting.append(measured)
        # One append costs as much as measuring ten files.
        late = time.monotonic() - self.flushed > APPEND_S
        if late or len(self.waiting) * CHUNK_FILES >= APPEND_ROWS:
            self.flush()

    def flush(self) -> None:
        """Store signatures first: a feature row says that its file is done."""
        if self.waiting:
            write_signatures(self.run, pa.concat_tables([m.signatures for m in self.waiting]))
            self.store.append("features", pa.concat_tables([m.features for m in self.waiting]))
        self.waiting, self.flushed = [], time.monotonic()


def _measure(
    parts: _Parts, executor: Executor, config: Config, progress: Report, *, done: int, total: int
) -> None:
    errors = 0
    progress(Progress("measure", done, total))
    try:
        for jobs, outcome in executor.run(Measurer(config.limits), _chunks(parts.store)):
            measured = failed_rows(jobs, outcome) if isinstance(outcome, Failure) else outcome
            parts.add(measured)
            done += len(jobs)
            status = measured.features["status"]
            errors += len(status) - pc.sum(pc.equal(status, "ok")).as_py()
            progress(Progress("measure", done, total, errors))
    finally:
        parts.flush()


def _chunks(store: Store) -> Iterator[list[Job]]:
    """Yield the pending files in listing order, cut by number and by bytes."""
    chunk: list[Job] = []
    n_bytes = 0
    for row in store.pages("SELECT id, file_key, uri, n_bytes FROM pending ORDER BY rowid"):
        sample, key, uri, size = row
        chunk.append(Job(sample, key, path_of(uri)))
        n_bytes += max(size, 0)
        if len(chunk) >= CHUNK_FILES or n_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, n_bytes = [], 0
    if chunk:
        yield chunk


def _executor(jobs: int | None, pending: int, config: Config) -> Executor:
    """Return processes where there is work for them: starting one costs as much as 1,000 files."""
    wanted = jobs if jobs is not None else usable_cores()
    if jobs is None and pending <= CHUNK_FILES:
        wanted = 1
    return Serial() if wanted <= 1 else Processes(wanted, config.timeout_s)


# ---- relating ----


def _relate(
    store: Store,
    run: Path,
    previous: generations.Generation | None,
    config: Config,
    progress: Report,
) -> None:
    """Find near-duplicates among all pictures, with what the previous generation decided."""
    known: PairCache | None = None
    if previous is not None:
        store.attach(previous.measurements, "previous")
        if store.scalar("SELECT value FROM previous.meta WHERE key = 'related_as'") == _related_as(
            config
        ):
            known = load_pair_cache(store, "previous.")
        store.detach("previous")
    relate_pictures(
        store,
        run,
        config.limits,
        options=SearchOptions(**config.relate),  # type: ignore[arg-type]
        known=known,
        progress=lambda done, total: progress(Progress("relate", done, total)),
    )


def _related_as(config: Config) -> str:
    made = {"relate": RELATE_VERSION, "signature": SIGNATURE_VERSION, "options": config.relate}
    return json.dumps(made, sort_keys=True)


# ---- judging ----


def _judge(measurements: Path, target: Path, judges: Sequence[Judge], progress: Report) -> None:
    with Store.open(measurements) as store:
        judge(store, target, judges, lambda done, total: progress(Progress("judge", done, total)))
    with Store.create(target) as findings:
        key = judge_key(judges)
        findings.execute("CREATE TABLE IF NOT EXISTS judged_as AS SELECT ? AS key", [key])
        findings.checkpoint()


def _judge_again_if_needed(run: Path, judges: Sequence[Judge], progress: Report) -> None:
    """Re-check an unchanged dataset where checks or thresholds differ from the published ones."""
    generation = generations.require(run)
    with Store.open(generation.findings) as store:
        if store.scalar("SELECT key FROM judged_as") == judge_key(judges):
            return
    name = generations.next_findings(generation)
    built = generation.path / f"{name}.building"
    _judge(generation.measurements, built, judges, progress)
    generations.publish_findings(run, generation, built, name)


# ---- facts and time ----


def _facts(source: Source) -> dict[str, str]:
    return {
        "dataset": source.name,
        "layout": source.layout.name,
        "layout_reason": source.layout.reason,
        "annotations": source.layout.annotations or "",
        "roots": json.dumps(source.roots),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": f"dataset-preflight {version('dataset-preflight')}",
        "machine": f"{platform.system()}, {usable_cores()} cores",
    }


@dataclass(slots=True)
class _Stopwatch:
    """Seconds since the last lap, by name."""

    laps: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self.last, 3)
        self.last = now
