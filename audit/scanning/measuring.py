"""Listing and measuring: a source becomes rows, and new files are decoded.

A file counts as unchanged by its size and times; of moved files workers compare the content hash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.checking.config import Config
from audit.machine.executors import Executor, Failure, Processes, Serial, usable_memory
from audit.machine.workers import FORKS
from audit.neighbors.pairs.signature_store import write_signatures
from audit.picture.decode import Limits
from audit.picture.magic import extension_of
from audit.picture.measure import FileJob, Hasher, Measured, Measurer, failed_rows
from audit.picture.own_columns import OwnColumn
from audit.records import polars_schema
from audit.run.reuse import UNCHANGED, own_samples, store_samples
from audit.run.store import Store, identifier
from audit.run.tables import SAMPLES
from audit.sources import Source
from audit.sources.label_lists import read_lists
from audit.sources.paths import is_inside_process, reading_place
from audit.sources.readings import SampleRows
from dataset_preflight.foundation.cores import usable_cores

if TYPE_CHECKING:
    import polars as pl

CHUNK_FILES = 64
CHUNK_BYTES = 32 << 20
CHUNKS, MAX_CHUNK_FILES = 256, 8 * CHUNK_FILES
"""A large dataset is cut into so many chunks, of at most so many files."""
FILE_S, BYTE_S = 1.5e-3, 25e-9
"""What a file takes to open and measure, and a byte of it to decode, s: sets of photographs and of
small pictures are within a quarter of that."""
WORKER_S = 0.5 if FORKS else 1.0
"""Work that pays for one more worker process, s: a fork costs 0.15 CPU s, a start 0.6."""
LEAST_MEMORY = 128 << 20  # bytes that decoding one file may take, on the smallest machine
APPEND_ROWS = 2048
APPEND_S = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of work: `phase` (list, verify, measure, prepare, relate, embed, judge), counts."""

    phase: str
    done: int
    total: int
    errors: int = 0


PHASE_WORDS = {
    "take": "reading images from the dataset",
    "list": "listing files",
    "verify": "comparing contents with the last scan",
    "measure": "reading images",
    "prepare": "importing the search",
    "relate": "comparing images",
    "open": "opening images",
    "embed": "computing embeddings",
    "judge": "running checks",
    "apply": "making files",
}

ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """Ignore progress."""


def list_source(
    store: Store, source: Source, progress: ProgressCallback, *, compared: bool = False
) -> int:
    """Store what a source lists; return how many files. `compared`: skip samples of `previous`."""

    def listed() -> Iterator[pl.DataFrame]:
        total = 0
        for rows in source.rows():
            yield sample_frame(rows)
            total += len(rows)
            progress(Progress("list", total, 0))

    total = store_samples(store, listed(), compared=compared)
    _settle_labels(store, source)
    store.append("skipped_files", [asdict(s) for s in source.log.skipped])
    declared = [{"split": s, "label": c} for s, c in source.log.declared_classes]
    store.append("declared_classes", declared)
    notes = [{"kind": k, "sample_id": i, "message": m} for k, i, m in source.notes]
    store.append("source_notes", notes)
    store.append("failed_readers", [asdict(part) for part in source.failed])
    store.execute("DROP TABLE IF EXISTS metadata")
    if source.metadata is not None:
        store.create_from("metadata", source.metadata)
    return total


def _settle_labels(store: Store, source: Source) -> None:
    """Take the labels of columns apart where a cell holds several; say of each column how."""
    import polars as pl

    readings = []
    for name, told in source.label_columns.items():
        cells = "FROM samples WHERE source = ? AND label IS NOT NULL"
        found = read_lists(
            store.query(f"SELECT DISTINCT label {cells}", [name])["label"], source.label_separator
        )
        readings.append({"source": name, "reading": told or found.reading})
        if not found.lists:
            continue
        own_samples(store)
        lists = pl.DataFrame(
            {"cell": list(found.lists), "labels": list(found.lists.values())},
            schema={"cell": pl.String, "labels": pl.List(pl.String)},
        )
        with store.frame_as("lists", lists), store.transaction():
            store.execute(
                "INSERT INTO several_labels SELECT s.id, unnest(l.labels) FROM samples s "
                "JOIN lists l ON l.cell = s.label WHERE s.source = ? AND len(l.labels) > 1",
                [name],
            )
            store.execute(
                "UPDATE samples SET label = CASE len(l.labels) WHEN 1 THEN l.labels[1] END "
                "FROM lists l WHERE l.cell = samples.label AND samples.source = ?",
                [name],
            )
    store.append("label_columns", readings)


def sample_frame(rows: SampleRows) -> pl.DataFrame:
    """Return samples as rows of the table `samples`."""
    import polars as pl

    return pl.DataFrame(rows.columns(), schema=polars_schema(SAMPLES), orient="col")


class WaitingRows:
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
        if late or sum(len(m.rows) for m in self.waiting) >= APPEND_ROWS:
            self.flush()

    def flush(self) -> None:
        """Store signatures first: a feature row says that its file is done."""
        import pyarrow as pa

        if self.waiting:
            write_signatures(self.run, pa.concat_tables([m.signatures for m in self.waiting]))
            self.store.append("features", pa.concat_tables([m.features for m in self.waiting]))
        self.waiting, self.flushed = [], time.monotonic()


def measure_pending(
    rows: WaitingRows,
    executor: Executor,
    measurer: Measurer,
    progress: ProgressCallback,
    *,
    done: int,
    total: int,
) -> None:
    """Measure the table `pending`, after `done` of `total`."""
    errors = 0
    progress(Progress("measure", done, total))
    pending = rows.store.pages("SELECT id, file_key, uri, n_bytes FROM pending ORDER BY rowid")
    # of large datasets a chunk holds more files: what a chunk costs is shared by them
    files = min(max(CHUNK_FILES, (total - done) // CHUNKS), MAX_CHUNK_FILES)
    try:
        for jobs, measured in executor.run(measurer, cut_chunks(pending, files)):
            if isinstance(measured, Failure):
                measured = _measure_again(executor, measurer, jobs, measured)
            rows.add(measured)
            done += len(jobs)
            errors += sum(row["status"] != "ok" for row in measured.rows)
            progress(Progress("measure", done, total, errors))
    finally:
        rows.flush()


def _measure_again(
    executor: Executor, measurer: Measurer, jobs: Sequence[FileJob], failure: Failure
) -> Measured:
    """Measure a file whose worker failed, without the custom columns that cause the failure."""

    def with_columns(sound: Sequence[OwnColumn]) -> tuple[OwnColumn, ...]:
        return tuple(c if c in sound else c.dropped(failure.text) for c in measurer.own)

    def measure(sound: Sequence[OwnColumn]) -> Measured | Failure:
        ((_, outcome),) = executor.run(replace(measurer, own=with_columns(sound)), [jobs])
        return outcome

    plain = measure([]) if measurer.own else failure
    if isinstance(plain, Failure):
        return failed_rows(jobs, failure, measurer.hashes, measurer.own)
    sound = [c for c in measurer.own if not c.known_as and not isinstance(measure([c]), Failure)]
    outcome = measure(sound)
    if isinstance(outcome, Failure):  # they fail only together
        sound, outcome = [], plain
    measurer.own = with_columns(sound)
    return outcome


def cut_chunks(
    rows: Iterable[tuple[Any, ...]], files: int = CHUNK_FILES
) -> Iterator[list[FileJob]]:
    """Yield lists of files, given as (id, file key, uri, bytes), in their order."""
    chunk: list[FileJob] = []
    n_bytes = 0
    for sample, key, uri, size in rows:
        chunk.append(FileJob(sample, key, reading_place(uri)))
        n_bytes += max(size, 0)
        if len(chunk) >= files or n_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, n_bytes = [], 0
    if chunk:
        yield chunk


def choose_workers(
    config: Config, jobs: int | None, store: Store, table: str, executor: Executor | None
) -> tuple[Config, Executor]:
    """Return workers for the files of a table (default: one per second of work), and settings."""
    if executor is not None:
        return config, executor
    uris = store.rows(
        "SELECT min(uri) AS uri FROM samples WHERE uri SIMILAR TO '(fetch[+]|pack[+]|memory:).*' "
        "GROUP BY left(uri, 30)"
    )
    if any(is_inside_process(row["uri"]) for row in uris):
        return config, Serial()
    sizes = f"SELECT count(*), sum(greatest(n_bytes, 0)) FROM {identifier(table)}"
    files, n_bytes = store.query(sizes).row(0)
    work_s = FILE_S * int(files) + BYTE_S * int(n_bytes or 0)
    wanted = jobs if jobs is not None else min(usable_cores(), 1 + int(work_s / WORKER_S))
    share = max(usable_memory() // (2 * wanted), LEAST_MEMORY)
    limits = replace(config.limits, max_memory=min(config.limits.max_memory, share))
    return replace(config, limits=limits), Processes(wanted, config.timeout_s, limits.max_memory)


def find_unseen_edits(
    store: Store, executor: Executor, limits: Limits, progress: ProgressCallback
) -> list[str]:
    """Hash every file that counts as unchanged; return the ids of those that changed."""
    known = f"FROM previous.features f JOIN samples s ON {UNCHANGED}"
    total = store.scalar(f"SELECT count(*) {known}")
    progress(Progress("verify", 0, total))
    expected = "coalesce(f.content_hash, '')"
    wanted = store.pages(f"SELECT s.id, {expected}, s.uri, s.n_bytes {known} ORDER BY s.rowid")
    edited = []
    # the expected hash travels in the place of the file key
    for done, (job, found) in enumerate(_hash_files(wanted, executor, limits), 1):
        if (found or "") != job.file_key:
            edited.append(job.sample_id)
        progress(Progress("verify", done, total))
    return edited


def keep_moved(store: Store, executor: Executor, limits: Limits) -> int:
    """Give pending files the rows of `lost` files with equal content; return how many."""
    import polars as pl

    wanted = store.pages(
        "SELECT id, file_key, uri, n_bytes FROM pending "
        "WHERE n_bytes IN (SELECT size_before FROM lost) "
        "ORDER BY rowid"
    )
    rows = [
        (job.sample_id, job.file_key, extension_of(job.sample_id), found)
        for job, found in _hash_files(wanted, executor, limits)
        if found is not None
    ]
    if not rows:
        return 0
    names = ("sample_id", "file_key", "extension", "content_hash")
    store.create_from(
        "moved", pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    )
    with store.transaction():
        store.execute(
            "INSERT INTO features SELECT f.* EXCLUDE (size_before) REPLACE (m.sample_id AS "
            "sample_id, m.file_key AS file_key, m.extension AS extension) FROM moved m JOIN "
            "(SELECT DISTINCT ON (content_hash) * FROM lost) f USING (content_hash)"
        )
        store.execute("DELETE FROM pending WHERE id IN (SELECT sample_id FROM features)")
    taken = "SELECT count(*) FROM moved WHERE content_hash IN (SELECT content_hash FROM lost)"
    n_moved = int(store.scalar(taken))
    store.execute("DROP TABLE moved")
    return n_moved


def _hash_files(
    rows: Iterator[tuple[str, str, str, int]], executor: Executor, limits: Limits
) -> Iterator[tuple[FileJob, str | None]]:
    for jobs, outcome in executor.run(Hasher(limits), cut_chunks(rows)):
        found = [None] * len(jobs) if isinstance(outcome, Failure) else outcome
        yield from zip(jobs, found, strict=True)
