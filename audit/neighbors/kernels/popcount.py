"""The kernels of the Hamming search: hits of tasks into buffers; compiled, else in numpy.

Task t of `tasks` writes to first, second and distance from edges[t, 0] to edges[t, 1], and counts
on when that is full, so that the caller can give it room and run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.kernels.library import find_kernel

Array = npt.NDArray[Any]
MAX_COMPARISONS = 1 << 20
"""Pairs that are compared at a time in numpy."""


def permute_bits(codes: Array, permutation: Array) -> Array:
    """Move bit permutation[k] to place k, in every code."""
    # what each value of each byte becomes; a code is then eight look-ups
    values = (
        np.arange(256, dtype=np.uint64) << np.arange(0, 64, 8, dtype=np.uint64)[:, None]
    ).copy()
    bits = np.unpackbits(values.view(np.uint8).reshape(8, 256, 8), axis=2, bitorder="little")
    moved = np.packbits(bits[:, :, permutation], axis=2, bitorder="little").view(np.uint64)[..., 0]
    out = np.zeros_like(codes)
    for table, part in zip(moved, codes.view(np.uint8).reshape(-1, 8).T, strict=True):
        out |= table[part]
    return out


def compare_rows(
    codes: Array, others: Array, later: bool, radius: int, bounds: Array, tasks: Array,
    edges: Array, first: Array, second: Array, distance: Array, count: Array,
) -> None:  # fmt: skip
    """Compare rows bounds[task] .. bounds[task + 1] with all others.

    `later`: the others are the same codes, and each row meets those after it.
    """
    if kernel := find_kernel("compare_rows"):
        kernel(codes, others, later, radius, bounds, tasks, edges, first, second, distance, count)
        return

    def find(task: int) -> Iterator[tuple[Array, Array]]:
        block = MAX_COMPARISONS // max(len(others), 1) + 1
        for start in range(bounds[task], bounds[task + 1], block):
            rows = np.arange(start, min(start + block, bounds[task + 1]))
            low = start + 1 if later else 0
            near = np.bitwise_count(codes[rows, None] ^ others[low:]) <= radius
            row, column = np.nonzero(near)
            keep = (column + low > rows[row]) | (not later)
            yield rows[row[keep]], column[keep] + low

    _write(find, codes, others, tasks, edges, first, second, distance, count)


def compare_buckets(
    radius: int, shifts: Array, fields: Array, reach: Array, codes: Array, rows: Array,
    starts: Array, masks: Array, chunk: int, bounds: Array, tasks: Array,
    edges: Array, first: Array, second: Array, distance: Array, count: Array,
) -> None:  # fmt: skip
    """Compare buckets bounds[task] .. bounds[task + 1] of a chunk with those near them."""
    if kernel := find_kernel("compare_buckets"):
        kernel(
            radius, shifts, fields, reach, codes, rows, starts, masks, chunk, bounds, tasks, edges,
            first, second, distance, count,
        )  # fmt: skip
        return

    def find(task: int) -> Iterator[tuple[Array, Array]]:
        at = np.arange(starts[bounds[task]], starts[bounds[task + 1]])
        own = np.searchsorted(starts, at, "right") - 1
        for mask in masks:
            # bucket pairs are symmetric, and within a bucket each pair is met once
            met = own <= own ^ mask
            i, bucket = at[met], (own ^ mask)[met]
            low = starts[bucket] if mask else i + 1
            many = starts[bucket + 1] - low
            i, within = np.repeat(i, many), np.arange(many.sum())
            j = within - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)
            difference = codes[i] ^ codes[j]
            keep = np.bitwise_count(difference) <= radius
            for c in range(chunk):
                # the first chunk that brings a pair together reports it
                keep &= np.bitwise_count((difference >> shifts[c]) & fields[c]) > reach[c]
            a, b = rows[i[keep]], rows[j[keep]]
            yield np.minimum(a, b), np.maximum(a, b)

    by_row = np.empty_like(codes)
    by_row[rows] = codes
    _write(find, by_row, by_row, tasks, edges, first, second, distance, count)


def _write(
    find: Callable[[int], Iterator[tuple[Array, Array]]], codes: Array, others: Array,
    tasks: Array, edges: Array, first: Array, second: Array, distance: Array, count: Array,
) -> None:  # fmt: skip
    """Write the hits of each task that there is room for, and count them all."""
    for number, (task, (begin, end)) in enumerate(zip(tasks, edges, strict=True)):
        filled, count[number] = begin, 0
        for a, b in find(int(task)):
            count[number] += len(a)
            a, b = a[: end - filled], b[: end - filled]
            here = slice(filled, filled + len(a))
            first[here], second[here] = a, b
            distance[here] = np.bitwise_count(codes[a] ^ others[b])
            filled = here.stop
