"""Spacings: whether the largest of some values are too large for chance.

The largest value always is the largest; whether it is too large is asked of the spacings below it.
Of n values with an exponential tail, the spacings D_i = i (x_i - x_{i+1}) of the sorted values are
independent and equally distributed (Renyi 1953, On the theory of order statistics), so the first
over the mean of the next m is a ratio with P(ratio > r) = (1 + r / m)^-m.
A logarithm turns distances with tails of any power into exponential
ones, and lighter tails only make the rule more careful: no distribution is assumed
beyond that. A gap below the first j scores says that j values are outliers together; j is
limited, because more are a kind of their own. Each gap is judged by the spacings next to it, by
twice as many, and so on inwards, and the largest chance counts: a tail that becomes heavier
outwards (one column of many is extreme in a few rows), or several clusters of unequal width, are
not taken for exponential.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LEAST = 50
"""Values below which nothing is said."""
FEWEST, LEAST_WIDE, MOST_SPACINGS = 4, 10, 80
"""Spacings by which a gap is judged: a fifth of the pictures, within the last two, half as many,
half of those, and so on down to the first."""
SHARE, MOST_TOGETHER = 25, 8
"""One in so many pictures may be an outlier, and so many at most: fewer than the neighbours."""


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
