"""A scan in five steps: list, measure, relate, judge, publish; and the re-check, which only judges.

Every step stores its rows, and publishing is a rename: a killed scan continues, and nothing
half-done is visible. Progress goes to a callback.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from audit.checking.check import all_checks
from audit.checking.config import Config
from audit.checking.own import OwnCode, failed_columns, in_order, load_own
from audit.checking.runner import CheckConfig, checks_key, configure_checks, run_checks
from audit.embeddings.settings import VectorOptions
from audit.errors import UsageError
from audit.machine.executors import Executor, Processes
from audit.machine.stopwatch import Lap, Stopwatch
from audit.neighbors.pair_cache import PairCache
from audit.neighbors.pairs.signature_store import PUBLISHED_WITH, name_parts, signed_pictures
from audit.neighbors.pairs.stored_pairs import RELATE_VERSION, load_pair_cache
from audit.picture.features import MEASURED
from audit.picture.measure import Measurer, feature_columns
from audit.picture.own_columns import lost_column
from audit.picture.signatures import SIGNATURE_VERSION
from audit.results.history import note_history
from audit.run import run_version
from audit.run.reuse import LISTED, PREVIOUS, keep_rows
from audit.run.run_version import MEASUREMENTS, Reusable, RunVersion
from audit.run.store import Store
from audit.run.tables import BOX_STATISTICS_VERSION, SCHEMA_VERSION
from audit.run.writer_lock import hold_run
from audit.scanning.measuring import (
    Progress,
    ProgressCallback,
    WaitingRows,
    choose_workers,
    find_unseen_edits,
    ignore_progress,
    keep_moved,
    list_source,
    measure_pending,
)
from audit.sources import Source
from dataset_preflight.foundation.cores import usable_cores

if TYPE_CHECKING:
    from audit.annotations.box_doubts import BoxResults

IMAGES_AT_HAND = 50_000  # samples: about 25 MB in memory
FIRST_FINDINGS = "findings-0001.duckdb"


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan that can begin, with its source open (options: `audit.scanning.options`).

    `vectors`: the embeddings that judge labels, computed if given or if one of `checks` needs
    them. `jobs`: worker processes (default: usable cores); `executor`: what works instead of them.
    `verify`: hash every file. `lock`: hold the lock of the run.
    """

    source: Source
    run: Path
    config: Config = field(default_factory=Config)
    vectors: VectorOptions = field(default_factory=VectorOptions)
    checks: Sequence[str] | None = None
    jobs: int | None = None
    executor: Executor | None = None
    lock: bool = True
    verify: bool = False

    def carry_out(
        self, progress: ProgressCallback = ignore_progress, clock: Stopwatch | None = None
    ) -> ScanResult:
        """Measure new files, run the checks and publish a version; `clock` times the stages.

        Raises LockedError, UsageError for unknown checks or thresholds, and MachineError.
        """
        own = load_own(self.config.plugins, self.source.roots.values())
        judge = _Judge(_configured(self.checks, self.config, own), own, progress)
        with hold_run(self.run, "scan", enabled=self.lock):
            return _Scan.begin(self, judge, clock or Stopwatch()).carry_out()


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan did: files in total, read, reused, resumed; seconds of its stages.

    `moved`: reused under another name. `edited_unseen`: ids with hidden edits, None without
    `verify`. `notice`: what did not open, and what the scan continued from.
    """

    run: Path
    total: int
    measured: int
    kept: int
    resumed: int
    unchanged: bool
    laps: Mapping[str, Lap] = field(default_factory=dict)
    moved: int = 0
    edited_unseen: Sequence[str] | None = None
    notice: str = ""

    def summary(self) -> str:
        """Return what the scan did, in words."""
        if self.unchanged:
            read = "all hashed" if self.edited_unseen is not None else "none read again"
            return f"Nothing changed since the last scan: {self.total:,} files, {read}."
        parts = [f"{self.measured:,} files read"]
        if self.kept > self.moved:
            parts.append(f"{self.kept - self.moved:,} unchanged")
        if self.moved:
            parts.append(f"{self.moved:,} moved or renamed")
        if self.resumed:
            parts.append(f"{self.resumed:,} resumed from an unfinished scan")
        seconds = sum(lap.wall_s for lap in self.laps.values())
        said = f"{', '.join(parts)}, in {seconds:.1f} s."
        if unseen := self.edited_unseen:
            named = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
            said += f"\n{len(unseen):,} changed but kept size and times: {named}."
        return said


def scan(
    source: Source, run: Path, *, progress: ProgressCallback = ignore_progress, **request: Any
) -> ScanResult:
    """Carry out a `ScanRequest`, whose other fields are `request`."""
    return ScanRequest(source, run, **request).carry_out(progress)


def recheck(
    run: Path,
    *,
    checks: Sequence[str] | None = None,
    config: Config | None = None,
    progress: ProgressCallback = ignore_progress,
    lock: bool = True,
    recall: bool = False,
) -> str:
    """Run the checks again over the measurements of a run, and publish new findings.

    Returns what did not open. `recall`: read a few images to measure the recall of near-duplicates.
    Raises LockedError if `lock` and another writer holds the run.
    """
    config = config or Config()
    found = run_version.require_measured(run)  # said before a lock makes its folder
    own = load_own(config.plugins, _meta(found, "roots").values() if config.plugins else ())
    judge = _Judge(_configured(checks, config, own), own, progress, config if recall else None)
    with hold_run(run, "recheck", enabled=lock):
        run_version.remove_rests(run)
        # read again inside the lock: a scan may have published since
        version = run_version.require_measured(run)
        judge.publish(run, version)
    return version.notice


def _meta(version: RunVersion, key: str) -> dict[str, Any]:
    with Store.open(version.measurements) as store:
        return dict(json.loads(store.meta().get(key, "{}")))


def _with_columns_of(previous: RunVersion, own: OwnCode) -> OwnCode:
    """Return the user's code with the columns measured before: an error costs no second scan."""
    before = _meta(previous, "measured_as").get("own", {})
    here = {column.name for column in own.columns}
    error = (own.broken[0].place, "its file could not be run")
    lost = [lost_column(name, known, *error) for name, known in before.items() if name not in here]
    return replace(own, columns=in_order((*own.columns, *lost)))


def _configured(
    wanted: Sequence[str] | None, config: Config, own: OwnCode
) -> Sequence[CheckConfig]:
    known = all_checks().keys() | {check.code for check in own.checks}
    if not own.broken and (unknown := sorted(config.thresholds.keys() - known)):
        raise UsageError(f"[checks.{unknown[0]}]: no file of [plugins] has this check.")
    return configure_checks(wanted, config.thresholds, own.checks)


@dataclass(slots=True)
class _Scan:
    """A scan of a locked run; `unchanged`: the previous version, if nothing changed."""

    request: ScanRequest
    judges: _Judge
    config: Config
    reusable: Reusable
    previous: RunVersion | None
    clock: Stopwatch
    total: int = 0
    pending: int = 0
    resumed: int = 0
    kept: int = 0
    moved: int = 0
    edited: Sequence[str] = field(default_factory=list)
    unchanged: RunVersion | None = None
    predicted: BoxResults | None = None

    @classmethod
    def begin(cls, request: ScanRequest, judges: _Judge, clock: Stopwatch) -> _Scan:
        """Remove what a killed scan left, and find the version whose rows can be taken over."""
        run_version.remove_rests(request.run)
        reusable = run_version.find_reusable(request.run)
        previous = reusable.version
        if judges.own.broken and previous is not None:
            judges = replace(judges, own=_with_columns_of(previous, judges.own))
        return cls(request, judges, request.config, reusable, previous, clock)

    @property
    def run(self) -> Path:
        return self.request.run

    @property
    def progress(self) -> ProgressCallback:
        return self.judges.progress

    def carry_out(self) -> ScanResult:
        with Store.create(run_version.building_folder(self.run) / MEASUREMENTS) as store:
            self.list(store)
            if self.unchanged is None:
                workers = self.measure(store)
                self.relate(store, workers)
        self.judge()
        self.publish()
        self.clock.lap("publish")
        return ScanResult(
            self.run, self.total, self.pending, self.kept + self.moved, self.resumed,
            self.unchanged is not None, self.clock.laps, self.moved,
            self.edited if self.request.verify else None, self.reusable.notice,
        )  # fmt: skip

    def list(self, store: Store) -> None:
        """List the source, and decide which files have to be read."""
        from audit.annotations import load_results, read_annotations

        request, vectors = self.request, self.request.vectors
        _start_building(store, self.config, self.judges.own)
        if self.previous is not None:
            store.attach(self.previous.measurements, PREVIOUS)
        compared = self.previous is not None and not request.verify
        self.total = list_source(store, request.source, self.progress, compared=compared)
        read_annotations(store, request.source)
        # read before anything is measured: what is wrong with the file is said at once
        if vectors.boxes:
            self.predicted = load_results(store, vectors.boxes)
        self.clock.lap("list")
        if request.verify and self.previous is not None:
            config, workers = self._workers(store, "samples")
            self.edited = find_unseen_edits(store, workers, config.limits, self.progress)
            self.clock.lap("verify")
        signed = signed_pictures(store, self.run)
        self.resumed, kept = keep_rows(store, self._related_as(store), signed, self.edited)
        self.pending = int(store.scalar("SELECT count(*) FROM pending"))
        if self.pending or self.resumed or kept is not None:
            self.kept = kept or 0
        else:
            self.unchanged, self.kept = self.previous, self.total

    def measure(self, store: Store) -> Executor:
        """Read and measure the files that are pending; returns the workers that did."""
        to_open = "samples" if self.request.vectors.embedder else "pending"
        self.config, workers = self._workers(store, to_open)
        config, preparation = self.config, None
        if isinstance(workers, Processes):
            # the search is loaded while processes read the files: there is time then
            preparation = Thread(
                target=import_module, args=("audit.neighbors.search",), daemon=True
            )
            preparation.start()
        self.moved = keep_moved(store, workers, config.limits)
        self.pending -= self.moved
        rows = WaitingRows(store, self.run)
        measurer = Measurer(config.limits, config.hashes, self.judges.own.columns)
        measure_pending(
            rows, workers, measurer, self.progress,
            done=self.total - self.pending, total=self.total,
        )  # fmt: skip
        self.clock.lap("measure")
        store.execute("DROP TABLE pending")
        store.execute("DROP TABLE lost")
        if preparation is not None and preparation.is_alive():
            self.progress(Progress("prepare", 0, 1))
            preparation.join()
            self.clock.lap("prepare")
        return workers

    def relate(self, store: Store, workers: Executor) -> None:
        """Relate pictures, labels and boxes to one another; the measurements are complete then."""
        from audit.annotations import judge_boxes, measure_boxes, settle_boxes
        from audit.embeddings.box_fits import relate_box_fits
        from audit.embeddings.class_marks import relate_marks
        from audit.embeddings.label_tables import find_vectors, leave_out_labels, relate_labels
        from audit.embeddings.vectors import Opening

        config, vectors = self.config, self.request.vectors
        store.plan_briefly()
        settle_boxes(store)
        if self.predicted is not None:
            judge_boxes(store, self.predicted)
        self.clock.lap("boxes")
        self._relate_pictures(store, workers)
        store.plan_briefly()  # of few pictures there may be many pairs
        self.clock.lap("pairs")
        used: VectorOptions | None = vectors
        progress = self.progress
        if self.judges.needs_embeddings(vectors):
            opening = Opening(workers, config.limits, lambda *n: progress(Progress("embed", *n)))
            found = find_vectors(store, self.run, vectors, opening)
            self.clock.lap("vectors")
            relate_labels(store, found)
        else:
            used = None
            leave_out_labels(store)
        relate_marks(store, self.run)
        self.clock.lap("labels")
        measure_boxes(store)
        relate_box_fits(store, self.run)
        self.clock.lap("boxes")
        facts = _facts(self.request.source) | {
            "related_as": _related_as(config, used),
            # pairs that were verified are of use whatever vectors judge the labels
            "paired_as": _paired_as(config),
            PUBLISHED_WITH: name_parts(self.run),
        }
        store.set_meta(facts)
        store.checkpoint()

    def _related_as(self, store: Store) -> str:
        vectors = self.request.vectors
        full = _related_as(self.config, vectors)
        if self.previous is None or self.judges.needs_embeddings(vectors):
            return full
        before = store.scalar("SELECT value FROM previous.meta WHERE key = 'related_as'")
        return full if before == full else _related_as(self.config, None)

    def _relate_pictures(self, store: Store, workers: Executor) -> None:
        """Find near-duplicates among all pictures; pairs verified before are not aligned again."""
        from audit.neighbors.pairs.relate import relate_pictures
        from audit.neighbors.search import SearchOptions

        known: PairCache | None = None
        if self.previous is not None:
            before = store.scalar("SELECT value FROM previous.meta WHERE key = 'paired_as'")
            if before == _paired_as(self.config):
                known = load_pair_cache(store, "previous.")
        relate_pictures(
            store,
            self.run,
            self.config.limits,
            workers,
            options=SearchOptions(**self.config.match),  # type: ignore[arg-type]
            more_hashes=self.config.match_hashes,
            known=known,
            progress=lambda done, total: self.progress(Progress("relate", done, total)),
        )

    def judge(self) -> None:
        """Run the checks over what was measured; where nothing changed, only if they are others."""
        if self.unchanged is None:
            built = run_version.building_folder(self.run)
            self.judges.write(built / MEASUREMENTS, built / FIRST_FINDINGS)
        else:
            run_version.remove_version(self.run / "building")
            self.judges.publish_if_needed(
                self.run, self.unchanged, is_current=self.reusable.is_current
            )
        self.clock.lap("checks")

    def publish(self) -> None:
        """Make what was built the current version; remove damaged ones."""
        if self.unchanged is None:
            note_history(self.run, self.previous, run_version.publish(self.run, FIRST_FINDINGS))
        for folder in self.reusable.damaged:
            run_version.remove_version(folder)

    def _workers(self, store: Store, table: str) -> tuple[Config, Executor]:
        request = self.request
        return choose_workers(self.config, request.jobs, store, table, request.executor)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Run checks over measurements; `own`: custom code; `recall`: how to open images."""

    checks: Sequence[CheckConfig]
    own: OwnCode
    progress: ProgressCallback
    recall: Config | None = None

    def needs_embeddings(self, vectors: VectorOptions) -> bool:
        """Say whether a check reads embeddings, or the user chose them; plugins may read any."""
        checks = [config.check for config in self.checks]
        plugged = any(not type(check).__module__.startswith("audit.checks.") for check in checks)
        return vectors != VectorOptions() or plugged or any(check.embeddings for check in checks)

    def write(self, measurements: Path, target: Path) -> None:
        """Write a findings database; the next scan does so again where its key is another."""
        with Store.open(measurements) as store:
            store.keep_images_at_hand(IMAGES_AT_HAND)
            if self.recall is not None:
                _measure_recall(store, measurements.parents[1], self.recall)
            broken = [*self.own.broken, *failed_columns(store)]
            progress = self.progress
            run_checks(
                store, target, self.checks, lambda *n: progress(Progress("judge", *n)), broken
            )

    def publish_if_needed(self, run: Path, version: RunVersion, *, is_current: bool) -> None:
        """Re-check an unchanged dataset if checks, thresholds or findings need it."""
        damage = run_version.find_damage(version.findings)
        if not self.own.broken and not damage:
            with Store.open(version.findings) as store:
                same = store.scalar("SELECT key FROM checked_as") == checks_key(self.checks)
            if same:
                if not is_current:
                    run_version.make_current(run, version)
                return
        published = self.publish(run, version)
        if damage and published != version:
            run_version.remove_files([version.findings])

    def publish(self, run: Path, version: RunVersion) -> RunVersion:
        """Write findings beside those that a version has, and publish them; return the version."""
        name = run_version.next_findings(version)
        built = version.path / f"{name}.building"
        self.write(version.measurements, built)
        published = run_version.publish_findings(run, version, built, name)
        note_history(run, version, published)
        return published


def _measure_recall(store: Store, run: Path, config: Config) -> None:
    from audit.neighbors.pairs.relate import recall_facts
    from audit.neighbors.search import SearchOptions

    config, workers = choose_workers(config, 1, store, "samples", None)
    options = SearchOptions(**config.match)  # type: ignore[arg-type]
    facts = recall_facts(store, run, config.limits, workers, options)
    store.execute("CREATE TEMP TABLE relate_facts AS SELECT * FROM relate_facts")
    for key, value in facts.items():
        store.execute("UPDATE relate_facts SET value = ? WHERE key = ?", [value, key])


def _start_building(store: Store, config: Config, own: OwnCode) -> None:
    """Make the tables; forget an unfinished build that measured otherwise than this scan would."""
    made = {"schema_version": str(SCHEMA_VERSION), "measured_as": _measured_as(config, own)}
    known = store.meta() if store.columns("meta") else None
    if known is not None and not made.items() <= known.items():
        store.drop_everything()
    store.create_measurements(feature_columns(config.hashes, own.columns))
    store.set_meta(made)
    for table in () if known is None else LISTED:
        store.execute(f"DELETE FROM {table}")


def _measured_as(config: Config, own: OwnCode) -> str:
    return json.dumps(
        {
            "features": {column.name: column.version for column in MEASURED},
            "signature": SIGNATURE_VERSION,
            # not the memory: a file that lacked some is tried again at every scan
            "limits": {k: v for k, v in asdict(config.limits).items() if k != "max_memory"},
            **({"hashes": sorted(config.hashes)} if config.hashes else {}),
            **({"own": {c.name: c.identity for c in own.columns}} if own.columns else {}),
        }
    )


def _paired_as(config: Config) -> str:
    made = {"relate": RELATE_VERSION, "signature": SIGNATURE_VERSION, "options": config.match}
    if config.match_hashes:
        made["hashes"] = sorted(config.match_hashes)
    return json.dumps(made, sort_keys=True)


def _related_as(config: Config, vectors: VectorOptions | None) -> str:
    made = {
        "pairs": json.loads(_paired_as(config)), "labels": vectors.identity() if vectors else None,
        "boxes": BOX_STATISTICS_VERSION,
    }  # fmt: skip
    return json.dumps(made, sort_keys=True)


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
