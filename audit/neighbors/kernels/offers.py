"""The loops of the search by descriptor: similarities of blocks, offered to the best so far.

A table holds for each row its k best so far, best first, equals by number. Similarities are rounded
to 1 in 16,384: an image and its mirror image are equally near to any other, and which of two is
listed must not depend on the last bits of a product of matrices. Compiled, else in numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.kernels.library import find_kernel

Array = npt.NDArray[Any]


def best_orientation(parts: Array, out: Array) -> None:
    """Write the best of the eight sums of partial products (8, n) that `dense` lists."""
    if kernel := find_kernel("best_orientation"):
        kernel(parts, out)
        return
    even, odd, last_even, last_odd = parts[:4]
    out[:] = -np.inf
    # with the axes swapped, what is odd under that changes sign
    for sign, (one, two) in ((1, parts[4:6]), (-1, parts[6:])):
        p0, p3 = even + sign * odd, last_even + sign * last_odd
        np.maximum(out, p0 + one + np.abs(two + p3), out=out)
        np.maximum(out, p0 - one + np.abs(two - p3), out=out)
    np.floor(out * np.float32(16_384) + np.float32(0.5), out=out)
    out *= np.float32(1 / 16_384)


def offer_rows(
    table: Array, rows: Array, columns: Array, best: Array, index: Array, diagonal: int
) -> None:
    """Offer each column of a block to its rows (diagonal >= 0: never a row to itself)."""
    if kernel := find_kernel("offer_rows"):
        kernel(table, rows, columns, best, index, diagonal >= 0)
        return
    k = best.shape[1]
    values = np.where((rows[:, None] == columns) & (diagonal >= 0), -np.inf, table)
    order = np.lexsort((np.broadcast_to(columns, table.shape), -values), axis=1)[:, :k]
    value = np.take_along_axis(values, order, 1)
    merge_offers(rows, value, np.where(value > -np.inf, columns[order], -1), best, index)


def merge_offers(rows: Array, other: Array, other_index: Array, best: Array, index: Array) -> None:
    """Offer what was found for some rows to the table of all; -1 is no neighbour."""
    k, one = best.shape[1], np.arange(len(rows))[:, None]
    value = np.concatenate([best[rows], np.where(other_index >= 0, other, -np.inf)], 1)
    who = np.concatenate([index[rows], other_index], 1)
    # of a neighbour that is offered twice, the higher value counts
    order = np.lexsort((-value, who), axis=1)
    value, who = value[one, order], who[one, order]
    again = (who[:, 1:] == who[:, :-1]) & (who[:, 1:] >= 0)
    value[:, 1:][again] = -np.inf
    order = np.lexsort((who, -value), axis=1)[:, :k]
    best[rows], index[rows] = value[one, order], who[one, order]
