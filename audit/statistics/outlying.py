"""What lies apart: values that a gap separates from the rest, held against the spacings beside it.

Of n values with an exponential tail, the spacings D_i = i (x_i - x_{i+1}) of the sorted values are
independent and equally distributed (Renyi 1953, On the theory of order statistics), so the first
over the mean of the next m is a ratio with P(ratio > r) = (1 + r / m)^-m. A logarithm turns tails
of any power into exponential ones; lighter tails only make the rule more careful.

`find_apart` looks at many groups at once, at both ends and between modes; `chances_of_largest` at
the largest of one set; `tail_cut` at one end of a class, where a gap must also be wide beside the
grain of the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from audit.statistics.intervals import Floats, Ints

MAX_TAIL = 100  # order statistics that describe an end, at most
MIN_LEVELS = 20  # fewer distinct values of a property in a group have no usable spacings
PRIOR_SHAPE = 0.2  # standard deviation of tail shapes between properties, around 0
ERRORS = 0.5  # standard errors added to the shape, for caution
MAX_BLOCK = 3  # images that may be outliers together: one more makes a mode


class Oddity(NamedTuple):
    """A row that is odd in one property: its nearest row, and its gap over what chance explains."""

    row: int
    nearest: int
    ratio: float


def find_apart(values: Floats, groups: Ints, rate: float, properties: int) -> list[Oddity]:
    """Return the rows that a gap separates from the rest of their group, alone or up to 3 together.

    `values` are on a scale with roughly exponential tails, `groups` non-negative numbers. In data
    without outliers, at most a share `rate` of the rows is returned in expectation, over
    all `properties` that are looked at.
    """
    if not len(values):
        return []
    # Two sorts of one key each: five times as fast as one of two keys, as few groups sort by radix.
    order = np.argsort(values)
    small = groups[order].astype(np.min_scalar_type(int(groups.max())))
    order = order[np.argsort(small, kind="stable")]
    x, group = values[order], groups[order]
    start, size = _spans(group)
    # A group of n rows may cost n * rate false findings, never more than one in 20 groups; it is
    # tested at two ends in every property (Bonferroni).
    chance = np.minimum(rate * size, 0.05) / (2 * properties)
    above = _gap_ratios(x, group, chance)
    below = _gap_ratios(-x[::-1], group[::-1], chance[::-1])[::-1]
    # Index i is the gap after row i; seen from above it is the gap before row i + 1.
    below = np.append(below[1:], 0.0)
    return [
        Oddity(int(order[row]), int(order[nearest]), ratio)
        for first, last, ratio in _blocks(above, below, start, size)
        for row in range(first, last)
        for nearest in [_nearest(x, row, first, last, start, size)]
    ]


def _spans(group: Ints) -> tuple[Ints, Ints]:
    """Return, for each row of a sorted group column, where its group starts and its size."""
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    sizes = np.diff(np.append(first, len(group)))
    return np.repeat(first, sizes), np.repeat(sizes, sizes)


def _gap_ratios(x: Floats, group: Ints, chance: Floats) -> Floats:
    """Return each gap above a row over the gap that the rows below make probable with `chance`."""
    distinct = np.append(True, (x[1:] != x[:-1]) | (group[1:] != group[:-1]))
    levels = np.cumsum(distinct) - 1
    all_rows = _ratios(x, group, chance)
    if distinct.all():
        return all_rows
    by_level = _ratios(x[distinct], group[distinct], chance[distinct])
    return np.asarray(np.minimum(all_rows, by_level[levels]))


def _ratios(x: Floats, group: Ints, chance: Floats) -> Floats:
    start, size = _spans(group)
    rank = np.arange(len(x)) - start
    # A fifth of the group is its end: fewer spacings are noise, more reach into the bulk.
    tail = np.minimum(np.clip(size // 5, 10, MAX_TAIL), rank)
    threshold = x[np.arange(len(x)) - tail]
    sums = np.append(0.0, np.cumsum(x))
    width = np.maximum(tail, 1)
    excess = (sums[np.arange(len(x)) + 1] - sums[np.arange(len(x)) + 1 - tail]) / width - threshold
    # Renyi: the mean of the next `tail` normalised spacings below the gap.
    scale = np.maximum(excess, 0.0) + (x - threshold) / width
    shape = _tail_shape(x, start, size)
    local = scale * (1 - shape) + shape * (x - threshold)
    # The ratio of one exponential spacing to the mean of `width` others is a Pareto variable.
    quantile = width * (chance ** (-1 / width) - 1)
    if shape > 0:
        quantile = np.expm1(np.minimum(shape * quantile, 500.0)) / shape
    gap = np.append(np.diff(x), 0.0)
    gap[rank == size - 1] = 0.0
    gap[(tail < 3) | (size < MIN_LEVELS)] = 0.0
    # Values that crowd at an end make any next one look far: it must be so beside the bulk as well.
    bulk = x[start + size * 3 // 4] - x[start + size // 4]
    needed = np.maximum(local * quantile, bulk / 4)
    # A gap that stands on nothing but ties is decided by the distinct values.
    on_ties = np.where(gap > 0, 1e9, 0.0)
    return np.asarray(np.divide(gap, needed, out=on_ties, where=needed > 1e-12))


def _tail_shape(x: Floats, start: Ints, size: Ints) -> float:
    """Return the generalised Pareto shape of the upper tails, pooled over groups, plus one error.

    0 (exponential) if the estimate is below: lighter tails only make the rule more careful. The
    largest rows, which may be outliers, are left out; the rest enter through their mean excess and
    their mean excess weighted by rank (a probability-weighted moment), group by group.
    """
    first = np.unique(start)
    n = size[first]
    top = first + n - _block_size(n)
    tail = np.minimum(np.clip(n // 5, 10, MAX_TAIL), top - first - 1)
    enough = (tail >= 8) & (n >= MIN_LEVELS)
    first, top, tail = first[enough], top[enough], tail[enough]
    low = top - tail
    threshold, rank = x[low - 1], np.arange(len(x)) - start
    totals, ranked = np.append(0.0, np.cumsum(x)), np.append(0.0, np.cumsum(x * rank))
    total = totals[top] - totals[low]
    weighted = ranked[top] - ranked[low] - (low - first - 0.65) * total
    mean = total / tail - threshold
    moment = mean - (weighted - threshold * tail * ((tail - 1) / 2 + 0.65)) / tail**2
    usable = (mean > 1e-9) & (mean > 2 * moment)
    if not usable.any():
        return 0.0
    mean, moment, tail, n = mean[usable], moment[usable], tail[usable], n[enough][usable]
    shapes = np.clip(_shape(mean, moment) - _trimming_bias(tail, _block_size(n)), -1, 1.5)
    # Few tails say little about their shape: the estimate shrinks towards the exponential.
    variance, prior = 1 / float(tail.sum()), PRIOR_SHAPE**2
    shape = float(np.average(shapes, weights=tail)) * prior / (prior + variance)
    error = float(np.sqrt(prior * variance / (prior + variance)))
    return min(max(0.0, shape + ERRORS * error), 0.9)


def _shape(mean: Any, moment: Any) -> Any:
    # Hosking and Wallis (1987), in the sign convention where heavy tails have a positive shape.
    return 2 - mean / (mean - 2 * moment)


def _trimming_bias(tail: Ints, block: Ints) -> Floats:
    """Return the shape that an exponential shows without its `block` largest of `tail + block`."""
    pairs, back = np.unique(np.stack([tail, block]), axis=1, return_inverse=True)
    biases = []
    for n_tail, n_cut in pairs.T.tolist():
        # Renyi: the expected order statistics of an exponential sample; 0.65 is the plotting
        # position that the estimate itself uses.
        expected = np.cumsum(1 / (n_tail + n_cut - np.arange(n_tail)))
        weights = 1 - (np.arange(n_tail) + 0.65) / n_tail
        biases.append(_shape(expected.mean(), (expected * weights).mean()))
    return np.asarray(biases)[back.ravel()]


def _block_size(n: Any) -> Any:
    """Return how many rows of a group of `n` (a number or an array) may be outliers together."""
    # In a small group a mode of a fifth of the images may show two or three of them by chance.
    return np.clip(n // 40, 1, MAX_BLOCK)


def _blocks(
    above: Floats, below: Floats, start: Ints, size: Ints
) -> Iterator[tuple[int, int, float]]:
    """Yield (first, last + 1, ratio) of the blocks of few rows with such gaps on both sides.

    `above[i]` and `below[i]` rate the gap after row i by the rows below and above it. An end of the
    group is a gap, and so is a gap beyond which there are only as few rows as the block may have.
    """
    cuts = np.flatnonzero((above > 1) | (below > 1))
    blocks: set[tuple[int, int]] = set()
    for cut in cuts.tolist():
        for length in range(1, _block_size(int(size[cut])) + 1):
            for first in (cut + 1, cut + 1 - length):
                if (first, length) not in blocks:
                    blocks.add((first, length))
                    ratio = _block_ratio(first, length, above, below, start, size)
                    if ratio > 1:
                        yield first, first + length, ratio


def _block_ratio(
    first: int, length: int, above: Floats, below: Floats, start: Ints, size: Ints
) -> float:
    if not 0 <= first < len(start):
        return 0.0
    begin, end = int(start[first]), int(start[first] + size[first])
    lower, upper = first - begin, end - first - length
    if upper < 0 or max(lower, upper) < 10:
        return 0.0
    few = _block_size(end - begin)
    sides = []
    if lower > few:
        sides.append(float(above[first - 1]))
    if upper > few:
        sides.append(float(below[first + length - 1]))
    return min(sides)


def _nearest(x: Floats, row: int, first: int, last: int, start: Ints, size: Ints) -> int:
    """Return the nearest row outside the block, within the group."""
    candidates = [i for i in (first - 1, last) if start[row] <= i < start[row] + size[row]]
    return min(candidates, key=lambda i: abs(float(x[i] - x[row])))


LEAST = 50
"""Values below which nothing is said."""
FEWEST, MOST_SPACINGS = 10, 80
"""Spacings by which a gap is judged: a fifth of the pictures, within these, half as many, half of
those, and so on down to the first. More find more, and need tails that do not become heavier."""
SHARE, MOST_TOGETHER = 25, 8
"""One in so many pictures may be an outlier, and so many at most: fewer than the neighbours."""


def chances_of_largest(falling: Floats) -> Floats:
    """Return for the largest of sorted values (falling) the chance that they are so large.

    Entry i is the least chance of a gap that separates the first i + 1 or more, times the number of
    gaps that were looked at: the chance that any entry is below c is at most c.
    """
    n = len(falling)
    together = max(1, min(MOST_TOGETHER, n // SHARE))
    if n < LEAST:
        return np.ones(0)
    gaps = falling[:-1] - falling[1:]
    spacings = np.arange(1, n) * gaps
    widths = [min(max(n // 5, FEWEST), MOST_SPACINGS)]
    while widths[-1] > FEWEST:
        widths.append(max(widths[-1] // 2, FEWEST))
    upper, lower = np.quantile(falling, [0.75, 0.25])
    chances = np.ones(together)
    for j in range(together):
        means = [spacings[j + 1 : j + 1 + m].mean() + 1e-300 for m in widths]
        ratios = [float(spacings[j] / mean) for mean in means]
        chance = max((1 + r / m) ** -m for r, m in zip(ratios, widths, strict=True))
        # values that crowd at an end make any next one look far
        if gaps[j] >= (upper - lower) / 4:
            chances[j] = chance
    least = np.minimum.accumulate(chances[::-1])[::-1]
    return np.asarray(np.minimum(least * together, 1.0))


MOST = 5  # outliers at one end that are looked for
TAIL_MOST = 300  # values of a tail that are read beside them, at most
TAIL = 0.1  # share of the values whose spacing says how the tail thins out


def tail_cut(falling: Floats, of: int, grain: float, alpha: float) -> tuple[int, float]:
    """Return how many values at the front lie beyond a gap, and its chance; (0, 1) for none.

    `falling` is sorted from high to low: the first ones of `of` values. Spacings k of an
    exponential tail of scale s are exponential of scale s / k; s is the mean excess of the tail
    behind the candidates, and no smaller than `grain`.
    """
    m = min(max(int(of * TAIL), 20), TAIL_MOST)
    if len(falling) < m + MOST + 1:
        return 0, 1.0
    for k in range(MOST, 0, -1):
        # what several values share is no isolation: pictures of one series, boxes of one picture
        behind = falling[k : k + m]
        scale = max(float((behind - falling[k + m]).mean()), grain)
        gap = float(falling[k - 1] - falling[k])
        chance = math.exp(-k * gap / scale) * (1 + k / m)
        # The scale is itself an estimate from m spacings: its error widens the tail.
        chance = max(chance, (1 + k * gap / (scale * m)) ** (-m))
        if chance < alpha:
            return k, chance
    return 0, 1.0
