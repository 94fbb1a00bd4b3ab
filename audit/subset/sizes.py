"""One share: from a half-width to a sample size, and back.

A closed formula where there is one (Wilson), enumeration where there is not (Clopper-Pearson,
hypergeometric limits). Exact widths are sawteeth in n: a size is the smallest n from which on
*every* larger n meets the target, so that one example more never breaks a promise. Shares are in
[0, 1]; sizes are whole examples of a simple random sample; `audit.subset.precision` turns them into
sizes of the design at hand. Milliseconds each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats

IntervalMethod = Literal["wilson", "clopper-pearson"]
# Below this sampling fraction the score interval on the effective size follows the exact limits;
# above it the few unseen examples make the distribution too coarse for a normal approximation.
EXACT_FROM_FRACTION = 0.5


def half_width(
    n: ArrayLike,
    p: float,
    confidence: float = 0.95,
    population: int | None = None,
    method: IntervalMethod = "wilson",
) -> Floats:
    """Return half the interval's width for a share near `p` from `n` (effective) examples.

    `population` None: the share of whatever the set was drawn from; a size: the share of that set
    (Wilson at n (N-1)/(N-n) below n/N = 0.5, hypergeometric limits from there, 0 at n = N).
    """
    size = np.atleast_1d(np.asarray(n, float))
    if population is None:
        return _binomial_half_width(size, p, confidence, method)
    result = np.zeros(size.shape)
    small = size < EXACT_FROM_FRACTION * population
    if method == "wilson":
        effective_size = stats.effective_n(size[small], population)
        result[small] = _binomial_half_width(effective_size, p, confidence, "wilson")
    else:
        result[small] = _exact_half_width(size[small], p, confidence, population)
    result[~small] = _exact_half_width(size[~small], p, confidence, population)
    return result


def _binomial_half_width(size: Floats, p: float, confidence: float, method: str) -> Floats:
    if method == "wilson":
        low, high = stats.wilson_share(p, size, confidence)
        return np.asarray((high - low) / 2)
    # n p is rarely a whole count. The promise is for the wider of its two neighbours.
    widths = []
    for successes in (np.floor(p * size), np.ceil(p * size)):
        low, high = stats.clopper_pearson(np.minimum(successes, size), size, confidence)
        widths.append((high - low) / 2)
    return np.maximum(*widths)


def _exact_half_width(size: Floats, p: float, confidence: float, population: int) -> Floats:
    whole = np.minimum(np.floor(size).astype(np.int64), population)
    widths = []
    for successes in (np.floor(p * whole), np.ceil(p * whole)):
        low, high = stats.hypergeometric_limits(successes, whole, population, confidence)
        widths.append((high - low) / (2 * population))
    return np.maximum(*widths)


@lru_cache(maxsize=256)
def proportion_n(
    width: float,
    p: float = 0.5,
    confidence: float = 0.95,
    population: int | None = None,
    method: IntervalMethod = "wilson",
) -> int:
    """Return the smallest n from which on every larger n has a half-width of at most `width`.

    With p = 0.5 and width 0.04: 597, or 374 of a set of 1,000. For Clopper-Pearson and the
    hypergeometric limits the half-width is that of the wider of the two counts next to n p.
    """
    if not 0 < width < 0.5:
        raise UsageError(
            f"A half-width of {width} is not reachable or not useful: give one between 0 and 0.5, "
            "such as 0.02 for plus or minus 2 points."
        )
    # Wilson's half-width is at most z / (2 sqrt(n)): the limit is high enough for any z up to 8.
    limit = population if population is not None else 2 * math.ceil(10 / width**2)

    def meets(n: int) -> bool:
        return bool(half_width(n, p, confidence, population, method)[0] <= width)

    n = smallest_for_good(meets, limit, population)
    if method == "wilson" and (population is None or n < EXACT_FROM_FRACTION * population):
        return n  # Wilson's width falls smoothly, so the bisection is already the answer
    # The teeth are as wide as the step of one success, 1/p examples.
    margin = 24 if population else 32 + min(300, math.ceil(2 / max(min(p, 1 - p), 1e-3)))
    nearby = np.arange(max(1, n - margin), min(limit, n + margin) + 1)
    failing = nearby[half_width(nearby, p, confidence, population, method) > width]
    return int(failing[-1]) + 1 if failing.size else int(nearby[0])


def smallest_for_good(meets: Callable[[int], bool], limit: int, population: int | None) -> int:
    """Return the smallest n from which on a half-width target holds, across the change of method.

    Within each method the width falls with n; where the exact limits take over it jumps up, so a
    size below the change counts only if the first size after it meets the target too.
    """
    if population is None:
        return smallest(meets, 1, limit)
    change = min(math.ceil(EXACT_FROM_FRACTION * population), limit)
    # Failing right after the change means that no size before it keeps the promise.
    if not meets(change):
        return smallest(meets, change, limit)
    return smallest(meets, 1, change)


def smallest(meets: Callable[[int], bool], low: int, high: int) -> int:
    """Return the smallest integer in [low, high] that meets a monotone condition, else `high`."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle + 1, high)
    return high
