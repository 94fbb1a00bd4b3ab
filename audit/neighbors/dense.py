"""The k nearest pictures by descriptor, whatever way up: exact in blocks, or in anchored cells.

Exact: all pairs, a block at a time, as matrix products in float32; each pair is computed once and
offered to both of its rows. It is n^2 work but at the speed of BLAS: 60,000 images take seconds.
Beyond `EXACT_LIMIT` images the search is approximate and says so: some images, picked by seed,
serve as anchors; every image joins the cells of its nearest three anchors (a similarity that is
the same for mirror images and quarter turns, so copies land together) and is compared within
them. The recall of that is measured on a sample against the exact search, and reported.

k is a stated cap, never a claim of completeness: two pictures beyond each other's k nearest are
only found through the Hamming search or when representatives are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from audit.neighbors.compiled import compiled, inlined
from audit.neighbors.descriptor import Descriptors, layout, swap_axes

Array = npt.NDArray[Any]
EXACT_LIMIT = 200_000
"""Images up to which all pairs are compared: about 1.5 minutes on two cores."""
BLOCK = 1024
ANCHORS_PER_IMAGE = 3


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The `k` nearest of each row, best first, and how they were found.

    `index` (n, k) int64 with -1 where there are fewer; `similarity` (n, k) float32, cosine in the
    best of the eight orientations. `recall` is 1 when `exact`, else measured on `sample` rows.
    """

    index: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float32]
    exact: bool
    recall: float
    sample: int
    compared: int


def nearest(
    descriptors: Descriptors,
    k: int = 10,
    *,
    exact_limit: int = EXACT_LIMIT,
    seed: int = 0,
    advance: Callable[[float], None] = lambda share: None,
) -> Neighbours:
    """Return the k nearest other rows of each row; `advance` gets the share that is done.

    Deterministic for one order of rows; sort by content hash first to be free of order.
    """
    n = len(descriptors)
    if n <= exact_limit:
        best, index = _empty(n, k)
        _all_pairs(descriptors, np.arange(n), best, index, advance)
        return Neighbours(index, best, True, 1.0, n, n * (n - 1) // 2)
    best, index, compared = _in_cells(descriptors, k, seed, advance)
    recall, sample = _measure(descriptors, index, best, k, seed)
    return Neighbours(index, best, False, recall, sample, compared)


def nearest_in(queries: Descriptors, library: Descriptors, k: int = 10) -> Neighbours:
    """Return the k nearest library rows of each query row, exactly, in blocks."""
    n, blocks = len(queries), _Blocks()
    best, index = _empty(n, k)
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        for column in range(0, len(library), BLOCK):
            columns = np.arange(column, min(column + BLOCK, len(library)))
            table = blocks.table(queries[rows], library[columns])
            _offer_rows(table, rows, columns, best, index, -1)
    return Neighbours(index, best, True, 1.0, n, n * len(library))


def similarity_table(first: Descriptors, second: Descriptors) -> npt.NDArray[np.float32]:
    """Return the similarity of every row of one to every row of the other, (n, m) float32."""
    out, blocks = np.empty((len(first), len(second)), np.float32), _Blocks()
    for start in range(0, len(first), BLOCK):
        for column in range(0, len(second), BLOCK):
            rows, columns = slice(start, start + BLOCK), slice(column, column + BLOCK)
            out[rows, columns] = blocks.table(first[rows], second[columns])
    return out


def _empty(n: int, k: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    return np.full((n, k), -2.0, np.float32), np.full((n, k), -1, np.int64)


class _Blocks:
    """Similarities of blocks, best of eight orientations, in buffers that are used again.

    Fresh 4 MB arrays cost more in page faults than the products that fill them.
    """

    def __init__(self) -> None:
        self._parts = np.empty((4, BLOCK * BLOCK), np.float32)
        self._out = np.empty(BLOCK * BLOCK, np.float32)

    def table(self, first: Descriptors, second: Descriptors) -> npt.NDArray[np.float32]:
        """Return (rows of first, rows of second); valid until the next call."""
        shape = len(first), len(second)
        size = shape[0] * shape[1]
        edges = layout().edges
        parts = [part[:size].reshape(shape) for part in self._parts]
        out = self._out[:size].reshape(shape)
        out[:] = -2.0
        for query in (first, swap_axes(first)):
            for part, (a, b) in zip(parts, pairwise(edges), strict=True):
                np.matmul(query[:, a:b], second[:, a:b].T, out=part)
            _best_sign(parts[0], parts[1], parts[2], parts[3], out)
        return out


@compiled(parallel=True, fastmath=True)
def _best_sign(p0: Array, p1: Array, p2: Array, p3: Array, out: Array) -> None:
    """Raise `out` to the best of the four sums of signs: as is, mirrored, flipped, half turn."""
    for i in numba.prange(out.shape[0]):
        for j in range(out.shape[1]):
            a, b = p0[i, j] + p1[i, j], p0[i, j] - p1[i, j]
            c, d = p2[i, j] + p3[i, j], p2[i, j] - p3[i, j]
            top = max(max(a + c, a - c), max(b + d, b - d))
            out[i, j] = max(out[i, j], top)


@inlined
def _offer(value: float, who: int, best: Array, index: Array) -> None:
    """Insert a neighbour into a row sorted best first; ignore it if it is there already."""
    k = best.shape[0]
    if value < best[k - 1] or (value == best[k - 1] and index[k - 1] != -1):
        return
    for m in range(k):
        if index[m] == who:
            return
    m = k - 1
    while m > 0 and (best[m - 1] < value or (best[m - 1] == value and index[m - 1] > who)):
        best[m] = best[m - 1]
        index[m] = index[m - 1]
        m -= 1
    best[m] = value
    index[m] = who


@compiled(parallel=True, fastmath=True)
def _offer_rows(
    table: Array, rows: Array, columns: Array, best: Array, index: Array, diagonal: int
) -> None:
    """Offer each column of a block to its rows (diagonal >= 0: never a row to itself).

    Sixteen values at a time are held against the row's worst neighbour: nearly all fail at once.
    """
    width = table.shape[1]
    for i in numba.prange(table.shape[0]):
        r = rows[i]
        worst = best[r, -1]
        for start in range(0, width, 16):
            stop = min(start + 16, width)
            top = table[i, start]
            for j in range(start, stop):
                top = max(top, table[i, j])
            if top < worst:
                continue
            for j in range(start, stop):
                if table[i, j] >= worst and (diagonal < 0 or columns[j] != r):
                    _offer(table[i, j], columns[j], best[r], index[r])
                    worst = best[r, -1]


def _all_pairs(
    descriptors: Descriptors,
    members: npt.NDArray[np.int64],
    best: npt.NDArray[np.float32],
    index: npt.NDArray[np.int64],
    advance: Callable[[float], None] = lambda share: None,
) -> None:
    """Compare every two members once and update the tables of both."""
    own, blocks = descriptors[members], _Blocks()
    for start in range(0, len(members), BLOCK):
        rows = slice(start, start + BLOCK)
        for column in range(start, len(members), BLOCK):
            columns = slice(column, column + BLOCK)
            table = blocks.table(own[rows], own[columns])
            same = 0 if column == start else -1
            _offer_rows(table, members[rows], members[columns], best, index, same)
            if column != start:
                turned = np.ascontiguousarray(table.T)
                _offer_rows(turned, members[columns], members[rows], best, index, -1)
        left = max(len(members) - start - BLOCK, 0) / len(members)
        advance(1.0 - left * left)


def _in_cells(
    descriptors: Descriptors, k: int, seed: int, advance: Callable[[float], None]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], int]:
    """Compare only images that share one of their nearest anchors."""
    n = len(descriptors)
    chosen = np.random.default_rng(seed).choice(n, int(2 * np.sqrt(n)), replace=False)
    anchors = descriptors[np.sort(chosen)]
    cells = nearest_in(descriptors, anchors, ANCHORS_PER_IMAGE).index
    best, index = _empty(n, k)
    member = np.repeat(np.arange(n), ANCHORS_PER_IMAGE)
    order = np.argsort(cells.ravel(), kind="stable")
    sizes = np.bincount(cells.ravel(), minlength=len(anchors))
    compared = 0
    for number, part in enumerate(np.split(member[order], np.cumsum(sizes)[:-1])):
        _all_pairs(descriptors, part, best, index)
        advance((number + 1) / len(anchors))
        compared += len(part) * (len(part) - 1) // 2
    return best, index, compared


def _measure(
    descriptors: Descriptors,
    index: npt.NDArray[np.int64],
    best: npt.NDArray[np.float32],
    k: int,
    seed: int,
) -> tuple[float, int]:
    """Share of the true k nearest that were found, on a seeded sample of rows."""
    n = len(descriptors)
    sample = np.sort(np.random.default_rng(seed + 1).choice(n, min(n, 500), replace=False))
    truth = nearest_in(descriptors[sample], descriptors, k + 1)
    found = total = 0
    for row, who in zip(sample, truth.index, strict=True):
        wanted = [int(w) for w in who if w not in (row, -1)][:k]
        found += len(set(wanted) & {int(x) for x in index[row]})
        total += len(wanted)
    return found / max(total, 1), len(sample)
