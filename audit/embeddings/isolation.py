"""Pictures that are far from all others: k-NN distances, and what chance makes of the largest.

The score of a picture is the logarithm of its distance to its tenth nearest picture, copies left
out: nine pictures of one odd kind do not hide each other. The largest score always is the largest;
whether it is too large is asked of the spacings below it. Of n values with an exponential tail, the
spacings D_i = i (x_i - x_{i+1}) of the sorted values are independent and equally distributed (Renyi
1953, On the theory of order statistics), so the first over the mean of the next m is a ratio with
P(ratio > r) = (1 + r / m)^-m. A logarithm turns distances with tails of any power into exponential
ones, and lighter tails only make the rule more careful: no distribution of the vectors is assumed
beyond that. A gap below the first j scores says that j pictures are outliers together; j is
limited, because more are a kind of their own. Each gap is judged by the spacings next to it, by
twice as many, and so on inwards, and the largest chance counts: a tail that becomes heavier
outwards (one column of many is extreme in a few rows), or several clusters of unequal width, are
not taken for exponential.

Asked of the whole dataset (half of the error rate) and of each class of 50 pictures and more by the
scores of its own (the other half): what is common among all pictures may be rare in a class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from audit.embeddings.nearest import kth_distances
from audit.embeddings.ridge import Decomposition

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
K = 10
"""The neighbour whose distance counts: so many pictures alike, less one, can be outliers."""
LEAST = 50
FEWEST, LEAST_WIDE, MOST_SPACINGS = 4, 10, 80
"""Spacings by which a gap is judged: a fifth of the pictures, within the last two, half as many,
half of those, and so on down to the first."""
SHARE, MOST_TOGETHER = 25, 8
"""One in so many pictures may be an outlier, and so many at most: fewer than the neighbours."""


class Isolated(NamedTuple):
    """A picture far from the others: its row, among whom (class number, -1: all), of how many.

    `chance` that any picture of a dataset without outliers lies so far; `distance` to its tenth
    nearest, the largest of the `rest` and the `typical` one, in one unit.
    """

    row: int
    group: int
    n: int
    chance: float
    distance: float
    rest: float
    typical: float


def distance_scores(decomposition: Decomposition, groups: Ints) -> Floats:
    """Return the log of the distance (n,) of each row to the tenth nearest of other groups."""
    found = kth_distances(decomposition, groups, K).astype(np.float64)
    return np.asarray(np.log(found + 1e-9 * found.max(initial=0.0) + 1e-300))


def find_isolated(scores: Floats, labels: Ints, units: Ints, most: float) -> list[Isolated]:
    """Return the rows whose chance is at most `most`, the most isolated first.

    `labels` (n,) are class numbers, -1 for none; rows of one unit (near-duplicates) count once, by
    the member that is nearest to others, and are found together.
    """
    first = np.lexsort((scores, units))
    first = first[np.append(True, np.diff(units[first]) != 0)] if len(first) else first
    found: dict[int, Isolated] = {}
    strata = list(_strata(labels[first]))
    for group, places in strata:
        rows = first[places]
        # half of the rate for the dataset, half for all classes
        tests = 2 if group < 0 else 2 * (len(strata) - 1)
        order = rows[np.argsort(-scores[rows], kind="stable")]
        chances = np.minimum(chances_of_largest(scores[order]) * tests, 1.0)
        rest = float(np.exp(scores[order[min(int((chances <= most).sum()), len(order) - 1)]]))
        typical = float(np.exp(np.median(scores[order])))
        for row, chance in zip(order.tolist(), chances.tolist(), strict=False):
            if chance <= most and (row not in found or chance < found[row].chance):
                distance = float(np.exp(scores[row]))
                found[row] = Isolated(row, group, len(rows), chance, distance, rest, typical)
    members = [
        one._replace(row=int(row))
        for one in found.values()
        for row in np.flatnonzero(units == units[one.row])
    ]
    return sorted(members, key=lambda one: (-one.distance / one.typical, one.row))


def _strata(labels: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield class numbers, -1 for all, with the places of their pictures."""
    if len(labels) >= LEAST:
        yield -1, np.arange(len(labels))
    counts = np.bincount(labels[labels >= 0])
    large = np.flatnonzero(counts >= LEAST)
    if len(large) > 1 or (len(large) and counts.sum() < len(labels)):
        for number in large.tolist():
            yield number, np.flatnonzero(labels == number)


def chances_of_largest(falling: Floats, fewest: int = FEWEST) -> Floats:
    """Return for the largest of sorted values (falling) the chance that they are so large.

    `fewest` spacings judge a gap: more find more, and need tails that do not become heavier.

    Entry i is the least chance of a gap that separates the first i + 1 or more, times the number of
    gaps that were looked at: the chance that any entry is below c is at most c.
    """
    n = len(falling)
    together = max(1, min(MOST_TOGETHER, n // SHARE))
    if n < LEAST:
        return np.ones(0)
    gaps = falling[:-1] - falling[1:]
    spacings = np.arange(1, n) * gaps
    widths = [min(max(n // 5, LEAST_WIDE), MOST_SPACINGS)]
    while widths[-1] > fewest:
        widths.append(max(widths[-1] // 2, fewest))
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
