"""The k nearest pictures by descriptor, whatever way up: exact in blocks, or in anchored cells.

Beyond `EXACT_LIMIT` images the search is approximate: every image joins the cells of its nearest
three anchors, by a similarity that is equal for mirror images and quarter turns. Its recall is
measured on a sample against the exact search, and reported. k is a stated cap: other pairs are
found through the Hamming search or when representatives are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import cv2
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from audit.machine.sharing import Advance, ignore_share, thread_count
from audit.neighbors.descriptor import Descriptors, layout
from audit.neighbors.kernels.offers import best_orientation, merge_offers, offer_rows

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
EXACT_LIMIT = 200_000
"""Images up to which all pairs are compared: about two minutes on two cores."""
BLOCK = 384
ANCHORS_PER_IMAGE = 3
STRETCH = 64 * BLOCK
"""Rows that are copied together: a copy of all would take too much memory."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The `k` nearest of each row, best first, and how they were found.

    `index` (n, k) int64 with -1 where there are fewer; `similarity` (n, k) float32, cosine in the
    best of the eight orientations, rounded. `recall` is 1 when `exact`, else measured on `sample`
    rows.
    """

    index: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float32]
    exact: bool
    recall: float
    sample: int


def find_nearest(
    descriptors: Descriptors,
    k: int = 10,
    *,
    rows: Indices | None = None,
    exact_limit: int = EXACT_LIMIT,
    advance: Advance = ignore_share,
) -> Neighbours:
    """Return the k nearest others of each of `rows` (None: of all), by numbers of the whole.

    `advance` gets the share that is done. Deterministic for one order of rows; sort by content hash
    first to be free of order.
    """
    chosen = np.arange(len(descriptors)) if rows is None else np.asarray(rows, np.int64)
    n = len(chosen)
    if exact := n <= exact_limit:
        parts = [chosen[start:] for start in range(0, n, BLOCK)]
    else:
        parts = _cells(descriptors, chosen)
    tasks = [_against_itself(descriptors, part) for part in parts]
    best, index = _in_threads(tasks, len(descriptors), k, advance)
    if exact:
        return Neighbours(index, best, True, 1.0, n)
    recall, sample = _measure(descriptors, chosen, index, k)
    return Neighbours(index, best, False, recall, sample)


def find_nearest_in(queries: Descriptors, library: Descriptors, k: int = 10) -> Neighbours:
    """Return the k nearest library rows of each query row, exactly, in blocks."""
    n, every = len(queries), np.arange(len(library))
    rows = [np.arange(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
    tasks = [_against(queries, part, library, every, -1) for part in rows]
    best, index = _in_threads(tasks, n, k)
    return Neighbours(index, best, True, 1.0, n)


def find_nearest_again(
    descriptors: Descriptors, rows: Indices, index: Indices, similarity: Floats,
    new: Indices, lost: Indices,
) -> Neighbours:  # fmt: skip
    """Return the nearest of each of `rows` from those of an earlier search, (n, k), exactly.

    `index` and `similarity` are the lists of all pictures of before, by numbers of now; `new` rows
    have none yet and may belong into others, those of `lost` lack a picture that is gone.
    """
    anew = np.union1d(new, lost)
    kept = np.setdiff1d(rows, anew)
    tasks = [
        _against(descriptors, asked[start : start + BLOCK], descriptors, offered, 0)
        for asked, offered in ((anew, rows), (kept, new))
        for start in range(0, len(asked) if len(offered) else 0, BLOCK)
    ]
    n, k = index.shape
    found, found_index = _in_threads(tasks, n, k) if tasks else _empty(n, k)
    best, merged = similarity.copy(), index.copy()
    best[anew], merged[anew] = -2.0, -1
    merge_offers(np.arange(n), found, found_index, best, merged)
    return Neighbours(merged, best, True, 1.0, len(rows))


def similarity_table(first: Descriptors, second: Descriptors) -> Floats:
    """Return the similarity of every row of one to every row of the other, (n, m) float32."""
    out, blocks = np.empty((len(first), len(second)), np.float32), _Blocks()
    with threadpool_limits(limits=1, user_api="blas"):
        for start in range(0, len(first), BLOCK):
            for column in range(0, len(second), BLOCK):
                rows, columns = slice(start, start + BLOCK), slice(column, column + BLOCK)
                out[rows, columns] = blocks.table(first[rows], second[columns])
    return out


def _in_threads(
    tasks: Sequence[Task], n: int, k: int, advance: Advance = ignore_share
) -> tuple[Floats, Indices]:
    """Run the tasks on all cores and return the (n, k) tables of the nearest.

    BLAS is held to one thread, because its waiting threads spin and would starve the kernels.
    Merging the threads' tables is free of order: equals are ranked by row number.
    """
    waiting, lock, done = iter(tasks), Lock(), [0]

    def work() -> tuple[Floats, Indices]:
        best, index, blocks = *_empty(n, k), _Blocks()
        while True:
            with lock:
                task = next(waiting, None)
            if task is None:
                return best, index
            task(blocks, best, index)
            with lock:
                done[0] += 1
                advance(done[0] / len(tasks))

    # one table a thread costs n x k x 12 bytes and saves a lock in the innermost loop
    threads = max(1, min(thread_count(), len(tasks)))
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        tables = [future.result() for future in [pool.submit(work) for _ in range(threads)]]
    best, index = tables[0]
    for other in tables[1:]:
        merge_offers(np.arange(n), *other, best, index)
    return best, index


def _empty(n: int, k: int) -> tuple[Floats, Indices]:
    return np.full((n, k), -2.0, np.float32), np.full((n, k), -1, np.int64)


class _Blocks:
    """Similarities of blocks, best of eight orientations, in buffers that are used again."""

    def __init__(self) -> None:
        self._parts = np.empty(8 * BLOCK * BLOCK, np.float32)
        self._out = np.empty(BLOCK * BLOCK, np.float32)
        self._turned = np.empty(BLOCK * BLOCK, np.float32)

    def turned(self, table: Floats) -> Floats:
        """Return a table's transpose, laid out by rows; valid until the next call."""
        out = self._turned[: table.size].reshape(table.shape[::-1])
        cv2.transpose(table, out)
        return out

    def table(self, first: Descriptors, second: Descriptors) -> npt.NDArray[np.float32]:
        """Return (rows of first, rows of second); valid until the next call."""
        shape = len(first), len(second)
        size = shape[0] * shape[1]
        zero, one, two, three, end = layout().edges
        odd, last_odd = layout().odd
        x, y = slice(one, two), slice(two, three)
        # the parts of the two classes that a swap of the axes leaves in place; then the others,
        # as they lie and swapped
        same = [slice(zero, odd), slice(odd, one), slice(three, last_odd), slice(last_odd, end)]
        asked = [*same, x, y, y, x]
        parts = self._parts[: 8 * size].reshape(8, size)
        for part, columns, held in zip(parts, asked, [*same, x, y, x, y], strict=True):
            np.matmul(first[:, columns], second[:, held].T, out=part.reshape(shape))
        best_orientation(parts, self._out[:size])
        return self._out[:size].reshape(shape)


Task = Callable[[_Blocks, Floats, Indices], None]
"""Compares one part of the pairs and offers what it finds to the tables."""


def _against(
    queries: Descriptors, rows: Indices, library: Descriptors, columns: Indices, diagonal: int
) -> Task:
    """Compare some rows of the queries with some of the library; see `offer_rows`."""

    def compare(blocks: _Blocks, best: Floats, index: Indices) -> None:
        for start in range(0, len(columns), BLOCK):
            part = columns[start : start + BLOCK]
            table = blocks.table(queries[rows], library[part])
            offer_rows(table, rows, part, best, index, diagonal)

    return compare


def _against_itself(descriptors: Floats, members: Indices) -> Task:
    """Compare the first block of members with itself and all later ones, once a pair."""

    def compare(blocks: _Blocks, best: Floats, index: Indices) -> None:
        rows = members[:BLOCK]
        # upper triangle of blocks: each product serves both of its rows
        own = descriptors[rows]
        for column in range(0, len(members), BLOCK):
            columns = members[column : column + BLOCK]
            table = blocks.table(own, descriptors[columns])
            # on the diagonal block rows and columns are the same pictures: not one with itself
            same = 0 if column == 0 else -1
            offer_rows(table, rows, columns, best, index, same)
            if column:
                offer_rows(blocks.turned(table), columns, rows, best, index, -1)

    return compare


def _cells(descriptors: Descriptors, chosen: Indices) -> list[Indices]:
    """Return members that share one of their nearest anchors, as parts."""
    n = len(chosen)
    # 2 sqrt(n) anchors balance the two steps: n x anchors products to assign, then cells of about
    # 1.5 sqrt(n) members each
    drawn = np.random.default_rng(0).choice(n, int(2 * np.sqrt(n)), replace=False)
    anchors = descriptors[chosen[np.sort(drawn)]]
    cells = np.zeros((n, ANCHORS_PER_IMAGE), np.int64)
    for start in range(0, n, STRETCH):
        part = slice(start, start + STRETCH)
        near = find_nearest_in(descriptors[chosen[part]], anchors, ANCHORS_PER_IMAGE)
        cells[part] = near.index
    member = np.repeat(chosen, ANCHORS_PER_IMAGE)
    # stable, so that members stay in row order and equals are ranked alike in every run
    order = np.argsort(cells.ravel(), kind="stable")
    sizes = np.bincount(cells.ravel(), minlength=len(anchors))
    split = np.split(member[order], np.cumsum(sizes)[:-1])
    # the largest first, so that no thread is left with one at the end
    ordered = sorted(split, key=len, reverse=True)
    return [part[start:] for part in ordered for start in range(0, len(part), BLOCK)]


def _measure(
    descriptors: Descriptors, chosen: Indices, index: Indices, k: int
) -> tuple[float, int]:
    """Share of the true k nearest that were found, on a seeded sample of rows."""
    n = len(chosen)
    # another seed than the anchors', so that the sample does not consist of anchors
    sample = chosen[np.sort(np.random.default_rng(1).choice(n, min(n, 500), replace=False))]
    # k + 1, because each row is its own nearest
    queries, (best, truth) = descriptors[sample], _empty(len(sample), k + 1)
    for start in range(0, n, STRETCH):
        part = chosen[start : start + STRETCH]
        near = find_nearest_in(queries, descriptors[part], k + 1)
        found = np.where(near.index >= 0, part[near.index], -1)
        merge_offers(np.arange(len(sample)), near.similarity, found, best, truth)
    hits = total = 0
    for row, who in zip(sample, truth, strict=True):
        wanted = [int(w) for w in who if w not in (row, -1)][:k]
        hits += len(set(wanted) & {int(x) for x in index[row]})
        total += len(wanted)
    return hits / max(total, 1), len(sample)
