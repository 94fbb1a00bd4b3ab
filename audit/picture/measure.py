"""Measure files: what a worker does with a chunk of paths, from bytes to two Arrow tables.

One read and one decode per file; every feature, and the signature that near-duplicate search
compares, is computed from that picture. Nothing in a file can raise here: an error becomes columns
of its row (`status`, `error_kind`, `error`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from audit.machine.executors import Failure
from audit.picture.decode import DecodeError, Limits, Scratch, content_hash, decode_picture
from audit.picture.features import FEATURE_ROW, measure_picture
from audit.picture.hashing import compute_library_hashes, library_columns
from audit.picture.jpeg_walk import warm_up_walk
from audit.picture.magic import extension_of
from audit.picture.own_columns import OwnColumn, declared_columns, measure_own
from audit.picture.pixels import Picture
from audit.picture.reading import read_bytes, reading_ahead
from audit.picture.signatures import SIGNATURE_DTYPE, SIGNATURE_VERSION, make_signature
from audit.records import Column, arrow_schema, arrow_table
from audit.sources.paths import file_of

if TYPE_CHECKING:
    import pyarrow as pa

# Columns with text from inside the file or from a decoder.
FREE_TEXTS = ("error", "icc_profile", "exif_camera", "decoder_warnings", "extension")
N_BYTES = SIGNATURE_DTYPE.itemsize
VERSION_KEY = b"signature_version"


def feature_columns(
    hashes: Sequence[str] = (), own: Sequence[OwnColumn] = ()
) -> tuple[Column, ...]:
    """Return the columns of the table `features`: ours, the library's hashes, the user's own."""
    return FEATURE_ROW + library_columns(hashes) + declared_columns(own)


def feature_schema(hashes: Sequence[str] = (), own: Sequence[OwnColumn] = ()) -> pa.Schema:
    """Return the Arrow schema of a row of the table `features`."""
    return arrow_schema(feature_columns(hashes, own))


@dataclass(frozen=True, slots=True)
class FileJob:
    """One file to measure: its sample id, file key and where its bytes are (None: elsewhere)."""

    sample_id: str
    file_key: str
    path: str | None

    @property
    def listed_size(self) -> int | None:
        """Bytes that the listing said, the first word of the key; None where it said nothing."""
        size = self.file_key.partition(" ")[0]
        return int(size) if size.isdecimal() else None


class Measured(NamedTuple):
    """The result of a chunk: one row of features per job, one signature per picture."""

    features: pa.Table
    signatures: pa.Table


@dataclass(frozen=True, slots=True)
class Measurer:
    """The picklable work of a worker: a chunk of jobs in, Arrow tables out."""

    limits: Limits
    hashes: tuple[str, ...] = ()
    jpeg_walk: bool = False
    own: tuple[OwnColumn, ...] = ()

    def __call__(self, jobs: Sequence[FileJob]) -> Measured:
        """Return one row per job, and the signature of every file that could be decoded."""
        import cv2

        warm_up()
        if self.jpeg_walk:
            warm_up_walk()
        cv2.setNumThreads(1)  # the processes are the parallelism
        scratch = Scratch()
        rows: list[dict[str, Any]] = []
        records: dict[str, np.void] = {}
        # by number: going through the list says which item was begun
        places = [jobs[number].path for number in range(len(jobs))]
        with reading_ahead(places, self.limits.max_bytes) as coming:
            for job in jobs:
                row, record = self._row(job, scratch, coming.get(job.path or ""))
                rows.append(row)
                if record is not None:
                    records[row["content_hash"]] = record
        features = arrow_table(rows, feature_schema(self.hashes, self.own))
        return Measured(features, signature_table(list(records), list(records.values())))

    def _row(
        self, job: FileJob, scratch: Scratch, coming: Future[bytes] | None
    ) -> tuple[dict[str, Any], np.void | None]:
        keys: dict[str, Any] = {"sample_id": job.sample_id, "file_key": job.file_key}
        if job.path is None:
            text = "the manifest gives a URL, which is not fetched: download it first"
            return keys | unmeasured_columns(job.sample_id, "unsupported", text), None
        try:
            data = self._read(job, job.path, coming)
        except DecodeError as error:
            return keys | unmeasured_columns(job.sample_id, error.kind, str(error)), None
        columns, picture = self._decoded(data, job, scratch)
        doubtful = columns["status"] != "ok" or job.listed_size not in (None, len(data))
        if doubtful and (again := self._asked_again(job.path, data)):
            columns, picture = self._decoded(again, job, scratch)
        keys |= storable_columns(columns)
        if picture is None:
            return keys, None
        features, small = measure_picture(picture)
        features |= compute_library_hashes(small, self.hashes)
        features |= measure_own(self.own, picture.rgb)
        return keys | features, make_signature(small, opaque_share=1.0 - features["transparent"])

    def _read(self, job: FileJob, place: str, coming: Future[bytes] | None) -> bytes:
        """Read a file; a store that gives more than may be, of what it listed as less, is at fault.

        It is asked once more, and an `io` error is tried again by the next scan.
        """
        try:
            return read_bytes(place, self.limits, coming)
        except DecodeError as error:
            listed = job.listed_size
            sound = listed is not None and listed <= self.limits.max_bytes
            if error.kind != "bomb" or not sound or file_of(place) is not None:
                raise
        try:
            return read_bytes(place, self.limits)
        except DecodeError as error:
            text = f"the store listed {listed:,} bytes, and then {error}: scan again"
            raise DecodeError("io" if error.kind == "bomb" else error.kind, text) from None

    def _decoded(
        self, data: bytes, job: FileJob, scratch: Scratch
    ) -> tuple[dict[str, Any], Picture | None]:
        return decode_picture(data, job.sample_id, self.limits, scratch, jpeg_walk=self.jpeg_walk)

    def _asked_again(self, place: str, data: bytes) -> bytes | None:
        """Ask a store once more for what came damaged or of another size than it was listed with.

        None where the same comes, and for what lies on this machine.
        """
        if file_of(place) is not None:
            return None
        try:
            again = read_bytes(place, self.limits)
        except DecodeError:
            return None
        return None if again == data else again


@dataclass(frozen=True, slots=True)
class Hasher:
    """The picklable work of a worker that only compares content: jobs in, content hashes out."""

    limits: Limits

    def __call__(self, jobs: Sequence[FileJob]) -> list[str | None]:
        """Return the content hash of every file, None where it cannot be read."""
        places = [jobs[number].path for number in range(len(jobs))]
        with reading_ahead(places, self.limits.max_bytes) as coming:
            return [self._hash(job.path, coming.get(job.path or "")) for job in jobs]

    def _hash(self, place: str | None, coming: Future[bytes] | None) -> str | None:
        if place is None:
            return None
        try:
            return content_hash(read_bytes(place, self.limits, coming))
        except DecodeError:
            return None


@cache
def warm_up() -> None:
    """Load or compile the kernels, so that no file's time limit pays for it."""
    # noise: a picture of one colour is no example of what the others need
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    small = measure_picture(Picture(noise, None))[1]
    make_signature(small)


def storable_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns with texts that every database accepts: no lone surrogates, no NUL."""
    for name in FREE_TEXTS:
        if text := columns.get(name):
            columns[name] = text.encode("utf-8", "backslashreplace").decode().replace("\0", "")
    return columns


def unmeasured_columns(name: str, kind: str, text: str) -> dict[str, Any]:
    """Return the columns of a file that could not be decoded."""
    extension = extension_of(name)
    return {"status": "unreadable", "error_kind": kind, "error": text, "extension": extension}


@cache
def signature_schema() -> pa.Schema:
    """Return the Arrow schema of signatures by content hash, with their version."""
    import pyarrow as pa

    return pa.schema(
        [("content_hash", pa.string()), ("signature", pa.binary(N_BYTES))],
        metadata={VERSION_KEY: str(SIGNATURE_VERSION).encode()},
    )


def signature_table(content_hashes: Sequence[str], records: Sequence[np.void]) -> pa.Table:
    """Return signatures as an Arrow table: one row per content hash."""
    import polars as pl
    import pyarrow as pa

    packed = pl.Series([record.tobytes() for record in records], dtype=pl.Binary).to_arrow()
    names = pl.Series(content_hashes, dtype=pl.String).to_arrow().cast(pa.string())
    # a cast to binary of a fixed length starts from the small offsets
    signatures = packed.cast(pa.binary()).cast(pa.binary(N_BYTES))
    return pa.Table.from_batches(
        [pa.RecordBatch.from_arrays([names, signatures], schema=signature_schema())]
    )


def failed_rows(
    jobs: Sequence[FileJob],
    failure: Failure,
    hashes: Sequence[str] = (),
    own: Sequence[OwnColumn] = (),
) -> Measured:
    """Return the rows of files whose worker crashed or hung."""
    rows = [
        {"sample_id": job.sample_id, "file_key": job.file_key}
        | unmeasured_columns(job.sample_id, failure.kind, f"decoding it failed: {failure.text}")
        for job in jobs
    ]
    return Measured(arrow_table(rows, feature_schema(hashes, own)), signature_table([], []))
