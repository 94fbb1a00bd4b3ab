"""Listing and measuring: what a source holds becomes rows, and what is new in it is decoded.

Used by `audit.scanning` alone. What waits to be stored is at most `APPEND_S` old, so that a scan
that is killed loses little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.checking.config import Config
from audit.errors import MachineError
from audit.executors import Executor, Failure, Processes, Serial, usable_cores, usable_memory
from audit.pairs.signature_store import write_signatures
from audit.picture.measure import FileJob, Measured, Measurer, failed_rows
from audit.run.listing import store_samples
from audit.run.reuse import SAME_FILE, TRANSIENT
from audit.run.store import Store, identifier
from audit.run.tables import SAMPLES
from audit.sources import Source
from audit.sources.paths import is_inside_process, reading_place
from audit.sources.sample_rows import SampleRows

if TYPE_CHECKING:
    import polars as pl

    from audit.cluster.shared_place import SharedPlace

CHUNK_FILES = 64
CHUNK_BYTES = 32 << 20
PARTS, PART_CHUNKS = 256, 8
"""A part on a shared place is two files there: of large datasets it holds so many chunks."""
FILE_S, BYTE_S = 1.5e-3, 25e-9
"""What a file takes to open and measure, and a byte of it to decode, s: sets of photographs and of
small pictures are within a quarter of that."""
WORKER_S = 1.0
"""What loading the decoders and kernels takes another process, s."""
LEAST_MEMORY = 128 << 20  # bytes that decoding one file may take, on the smallest machine
APPEND_ROWS = 2048
APPEND_S = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the work is: `phase` is list, verify, measure, prepare, relate, embed or judge; counts
    are files, pictures, or checks.
    """

    phase: str
    done: int
    total: int
    errors: int = 0


ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """Ignore progress."""


def list_source(
    store: Store, source: Source, progress: ProgressCallback, previous: Path | None = None
) -> int:
    """Store what a source lists and says of itself; return how many files.

    Samples that are those of `previous`, the database of the last generation, are not stored again.
    """

    def listed() -> Iterator[pl.DataFrame]:
        total = 0
        for rows in source.rows():
            yield sample_frame(rows)
            total += len(rows)
            progress(Progress("list", total, 0))

    total = store_samples(store, listed(), previous)
    store.append("skipped_files", [asdict(s) for s in source.skipped])
    store.append("declared_classes", [{"split": s, "label": c} for s, c in source.declared_classes])
    notes = [{"kind": k, "sample_id": i, "message": m} for k, i, m in source.notes]
    store.append("source_notes", notes)
    store.append("failed_readers", [asdict(part) for part in source.failed])
    store.execute("DROP TABLE IF EXISTS metadata")
    if source.metadata is not None:
        store.create_from("metadata", source.metadata)
    return total


def sample_frame(rows: SampleRows) -> pl.DataFrame:
    """Return samples as rows of the table `samples`."""
    import polars as pl

    kinds = {"VARCHAR": pl.String, "BIGINT": pl.Int64}
    schema = {column.name: kinds[column.type] for column in SAMPLES}
    return pl.DataFrame(rows.columns(), schema=schema, orient="col")


class WaitingRows:
    """Feature rows and signatures that wait to be stored: what waits is lost by a kill."""

    def __init__(self, store: Store, run: Path) -> None:
        """Begin with nothing waiting."""
        self.store, self.run = store, run
        self.waiting: list[Measured] = []
        self.flushed = time.monotonic()

    def add(self, measured: Measured) -> None:
        """Keep one chunk; store what waits when that is worth an append."""
        self.waiting.append(measured)
        # One append costs as much as measuring ten files.
        late = time.monotonic() - self.flushed > APPEND_S
        if late or sum(m.features.num_rows for m in self.waiting) >= APPEND_ROWS:
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
    config: Config,
    progress: ProgressCallback,
    *,
    done: int,
    total: int,
    place: SharedPlace | None = None,
) -> None:
    """Measure the files of the table `pending`; `done` of `total` were measured before.

    With a `place` that all workers see, rows come by way of parts there.
    """
    errors, measurer = 0, Measurer(config.limits, config.hashes, config.jpeg_walk)
    progress(Progress("measure", done, total))
    pending = _pending_rows(rows.store)
    files = min(max(CHUNK_FILES, (total - done) // PARTS), CHUNK_FILES * PART_CHUNKS)
    try:
        for jobs, measured in (
            _answers(executor, measurer, pending)
            if place is None
            else _answers_by_parts(executor, measurer, pending, place, files)
        ):
            rows.add(measured)
            done += len(jobs)
            errors += sum(status != "ok" for status in measured.features["status"].to_pylist())
            progress(Progress("measure", done, total, errors))
    finally:
        rows.flush()


Jobs = Sequence[FileJob]


def _answers(
    executor: Executor, measurer: Measurer, pending: Iterator[tuple[Any, ...]]
) -> Iterator[tuple[Jobs, Measured]]:
    for jobs, outcome in executor.run(measurer, cut_chunks(pending)):
        if isinstance(outcome, Failure):
            outcome = failed_rows(jobs, outcome, measurer.hashes)
        yield jobs, outcome


def _answers_by_parts(
    executor: Executor,
    measurer: Measurer,
    pending: Iterator[tuple[Any, ...]],
    place: SharedPlace,
    files: int,
) -> Iterator[tuple[Jobs, Measured]]:
    from audit.cluster.measured_parts import PartWriter, Refusal, read_part

    work = PartWriter(measurer, place)
    for jobs, outcome in executor.run(work, cut_chunks(pending, files)):
        if isinstance(outcome, Failure):
            yield jobs, failed_rows(jobs, outcome, measurer.hashes)
            continue
        if isinstance(outcome, Refusal):
            raise MachineError(outcome.text)
        measured = read_part(place, outcome.name, measurer.hashes)
        if measured is None:
            raise MachineError(
                f"A part that a node wrote cannot be read at {place.address}: look at the place, "
                "then run the same command again; what was measured is kept."
            )
        yield jobs, measured


def take_in_parts(rows: WaitingRows, config: Config, place: SharedPlace) -> int:
    """Store what nodes measured of the table `pending` for a scan that ended; return how many."""
    import polars as pl

    from audit.cluster.measured_parts import read_part, waiting_parts

    store, taken = rows.store, 0
    for name in waiting_parts(place):
        measured = read_part(place, name, config.hashes)
        if measured is None:
            continue
        store.create_from("part", measured.features)
        wanted = f"part f JOIN pending p ON {SAME_FILE} WHERE NOT {TRANSIENT}"
        found = store.query(f"SELECT f.* FROM {wanted}").to_arrow()
        known = pl.Series(found["content_hash"]).implode()
        signatures = pl.DataFrame(measured.signatures).filter(pl.col("content_hash").is_in(known))
        rows.add(Measured(found, signatures.to_arrow().cast(measured.signatures.schema)))
        store.execute(f"DELETE FROM pending p USING part f WHERE {SAME_FILE} AND NOT {TRANSIENT}")
        store.execute("DROP TABLE part")
        taken += found.num_rows
    rows.flush()
    return taken


def _pending_rows(store: Store) -> Iterator[tuple[Any, ...]]:
    return store.pages("SELECT id, file_key, uri, n_bytes FROM pending ORDER BY rowid")


def cut_chunks(
    rows: Iterable[tuple[Any, ...]], files: int = CHUNK_FILES
) -> Iterator[list[FileJob]]:
    """Yield files, given as (id, file key, uri, bytes), in their order, cut by number and bytes."""
    most = files * CHUNK_BYTES // CHUNK_FILES
    chunk: list[FileJob] = []
    n_bytes = 0
    for sample, key, uri, size in rows:
        chunk.append(FileJob(sample, key, reading_place(uri)))
        n_bytes += max(size, 0)
        if len(chunk) >= files or n_bytes >= most:
            yield chunk
            chunk, n_bytes = [], 0
    if chunk:
        yield chunk


def choose_workers(
    config: Config, jobs: int | None, store: Store, table: str, executor: Executor | None
) -> tuple[Config, Executor]:
    """Return workers to open the files of a table, and settings with the memory each may take.

    Without `jobs`, a worker beyond the first is started for each second of work.
    """
    if executor is not None:
        return config, executor
    if _is_inside_process(store):
        return config, Serial()
    cores = usable_cores()
    wanted = jobs if jobs is not None else min(cores, 1 + int(_work_s(store, table) / WORKER_S))
    share = max(usable_memory() // (2 * wanted), LEAST_MEMORY)
    limits = replace(config.limits, max_memory=min(config.limits.max_memory, share))
    return replace(config, limits=limits), Processes(wanted, config.timeout_s, limits.max_memory)


def _is_inside_process(store: Store) -> bool:
    """Say whether some of the pictures lie in this process's memory."""
    uris = store.rows(
        "SELECT min(uri) AS uri FROM samples WHERE uri SIMILAR TO '(fetch|pack)[+].*' "
        "GROUP BY left(uri, 30)"
    )
    return any(is_inside_process(row["uri"]) for row in uris)


def _work_s(store: Store, table: str) -> float:
    """Return about how long one process takes to open and measure the files of a table, s."""
    files = store.scalar(f"SELECT count(*) FROM {identifier(table)}")
    n_bytes = store.scalar(f"SELECT sum(greatest(n_bytes, 0)) FROM {identifier(table)}")
    return FILE_S * int(files) + BYTE_S * int(n_bytes or 0)
