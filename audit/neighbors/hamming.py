"""Complete search among 64-bit perceptual hashes: every pair within a distance, none missed.

Few codes are compared each with each. Many go through the pigeonhole principle [Norouzi, Punjani,
Fleet, CVPR 2012]: with m chunks of radii p_i, sum(p_i + 1) = r + 1, two codes within r agree within
p_i in some chunk, and the first such chunk reports the pair. The codes at hand decide which plan
costs least; equal codes are collapsed first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.machine.sharing import in_threads, row_blocks
from audit.neighbors.pair_cache import KnownCodes, find_contained

Codes = npt.NDArray[np.uint64]
Hits = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.uint8]]
"""Rows of pairs, first and second, and their distances."""
BRUTE_RATE = 4.0
"""How many pairs are compared outright in the time of one compared in buckets."""
PRICED_FROM = 16_384
"""Codes from which plans are priced: fewer are compared outright in less time than that takes."""
VISIT_COST = 6.0
"""Opening a bucket costs as much as comparing this many pairs in one."""
FEW_PAIRS = 4_000_000
"""Up to so many, loading the kernels takes longer than comparing with numpy."""
MOST_NEW = 0.05
"""Share of codes that are new from which all are compared."""
OUTRIGHT = "all codes compared with each other"
PARTS = 4
"""A part holds 128 tasks, which bounds the buffers."""
_TASKS = 128 * PARTS
_GUESS = 2048
TASK_BLOCK = 8
"""Tasks that a thread takes at a time."""


@dataclass(frozen=True, slots=True)
class CodePairs:
    """All pairs of distinct codes within a radius, and the rows that share each code.

    `first` and `second` index `codes` (sorted, distinct); `inverse` maps rows to codes; `plan`
    says in words how the search was done.
    """

    codes: Codes
    inverse: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    distance: npt.NDArray[np.uint8]
    plan: str

    def known(self, radius: int) -> KnownCodes:
        """Return what the next search within this radius can use."""
        first, second = self.codes[self.first], self.codes[self.second]
        return KnownCodes(self.codes, first, second, self.distance, np.array(radius))

    def rows(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """Return pairs of rows (m, 2) with first < second, and their distances.

        Rows that share one code are each paired with the first of them, and only the first with
        other codes: every row with a partner is named, without all pairs of equal codes.
        """
        _, head = np.unique(self.inverse, return_index=True)
        others = np.delete(np.arange(len(self.inverse)), head)
        equal = np.stack([head[self.inverse[others]], others], 1)
        near = np.stack([head[self.first], head[self.second]], 1)
        pairs = np.sort(np.concatenate([equal, near]), axis=1)
        distance = np.concatenate([np.zeros(len(equal), np.uint8), self.distance])
        return _sorted_pairs(pairs, distance)


def _brought_up_to(codes: Codes, radius: int, known: KnownCodes) -> Hits | None:
    """Return the pairs of distinct codes, sorted: those of before, and those of what is new; None
    where that is much, or another radius was searched.
    """
    new = np.flatnonzero(~find_contained(codes, known.codes))
    if known.radius != radius or len(new) > MOST_NEW * len(codes):
        return None
    stay = find_contained(known.first, codes) & find_contained(known.second, codes)
    first, second = (np.searchsorted(codes, c[stay]) for c in (known.first, known.second))
    pairs, distance = find_cross_pairs(codes[new], codes, radius)
    one, other = new[pairs[:, 0]], pairs[:, 1]
    # of two that are new, each finds the other
    once = (one < other) | ((one > other) & find_contained(codes[other], known.codes))
    return _joined(
        [(first, second, known.distance[stay]), (one[once], other[once], distance[once])]
    )


def _sorted_pairs(
    pairs: npt.NDArray[np.int64], distance: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[order], distance[order]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Chunks of a bit permutation with a radius each, and what that is expected to cost."""

    permutation: npt.NDArray[np.uint8]
    bits: tuple[int, ...]
    radii: tuple[int, ...]
    cost: float


def find_code_pairs(
    codes: Codes,
    radius: int,
    *,
    plan: str | None = None,
    known: KnownCodes | None = None,
) -> CodePairs:
    """Find every pair of codes at most `radius` bits (0 to 63) apart; recall is exactly 1.

    `codes` is (n,) uint64; `plan` forces "brute" or "chunks" (None: the cheaper); what an earlier
    search compared (`known`) is not compared again.
    """
    # equal codes once: their pairs need no search, and blank pages would fill a bucket of millions
    unique, inverse = np.unique(np.asarray(codes, np.uint64), return_inverse=True)
    again = None if known is None else _brought_up_to(unique, radius, known)
    found = partial(CodePairs, unique, inverse.astype(np.int64))
    if again is not None:
        return found(*again, "codes added after the last scan compared with all codes")
    if plan is None and len(unique) ** 2 <= FEW_PAIRS:
        return found(*_few(unique, unique, radius, later=True), OUTRIGHT)
    brute_cost = len(unique) ** 2 / 2 / BRUTE_RATE
    # beyond half of the bits nearly every bucket is near every other: no plan can be cheap
    outright = plan == "brute" or (plan is None and len(unique) < PRICED_FROM)
    best = None if outright or radius > 31 else _cheapest(unique, radius)
    if best is None or (plan is None and brute_cost <= best.cost):
        return found(*_outright(unique, radius), OUTRIGHT)
    words = (
        f"{len(best.bits)} chunks of {'+'.join(map(str, best.bits))} bits "
        f"within {'/'.join(map(str, best.radii))}"
    )
    return found(*_by_chunks(unique, radius, best), words)


def find_cross_pairs(
    queries: Codes, library: Codes, radius: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Find every (query row, library row) at most `radius` bits apart, and the distances."""
    if len(queries) * len(library) <= FEW_PAIRS:
        first, second, distance = _few(queries, library, radius)
        return np.stack([first, second], 1), distance
    from audit.neighbors.kernels.popcount import compare_rows

    # many more tasks than cores: their costs are uneven
    tasks = np.linspace(0, len(queries), min(_TASKS, max(len(queries), 1)) + 1).astype(np.int64)
    run = partial(compare_rows, queries, library, False, radius, tasks)
    first, second, distance = _joined(_collect(run, len(tasks) - 1))
    return _sorted_pairs(np.stack([first, second], 1), distance)


def _few(queries: Codes, library: Codes, radius: int, *, later: bool = False) -> Hits:
    """Compare few codes with numpy; `later`: they are the same, and each meets those after it."""
    found = []
    for start in range(0, len(queries), 256):
        apart = np.bitwise_count(queries[start : start + 256, None] ^ library)
        near = apart <= radius
        rows, columns = np.nonzero(np.triu(near, start + 1) if later else near)
        found.append((rows + start, columns, apart[rows, columns]))
    return _joined(found)


def _cheapest(codes: Codes, radius: int) -> _Plan | None:
    """Try chunk counts and bit orders on a sample; None where no plan can be cheap."""
    n = len(codes)
    if n < 2:
        return None
    rng = np.random.default_rng(0)
    sample = codes if n <= 50_000 else codes[rng.choice(n, 50_000, replace=False)]
    # hash bits are correlated with their neighbours in the 8x8 grid: chunks by columns and at
    # random spread that; the seed is fixed, so the plan depends on the codes alone
    orders = [np.arange(64).reshape(8, 8).T.ravel()] + [rng.permutation(64) for _ in range(5)]
    plans = [
        _priced(sample, n, np.asarray(order, np.uint8), m, radius)
        for m in range(2, 9)
        for order in orders
    ]
    return min((p for p in plans if p is not None), key=lambda p: p.cost, default=None)


def _priced(
    sample: Codes, n: int, order: npt.NDArray[np.uint8], m: int, radius: int
) -> _Plan | None:
    """Price m chunks: masks x (collisions of the chunk / 2 + buckets to open)."""
    bits = tuple(64 // m + (k < 64 % m) for k in range(m))
    # 2^24 buckets are 64 MB of starts; more would not fit beside the codes
    if max(bits) > 24:
        return None
    spare = radius + 1 - m
    # the general pigeonhole: radii sum to r + 1 - m
    radii = tuple(-1 + (radius + 1) // m + (k < (radius + 1) % m) for k in range(m))[::-1]
    if spare < 0:
        radii = tuple(0 if k <= radius else -1 for k in range(m))
    from audit.neighbors.kernels.popcount import permute_bits

    moved = permute_bits(sample, order)
    cost, shift = 0.0, 0
    for width, reach in zip(bits, radii, strict=True):
        keys = (moved >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        shift += width
        _, count = np.unique(keys, return_counts=True)
        # plus the collisions of uniform bits, or a sample without any would price at zero
        share = (count.astype(float) * (count - 1)).sum() / len(sample) ** 2 + 2.0**-width
        # each bucket is compared with those that differ in up to `reach` of the chunk's bits
        masks = sum(comb(width, j) for j in range(reach + 1))
        cost += masks * (share * n * n / 2 + VISIT_COST * min(1 << width, n)) + 20 * n
    return _Plan(order, bits, radii, cost)


def _outright(codes: Codes, radius: int) -> Hits:
    """Compare every code with every later one."""
    # rows near the start meet more partners: equal areas under the triangle, not equal rows
    share = 1 - np.sqrt(1 - np.linspace(0, 1, _TASKS + 1))
    tasks = np.unique((share * len(codes)).astype(np.int64))
    from audit.neighbors.kernels.popcount import compare_rows

    run = partial(compare_rows, codes, codes, True, radius, tasks)
    return _joined(_collect(run, len(tasks) - 1))


def _by_chunks(codes: Codes, radius: int, plan: _Plan) -> Hits:
    """Compare codes that one chunk of their bits brings together, and no earlier one."""
    from audit.neighbors.kernels.popcount import permute_bits

    found, moved = list[Hits](), permute_bits(codes, plan.permutation)
    for chunk, reach in enumerate(plan.radii):
        if reach >= 0:
            found += _collect(*_buckets(moved, radius, plan, chunk))
    return _joined(found)


def _buckets(moved: Codes, radius: int, plan: _Plan, c: int) -> tuple[Callable[..., None], int]:
    """Return what compares the buckets of a chunk, task by task, and how many tasks it has."""
    from audit.neighbors.kernels.popcount import compare_buckets

    shifts = np.concatenate([[0], np.cumsum(plan.bits)[:-1]]).astype(np.uint64)
    fields = np.array([(1 << b) - 1 for b in plan.bits], np.uint64)
    reach, width = np.array(plan.radii, np.int64), plan.bits[c]
    # a counting sort by chunk value: bucket u is ordered[starts[u] : starts[u + 1]]
    keys = ((moved >> shifts[c]) & fields[c]).astype(np.int64)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    starts = np.zeros((1 << width) + 1, np.int32)
    np.cumsum(np.bincount(keys, minlength=1 << width), out=starts[1:])
    del keys
    # tasks of equal numbers of codes, not of buckets: the buckets are very uneven
    tasks = np.unique(np.searchsorted(starts, np.linspace(0, len(moved), _TASKS + 1)))
    tasks = np.unique(np.concatenate([[0], tasks, [1 << width]])).astype(np.int64)
    run = partial(
        compare_buckets, radius, shifts, fields, reach, moved[order], order,
        starts, _masks(width, int(reach[c])), c, tasks,
    )  # fmt: skip
    return run, len(tasks) - 1


def _masks(width: int, reach: int) -> npt.NDArray[np.int64]:
    """All values of `width` bits with at most `reach` of them set, zero first."""
    masks = [0]
    layer = [0]
    for _ in range(reach):
        # only bits above the highest set one, so that each mask is made once
        layer = [m | 1 << b for m in layer for b in range(width) if 1 << b > m]
        masks += layer
    return np.array(masks, np.int64)


def _collect(run: Callable[..., None], tasks: int) -> list[Hits]:
    """Run all tasks, in `PARTS`."""
    edges = [tasks * part // PARTS for part in range(PARTS + 1)]
    parts = [np.arange(begin, end) for begin, end in pairwise(edges) if begin < end]
    return [_collect_part(run, part, np.full(len(part), _GUESS, np.int64)) for part in parts]


def _collect_part(
    run: Callable[..., None], tasks: npt.NDArray[np.int64], room: npt.NDArray[np.int64]
) -> Hits:
    """Run tasks into buffers with `room` for each; run those again that found more than that."""
    ends = np.cumsum(room)
    edges = np.stack([ends - room, ends], axis=1)
    out = tuple(np.empty(ends[-1], kind) for kind in (np.int32, np.int32, np.uint8))
    count = np.zeros(len(tasks), np.int64)

    def work(block: slice) -> None:
        run(tasks[block], edges[block], *out, count[block])

    in_threads(work, row_blocks(len(tasks), TASK_BLOCK))
    full = count > room
    spans = [np.arange(count[k]) + edges[k, 0] for k in np.flatnonzero(~full)]
    take = np.concatenate([np.zeros(0, np.int64), *spans])
    found = [(out[0][take], out[1][take], out[2][take])]
    if full.any():  # rare, and costs one task again
        found.append(_collect_part(run, tasks[full], count[full]))
    return _joined(found)


def _joined(found: Sequence[Hits]) -> Hits:
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    first, second, distance = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return first.astype(np.int64, copy=False), second.astype(np.int64, copy=False), distance
