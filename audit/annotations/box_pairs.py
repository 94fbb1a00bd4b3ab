"""Pairs of boxes of one picture that cover each other, found by a sweep down the picture.

A box is compared with the next `MOST_NEXT` that begin above its lower edge, and `MOST_PAIRS` of its
pairs are kept, because a file can hold 30,000 boxes in one place; callers report the limit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

MOST_NEXT = 1000  # boxes that a box is compared with
MOST_PAIRS = 16  # pairs that are kept of one box
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def sweep(corners: Numbers, offsets: Integers, codes: Integers) -> tuple[Integers, Integers, int]:
    """Return pairs of positions in `corners`, and how many boxes reached a limit.

    `corners` (boxes, 4) are left, top, right, bottom; image p has offsets[p] to offsets[p + 1],
    sorted by top; `codes` (boxes) are classes. The caller decides what rounding may change.
    """
    area, own, found = areas_of(corners), np.zeros(len(corners), np.int64), [np.zeros((2, 0), int)]
    full, limited = np.zeros((2, len(corners)), np.bool_)
    for i, j, both in compare_next(corners, offsets, full, limited):
        half = both >= 0.4999 * (area[i] + area[j] - both)
        inside = (codes[i] == codes[j]) & (both >= 0.8999 * np.minimum(area[i], area[j]))
        kept = half | inside
        found.append(np.stack([i[kept], j[kept]]))
        own[i[kept]] += 1
        full[i] = own[i] == MOST_PAIRS
    pairs = np.concatenate(found, axis=1)
    first, second = pairs[:, np.argsort(pairs[0], kind="stable")]
    return first, second, int(limited.sum())


def areas_of(corners: Numbers) -> Numbers:
    """Return the areas of boxes (boxes, 4)."""
    return np.asarray((corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1]))


def compare_next(
    corners: Numbers, offsets: Integers, full: Flags, limited: Flags
) -> Iterator[tuple[Integers, Integers, Numbers]]:
    """Yield boxes not `full`, boxes that begin below, areas in common; mark `limited` boxes."""
    left, top, right, bottom = np.ascontiguousarray(corners.T)
    end, i = np.repeat(offsets[1:], np.diff(offsets)), np.arange(len(corners))
    for step in range(1, MOST_NEXT + 2):
        i = i[i + step < end[i]]
        i = i[top[i + step] < bottom[i]]
        stopped = full[i] | (step > MOST_NEXT)
        limited[i[stopped]] = True
        i = i[~stopped]
        if not len(i):
            return
        j = i + step
        wide = np.minimum(right[i], right[j]) - np.maximum(left[i], left[j])
        tall = np.minimum(bottom[i], bottom[j]) - np.maximum(top[i], top[j])
        near = (wide > 0) & (tall > 0)
        yield i[near], j[near], wide[near] * tall[near]
