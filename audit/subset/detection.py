"""Two models: the sample size that detects a difference, the difference that a size detects.

On the same examples: Connor's formula for McNemar's mid-p test. On different examples: the pooled
z-test, or Fisher's exact test with the continuity correction of Fleiss, Tytun and Ury. Exact power
is a sawtooth in n, so an exact size is the smallest n from which on *every* larger n has the power.
Formulas take microseconds, enumerated sizes up to a second.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats
from audit.subset.sizes import smallest

# Connor's formula is used where the power that mid-p McNemar really has is this near the target.
CONNOR_SLACK = 0.015
# Examples per model up to which the exact power of an unpaired test is summed over both counts.
ENUMERATED_UP_TO = 1000


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
    from scipy.stats import norm

    z_a, z_b = norm.isf(alpha / 2), norm.ppf(power)
    # One pair's change is +1, 0 or -1: its variance is psi if there is no difference (the test's
    # own assumption, hence z_a) and psi - d^2 if there is one (what power is about, hence z_b).
    deviation = math.sqrt(max(discordant - difference**2, 0.0))
    return float(((z_a * math.sqrt(discordant) + z_b * deviation) / difference) ** 2)


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
    from scipy.stats import norm

    size = np.asarray(n, float)
    z_a, z_b = norm.isf(alpha / 2), norm.ppf(power)
    # Squaring connor_n's equation leaves a quadratic in d / sqrt(psi); this is its positive root.
    with np.errstate(invalid="ignore", divide="ignore"):
        root = z_a * np.sqrt(size) + z_b * np.sqrt(size - z_a**2 + z_b**2)
        difference = math.sqrt(discordant) * root / (size + z_b**2)
        difference = np.where(np.isinf(size), 0.0, difference)
    return np.where(difference <= discordant, difference, np.nan)


def mcnemar_power(
    n: int,
    difference: float,
    discordant: float,
    alpha: float = 0.05,
    method: stats.McNemarMethod = "midp",
) -> float:
    """Return the exact power of the McNemar test, summed over the number of discordant examples."""
    from scipy.stats import binom

    # Counts outside these quantiles change the power by less than 1e-9 and would dominate the cost.
    low, high = binom.ppf([1e-10, 1 - 1e-10], n, discordant).astype(int)
    counts = np.arange(max(low, 0), high + 1)
    chance = binom.pmf(counts, n, discordant)
    # Given m discordant examples, the better model wins each with chance (1 + d/psi) / 2.
    share = (1 + difference / discordant) / 2
    return float(chance @ _rejection_probability(counts, share, alpha, method))


def _rejection_probability(
    counts: np.ndarray, share: float, alpha: float, method: stats.McNemarMethod
) -> Floats:
    from scipy.stats import binom

    # Largest smaller-cell count that is still rejected, found next to the binomial quantile.
    start = binom.ppf(alpha / 2, counts, 0.5)
    critical = np.full(counts.shape, -1.0)
    for step in (-2, -1, 0, 1):
        candidate = start + step
        rejected = (candidate >= 0) & (2 * candidate < counts)
        rejected &= stats.mcnemar(candidate, counts - candidate, method) <= alpha
        critical = np.where(rejected, np.maximum(critical, candidate), critical)
    lower = binom.cdf(critical, counts, share)
    return np.asarray(lower + binom.cdf(critical, counts, 1 - share))


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
    # Bisection may stop on any tooth of the saw, so the sizes around it are tried one by one.
    margin = 40 + math.isqrt(n)
    failing = [m for m in range(max(1, n - margin), n + margin) if not meets(m)]
    return failing[-1] + 1 if failing else n - margin


# ---- two models on different examples ----


def two_proportion_n(p1: float, p2: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the examples *per model* for the pooled z-test, uncorrected.

    Fleiss, Levin and Paik (2003), Statistical Methods for Rates and Proportions, equation 4.14.
    """
    if p1 == p2:
        raise UsageError("The two shares are equal: no number of examples tells them apart.")
    from scipy.stats import norm

    z_a, z_b = norm.isf(alpha / 2), norm.ppf(power)
    # The test pools both models under "no difference"; power is about the two as they are.
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

    exact = smallest(meets, 2, 2 * n)
    failing = [m for m in range(max(2, exact - 20), exact + 20) if not meets(m)]
    exact = failing[-1] + 1 if failing else exact
    return exact, (
        f"pooled z-test, n per model by enumeration (the formula's {n} would reach a power of "
        f"{reached:.3f})"
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
    # No closed form: the variance depends on both shares. 60 halvings exhaust a float.
    for _ in range(60):
        middle = (low + high) / 2
        is_enough = two_proportion_n(*split_around(p, middle), alpha, power) <= n
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def two_proportion_power(
    n: int, p1: float, p2: float, alpha: float = 0.05, test: Literal["pooled", "fisher"] = "pooled"
) -> float:
    """Return the test's exact power with `n` examples per model, by enumerating both counts."""
    from scipy.stats import binom, norm

    k = np.arange(n + 1)
    a, b = np.meshgrid(k, k, indexing="ij")
    if test == "pooled":
        mean = (a + b) / (2 * n)
        error = np.sqrt(np.maximum(mean * (1 - mean) * 2 / n, 1e-300))
        rejected = np.abs(a - b) / n / error >= norm.isf(alpha / 2)
    else:
        rejected = _fisher_rejects(a, b, n, alpha)
    chance = np.outer(binom.pmf(k, n, p1), binom.pmf(k, n, p2))
    return float(chance[rejected].sum())


def _fisher_rejects(a: np.ndarray, b: np.ndarray, n: int, alpha: float) -> np.ndarray:
    from scipy.stats import hypergeom

    # Two-sided by doubling the smaller tail, the form that the continuity correction imitates.
    lower = hypergeom.cdf(a, 2 * n, a + b, n)
    upper = hypergeom.sf(a - 1, 2 * n, a + b, n)
    return np.asarray(2 * np.minimum(lower, upper) <= alpha)
