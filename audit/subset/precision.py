"""What a subset of n units buys: effective size, half-width and detectable difference, predicted.

The same variance formulas as in `audit.subset.estimate`, with planning values in place of data: a
share p per stratum (from a prior model's predictions) or one p for all (given, or the worst case
0.5), and a within-unit correlation rho for groups. All pure arithmetic on one number per stratum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audit import stats
from audit.stats import Floats, Ints
from audit.subset import sizes
from audit.subset.estimate import Estimand
from audit.subset.sizes import EXACT_FROM_FRACTION, IntervalMethod


@dataclass(frozen=True)
class Domain:
    """The part of F that a figure is about: all of it, or one class.

    `N`: units per stratum of the domain; `p`: planning share per stratum; `files_per_unit`: mean
    unit size; `cluster_effect`: the loss from units of several files, at least 1 when rho >= 0.
    """

    N: Ints
    p: Floats
    files_per_unit: float = 1.0
    cluster_effect: float = 1.0

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


def half_width(
    domain: Domain,
    n: Ints | Floats,
    estimand: Estimand,
    confidence: float,
    method: IntervalMethod = "wilson",
) -> float:
    """Return the half-width that `score` is expected to print; NaN without units."""
    drawn = int(n.sum())
    if drawn == 0:
        return float("nan")
    worth = effective_files(domain, n, estimand)
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
    flat = Domain(domain.N, np.full(domain.p.shape, 0.5), domain.files_per_unit,
                  domain.cluster_effect)  # fmt: skip
    worth = effective_files(flat, n, estimand)
    if worth <= 0:
        return float("nan")
    if paired:
        return float(sizes.connor_difference(worth, discordant, alpha, power))
    return sizes.two_proportion_difference(worth, domain.share, alpha, power)
