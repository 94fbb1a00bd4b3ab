"""From a target to a number of independent examples, and back: one share, two models, wrong labels.

Everything here is about a simple random sample of single files; `audit.subset.population` turns its
sizes into those of the design at hand. Exact widths and the power of tests on counts are sawteeth
in n: a size is the smallest n from which on *every* larger n meets the target. Wrong labels that
are independent of the models shrink every difference; noise that leans towards confusable classes
has a bound, and no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from audit.errors import UsageError
from audit.statistics.intervals import (
    Floats,
    clopper_pearson,
    effective_n,
    hypergeometric_limits,
    wilson_share,
)

# Below this sampling fraction the score interval on the effective size follows the exact limits;
# above it the few unseen examples make the distribution too coarse for a normal approximation.
EXACT_FROM_FRACTION = 0.5
# With fewer answers of the rarer kind than this, Wilson's limit on their far side lies too near: it
# covers 84 % at worst, from here on 93.3 %.
RARE_ANSWERS = 15.0


def share_limits(share: ArrayLike, n: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return the interval of a share from `n` (effective) independent examples.

    Wilson's; with few answers of the rarer kind the limit towards them is Clopper and Pearson's,
    where that is wider. All of it is known at n = inf: no width.
    """
    value, size = np.broadcast_arrays(np.asarray(share, float), np.asarray(n, float))
    low, high = wilson_share(value, size, confidence)
    finite = np.where(np.isfinite(size), size, 1.0)
    exact_low, exact_high = clopper_pearson(value * finite, finite, confidence)
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
    result[small] = half_width(effective_n(size[small], population), p, confidence)
    # n p is rarely a whole count. The promise is for the wider of its two neighbours.
    whole = np.minimum(np.floor(size[~small]).astype(np.int64), population)
    for successes in (np.floor(p * whole), np.ceil(p * whole)):
        least, most = hypergeometric_limits(successes, whole, population, confidence)
        result[~small] = np.maximum(result[~small], (most - least) / (2 * population))
    return result


@lru_cache(maxsize=256)
def proportion_n(width: float, p: float = 0.5, confidence: float = 0.95) -> int:
    """Return the smallest n from which on every larger n has a half-width of at most `width`."""
    # The half-width is at most z / (2 sqrt(n)), nearly: the limit is high enough for any z up to 8.
    limit = 2 * math.ceil(10 / width**2)
    return smallest(lambda n: bool(half_width(n, p, confidence)[0] <= width), 1, limit)


def smallest_for_good(meets: Callable[[int], bool], limit: int, population: int | None) -> int:
    """Return the smallest n from which on a half-width target holds, for both methods."""
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


# Connor's formula is used where the power that the test really has is this near the target.
CONNOR_SLACK = 0.015


def connor_n(
    difference: float, discordant: float, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Return the paired examples at which McNemar's test finds `difference`.

    Connor (1987), Biometrics 43:207. `discordant` is the share of examples on which exactly one
    model is right. Not rounded: callers scale it by design effects first.
    """
    if not 0 < difference <= 1:
        raise UsageError(f"A difference of {difference} cannot be planned for: give 0 < D <= 1.")
    if not difference <= discordant <= 1:
        raise UsageError(
            f"A difference of {difference:g} needs at least as large a share of examples on which "
            f"the two models differ, and that share is {discordant:g}: give a smaller --detect, "
            "or give [plan] disagreement or two prediction files that differ more."
        )
    from scipy.stats import norm

    z_a, z_b = norm.isf(alpha / 2), norm.ppf(power)
    # One pair's change is +1, 0 or -1: its variance is psi if there is no difference (the test's
    # own assumption, hence z_a) and psi - d^2 if there is one (what power is about, hence z_b).
    deviation = math.sqrt(max(discordant - difference**2, 0.0))
    return float(((z_a * math.sqrt(discordant) + z_b * deviation) / difference) ** 2)


@lru_cache(maxsize=256)  # a plan asks for the same size many times
def paired_n(
    difference: float, discordant: float, alpha: float = 0.05, power: float = 0.8
) -> tuple[float, str]:
    """Return the paired examples to plan for, and the reason for the method that gave them.

    Connor's formula, unless the test's exact power at that size is more than `CONNOR_SLACK` off
    (one model wins nearly every disagreement): then by enumeration.
    """
    formula = connor_n(difference, discordant, alpha, power)
    reached = mcnemar_power(math.ceil(formula), difference, discordant, alpha)
    if abs(reached - power) <= CONNOR_SLACK:
        return formula, "Connor (1987), for McNemar's test"
    return mcnemar_n(difference, discordant, alpha, power), (
        f"McNemar's test, n by enumeration (Connor's {math.ceil(formula)} would reach a power of "
        f"{reached:.3f})"
    )


def connor_difference(
    n: ArrayLike, discordant: float, alpha: float = 0.05, power: float = 0.8
) -> Floats:
    """Return the smallest difference that `n` pairs detect: `connor_n` solved for the difference.

    NaN where even a model that is right wherever the two differ would not be told apart.
    """
    from scipy.stats import norm

    size = np.asarray(n, float)
    z_a, z_b = norm.isf(alpha / 2), norm.ppf(power)
    # Squaring connor_n's equation leaves a quadratic in d / sqrt(psi); this is its positive root.
    with np.errstate(invalid="ignore", divide="ignore"):
        root = z_a * np.sqrt(size) + z_b * np.sqrt(size - z_a**2 + z_b**2)
        difference = math.sqrt(discordant) * root / (size + z_b**2)
        difference = np.where(np.isinf(size), 0.0, difference)
    return np.where(difference <= discordant, difference, np.nan)


def mcnemar_power(n: int, difference: float, discordant: float, alpha: float = 0.05) -> float:
    """Return the exact power of McNemar's test, summed over the number of discordant examples."""
    from scipy.stats import binom, norm

    # Counts outside these quantiles change the power by less than 1e-9 and would dominate the cost.
    low, high = binom.ppf([1e-10, 1 - 1e-10], n, discordant).astype(int)
    counts = np.arange(max(low, 0), high + 1)
    chance = binom.pmf(counts, n, discordant)
    # Given m discordant examples, the better model wins each with chance (1 + d/psi) / 2.
    share = (1 + difference / discordant) / 2
    # The test rejects where the smaller of the two counts is at most (m - z sqrt(m)) / 2.
    critical = np.floor((counts - norm.isf(alpha / 2) * np.sqrt(counts)) / 2)
    critical = np.where(counts > 0, critical, -1.0)
    rejected = binom.cdf(critical, counts, share) + binom.cdf(critical, counts, 1 - share)
    return float(chance @ rejected)


def mcnemar_n(difference: float, discordant: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return the smallest n from which on the test's exact power stays at `power`, enumerated."""
    start = math.ceil(connor_n(difference, discordant, alpha, power))

    def meets(n: int) -> bool:
        return mcnemar_power(n, difference, discordant, alpha) >= power

    n = smallest(meets, max(1, start // 2), 3 * start + 100)
    # Bisection may stop on any tooth of the saw, so the sizes around it are tried one by one.
    margin = 40 + math.isqrt(n)
    failing = [m for m in range(max(1, n - margin), n + margin) if not meets(m)]
    return failing[-1] + 1 if failing else n - margin


@dataclass(frozen=True)
class NoiseRate:
    """A rate of wrong labels with its interval and where it comes from, in words."""

    rate: float
    low: float
    high: float
    source: str
    automatic: bool = False


def check_rate(eta: float, classes: int) -> None:
    """Raise UsageError for a rate of wrong labels that leaves no signal with so many classes."""
    if classes < 2:
        raise UsageError(f"Label noise needs at least 2 classes, and the set has {classes}.")
    if not 0 <= eta < (classes - 1) / classes:
        raise UsageError(
            f"A label-noise rate of {eta:g} leaves no signal with {classes} classes: "
            f"give a rate from 0 to below {(classes - 1) / classes:.3g}."
        )


def accepted_rate(
    given: float | NoiseRate | None,
    classes: int,
    predictions_differ: float | None,
    reasons: list[str],
) -> NoiseRate | None:
    """Return the rate to plan with, None for none; `reasons` gets the sentence that explains it."""
    if given is None:
        return None
    rate = given if isinstance(given, NoiseRate) else NoiseRate(given, given, given, "stated")
    check_rate(rate.rate, classes)
    # A rate that may be 0 would make a plan larger for noise that nobody has shown to be there.
    if rate.automatic and rate.low <= 0:
        reasons.append(
            f"Label noise: not used, because the interval of {rate.source} "
            f"({rate.low:.3f} to {rate.high:.3f}) includes 0."
        )
        return None
    # Models may disagree on more examples than the discordant ones: unknown counts as all.
    bound = noise_bound(rate.rate, 1.0 if predictions_differ is None else predictions_differ)
    reasons.append(
        f"Label noise: rate {rate.rate:.3f} ({rate.source}), taken as uniform and independent "
        f"of the models. If wrong labels lean towards confusable classes there is no formula: "
        f"they may shift a difference by up to {bound:.3f}, and a difference below that is not "
        "guaranteed under class-dependent noise."
    )
    return rate


def noisy_difference(
    difference: float, discordant: float, eta: float, classes: int, both_wrong: float
) -> tuple[float, float]:
    """Return the difference and the discordant share as they appear under wrong labels.

    A share `eta` of labels is replaced by another class, each as likely, whatever the models say:
    d' = d (1 - eta K/(K-1)); psi' = psi (1 - eta (K-2)/(K-1)) + 2 r eta/(K-1). `both_wrong` is r,
    the share on which both models are wrong and differ.
    """
    # An answer that was right stays right with chance 1 - eta and one that was wrong becomes right
    # with chance eta/(K - 1); a label may also become what one of two wrong models said.
    others = classes - 1
    smaller = difference * (1 - eta * classes / others)
    return smaller, discordant * (1 - eta * (classes - 2) / others) + 2 * both_wrong * eta / others


def seen_accuracy(eta: float, classes: int, seen: float) -> str:
    """Return the accuracy that can be seen at a rate `eta` of wrong labels, and what `seen` means.

    The noise is that of `noisy_difference`: a' = a (1 - eta) + (1 - a) eta/(K-1).
    """
    check_rate(eta, classes)
    chance = eta / (classes - 1)
    clean = (seen - chance) / (1 - eta - chance)
    means = f"is {100 * clean:.2f}% on right labels, if wrong labels are uniform and independent"
    if not 0 <= clean <= 1:
        means = "lies outside: by chance, or because wrong labels are fewer or not independent"
    return (
        f"With {100 * eta:g}% wrong labels, an accuracy of {100 * chance:.2f} to "
        f"{100 * (1 - eta):.2f}% can be seen; {100 * seen:.2f}% seen {means} of the model."
    )


def noise_bound(eta: float, predictions_differ: float) -> float:
    """Return 2 min(eta, share on which predictions differ): what any label noise may do to d."""
    return 2 * min(eta, predictions_differ)
