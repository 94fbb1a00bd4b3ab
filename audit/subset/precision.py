"""What a subset of n units buys: effective size, half-width and detectable difference, predicted.

The same variance formulas as in `audit.subset.estimate`, with planning values in place of data: a
share p per stratum (from a prior model's predictions) or one p for all (given, or the worst case
0.5), and a within-unit correlation rho for groups. All pure arithmetic on one number per stratum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as distributions

from audit import stats
from audit.stats import Floats, Ints
from audit.subset import sizes
from audit.subset.estimate import Estimand
from audit.subset.sizes import EXACT_FROM_FRACTION, IntervalMethod


@dataclass(frozen=True)
class Domain:
    """The part of F that a figure is about: all of it, or one class.

    `N`: units per stratum of the domain; `p`: planning share per stratum; `files_per_unit`: mean
    unit size; `cluster_effect`: the loss from units of several files, at least 1 when rho >= 0;
    `size_worth`: equal units that each unit is worth for judging a variance, 1 if sizes are equal.
    """

    N: Ints
    p: Floats
    files_per_unit: float = 1.0
    cluster_effect: float = 1.0
    size_worth: float = 1.0

    @property
    def total(self) -> int:
        """Units of the domain in F."""
        return int(self.N.sum())

    @property
    def share(self) -> float:
        """The planning value for the whole domain."""
        return float(self.N @ self.p / max(self.total, 1))

    @property
    def simple(self) -> bool:
        """True where the draw is a simple random sample of single files."""
        return bool((self.N > 0).sum() == 1 and self.cluster_effect == 1.0)


@dataclass(frozen=True)
class Bought:
    """What n units give for one estimand; shares in [0, 1], NaN where nothing can be told."""

    estimand: Estimand
    n: int
    effective_n: float
    half_width: float
    detectable_difference: float


def effective_files(domain: Domain, n: Ints | Floats, estimand: Estimand) -> float:
    """Return the independent examples that n_h units are worth for a share; inf at n = N."""
    held = n > 0
    if not held.any():
        return 0.0
    total = domain.N[held].sum()
    weight = domain.N[held] / total
    p, drawn, existing = domain.p[held], n[held], domain.N[held]
    mean = float(weight @ p)
    spread = p * (1 - p) if 0 < mean < 1 else np.ones(p.shape)
    whole = mean * (1 - mean) if 0 < mean < 1 else 1.0
    if estimand == "full-set":
        left = 1 - drawn / existing
        # The spread of a finite set has divisor N - 1: this makes one stratum n (N-1)/(N-n).
        variance = float((weight**2 * left * spread / drawn).sum()) * total / max(total - 1, 1)
    else:
        between = float(weight @ (p - mean) ** 2) if 0 < mean < 1 else 0.0
        variance = float((weight**2 * spread / drawn).sum()) + between / total
    if variance <= 0:
        return float("inf")
    return float(whole / variance * domain.files_per_unit / domain.cluster_effect)


def degrees_of_freedom(domain: Domain, n: Ints | Floats) -> float:
    """Return the degrees of freedom that `score` will have for groups; infinite for files."""
    if domain.cluster_effect == 1.0 and domain.files_per_unit == 1.0:
        return float("inf")
    return max((float(n.sum()) - int((n > 0).sum())) * domain.size_worth, 1.0)


def student_loss(domain: Domain, n: Ints | Floats, confidence: float) -> float:
    """Return what an effective size loses because groups must show their own variance.

    Korn and Graubard's squared ratio of quantiles, as in `audit.subset.estimate.effective_size`.
    """
    tail = (1 - confidence) / 2
    least = distributions.t.isf(tail, max(float(n.sum()), 2.0))
    return float(min(least / distributions.t.isf(tail, degrees_of_freedom(domain, n)), 1.0) ** 2)


def half_width(
    domain: Domain,
    n: Ints | Floats,
    estimand: Estimand,
    confidence: float,
    method: IntervalMethod = "wilson",
) -> float:
    """Return the half-width that `score` is expected to print; NaN without units."""
    drawn = float(n.sum())
    if drawn == 0:
        return float("nan")
    worth = effective_files(domain, n, estimand) * student_loss(domain, n, confidence)
    if np.isinf(worth):
        return 0.0
    full = estimand == "full-set"
    if full and domain.simple:
        return float(sizes.half_width(drawn, domain.share, confidence, domain.total, method)[0])
    coarse = full and drawn >= EXACT_FROM_FRACTION * domain.total
    if method == "wilson" and not coarse:
        return float(sizes.half_width(worth, domain.share, confidence)[0])
    low, high = stats.clopper_pearson(domain.share * worth, worth, confidence)
    return float(high - low) / 2


def detectable_difference(
    domain: Domain,
    n: Ints | Floats,
    estimand: Estimand,
    discordant: float,
    alpha: float,
    power: float,
    paired: bool = True,
) -> float:
    """Return the smallest difference between two models that n_h units show with `power`."""
    flat = replace(domain, p=np.full(domain.p.shape, 0.5))
    worth = effective_files(flat, n, estimand) * student_loss(domain, n, 1 - alpha)
    if worth <= 0:
        return float("nan")
    if paired:
        return float(sizes.connor_difference(worth, discordant, alpha, power))
    return sizes.two_proportion_difference(worth, domain.share, alpha, power)
