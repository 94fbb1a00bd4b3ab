"""A set of pictures to look others up in: what a search against it needs again and again.

Descriptors and a shortlist of them are made once; beyond `AT_HAND` pictures they lie in a file that
has no name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import pairwise
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from audit.neighbors.dense import Neighbours, find_nearest_in
from audit.neighbors.descriptor import compare_orientations, describe, layout, swap_axes
from audit.neighbors.hamming import Codes
from audit.neighbors.orientations import parity_sign
from audit.neighbors.pair_cache import key_codes
from audit.neighbors.strangers import choose_pool
from audit.picture.signatures import Signatures, is_comparable

Floats = npt.NDArray[np.float32]
AT_HAND = 256 << 20
"""Bytes of a table that are held in memory; of more, the system holds what is used."""
LARGE, SHORT, LISTED = 20_000, 32, 400
"""Pictures of which a shortlist is made, numbers of a short descriptor, pictures of the list."""
SAMPLE, PART, BLOCK = 20_000, 16_384, 4096


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library: 1 ms


def large_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros, in a file without a name where they are many."""
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= AT_HAND:
        return np.zeros(shape, dtype)
    with TemporaryFile() as file:
        return np.memmap(file, dtype, "w+", shape=shape)


class Library:
    """Pictures of an audited set: `table` (n,) signatures, their `keys` and perceptual `hashes`.

    `threshold`: log odds from which the set's own search calls two pictures copies.
    """

    def __init__(
        self, table: Signatures, keys: Sequence[bytes], hashes: Codes, threshold: float
    ) -> None:
        """Keep the tables; descriptors are made when they are first asked for."""
        self.table, self.keys, self.hashes, self.threshold = table, keys, hashes, threshold
        self.usable = np.flatnonzero(is_comparable(table))
        self.pool = choose_pool(self.usable, key_codes(keys))

    @cached_property
    def descriptors(self) -> Floats:
        """Descriptors (m, D) of the usable rows."""
        made: Floats = large_array((len(self.usable), layout().width), np.float32)
        for start in range(0, len(made), PART):
            made[start : start + PART] = describe(self.table[self.usable[start : start + PART]])
        return made

    def nearest(self, described: Floats, k: int, *, listed: bool = False) -> Neighbours:
        """Return the k nearest usable pictures of each of (q, D) descriptors, by rows of `table`.

        `listed`: in a large set only those are compared that lie near in `SHORT` numbers, which
        loses hardly any and of which no recall is measured.
        """
        if not listed or len(self.usable) < LARGE:
            near = find_nearest_in(described, self.descriptors, k)
        else:
            near = self._nearest_listed(described, k)
        rows = np.where(near.index >= 0, self.usable[near.index], -1)
        return Neighbours(rows, near.similarity, near.exact, near.recall, near.sample)

    def _nearest_listed(self, described: Floats, k: int) -> Neighbours:
        index = np.empty((len(described), k), np.int64)
        best = np.empty((len(described), k), np.float32)
        for row, asked in enumerate(self._turned(described)):
            listed = self._shortlist(asked)
            one = np.repeat(described[row : row + 1], len(listed), axis=0)
            likeness = compare_orientations(one, self.descriptors[listed]).max(axis=1)
            order = np.lexsort((listed, -likeness))[:k]
            index[row], best[row] = listed[order], likeness[order]
        return Neighbours(index, best, False, float("nan"), 0)

    def _shortlist(self, asked: Floats) -> npt.NDArray[np.int64]:
        """Return the rows nearest to a picture's eight turned short descriptors (8, SHORT)."""
        _, short = self._short
        near = np.empty(len(short), np.float32)
        # threads of BLAS wait by spinning, which takes longer than such small products
        with _thread_pools().limit(limits=1, user_api="blas"):
            for start in range(0, len(short), BLOCK):
                part = asked @ short[start : start + BLOCK].T
                np.max(part, axis=0, out=near[start : start + BLOCK])
        return np.sort(np.argpartition(near, -LISTED)[-LISTED:])

    @cached_property
    def _short(self) -> tuple[list[Floats], Floats]:
        """The directions in which descriptors differ most, by class of parity, and all on them."""
        step = max(1, len(self.descriptors) // SAMPLE)
        sample, edges = self.descriptors[::step], list(pairwise(layout().edges))
        found = [np.linalg.eigh(sample[:, a:b].T @ sample[:, a:b]) for a, b in edges]
        least = np.sort(np.concatenate([values for values, _ in found]))[-SHORT]
        bases = [np.asarray(vectors[:, values >= least]) for values, vectors in found]
        short = np.empty((len(self.descriptors), sum(b.shape[1] for b in bases)), np.float32)
        for start in range(0, len(short), PART):
            part = self.descriptors[start : start + PART]
            short[start : start + PART] = _along(part, bases)
        return bases, short

    def _turned(self, described: Floats) -> Floats:
        """Return short descriptors (q, 8, SHORT) of the pictures in the eight orientations."""
        bases, _ = self._short
        widths = [basis.shape[1] for basis in bases]
        signs = [
            np.repeat([parity_sign(turn, parity) for parity in range(4)], widths)
            for turn in range(4)
        ]
        both = [_along(query, bases) for query in (described, swap_axes(described))]
        return np.stack([short * sign for short in both for sign in signs], axis=1)


def _along(descriptors: Floats, bases: Sequence[Floats]) -> Floats:
    edges = pairwise(layout().edges)
    parts = [descriptors[:, a:b] @ base for (a, b), base in zip(edges, bases, strict=True)]
    return np.asarray(np.concatenate(parts, axis=1), np.float32)
