"""Scan and re-check: source -> list -> what is new -> measure -> relate -> run checks -> publish.

A scan lists the source (one stat a file), keeps the rows of files whose size, mtime and ctime did
not change, measures the rest, looks for near-duplicates, runs the checks and publishes by rename.
Killed at any moment, the next scan goes on from the rows already stored, and nothing half-done is
ever visible. Where nothing changed at all, the published generation is confirmed and stays. The
library never prints: progress goes to a callback.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from audit.checking.config import Config
from audit.checking.runner import CheckConfig, configure_checks
from audit.embeddings.settings import VectorOptions
from audit.executors import Executor, Processes, usable_cores
from audit.judging import (
    FIRST_FINDINGS,
    check_again_if_needed,
    publish_new_findings,
    write_findings,
)
from audit.known_content import find_unseen_edits, keep_moved
from audit.measuring import (
    Progress,
    ProgressCallback,
    WaitingRows,
    choose_workers,
    ignore_progress,
    list_source,
    measure_pending,
    take_in_parts,
)
from audit.neighbors.pair_cache import PairCache
from audit.neighbors.signatures import SIGNATURE_VERSION
from audit.pairs.signature_check import PUBLISHED_WITH, signed_pictures
from audit.pairs.signature_store import name_parts
from audit.pairs.stored_pairs import RELATE_VERSION, load_pair_cache
from audit.picture.features import feature_versions
from audit.picture.measure import feature_columns
from audit.run import generations
from audit.run.healing import heal_run
from audit.run.reuse import LISTED, keep_rows
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION
from audit.run.writer_lock import hold_run
from audit.sources import Source

if TYPE_CHECKING:
    from audit.cluster.shared_place import SharedPlace


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan did, in files: all, read now, kept from before, resumed; seconds by phase.

    `moved` of those kept have another name than before. `edited_unseen` are the ids of those whose
    content changed although size and times did not: None where that was not asked for (`verify`).
    """

    run: Path
    total: int
    measured: int
    kept: int
    resumed: int
    unchanged: bool
    seconds: Mapping[str, float] = field(default_factory=dict)
    moved: int = 0
    edited_unseen: Sequence[str] | None = None


def scan(
    source: Source,
    run: Path,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    parts: SharedPlace | None = None,
    checks: Sequence[str] | None = None,
    config: Config | None = None,
    vectors: VectorOptions | None = None,
    verify: bool = False,
    progress: ProgressCallback = ignore_progress,
    lock: bool = True,
) -> ScanResult:
    """Measure what is new in `source`, run the checks, publish a generation of `run`.

    `checks` selects the checks to run, never what is measured; `vectors` says which vectors judge
    the labels; `jobs` is the number of worker processes (default: the usable cores). With `parts`,
    a place that the workers of `executor` see, rows come by way of it and the search for
    near-duplicates is spread over the workers. With `verify` every file is hashed, and one whose
    content is another is read again, whatever size and times say. The run is locked from list to
    publish, unless `lock` is False. Raises LockedError when another writer holds it, UsageError for
    unknown checks or thresholds, MachineError where disk or memory ran out: the next scan goes on
    from there.
    """
    config = config or Config()
    configured = configure_checks(checks, config.thresholds)
    with hold_run(run, "scan", enabled=lock):
        return _scan(
            source, run, jobs, executor, parts, configured, config, vectors or VectorOptions(),
            verify, progress,
        )  # fmt: skip


def _scan(
    source: Source,
    run: Path,
    jobs: int | None,
    executor: Executor | None,
    parts: SharedPlace | None,
    configured: Sequence[CheckConfig],
    config: Config,
    vectors: VectorOptions,
    verify: bool,
    progress: ProgressCallback,
) -> ScanResult:
    """Scan a run that this process has locked."""
    from audit.annotations import (
        judge_boxes,
        load_results,
        measure_boxes,
        read_annotations,
        settle_boxes,
    )

    heal_run(run)
    previous = generations.find_reusable(run)
    earlier = previous.measurements if previous else None
    place = None if parts is None else parts.below(_parts_name(source, run, config))
    edited: list[str] = []
    clock = _Stopwatch()
    with Store.create(generations.building(run) / generations.MEASUREMENTS) as store:
        _start_building(store, config)
        total = list_source(store, source, progress, None if verify else earlier)
        read_annotations(store, source, earlier)
        # read before anything is measured: what is wrong with the file is said at once
        predicted = load_results(store, vectors.boxes) if vectors.boxes else None
        clock.lap("list")
        if verify and earlier is not None:
            settings, workers = choose_workers(config, jobs, store, "samples", executor)
            edited = find_unseen_edits(store, earlier, workers, settings.limits, progress)
            clock.lap("verify")
        signed = signed_pictures(store, run, earlier)
        n_resumed, n_kept = keep_rows(store, earlier, _related_as(config, vectors), signed, edited)
        pending = store.scalar("SELECT count(*) FROM pending")
        unchanged = None if pending or n_resumed or n_kept is not None else previous
        if unchanged is None:
            to_open = "samples" if vectors.embedder else "pending"
            config, workers = choose_workers(config, jobs, store, to_open, executor)
            preparation = _prepare_search(workers, total)
            n_moved = keep_moved(store, workers, config.limits)
            pending -= n_moved
            rows = WaitingRows(store, run)
            if place is not None:
                n_taken = take_in_parts(rows, config, place)
                pending, n_resumed = pending - n_taken, n_resumed + n_taken
            measure_pending(
                rows, workers, config, progress, done=total - pending, total=total, place=place
            )
            clock.lap("measure")
            store.execute("DROP TABLE pending")
            store.execute("DROP TABLE lost")
            if preparation is not None and preparation.is_alive():
                progress(Progress("prepare", 0, 1))
                preparation.join()
                clock.lap("prepare")
            settle_boxes(store)
            if predicted is not None:
                judge_boxes(store, predicted)
            _relate(store, run, previous, config, workers, place, progress)
            _relate_labels(store, run, vectors, config, workers, progress)
            measure_boxes(store)
            clock.lap("relate")
            facts = _facts(source) | _related_facts(config, vectors)
            store.set_meta(facts | {PUBLISHED_WITH: name_parts(run)})
            store.checkpoint()
    unseen = edited if verify else None
    if unchanged is not None:
        if place is not None:
            place.remove()
        generations.discard_building(run)
        check_again_if_needed(run, unchanged, configured, progress)
        clock.lap("judge")
        return ScanResult(run, total, 0, total, 0, True, clock.laps, 0, unseen)
    building = generations.building(run)
    write_findings(
        building / generations.MEASUREMENTS, building / FIRST_FINDINGS, configured, progress
    )
    clock.lap("judge")
    generations.publish(run, FIRST_FINDINGS)
    if place is not None:
        place.remove()
    n_kept = (n_kept or 0) + n_moved
    return ScanResult(run, total, pending, n_kept, n_resumed, False, clock.laps, n_moved, unseen)


def recheck(
    run: Path,
    *,
    checks: Sequence[str] | None = None,
    config: Config | None = None,
    progress: ProgressCallback = ignore_progress,
    lock: bool = True,
) -> None:
    """Run the checks again over a run's measurements, reading no image; publishes new findings.

    Raises LockedError when another writer holds the run, unless `lock` is False.
    """
    configured = configure_checks(checks, (config or Config()).thresholds)
    generations.require_whole(run)  # what is not there is said before a lock makes its folder
    with hold_run(run, "recheck", enabled=lock):
        heal_run(run)
        # read again inside the lock: a scan may have published since
        publish_new_findings(run, generations.require_whole(run), configured, progress)


# ---- listing ----


def _start_building(store: Store, config: Config) -> None:
    """Make the tables; forget an unfinished build that measured otherwise than this scan would."""
    columns = feature_columns(config.hashes)
    if store.columns("meta") and store.meta().get("schema_version") != str(SCHEMA_VERSION):
        store.drop_everything()
    store.create_measurements(columns)
    store.set_meta({"schema_version": str(SCHEMA_VERSION)})
    stored, now = store.meta().get("measured_as"), _measured_as(config)
    if stored not in (None, now):
        # other hashes are other columns, so the table itself is made again
        store.execute("DROP TABLE features")
        store.create_measurements(columns)
    store.set_meta({"measured_as": now})
    for table in LISTED:
        store.execute(f"DELETE FROM {table}")


def _measured_as(config: Config) -> str:
    return json.dumps(
        {
            "features": dict(feature_versions()),
            "signature": SIGNATURE_VERSION,
            # not the memory: a file that lacked some is tried again at every scan
            "limits": {k: v for k, v in asdict(config.limits).items() if k != "max_memory"},
            **({"hashes": sorted(config.hashes)} if config.hashes else {}),
            **({"jpeg_walk": True} if config.jpeg_walk else {}),
        }
    )


def _parts_name(source: Source, run: Path, config: Config) -> str:
    """Return a name for what nodes measure of this source, for this run, in this way."""
    made = json.dumps([source.roots, run.name, _measured_as(config)], sort_keys=True)
    return f"parts-{hashlib.blake2b(made.encode(), digest_size=12).hexdigest()}"


# ---- relating ----


def _prepare_search(workers: Executor, pictures: int) -> Thread | None:
    """Load what the search needs while processes read the files: there is time then."""
    from audit.neighbors.preparation import start_preparation

    return start_preparation(pictures) if isinstance(workers, Processes) else None


def _relate(
    store: Store,
    run: Path,
    previous: generations.Generation | None,
    config: Config,
    workers: Executor,
    place: SharedPlace | None,
    progress: ProgressCallback,
) -> None:
    """Find near-duplicates among all pictures; pairs verified before are not aligned again."""
    from audit.neighbors.search import SearchOptions
    from audit.pairs.relate import relate_pictures

    known: PairCache | None = None
    if previous is not None:
        store.attach(previous.measurements, "previous")
        paired_as = store.scalar("SELECT value FROM previous.meta WHERE key = 'paired_as'")
        if paired_as == _paired_as(config):
            known = load_pair_cache(store, "previous.")
        store.detach("previous")
    relate_pictures(
        store,
        run,
        config.limits,
        workers,
        options=SearchOptions(**config.relate),  # type: ignore[arg-type]
        more_hashes=config.relate_hashes,
        known=known,
        place=None if place is None else place.below("search"),
        progress=lambda done, total: progress(Progress("relate", done, total)),
    )


def _relate_labels(
    store: Store,
    run: Path,
    vectors: VectorOptions,
    config: Config,
    workers: Executor,
    progress: ProgressCallback,
) -> None:
    from audit.embeddings.label_tables import relate_labels
    from audit.embeddings.vectors import Opening

    opening = Opening(workers, config.limits, lambda *counts: progress(Progress("embed", *counts)))
    relate_labels(store, run, vectors, opening=opening)


def _paired_as(config: Config) -> str:
    made = {"relate": RELATE_VERSION, "signature": SIGNATURE_VERSION, "options": config.relate}
    if config.relate_hashes:
        made["hashes"] = sorted(config.relate_hashes)
    return json.dumps(made, sort_keys=True)


def _related_as(config: Config, vectors: VectorOptions) -> str:
    made = {"pairs": json.loads(_paired_as(config)), "labels": vectors.identity()}
    return json.dumps(made, sort_keys=True)


def _related_facts(config: Config, vectors: VectorOptions) -> dict[str, str]:
    # pairs that were verified are of use whatever vectors judge the labels
    return {"related_as": _related_as(config, vectors), "paired_as": _paired_as(config)}


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
