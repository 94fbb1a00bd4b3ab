"""Measure files: what a worker does with a chunk of paths, from bytes to the rows of two tables.

One read and one decode per file; features and signatures are computed of small pictures of one size
together, of a larger one while it is in the cache. Nothing in a file can raise here: an error
becomes columns of its row (`status`, `error_kind`, `error`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from audit.machine.executors import Failure
from audit.picture.decode import DecodeError, Limits, Scratch, content_hash, decode_picture
from audit.picture.features import (
    FEATURE_ROW,
    LONGEST,
    Reduced,
    count_pixels,
    feature_picture,
    measure_pictures,
    noise_floor,
    tell_features,
    transparent_share,
)
from audit.picture.hashing import compute_library_hashes, library_columns
from audit.picture.magic import extension_of
from audit.picture.own_columns import OwnColumn, declared_columns, measure_own
from audit.picture.pixels import Picture, Pixels
from audit.picture.places import measure_places
from audit.picture.reading import read_bytes, reading_ahead
from audit.picture.signatures import (
    SIGNATURE_DTYPE,
    Signatures,
    Thumbnails,
    cut_and_shrink,
    make_signatures,
)
from audit.records import Column, polars_schema
from audit.sources.paths import file_of

if TYPE_CHECKING:
    import pyarrow as pa


# Columns with text from inside the file or from a decoder.
FREE_TEXTS = ("error", "icc_profile", "exif_camera", "decoder_warnings", "extension")
N_BYTES = SIGNATURE_DTYPE.itemsize
ALONE = 3 << 14
"""Samples above which a picture is measured alone: calls are then a small part of its cost."""
TOGETHER = 64
COLOURS = ("red", "green", "blue")
UNKNOWN_AS_NAN = {"sharpness", "noise_floor"}


def feature_columns(
    hashes: Sequence[str] = (), own: Sequence[OwnColumn] = ()
) -> tuple[Column, ...]:
    """Return the columns of the table `features`: ours, the library's hashes, the user's own."""
    return FEATURE_ROW + library_columns(hashes) + declared_columns(own)


@dataclass(frozen=True, slots=True)
class FileJob:
    """One file to measure: its sample id, file key, and where its bytes are."""

    sample_id: str
    file_key: str
    path: str

    @property
    def listed_size(self) -> int | None:
        """Bytes that the listing said, the first word of the key; None where it said nothing."""
        size = self.file_key.partition(" ")[0]
        return int(size) if size.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a chunk as plain values: the caller makes tables, as workers load no polars.

    `features` has the `rows` and their `columns`; `values` are the features of rows `pictured`.
    """

    rows: Sequence[dict[str, Any]]
    columns: tuple[Column, ...]
    values: Mapping[str, npt.NDArray[Any]]
    pictured: Sequence[int]
    content_hashes: Sequence[str]
    records: Signatures

    @property
    def features(self) -> pa.Table:
        """A row per job, with the columns of `features`; null without an image."""
        import polars as pl

        at: list[int | None] = [None] * len(self.rows)
        for number, row in enumerate(self.pictured):
            at[row] = number
        gathered = pl.all().gather(pl.Series(at, dtype=pl.UInt32))
        found = pl.DataFrame(dict(self.values)).select(gathered) if self.pictured else None
        columns = [
            pl.Series(name, [row.get(name) for row in self.rows], kind)
            if found is None or name not in found.columns
            else found[name].fill_nan(None)
            if name in UNKNOWN_AS_NAN
            else found[name]
            for name, kind in polars_schema(self.columns).items()
        ]
        return pl.DataFrame(columns).to_arrow()

    @property
    def signatures(self) -> pa.Table:
        """A signature per content hash."""
        return signature_table(self.content_hashes, self.records)


@dataclass(slots=True)
class Measurer:
    """The picklable work of a worker: jobs in, tables out; `own` may change between chunks."""

    limits: Limits
    hashes: tuple[str, ...] = ()
    own: tuple[OwnColumn, ...] = ()

    def __call__(self, jobs: Sequence[FileJob]) -> Measured:
        """Return one row per job, and the signature of every file that could be decoded."""
        import cv2

        warm_up()
        cv2.setNumThreads(1)  # the processes are the parallelism
        scratch, batch = Scratch(), PictureBatch()
        rows: list[dict[str, Any]] = []
        # by number: going through the list says which item was begun
        places = [jobs[number].path for number in range(len(jobs))]
        with reading_ahead(places, self.limits.max_bytes) as coming:
            for job in jobs:
                row, picture = self._row(job, scratch, coming.get(job.path))
                rows.append(row)
                if picture is not None:
                    small = batch.add(len(rows) - 1, picture)
                    row |= compute_library_hashes(small, self.hashes) | measure_own(
                        self.own, picture.rgb
                    )
        values, signatures = batch.results()
        content = [rows[at]["content_hash"] for at in batch.rows]
        order = sorted({name: at for at, name in reversed(list(enumerate(content)))}.values())
        names, columns = [content[at] for at in order], feature_columns(self.hashes, self.own)
        return Measured(rows, columns, values, batch.rows, names, signatures[order])

    def _row(
        self, job: FileJob, scratch: Scratch, coming: Future[bytes] | None
    ) -> tuple[dict[str, Any], Picture | None]:
        keys: dict[str, Any] = {"sample_id": job.sample_id, "file_key": job.file_key}
        try:
            data = self._read(job, job.path, coming)
        except DecodeError as error:
            return keys | unmeasured_columns(job.sample_id, error.kind, str(error)), None
        columns, picture = decode_picture(data, job.sample_id, self.limits, scratch)
        doubtful = columns["status"] != "ok" or job.listed_size not in (None, len(data))
        if doubtful and (again := self._asked_again(job.path, data)):
            columns, picture = decode_picture(again, job.sample_id, self.limits, scratch)
        return keys | storable_columns(columns), picture

    def _read(self, job: FileJob, place: str, coming: Future[bytes] | None) -> bytes:
        """Read a file; once more where a store gives more than it listed, and than is allowed."""
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

    def _asked_again(self, place: str, data: bytes) -> bytes | None:
        """Return what a store gives at a second request; None: the same, or a local file."""
        if file_of(place) is not None:
            return None
        try:
            again = read_bytes(place, self.limits)
        except DecodeError:
            return None
        return None if again == data else again


class PictureBatch:
    """The pictures of a chunk: small ones of one size are measured together.

    `rows` are the rows that have a picture, in order.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._waiting: dict[tuple[int, ...], list[tuple[int, Pixels, float]]] = {}
        self._order: list[int] = []  # the rows, as they were reduced
        self._transparent: list[float] = []
        self._floors: list[float] = []  # of `rows`
        self._reduced: list[Reduced] = []
        self._thumbnails: list[Thumbnails] = []

    def add(self, row: int, picture: Picture) -> Pixels:
        """Take the picture of a row, which may change afterwards; return its feature picture."""
        small, transparent = feature_picture(picture.rgb), transparent_share(picture.alpha)
        self.rows.append(row)
        self._floors.append(noise_floor(picture.rgb))
        if small.size > ALONE:
            self._reduce([row], small[None], [transparent])
            return small
        waiting = self._waiting.setdefault(small.shape, [])
        waiting.append((row, small.copy(), transparent))
        if len(waiting) == TOGETHER:
            self._measure_waiting(small.shape)
        return small

    def results(self) -> tuple[dict[str, npt.NDArray[Any]], Signatures]:
        """Return the features and signatures of `rows`; NaN for a feature that is unknown."""
        for shape in list(self._waiting):
            self._measure_waiting(shape)
        if not self.rows:
            return {}, np.zeros(0, SIGNATURE_DTYPE)
        order, shares = np.argsort(self._order), np.array(self._transparent)
        features = tell_features(Reduced(*map(np.concatenate, zip(*self._reduced, strict=True))))
        thumbnails = Thumbnails(*map(np.concatenate, zip(*self._thumbnails, strict=True)))
        signatures = make_signatures(thumbnails, 1.0 - shares)
        luma = (0.299, 0.587, 0.114)  # BT.601
        border = sum(w * features[f"border_{c}"] for w, c in zip(luma, COLOURS, strict=True))
        features |= measure_places(signatures, border) | {"transparent": shares}
        measured = {name: np.asarray(values)[order] for name, values in features.items()}
        return measured | {"noise_floor": np.array(self._floors)}, signatures[order]

    def _measure_waiting(self, shape: tuple[int, ...]) -> None:
        rows, pictures, transparent = zip(*self._waiting.pop(shape), strict=True)
        self._reduce(list(rows), np.stack(pictures), list(transparent))

    def _reduce(self, rows: list[int], stack: Pixels, transparent: list[float]) -> None:
        self._order += rows
        self._transparent += transparent
        self._reduced.append(count_pixels(stack))
        self._thumbnails.append(cut_and_shrink(stack))


@dataclass(frozen=True, slots=True)
class Hasher:
    """The picklable work of a worker that only compares content: jobs in, content hashes out."""

    limits: Limits

    def __call__(self, jobs: Sequence[FileJob]) -> list[str | None]:
        """Return the content hash of every file, None where it cannot be read."""
        places = [jobs[number].path for number in range(len(jobs))]
        with reading_ahead(places, self.limits.max_bytes) as coming:
            return [self._hash(job.path, coming.get(job.path)) for job in jobs]

    def _hash(self, place: str, coming: Future[bytes] | None) -> str | None:
        try:
            return content_hash(read_bytes(place, self.limits, coming))
        except DecodeError:
            return None


@cache
def warm_up() -> None:
    """Load the kernels and libraries, so that no file's time limit pays for it."""
    # noise: a picture of one colour is no example of what the others need
    noise = np.random.default_rng(0).integers(0, 256, (LONGEST + 2, 96, 3)).astype(np.uint8)
    stack = feature_picture(noise)[None]
    noise_floor(noise)
    measure_pictures(stack)
    make_signatures(cut_and_shrink(stack), np.ones(1))


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


def signature_table(
    content_hashes: Sequence[str], records: Sequence[np.void] | Signatures
) -> pa.Table:
    """Return signatures as an Arrow table: one row per content hash."""
    import polars as pl

    raw = np.asarray(records, SIGNATURE_DTYPE).tobytes()
    cut = [raw[at : at + N_BYTES] for at in range(0, len(raw), N_BYTES)]
    frame = pl.DataFrame({
        "content_hash": pl.Series(content_hashes, dtype=pl.String),
        "signature": pl.Series(cut, dtype=pl.Binary),
    })  # fmt: skip
    return frame.to_arrow()


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
    nothing = np.zeros(0, SIGNATURE_DTYPE)
    return Measured(rows, feature_columns(hashes, own), {}, [], [], nothing)
