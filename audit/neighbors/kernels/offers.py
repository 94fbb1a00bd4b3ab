"""Compiled loops of the search by descriptor: similarities of blocks, offered to the best so far.

A table holds for each row its k best so far, best first, equals by number. Similarities are rounded
to 1 in 16,384: a picture and its mirror image are equally near to any other, and which of two is
listed must not hang on the last bits of a product of matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.machine.compiled import compiled_kernel, inlined

Array = npt.NDArray[Any]
_STEPS, _STEP = np.float32(16_384), np.float32(1 / 16_384)


@compiled_kernel(nogil=True, fastmath=True)
def best_orientation(parts: Array, out: Array) -> None:
    """Write the best of the eight sums of partial products (8, ...) that `dense` lists."""
    even, odd, last_even, last_odd = parts[0], parts[1], parts[2], parts[3]
    one, two, one_swapped, two_swapped = parts[4], parts[5], parts[6], parts[7]
    for i in range(out.size):
        # classes are even-even, odd in x, odd in y, odd in both; a mirror flips two of them
        p0, p3 = even[i] + odd[i], last_even[i] + last_odd[i]
        top = max(p0 + one[i] + abs(two[i] + p3), p0 - one[i] + abs(two[i] - p3))
        # with the axes swapped, what is odd under that changes sign
        p0, p3 = even[i] - odd[i], last_even[i] - last_odd[i]
        top = max(top, p0 + one_swapped[i] + abs(two_swapped[i] + p3))
        top = max(top, p0 - one_swapped[i] + abs(two_swapped[i] - p3))
        out[i] = np.floor(top * _STEPS + np.float32(0.5)) * _STEP


@inlined
def offer_neighbour(value: float, who: int, best: Array, index: Array) -> None:
    """Insert a neighbour into a row sorted best first, equals by number, if it belongs there."""
    k = best.shape[0]
    if value < best[k - 1] or (value == best[k - 1] and who > index[k - 1]):
        return
    # cells overlap, so a neighbour may be offered twice, with another last bit: the higher counts,
    # whichever comes first
    m = k - 1
    for held in range(k):
        if index[held] == who:
            if value <= best[held]:
                return
            m = held
    while m > 0 and (best[m - 1] < value or (best[m - 1] == value and index[m - 1] > who)):
        best[m] = best[m - 1]
        index[m] = index[m - 1]
        m -= 1
    best[m] = value
    index[m] = who


@compiled_kernel(nogil=True, fastmath=True)
def offer_rows(
    table: Array, rows: Array, columns: Array, best: Array, index: Array, diagonal: int
) -> None:
    """Offer each column of a block to its rows (diagonal >= 0: never a row to itself).

    Sixteen values at a time are held against the row's worst neighbour: nearly all fail at once.
    """
    width = table.shape[1]
    for i in range(table.shape[0]):
        r = rows[i]
        # the bar rises as neighbours come in, so later blocks fail faster
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
                    offer_neighbour(table[i, j], columns[j], best[r], index[r])
                    worst = best[r, -1]


@compiled_kernel(nogil=True)
def merge_offers(rows: Array, other: Array, other_index: Array, best: Array, index: Array) -> None:
    """Offer what was found for some rows to the table of all."""
    for r in range(rows.shape[0]):
        for m in range(other.shape[1]):
            if other_index[r, m] >= 0:
                offer_neighbour(other[r, m], other_index[r, m], best[rows[r]], index[rows[r]])
