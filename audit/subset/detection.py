"""Two models on the same examples: the size that detects a difference, and back.

Connor's formula, for the score test of McNemar that `score` prints and whose inversion is the
interval of the verdict. The power of a test on counts is a sawtooth in n, so where the formula is
off, the size is the smallest n from which on *every* larger n has the power. The formula takes
microseconds, an enumerated size up to a second.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset.sizes import smallest

# Connor's formula is used where the power that the test really has is this near the target.
CONNOR_SLACK = 0.015


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
    """Return the paired examples at which McNemar's test finds `difference`.

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
    from scipy.stats import binom

    # Counts outside these quantiles change the power by less than 1e-9 and would dominate the cost.
    low, high = binom.ppf([1e-10, 1 - 1e-10], n, discordant).astype(int)
    counts = np.arange(max(low, 0), high + 1)
    chance = binom.pmf(counts, n, discordant)
    # Given m discordant examples, the better model wins each with chance (1 + d/psi) / 2.
    share = (1 + difference / discordant) / 2
    return float(chance @ _rejection_probability(counts, share, alpha))


def _rejection_probability(counts: Ints, share: float, alpha: float) -> Floats:
    from scipy.stats import binom, norm

    # The test rejects where the smaller of the two counts is at most (m - z sqrt(m)) / 2.
    critical = np.floor((counts - norm.isf(alpha / 2) * np.sqrt(counts)) / 2)
    critical = np.where(counts > 0, critical, -1.0)
    lower = binom.cdf(critical, counts, share)
    return np.asarray(lower + binom.cdf(critical, counts, 1 - share))


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
