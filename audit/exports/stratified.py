"""Splits that hold every class in its share, where an image is of many: objects, several labels.

Iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011, On the stratification of
multi-label data, ECML PKDD) of units, then the most helpful exchanges of units between two splits,
until each class is within one unit of its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LOOKED_AT = 256  # units of each of two splits that are tried for an exchange
EXCHANGES = 5000


def stratify(held: Any, shares: Floats, fixed: Ints, seed: int) -> tuple[Ints, Floats]:
    """Return the split of each unit, and by how many units (split, class) lacks samples.

    `held` (units, dimensions): sparse counts, of images first; `fixed` (units,): the split of a
    unit that has one, -2 for one outside all of these, and -1 for the others, which are dealt out.
    A unit of a class is the most that one unit holds of it; below 0 there are too many samples.
    """
    held = held.tocsr()
    split = np.array(fixed)
    need = np.outer(shares, np.asarray(held[np.flatnonzero(fixed > -2)].sum(0)).ravel())
    for s in range(len(shares)):
        need[s] -= np.asarray(held[np.flatnonzero(fixed == s)].sum(0)).ravel()
    free = np.flatnonzero(fixed == -1)
    rng = np.random.default_rng(seed % 2**64)
    _deal(held, need, split, rng.permutation(free))
    most = np.maximum(np.asarray(held.max(0).todense()).ravel(), 1.0)
    _even_out(held, need, split, free, most, rng)
    return split, need / most


def _deal(held: Any, need: Floats, split: Ints, order: Ints) -> None:
    """Give each unit of `order` to the split that lacks most of its rarest class."""
    columns = held.tocsc()
    waiting = split == -1
    left = np.asarray((held[np.flatnonzero(waiting)] > 0).sum(0)).ravel().astype(float)
    place = np.empty(len(split), np.int64)
    place[order] = np.arange(len(order))
    rarest = left[1:].copy()
    while rarest.size and rarest.max(initial=0) > 0:
        d = 1 + int(np.argmin(np.where(rarest > 0, rarest, np.inf)))
        start, end = columns.indptr[d], columns.indptr[d + 1]
        rows, counts = columns.indices[start:end], columns.data[start:end]
        kept = waiting[rows]
        rows, counts = rows[kept], counts[kept]
        for unit in rows[np.lexsort((place[rows], -counts))].tolist():
            _give(held, need, split, unit, d)
            waiting[unit] = False
            there = held.indices[held.indptr[unit] : held.indptr[unit + 1]]
            rarest[there[there > 0] - 1] -= 1
        rarest[d - 1] = 0
    for unit in order[waiting[order]].tolist():
        _give(held, need, split, unit, 0)


def _give(held: Any, need: Floats, split: Ints, unit: int, d: int) -> None:
    s = int(np.lexsort((need[:, 0], need[:, d]))[-1])
    split[unit] = s
    start, end = held.indptr[unit], held.indptr[unit + 1]
    need[s, held.indices[start:end]] -= held.data[start:end]


def _even_out(
    held: Any, need: Floats, split: Ints, free: Ints, most: Floats, rng: np.random.Generator
) -> None:
    """Exchange units between the splits that have too much and too little of a class."""
    stuck = np.zeros(need.shape[1], np.bool_)
    for _ in range(EXCHANGES):
        off = need / most
        worst = np.where(stuck, 0.0, np.abs(off).max(0))
        d = int(worst.argmax())
        if worst[d] <= (0.5 if d == 0 else 1.0):
            break
        much, little = int(off[:, d].argmin()), int(off[:, d].argmax())
        ours, theirs = (
            units if len(units) <= LOOKED_AT else rng.choice(units, LOOKED_AT, replace=False)
            for units in (free[split[free] == s] for s in (much, little))
        )
        # nothing in exchange: the last row of each
        a, b = (np.vstack([held[x].toarray(), np.zeros(len(most))]) / most for x in (ours, theirs))
        lack = off[much] - off[little]
        gain = 2 * ((a @ lack)[:, None] - (b @ lack)[None]) + 2 * (
            (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
        )
        i, j = np.unravel_index(int(gain.argmin()), gain.shape)
        if gain[i, j] > -1e-9:
            stuck[d] = True
            continue
        stuck[:] = False
        for unit, source, target in ((i, much, little), (j, little, much)):
            side = ours if source == much else theirs
            if unit < len(side):
                moved = held[[side[unit]]].toarray()[0]
                need[source] += moved
                need[target] -= moved
                split[side[unit]] = target


def as_matrix(rows: Sequence[Mapping[Any, int]]) -> tuple[Any, list[Any]]:
    """Return counts by row as a sparse matrix, and what its columns are, in a fixed order."""
    from scipy.sparse import csr_array

    names = sorted({name for row in rows for name in row})
    place = {name: i for i, name in enumerate(names)}
    entries = [(i, place[name], n) for i, row in enumerate(rows) for name, n in row.items()]
    unit, column, n = (np.array(part) for part in zip(*entries, strict=True))
    return csr_array((n.astype(float), (unit, column)), shape=(len(rows), len(names))), names
