"""Rings and masks in numbers: area, extent, crossing sides, and run lengths of COCO's short form.

Compiled, over flat arrays: a ring is a slice of one array of coordinates x, y, x, y, ... Crossing
sides are counted by comparing all pairs, which is quadratic: rings above `MOST_SIDES` are not
counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.neighbors.kernels.compiled import compiled_on_first_call, plain_functions

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_SIDES = 3000
FEW_SIDES, FEW_RUNS = 100_000, 1000  # pairs of sides, numbers of one mask
FACTS = ("area", "x", "y", "width", "height", "crossings")


@compiled_on_first_call
def _turn(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


@compiled_on_first_call
def _count_crossings(ring: Numbers) -> int:
    """Count pairs of sides of one ring that cross properly: each divides the other."""
    n, count = len(ring) // 2, 0
    for i in range(n):
        ax, ay = ring[2 * i], ring[2 * i + 1]
        j = (i + 1) % n
        bx, by = ring[2 * j], ring[2 * j + 1]
        low_x, high_x = min(ax, bx), max(ax, bx)
        low_y, high_y = min(ay, by), max(ay, by)
        for k in range(i + 2, n):
            m = (k + 1) % n
            if m == i:
                continue
            cx, cy, dx, dy = ring[2 * k], ring[2 * k + 1], ring[2 * m], ring[2 * m + 1]
            if max(cx, dx) < low_x or min(cx, dx) > high_x:
                continue
            if max(cy, dy) < low_y or min(cy, dy) > high_y:
                continue
            one = _turn(ax, ay, bx, by, cx, cy) * _turn(ax, ay, bx, by, dx, dy)
            two = _turn(cx, cy, dx, dy, ax, ay) * _turn(cx, cy, dx, dy, bx, by)
            if one < 0 and two < 0:
                count += 1
    return count


@compiled_on_first_call
def _ring_facts(flat: Numbers, offsets: Integers, facts: Numbers) -> None:
    for r in range(len(offsets) - 1):
        ring = flat[offsets[r] : offsets[r + 1] - (offsets[r + 1] - offsets[r]) % 2]
        n = len(ring) // 2
        if n == 0:
            facts[r, :] = np.nan
            continue
        twice, finite = 0.0, True
        for i in range(n):
            j = (i + 1) % n
            twice += ring[2 * i] * ring[2 * j + 1] - ring[2 * j] * ring[2 * i + 1]
            finite = finite and np.isfinite(ring[2 * i]) and np.isfinite(ring[2 * i + 1])
        facts[r, 0] = abs(twice) / 2
        facts[r, 1], facts[r, 2] = ring[0::2].min(), ring[1::2].min()
        facts[r, 3], facts[r, 4] = ring[0::2].max() - facts[r, 1], ring[1::2].max() - facts[r, 2]
        facts[r, 5] = _count_crossings(ring) if finite and n <= 3000 else np.nan


def ring_facts(flat: Numbers, offsets: Integers, few: int = FEW_SIDES) -> Numbers:
    """Return (rings, 6): area, x, y, width, height, crossing pairs of sides; NaN: not known.

    `offsets` (rings + 1) are positions in `flat`, where ring r is flat[offsets[r]:offsets[r + 1]].
    Up to `few` pairs of sides are compared without compiled code, with the same result.
    """
    facts = np.empty((len(offsets) - 1, len(FACTS)))
    flat = np.ascontiguousarray(flat, np.float64)
    offsets = np.ascontiguousarray(offsets, np.int64)
    if (np.diff(offsets) // 2).astype(np.float64) @ (np.diff(offsets) // 2) > few:
        _ring_facts(flat, offsets, facts)
    else:
        with np.errstate(all="ignore"):
            _PLAIN["_ring_facts"](flat, offsets, facts)
    return facts


@compiled_on_first_call
def _unpack_runs(text: NDArray[np.uint8], runs: Integers) -> int:
    """Read COCO's short form: 5 bits a character, differences to the run before the last."""
    n, at = 0, 0
    while at < len(text):
        value, shift, more = np.int64(0), 0, True
        while more:
            if at >= len(text) or shift > 55:
                return -1
            c = np.int64(text[at]) - 48
            if c < 0 or c > 63:
                return -1
            value |= (c & 31) << shift
            more = (c & 32) != 0
            at += 1
            shift += 5
            if not more and (c & 16):
                value |= np.int64(-1) << shift
        if n > 2:
            value += runs[n - 2]
        runs[n] = value
        n += 1
    return n


def unpack_runs(text: str) -> Integers | None:
    """Return the run lengths of COCO's compressed text, None if it is none."""
    raw = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    runs = np.zeros(len(raw) + 1, np.int64)
    n = (_unpack_runs if len(raw) > FEW_RUNS else _PLAIN["_unpack_runs"])(raw, runs)
    return None if n < 0 else runs[:n]


@compiled_on_first_call
def _run_extent(runs: Integers, height: int, box: Numbers) -> None:
    """Fill area, x, y, width, height of a mask; runs go down the columns, background first."""
    at, area = 0, 0
    low_x, low_y, high_x, high_y = 1 << 60, 1 << 60, -1, -1
    for i in range(len(runs)):
        if i % 2 == 1 and runs[i] > 0:
            area += runs[i]
            end = at + runs[i] - 1
            low_x, high_x = min(low_x, at // height), max(high_x, end // height)
            if at // height == end // height:
                low_y, high_y = min(low_y, at % height), max(high_y, end % height)
            else:
                low_y, high_y = 0, height - 1
        at += runs[i]
    box[0] = area
    if area:
        box[1], box[2], box[3], box[4] = low_x, low_y, high_x - low_x + 1, high_y - low_y + 1
    else:
        box[1:] = np.nan


def run_extent(runs: Integers, height: int) -> Numbers:
    """Return area, x, y, width, height of a mask in px; NaN for the extent of an empty one."""
    box = np.zeros(5)
    fill = _run_extent if len(runs) > FEW_RUNS else _PLAIN["_run_extent"]
    fill(np.ascontiguousarray(runs, np.int64), max(int(height), 1), box)
    return box


# For the few shapes of a small file, where loading compiled code takes longer.
_PLAIN = plain_functions(globals())
