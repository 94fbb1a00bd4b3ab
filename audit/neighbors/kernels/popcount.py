"""Compiled kernels of the Hamming search: popcounts over stretches of codes, hits into buffers.

Nearly every comparison fails, so a stretch of 32 or 64 codes is first asked for its least distance
alone, a loop that the compiler turns into vector popcounts; only a stretch that holds a hit is
gone through one by one. Each task writes into its own stretch of the output and counts on when
that is full, so that the caller can give it room and run it again.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from audit.machine.compiled import compiled_kernel, emitted, inlined

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.uint64]


@emitted
def _popcount(_context: Any, _word: Any) -> Any:
    """Count set bits of a 64-bit word by the processor's own instruction."""

    # numba has no popcount of its own; LLVM's ctpop becomes POPCNT, or a vector of them
    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@compiled_kernel(parallel=True)
def permute_bits(codes: Array, permutation: Array) -> Codes:
    """Move bit permutation[k] to place k, in every code."""
    # chunks of a permuted word are contiguous: a shift and a mask instead of 64 tests each
    out = np.zeros_like(codes)
    for i in numba.prange(codes.size):
        word = np.uint64(0)
        for k in range(64):
            word |= ((codes[i] >> np.uint64(permutation[k])) & np.uint64(1)) << np.uint64(k)
        out[i] = word
    return out


@inlined
def _near4(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, codes: Array, start: int, stop: int
) -> Any:
    """Least distance of four codes to a stretch of codes: one pass, vectorised."""
    # no branch in the loop: a minimum vectorises, an early exit does not
    least = np.uint64(64)
    for j in range(start, stop):
        x = codes[j]
        p = min(_popcount(a ^ x), _popcount(b ^ x))
        q = min(_popcount(c ^ x), _popcount(d ^ x))
        least = min(least, min(p, q))
    return least


@inlined
def _emit(
    i: int,
    j: int,
    d: np.uint64,
    k: int,
    edges: Array,
    t: int,
    first: Array,
    second: Array,
    distance: Array,
) -> None:
    """Write hit number k of task t if there is room for it."""
    # hits beyond the room are counted and not written: the caller makes room for all of them
    place = edges[t] + k
    if place < edges[t + 1]:
        first[place] = i
        second[place] = j
        distance[place] = d


@compiled_kernel(parallel=True)
def brute_kernel(
    codes: Array,
    others: Array,
    later: bool,
    radius: np.uint64,
    bounds: Array,
    tasks: Array,
    edges: Array,
    first: Array,
    second: Array,
    distance: Array,
    count: Array,
) -> None:
    """Rows bounds[task]..bounds[task+1] against all others, four rows and 64 at a time.

    `later`: the others are the same codes, and each row meets those after it.
    """
    n = others.size
    for t in numba.prange(tasks.size):
        hits = 0
        row, end = bounds[tasks[t]], bounds[tasks[t] + 1]
        while row < end:
            # four rows share each load of a code; the last group repeats its last row
            last = min(row + 4, end)
            a = codes[row]
            b, c, d = codes[min(row + 1, last - 1)], codes[min(row + 2, last - 1)], codes[last - 1]
            for start in range(row + 1 if later else 0, n, 64):
                stop = min(start + 64, n)
                if _near4(a, b, c, d, others, start, stop) > radius:
                    continue
                for i in range(row, last):
                    for j in range(max(start, i + 1) if later else start, stop):
                        apart = _popcount(codes[i] ^ others[j])
                        if apart <= radius:
                            _emit(i, j, apart, hits, edges, t, first, second, distance)
                            hits += 1
            row = last
        count[t] = hits


@inlined
def _brought_earlier(
    difference: np.uint64, chunk: int, shifts: Array, fields: Array, reach: Array
) -> bool:
    """Would an earlier chunk have brought this pair together?"""
    # a pair within the radius agrees in one chunk at least and often in several: the first one
    # reports it, so no list of seen pairs has to be kept
    for c in range(chunk):
        part = (difference >> shifts[c]) & fields[c]
        if reach[c] >= 0 and _popcount(part) <= np.uint64(reach[c]):
            return True
    return False


@compiled_kernel(parallel=True)
def chunk_kernel(
    radius: np.uint64,
    shifts: Array,
    fields: Array,
    reach: Array,
    codes: Array,
    rows: Array,
    starts: Array,
    masks: Array,
    chunk: int,
    bounds: Array,
    tasks: Array,
    edges: Array,
    first: Array,
    second: Array,
    distance: Array,
    count: Array,
) -> None:
    """Buckets bounds[task]..bounds[task+1] of one chunk against the buckets within its radius."""
    for t in numba.prange(tasks.size):
        hits = 0
        for u in range(bounds[tasks[t]], bounds[tasks[t] + 1]):
            begin, end = starts[u], starts[u + 1]
            if begin == end:
                continue
            for m in range(masks.size):
                v = u ^ masks[m]
                # bucket pairs are symmetric: (u, v) is met from the smaller side
                if v < u:
                    continue
                low, high = starts[v], starts[v + 1]
                if low == high:
                    continue
                for i in range(begin, end):
                    own = codes[i]
                    # within one bucket each pair once
                    from_ = i + 1 if v == u else low
                    for start in range(from_, high, 32):
                        stop = min(start + 32, high)
                        # the same quick test for one row: buckets are too short for four
                        least = np.uint64(64)
                        for j in range(start, stop):
                            least = min(least, _popcount(own ^ codes[j]))
                        if least > radius:
                            continue
                        for j in range(start, stop):
                            difference = own ^ codes[j]
                            apart = _popcount(difference)
                            if apart <= radius and not _brought_earlier(
                                difference, chunk, shifts, fields, reach
                            ):
                                a, b = min(rows[i], rows[j]), max(rows[i], rows[j])
                                _emit(a, b, apart, hits, edges, t, first, second, distance)
                                hits += 1
        count[t] = hits
