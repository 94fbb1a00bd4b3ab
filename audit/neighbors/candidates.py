"""Which pairs are verified at all: close hashes, and near descriptors.

A hash survives recompression but not a crop; a descriptor survives the crop but has a cap on its
neighbours. Mirroring a picture changes the sign of its odd frequencies and turning it swaps the
axes, so one cosine transform of the grey plane gives all eight hashes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit.neighbors.dense import Neighbours
from audit.neighbors.groups import Pairs
from audit.neighbors.hamming import CodePairs, Codes, find_code_pairs
from audit.neighbors.orientations import ORIENTATIONS, orient_frequencies
from audit.neighbors.pair_cache import KnownCodes, find_contained
from audit.picture.signatures import GREY_SIDE, Signatures

Places = npt.NDArray[np.intp]


def find_hash_pairs(
    table: Signatures,
    rows: Places,
    hashes: Codes,
    *,
    radius: int,
    turned: bool,
    limit: int,
    known: KnownCodes | None = None,
) -> tuple[Pairs, int, CodePairs, str]:
    """Return pairs of `rows` within a radius of hashes, the radius, and how the search was done.

    The radius is lowered from `radius` until at most `limit` pairs remain; `turned` adds the
    pairs of mirror images and quarter turns.
    """
    search = find_code_pairs(hashes[rows], radius, known=known)
    # rows of one code are chained: a thousand equal hashes are 999 candidates, not 500,000
    found, distance = search.rows()
    count = np.cumsum(np.bincount(distance, minlength=radius + 1))
    while radius > 0 and count[radius] > limit:
        radius -= 1
    near = rows[found[distance <= radius]]
    if not turned:
        return near, radius, search, search.plan
    every = merge_pairs(near, rows[find_turned_pairs(table[rows], radius)])
    return every, radius, search, f"{search.plan}; in eight orientations"


def neighbour_pairs(near: Neighbours) -> Pairs:
    """List (row, neighbour) of a table of neighbours."""
    there = near.index >= 0
    pairs = np.empty((int(there.sum()), 2), np.int64)
    pairs[:, 0] = np.repeat(np.arange(len(there)), there.sum(1))
    pairs[:, 1] = near.index[there]
    return pairs


def merge_pairs(*parts: Pairs) -> Pairs:
    """Return the distinct pairs of all parts, smaller row first, sorted."""
    numbers = np.concatenate([number_pairs(pairs) for pairs in parts])
    del parts  # of a million pictures each copy is a hundred megabytes
    numbers.sort()
    distinct = numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers
    del numbers
    pairs = np.empty((len(distinct), 2), np.int64)
    np.right_shift(distinct, 32, out=pairs[:, 0])
    np.bitwise_and(distinct, 0xFFFFFFFF, out=pairs[:, 1])
    return pairs


def contains_pairs(pairs: Pairs, wanted: Pairs) -> npt.NDArray[np.bool_]:
    """Say which pairs (m, 2) are among the `wanted`, whichever row is first."""
    return find_contained(number_pairs(pairs), np.sort(number_pairs(wanted)))


def number_pairs(pairs: Pairs) -> npt.NDArray[np.int64]:
    """Return a pair as one number: rows are fewer than 2^31, and sorting takes half the memory."""
    first, second = pairs[:, 0], pairs[:, 1]
    return np.asarray(np.minimum(first, second) << 32 | np.maximum(first, second), np.int64)


SIDE = 8
BATCH = 20_000
PLACES = np.uint64(1) << np.arange(63, -1, -1, dtype=np.uint64)


def hash_orientations(table: Signatures) -> npt.NDArray[np.uint64]:
    """Return (8, n) codes: row 0 as is, then mirrored and turned in all ways.

    pHash [Zauner 2010] of the grey plane, borders cut: comparable with each other only.
    """
    out = np.empty((len(ORIENTATIONS), len(table)), np.uint64)
    at = (2 * np.arange(GREY_SIDE) + 1) * np.pi / (2 * GREY_SIDE)
    basis = np.cos(np.arange(SIDE)[:, None] * at[None, :]).astype(np.float32)  # 8 lowest
    for start in range(0, len(table), BATCH):
        rows = slice(start, start + BATCH)
        low = np.asarray(basis @ table["grey"][rows].astype(np.float32) @ basis.T, np.float32)
        for k in range(len(ORIENTATIONS)):
            flat = orient_frequencies(low, k).reshape(len(low), SIDE * SIDE)
            bits = flat > np.median(flat, axis=1, keepdims=True)
            out[k, rows] = (bits * PLACES).sum(axis=1, dtype=np.uint64)
    return out


def find_turned_pairs(table: Signatures, radius: int) -> npt.NDArray[np.int64]:
    """Return every pair of rows (m, 2), first < second, within `radius` bits in some orientation.

    Rows whose codes are equal are each paired with the first of them only.
    """
    n = len(table)
    if n < 2:
        return np.zeros((0, 2), np.int64)
    codes: Codes = hash_orientations(table).ravel()
    rows, _ = find_code_pairs(codes, radius).rows()
    pairs = np.sort(rows % n, axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
