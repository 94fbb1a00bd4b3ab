"""Pairs of boxes of one picture that cover each other, found by a sweep down the picture.

Boxes come sorted by their upper edge, and each is compared with those that begin above its lower
edge: in a picture of separate objects a few, not all. One file can still hold 30,000 lines in one
place, whose pairs are as many as their square; so a box is compared with the `MOST_NEXT` boxes that
begin next, and `MOST_PAIRS` of its pairs are kept. Both lie above what pictures of crowds, cells or
shelves have (some hundreds), and who reports says where a limit was reached. Cost: 3 ns a
comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.kernels.library import find_kernel

MOST_NEXT = 1000  # boxes that a box is compared with
MOST_PAIRS = 16  # pairs that are kept of one box
Integers = NDArray[np.int64]


def sweep(
    corners: NDArray[np.float64], offsets: Integers, codes: Integers
) -> tuple[Integers, Integers, int]:
    """Return pairs of positions in `corners`, and how many boxes reached a limit.

    `corners` (boxes, 4) are left, top, right, bottom; picture p has offsets[p] to offsets[p + 1],
    sorted by top; `codes` (boxes) are classes.
    """
    fill = find_kernel("fill_pairs") or _fill_pairs
    corners, codes = np.ascontiguousarray(corners), np.ascontiguousarray(codes, np.int64)
    counts = np.zeros(len(corners), np.int64)
    none = np.zeros((0, 2), np.int64)
    limited = fill(corners, codes, counts, offsets, none)
    found = np.zeros((int(counts.sum()), 2), np.int64)
    if len(found):
        fill(corners, codes, counts, offsets, found)
    return found[:, 0], found[:, 1], int(limited)


def area_in_common(corners: NDArray[np.float64], i: int, j: int) -> float:
    """Return the area that two boxes have in common, 0 without one."""
    wide = min(corners[i, 2], corners[j, 2]) - max(corners[i, 0], corners[j, 0])
    if wide <= 0:
        return 0.0
    tall = min(corners[i, 3], corners[j, 3]) - max(corners[i, 1], corners[j, 1])
    return float(wide * tall) if tall > 0 else 0.0


def _fill_pairs(
    corners: NDArray[np.float64], codes: Integers, counts: Integers, offsets: Integers,
    found: Integers,
) -> int:  # fmt: skip
    """Fill how many pairs each box has with those that begin below it, then the pairs themselves.

    Returns how many boxes reached a limit. The margins leave what rounding decides to the caller.
    """
    n, limited, writing = 0, 0, len(found) > 0
    for p in range(len(offsets) - 1):
        for i in range(offsets[p], offsets[p + 1]):
            y1, own = corners[i, 3], 0
            area = (corners[i, 2] - corners[i, 0]) * (y1 - corners[i, 1])
            for j in range(i + 1, offsets[p + 1]):
                if corners[j, 1] >= y1:
                    break
                if j - i > MOST_NEXT or own == MOST_PAIRS:
                    limited += 1
                    break
                both = area_in_common(corners, i, j)
                if both <= 0:
                    continue
                other = (corners[j, 2] - corners[j, 0]) * (corners[j, 3] - corners[j, 1])
                half = both >= 0.4999 * (area + other - both)
                if half or (codes[i] == codes[j] and both >= 0.8999 * min(area, other)):
                    if writing:
                        found[n, 0], found[n, 1] = i, j
                        n += 1
                    own += 1
            counts[i] = own
    return limited
