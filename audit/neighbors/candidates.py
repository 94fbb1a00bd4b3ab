"""Which pairs are verified at all: close hashes, and near descriptors.

The two sources miss different copies: a hash survives recompression but not a crop, a descriptor
survives the crop but has a cap on its neighbours. Both are generous, because a pair that is not
proposed here is never compared, while a wrong proposal costs 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from audit.neighbors.dense import Neighbours, find_nearest
from audit.neighbors.descriptor import Descriptors
from audit.neighbors.groups import Pairs
from audit.neighbors.hamming import Codes, find_code_pairs
from audit.neighbors.signatures import Signatures
from audit.neighbors.turned import find_turned_pairs

Rows = npt.NDArray[np.intp]


def find_hash_pairs(
    table: Signatures, hashes: Codes, *, radius: int, turned: bool, limit: int
) -> tuple[Pairs, int, str]:
    """Return pairs of rows within a radius of hashes, the radius, and how the search was done.

    The radius is lowered from `radius` until at most `limit` pairs remain; `turned` adds the
    pairs of mirror images and quarter turns.
    """
    search = find_code_pairs(hashes, radius)
    # rows of one code are chained: a thousand equal hashes are 999 candidates, not 500,000
    rows, distance = search.rows(chain_equal=True)
    count = np.cumsum(np.bincount(distance, minlength=radius + 1))
    while radius > 0 and count[radius] > limit:
        radius -= 1
    near = rows[distance <= radius]
    if not turned:
        return near, radius, search.plan
    every = merge_pairs(near, find_turned_pairs(table, radius))
    return every, radius, f"{search.plan}; in eight orientations"


def find_usable_neighbours(
    descriptors: Descriptors,
    usable: Rows,
    k: int,
    *,
    exact_limit: int,
    seed: int,
    advance: Callable[[float], None],
) -> Neighbours:
    """Return the k nearest of each row among the usable ones, in row numbers of the whole table."""
    among = find_nearest(
        descriptors[usable], k, exact_limit=exact_limit, seed=seed, advance=advance
    )
    index = np.full((len(descriptors), k), -1, np.int64)
    similarity = np.full(index.shape, -2.0, np.float32)
    index[usable] = np.where(among.index >= 0, usable[among.index], -1)
    similarity[usable] = among.similarity
    return Neighbours(
        index, similarity, among.exact, among.recall, among.sample, among.compared_pairs
    )


def neighbour_pairs(near: Neighbours) -> Pairs:
    """List (row, neighbour) of a table of neighbours."""
    row = np.repeat(np.arange(len(near.index)), near.index.shape[1])
    other = near.index.ravel()
    return np.stack([row, other], axis=1)[other >= 0]


def merge_pairs(*parts: Pairs) -> Pairs:
    """Return the distinct pairs of all parts, smaller row first, sorted."""
    pairs = np.sort(np.concatenate([p.reshape(-1, 2) for p in parts]), axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else pairs.astype(np.int64)
