"""One share: from a half-width to a sample size, and back.

The interval is the one that `score` prints. Exact widths are sawteeth in n: a size is the smallest
n from which on *every* larger n meets the target, so that one example more never breaks a promise.
Shares are in [0, 1]; sizes are whole examples of a simple random sample; `audit.subset.precision`
turns them into sizes of the design at hand. Milliseconds each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats

# Below this sampling fraction the score interval on the effective size follows the exact limits;
# above it the few unseen examples make the distribution too coarse for a normal approximation.
EXACT_FROM_FRACTION = 0.5
# With fewer answers of the rarer kind than this, Wilson's limit on their far side lies too near:
# summed over all outcomes it covers 84 % at worst. From here on it covers 93.3 % at worst, and 95 %
# on average over p.
RARE_ANSWERS = 15.0


def share_limits(share: ArrayLike, n: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return the interval of a share from `n` (effective) independent examples.

    Wilson's; with few answers of the rarer kind the limit towards them is Clopper and Pearson's,
    where that is wider. All of it is known at n = inf: no width.
    """
    value, size = np.broadcast_arrays(np.asarray(share, float), np.asarray(n, float))
    low, high = stats.wilson_share(value, size, confidence)
    finite = np.where(np.isfinite(size), size, 1.0)
    exact_low, exact_high = stats.clopper_pearson(value * finite, finite, confidence)
    few_right, few_wrong = (
        np.isfinite(size) & (part * finite < RARE_ANSWERS) for part in (value, 1 - value)
    )
    return (
        np.where(few_right, np.minimum(low, exact_low), low),
        np.where(few_wrong, np.maximum(high, exact_high), high),
    )


def half_width(
    n: ArrayLike, p: float, confidence: float = 0.95, population: int | None = None
) -> Floats:
    """Return half the interval's width for a share near `p` from `n` (effective) examples.

    `population` None: the share of whatever the set was drawn from; a size: the share of that set
    (the same at n (N-1)/(N-n) below n/N = 0.5, hypergeometric limits from there, 0 at n = N).
    """
    size = np.atleast_1d(np.asarray(n, float))
    if population is None:
        low, high = share_limits(p, size, confidence)
        return np.asarray((high - low) / 2)
    result = np.zeros(size.shape)
    small = size < EXACT_FROM_FRACTION * population
    result[small] = half_width(stats.effective_n(size[small], population), p, confidence)
    result[~small] = _exact_half_width(size[~small], p, confidence, population)
    return result


def _exact_half_width(size: Floats, p: float, confidence: float, population: int) -> Floats:
    # n p is rarely a whole count. The promise is for the wider of its two neighbours.
    whole = np.minimum(np.floor(size).astype(np.int64), population)
    widths = []
    for successes in (np.floor(p * whole), np.ceil(p * whole)):
        low, high = stats.hypergeometric_limits(successes, whole, population, confidence)
        widths.append((high - low) / (2 * population))
    return np.maximum(*widths)


@lru_cache(maxsize=256)
def proportion_n(
    width: float, p: float = 0.5, confidence: float = 0.95, population: int | None = None
) -> int:
    """Return the smallest n from which on every larger n has a half-width of at most `width`.

    With p = 0.5 and width 0.04: 597, or 374 of a set of 1,000. For the hypergeometric limits the
    half-width is that of the wider of the two counts next to n p.
    """
    if not 0 < width < 0.5:
        raise UsageError(
            f"A half-width of {width} is not reachable or not useful: give one between 0 and 0.5, "
            "such as 0.02 for plus or minus 2 points."
        )
    # The half-width is at most z / (2 sqrt(n)), nearly: the limit is high enough for any z up to 8.
    limit = population if population is not None else 2 * math.ceil(10 / width**2)

    def meets(n: int) -> bool:
        return bool(half_width(n, p, confidence, population)[0] <= width)

    n = smallest_for_good(meets, limit, population)
    if population is None or n < EXACT_FROM_FRACTION * population:
        return n  # the width falls steadily, so the bisection is already the answer
    # Exact widths are sawteeth in n.
    nearby = np.arange(max(1, n - 24), min(limit, n + 24) + 1)
    failing = nearby[half_width(nearby, p, confidence, population) > width]
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
