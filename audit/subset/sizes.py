"""From a target to a sample size and back: half-widths, McNemar, two proportions, label noise.

Closed formulas where the literature has them (Wilson, Connor, Fleiss), enumeration where it has not
(exact McNemar, hypergeometric limits). Exact widths and exact powers are sawteeth in n: a size is
the smallest n from which on *every* larger n meets the target, so that one example more never
breaks a promise. Shares and differences are in [0, 1]; sizes are whole examples of a simple random
sample; `audit.subset.precision` turns them into sizes of the design at hand. Milliseconds each,
exact sizes up to a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats as distributions

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats

IntervalMethod = Literal["wilson", "clopper-pearson"]
# Below this sampling fraction the score interval on the effective size follows the exact limits;
# above it the few unseen examples make the distribution too coarse for a normal approximation.
EXACT_FROM_FRACTION = 0.5
# Connor's formula is kept where the power that mid-p McNemar really has is this near the target.
CONNOR_SLACK = 0.015
# Examples per model up to which the exact power of an unpaired test is summed over both counts.
ENUMERATED_UP_TO = 1000


# ---- one proportion ----


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
        worth = stats.effective_n(size[small], population)
        result[small] = _binomial_half_width(worth, p, confidence, "wilson")
    else:
        result[small] = _exact_half_width(size[small], p, confidence, population)
    result[~small] = _exact_half_width(size[~small], p, confidence, population)
    return result


def _binomial_half_width(size: Floats, p: float, confidence: float, method: str) -> Floats:
    if method == "wilson":
        low, high = stats.wilson_share(p, size, confidence)
        return np.asarray((high - low) / 2)
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
    limit = population if population is not None else 2 * math.ceil(10 / width**2)

    def meets(n: int) -> bool:
        return bool(half_width(n, p, confidence, population, method)[0] <= width)

    n = smallest_for_good(meets, limit, population)
    if method == "wilson" and (population is None or n < EXACT_FROM_FRACTION * population):
        return n  # Wilson's width falls smoothly, so the bisection is already the answer
    # The teeth are as wide as the step of one success, 1/p examples.
    reach = 24 if population else 32 + min(300, math.ceil(2 / max(min(p, 1 - p), 1e-3)))
    window = np.arange(max(1, n - reach), min(limit, n + reach) + 1)
    failing = window[half_width(window, p, confidence, population, method) > width]
    return int(failing[-1]) + 1 if failing.size else int(window[0])


def smallest_for_good(meets: Callable[[int], bool], limit: int, population: int | None) -> int:
    """Return the smallest n from which on a half-width target holds, across the change of method.

    Within each method the width falls with n; where the exact limits take over it jumps up, so a
    size below the change counts only if the first size after it meets the target too.
    """
    if population is None:
        return smallest(meets, 1, limit)
    change = min(math.ceil(EXACT_FROM_FRACTION * population), limit)
    if not meets(change):
        return smallest(meets, change, limit)
    return smallest(meets, 1, change)


def smallest(meets: Callable[[int], bool], low: int, high: int) -> int:
    """Return the smallest integer in [low, high] that meets a monotone condition, else `high`."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle + 1, high)
    return high


# ---- two models on the same examples ----


def check_difference(difference: float, discordant: float) -> None:
    """Raise UsageError unless 0 < difference <= discordant <= 1."""
    if not 0 < difference <= 1:
        raise UsageError(f"A difference of {difference} cannot be planned for: give 0 < D <= 1.")
    if not difference <= discordant <= 1:
        raise UsageError(
            f"A difference of {difference:g} needs at least as large a share of examples on which "
            f"the two models differ, and that share is {discordant:g}: ask for a smaller --detect, "
            "or give --discordant or two prediction files that differ more."
        )


def connor_n(
    difference: float, discordant: float, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Return the paired examples at which the mid-p McNemar test finds `difference`.

    Connor (1987), Biometrics 43:207. `discordant` is the share of examples on which exactly one
    model is right. Not rounded: callers scale it by design effects first.
    """
    check_difference(difference, discordant)
    z_a, z_b = distributions.norm.isf(alpha / 2), distributions.norm.ppf(power)
    spread = math.sqrt(max(discordant - difference**2, 0.0))
    return float(((z_a * math.sqrt(discordant) + z_b * spread) / difference) ** 2)


@lru_cache(maxsize=256)  # a plan asks for the same size many times
def paired_n(
    difference: float,
    discordant: float,
    alpha: float = 0.05,
    power: float = 0.8,
    method: stats.McNemarMethod = "midp",
) -> tuple[float, str]:
    """Return the paired examples to plan for, and the reason for the method that gave them.

    Connor's formula, unless the mid-p test's exact power at that size is more than `CONNOR_SLACK`
    off (one model wins nearly every disagreement): then, and for the exact test, by enumeration.
    """
    formula = connor_n(difference, discordant, alpha, power)
    if method == "exact":
        n = mcnemar_n(difference, discordant, alpha, power, "exact")
        return n, f"exact McNemar test, n by enumeration (mid-p needs {math.ceil(formula)})"
    reached = mcnemar_power(math.ceil(formula), difference, discordant, alpha, "midp")
    if abs(reached - power) <= CONNOR_SLACK:
        return formula, "Connor (1987), for the mid-p McNemar test"
    n = mcnemar_n(difference, discordant, alpha, power, "midp")
    return n, (
        f"mid-p McNemar test, n by enumeration (Connor's {math.ceil(formula)} would reach a power "
        f"of {reached:.3f})"
    )


def connor_difference(
    n: ArrayLike, discordant: float, alpha: float = 0.05, power: float = 0.8
) -> Floats:
    """Return the smallest difference that `n` pairs detect: `connor_n` solved for the difference.

    NaN where even a model that is right wherever the two differ would not be told apart.
    """
    size = np.asarray(n, float)
    z_a, z_b = distributions.norm.isf(alpha / 2), distributions.norm.ppf(power)
    with np.errstate(invalid="ignore", divide="ignore"):
        root = z_a * np.sqrt(size) + z_b * np.sqrt(size - z_a**2 + z_b**2)
        found = np.where(np.isinf(size), 0.0, math.sqrt(discordant) * root / (size + z_b**2))
    return np.where(found <= discordant, found, np.nan)


def mcnemar_power(
    n: int,
    difference: float,
    discordant: float,
    alpha: float = 0.05,
    method: stats.McNemarMethod = "midp",
) -> float:
    """Return the exact power of the McNemar test, summed over the number of discordant examples."""
    low, high = distributions.binom.ppf([1e-10, 1 - 1e-10], n, discordant).astype(int)
    counts = np.arange(max(low, 0), high + 1)
    chance = distributions.binom.pmf(counts, n, discordant)
    share = (1 + difference / discordant) / 2
    return float(chance @ _rejection_probability(counts, share, alpha, method))


def _rejection_probability(
    counts: np.ndarray, share: float, alpha: float, method: stats.McNemarMethod
) -> Floats:
    # Largest smaller-cell count that is still rejected, found next to the binomial quantile.
    start = distributions.binom.ppf(alpha / 2, counts, 0.5)
    critical = np.full(counts.shape, -1.0)
    for step in (-2, -1, 0, 1):
        candidate = start + step
        rejected = (candidate >= 0) & (2 * candidate < counts)
        rejected &= stats.mcnemar(candidate, counts - candidate, method) <= alpha
        critical = np.where(rejected, np.maximum(critical, candidate), critical)
    lower = distributions.binom.cdf(critical, counts, share)
    return np.asarray(lower + distributions.binom.cdf(critical, counts, 1 - share))


def mcnemar_n(
    difference: float,
    discordant: float,
    alpha: float = 0.05,
    power: float = 0.8,
    method: stats.McNemarMethod = "exact",
) -> int:
    """Return the smallest n from which on the test's exact power stays at `power`, by enumeration.

    The exact test needs more than `connor_n`; the gap is the price of its conservatism.
    """
    start = math.ceil(connor_n(difference, discordant, alpha, power))

    def meets(n: int) -> bool:
        return mcnemar_power(n, difference, discordant, alpha, method) >= power

    n = smallest(meets, max(1, start // 2), 3 * start + 100)
    reach = 40 + math.isqrt(n)
    failing = [m for m in range(max(1, n - reach), n + reach) if not meets(m)]
    return failing[-1] + 1 if failing else n - reach


# ---- two models on different examples ----


def two_proportion_n(p1: float, p2: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the examples *per model* for the pooled z-test, uncorrected.

    Fleiss, Levin and Paik (2003), Statistical Methods for Rates and Proportions, equation 4.14.
    """
    if p1 == p2:
        raise UsageError("The two shares are equal: no number of examples tells them apart.")
    z_a, z_b = distributions.norm.isf(alpha / 2), distributions.norm.ppf(power)
    mean = (p1 + p2) / 2
    null = z_a * math.sqrt(2 * mean * (1 - mean))
    return float(((null + z_b * math.sqrt(p1 * (1 - p1) + p2 * (1 - p2))) / (p1 - p2)) ** 2)


@lru_cache(maxsize=256)
def unpaired_n(p1: float, p2: float, alpha: float = 0.05, power: float = 0.8) -> tuple[float, str]:
    """Return the examples per model for the pooled z-test, and the reason for the method.

    The formula, unless its exact power is more than `CONNOR_SLACK` off (shares next to 0 or 1) and
    the size small enough to enumerate both counts.
    """
    formula = two_proportion_n(p1, p2, alpha, power)
    n = math.ceil(formula)
    why = "pooled z-test, uncorrected n per model (Fleiss, Levin and Paik 2003)"
    if n > ENUMERATED_UP_TO:
        return formula, why
    reached = two_proportion_power(n, p1, p2, alpha)
    if abs(reached - power) <= CONNOR_SLACK:
        return formula, why

    def meets(m: int) -> bool:
        return two_proportion_power(m, p1, p2, alpha) >= power

    found = smallest(meets, 2, 2 * n)
    failing = [m for m in range(max(2, found - 20), found + 20) if not meets(m)]
    found = failing[-1] + 1 if failing else found
    return found, f"pooled z-test, n per model by enumeration (the formula's {n} would reach a " + (
        f"power of {reached:.3f})"
    )


def fleiss_corrected(n: float, difference: float) -> float:
    """Return the size per model for the continuity-corrected or Fisher test.

    Fleiss, Tytun and Ury (1980), Biometrics 36:343: n/4 (1 + sqrt(1 + 4 / (n |p1 - p2|)))^2.
    """
    return n / 4 * (1 + math.sqrt(1 + 4 / (n * abs(difference)))) ** 2


def split_around(p: float, difference: float) -> tuple[float, float]:
    """Return two shares `difference` apart, centred on `p` where [0, 1] allows it."""
    low = min(max(p - difference / 2, 0.0), 1.0 - difference)
    return low, low + difference


def two_proportion_difference(n: float, p: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest difference around `p` that `n` examples per model detect; NaN if none."""
    low, high = 1e-9, 1.0
    if not n > 0 or two_proportion_n(*split_around(p, high), alpha, power) > n:
        return math.nan
    for _ in range(60):
        middle = (low + high) / 2
        found = two_proportion_n(*split_around(p, middle), alpha, power) <= n
        low, high = (low, middle) if found else (middle, high)
    return high


def two_proportion_power(
    n: int, p1: float, p2: float, alpha: float = 0.05, test: Literal["pooled", "fisher"] = "pooled"
) -> float:
    """Return the test's exact power with `n` examples per model, by enumerating both counts."""
    k = np.arange(n + 1)
    a, b = np.meshgrid(k, k, indexing="ij")
    if test == "pooled":
        mean = (a + b) / (2 * n)
        spread = np.sqrt(np.maximum(mean * (1 - mean) * 2 / n, 1e-300))
        rejected = np.abs(a - b) / n / spread >= distributions.norm.isf(alpha / 2)
    else:
        rejected = _fisher_rejects(a, b, n, alpha)
    weights = np.outer(distributions.binom.pmf(k, n, p1), distributions.binom.pmf(k, n, p2))
    return float(weights[rejected].sum())


def _fisher_rejects(a: np.ndarray, b: np.ndarray, n: int, alpha: float) -> np.ndarray:
    # Two-sided by doubling the smaller tail, the form that the continuity correction imitates.
    lower = distributions.hypergeom.cdf(a, 2 * n, a + b, n)
    upper = distributions.hypergeom.sf(a - 1, 2 * n, a + b, n)
    return np.asarray(2 * np.minimum(lower, upper) <= alpha)


# ---- label noise ----


def noisy_difference(
    difference: float, discordant: float, eta: float, classes: int, both_wrong: float
) -> tuple[float, float]:
    """Return the difference and the discordant share as they appear under wrong labels.

    A share `eta` of labels is replaced by another class, each as likely, whatever the models say:
    d' = d (1 - eta K/(K-1)); psi' = psi (1 - eta (K-2)/(K-1)) + 2 r eta/(K-1). `both_wrong` is r,
    the share on which both models are wrong and differ.
    """
    if classes < 2:
        raise UsageError(f"Label noise needs at least 2 classes, and the set has {classes}.")
    if not 0 <= eta < (classes - 1) / classes:
        raise UsageError(
            f"A label-noise rate of {eta:g} leaves no signal with {classes} classes: give a rate "
            f"below {(classes - 1) / classes:.3g}."
        )
    others = classes - 1
    smaller = difference * (1 - eta * classes / others)
    return smaller, discordant * (1 - eta * (classes - 2) / others) + 2 * both_wrong * eta / others


def noise_bound(eta: float, predictions_differ: float) -> float:
    """Return 2 min(eta, share on which predictions differ): what any label noise may do to d."""
    return 2 * min(eta, predictions_differ)
