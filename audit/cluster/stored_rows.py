"""Rows of fixed width on a shared place, read by number: more than one machine would want to hold.

They lie in files of `FILE_ROWS` rows. In a folder `KEPT_FILES` are mapped at a time, because
addresses are limited; from a store each process keeps the last `KEPT` pieces of `PIECE_ROWS`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.cluster.shared_place import SharedPlace

FILE_ROWS = 1 << 16
PIECE_ROWS = 1 << 12
KEPT, KEPT_FILES = 64, 8

Array = npt.NDArray[Any]


class StoredRows:
    """`n` rows of `dtype`, each of `width` of them (None: of one), below a name on a place.

    Picklable: a node opens it for itself. Indexed by a number, an array of numbers, a slice, or the
    name of a field.
    """

    def __init__(
        self, place: SharedPlace, name: str, n: int, dtype: npt.DTypeLike, width: int | None = None
    ) -> None:
        """Describe the rows; nothing is read."""
        self.place, self.name, self.n = place, name, n
        self.dtype, self.width = np.dtype(dtype), width
        self._pieces: OrderedDict[tuple[int, int], Array] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return self.n

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRows, (self.place, self.name, self.n, self.dtype, self.width)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        return () if self.width is None else (self.width,)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            fields = [self._read(start, end)[key].copy() for start, end in self.files()]
            return np.concatenate(fields) if fields else np.zeros(0, self.dtype)[key]
        if isinstance(key, slice):
            key = np.arange(*key.indices(self.n))
        wanted = np.asarray(key, np.int64)
        rows, place = np.unique(wanted, return_inverse=True)
        out = np.empty((len(rows), *self.shape), self.dtype)
        edges = np.flatnonzero(np.diff(rows // PIECE_ROWS)) + 1
        for begin, end in pairwise([0, *edges.tolist(), len(rows)] if len(rows) else []):
            first = int(rows[begin]) // PIECE_ROWS * PIECE_ROWS
            piece = self._read(first, min(first + PIECE_ROWS, self.n))
            out[begin:end] = piece[rows[begin:end] - first]
        return out[place.reshape(wanted.shape)]

    def files(self) -> list[tuple[int, int]]:
        """Return the first row of each file, and the first after it."""
        return [(k, min(k + FILE_ROWS, self.n)) for k in range(0, self.n, FILE_ROWS)]

    def write(self, start: int, rows: Array) -> None:
        """Write the file that begins with row `start`, whole."""
        self.place.write(self._file(start), np.ascontiguousarray(rows, self.dtype).tobytes())

    def _file(self, start: int) -> str:
        return f"{self.name}-{start // FILE_ROWS:06}"

    def _read(self, start: int, end: int) -> Array:
        """Return rows that lie in one file: mapped in a folder, fetched from a store."""
        first = start // FILE_ROWS * FILE_ROWS
        name, folder = self._file(first), self.place.folder
        if folder is not None:
            path = folder / name
            rows = self._kept((first, -1), KEPT_FILES, lambda: np.memmap(path, self.dtype, "r"))
            return rows[start - first : end - first]

        def fetch() -> Array:
            size = self.dtype.itemsize * (self.width or 1)
            content = self.place.read_range(name, (start - first) * size, (end - start) * size)
            return np.frombuffer(content, self.dtype)

        return self._kept((start, end), KEPT, fetch)

    def _kept(self, key: tuple[int, int], most: int, get: Callable[[], Array]) -> Array:
        """Return rows that are at hand, or get them; those asked for longest ago are let go."""
        with self._lock:
            if key in self._pieces:
                self._pieces.move_to_end(key)
                return self._pieces[key]
        rows = get().reshape(-1, *self.shape)
        with self._lock:
            self._pieces[key] = rows
            while len(self._pieces) > most:
                self._pieces.popitem(last=False)
        return rows
