"""What a subset of n units gives: effective size, half-width, detectable difference, predicted.

The same variance formulas as in `audit.subset.estimate`, with planning values in place of data: a
share p per stratum (from a prior model's predictions) or one p for all (given, or the worst case
0.5), and a within-unit correlation rho for groups. All pure arithmetic on one number per stratum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from audit import stats
from audit.stats import Floats, Ints
from audit.subset import sizes
from audit.subset.detection import connor_difference
from audit.subset.estimate import PRIOR_FILES, Estimand
from audit.subset.intervals import PRIOR_UNITS, alike_weight
from audit.subset.sizes import EXACT_FROM_FRACTION


@dataclass(frozen=True)
class Domain:
    """The part of F that a figure is about: all of it, or one class.

    `N`: units per stratum of the domain; `p`: planning share per stratum; `files_per_unit`: mean
    unit size; `cluster_effect`: the loss from units of several files, at least 1 when rho >= 0;
    `whole_effect`: the same where all files of a unit are alike; `size_evenness`: the equal units
    that would estimate the variance of a stratum as well, for each unit: 1 if all sizes are equal;
    `spread`: what a unit of a stratum varies by, over the mean unit. A mean over classes besides:
    `share`, what each stratum weighs in it (None: by its units), and `centre`, the mean that `p` of
    a stratum varies around (None: that of all).
    """

    N: Ints
    p: Floats
    files_per_unit: float = 1.0
    cluster_effect: float = 1.0
    whole_effect: float = 1.0
    size_evenness: Floats | float = 1.0
    spread: Floats | float = 1.0
    share: Floats | None = None
    centre: Floats | None = None

    @property
    def total(self) -> int:
        """Units of the domain in F."""
        return int(self.N.sum())

    @property
    def planning_share(self) -> float:
        """The planning value for the whole domain."""
        return float(self.weight @ self.p)

    @property
    def weight(self) -> Floats:
        """What each stratum weighs in the metric; the sum is 1."""
        return np.asarray(self.N / max(self.total, 1) if self.share is None else self.share)

    @property
    def files(self) -> bool:
        """True where every unit is a file."""
        return self.cluster_effect == 1.0 and self.files_per_unit == 1.0

    @property
    def simple(self) -> bool:
        """True where the draw is a simple random sample of single files."""
        return bool((self.N > 0).sum() == 1 and self.cluster_effect == 1.0)


@dataclass(frozen=True)
class Figures:
    """What n units give for one estimand; shares in [0, 1], NaN where it is unknown.

    `n_for_target` is the size that the target would take under this estimand (None without a
    target), `effective_n` the independent examples that the design is equivalent to.
    """

    n: int
    effective_n: float
    half_width: float
    detectable_difference: float
    n_for_target: int | None = None


def effective_files(domain: Domain, n: Ints | Floats, estimand: Estimand) -> float:
    """Return the independent examples that n_h units are equivalent to; inf at n = N (full-set)."""
    used = n > 0
    if not used.any():
        return 0.0
    total = domain.N[used].sum()
    weight = domain.weight[used] / domain.weight[used].sum()
    p, drawn, existing = domain.p[used], n[used], domain.N[used]
    mean = float(weight @ p)
    # At a planning value of 0 or 1 every variance is 0: strata are then taken to vary alike.
    uncertain = 0 < mean < 1
    within = p * (1 - p) if uncertain else np.ones(p.shape)
    within = within * np.broadcast_to(domain.spread, domain.N.shape)[used]
    whole = mean * (1 - mean) if uncertain else 1.0
    if estimand == "full-set":
        remaining = 1 - drawn / existing
        # A finite set's variance has divisor N - 1: this makes one stratum n (N-1)/(N-n).
        variance = float((weight**2 * remaining * within / drawn).sum()) * total / max(total - 1, 1)
    else:
        # F is itself a draw: its stratum sizes are random, which adds (between strata)/N.
        centre = mean if domain.centre is None else domain.centre[used]
        between = float(weight @ (p - centre) ** 2) if uncertain else 0.0
        variance = float((weight**2 * within / drawn).sum()) + between / total
    if variance <= 0:
        return float("inf")
    # So far in units of one file. Kish's design effect of groups divides what their files give.
    return float(whole / variance * domain.files_per_unit / domain.cluster_effect)


def expected_degrees(
    domain: Domain, n: Ints | Floats, estimand: Estimand = "generalisation"
) -> float:
    """Return the degrees of freedom that a score will have for groups; infinite for files."""
    if domain.files:
        return float("inf")
    used = n > 0
    evenness, spread = (
        np.broadcast_to(v, domain.N.shape)[used] for v in (domain.size_evenness, domain.spread)
    )
    drawn, existing = n[used], domain.N[used]
    part = existing**2 / drawn * spread
    if estimand == "full-set" and np.any(drawn < existing):
        part = part * (1 - drawn / existing)
    each = np.maximum((drawn - 1) * evenness, 1e-9)
    return max(float(part.sum() ** 2 / (part**2 / each).sum()), 1.0)


def student_factor(
    domain: Domain, n: Ints | Floats, confidence: float, estimand: Estimand = "generalisation"
) -> float:
    """Return the share of an effective size that is left when groups show their own variance.

    Korn and Graubard's squared ratio of quantiles, as in `audit.subset.intervals.effective_size`.
    """
    from scipy.stats import t as student

    tail, degrees = (1 - confidence) / 2, expected_degrees(domain, n, estimand)
    if np.isinf(degrees):
        return 1.0
    ideal = student.isf(tail, max(float(n.sum()), 2.0))
    return float(min(ideal / student.isf(tail, degrees), 1.0) ** 2)


def expected_half_width(
    domain: Domain,
    n: Ints | Floats,
    estimand: Estimand,
    confidence: float,
) -> float:
    """Return the half-width that a score is expected to print; NaN without units."""
    drawn = float(n.sum())
    if drawn == 0:
        return float("nan")
    effective = effective_files(domain, n, estimand) * student_factor(
        domain, n, confidence, estimand
    )
    effective = (_steadied if domain.files else _with_alike_groups)(domain, n, estimand, effective)
    if np.isinf(effective):
        return 0.0
    # The same choice of method as in the score, so that the plan predicts what will be printed.
    full = estimand == "full-set"
    if full and domain.simple:
        return float(sizes.half_width(drawn, domain.planning_share, confidence, domain.total)[0])
    coarse = full and drawn >= EXACT_FROM_FRACTION * domain.total
    if not coarse:
        return float(sizes.half_width(effective, domain.planning_share, confidence)[0])
    low, high = stats.clopper_pearson(domain.planning_share * effective, effective, confidence)
    return float(high - low) / 2


def _steadied(domain: Domain, n: Ints | Floats, estimand: Estimand, effective: float) -> float:
    """Return an effective size as `audit.subset.intervals.guarded_size` steadies it, for files."""
    share, used = domain.planning_share, n > 0
    if not 0 < share < 1 or not 0 < effective < np.inf:
        return effective
    drawn, p, weight = n[used], domain.p[used], domain.weight[used]
    # Each stratum's variance by one file, then their sum by as many as its rarer answers lack.
    steady = (p * (1 - p) * (drawn - 1) + PRIOR_FILES * share * (1 - share)) / (
        drawn - 1 + PRIOR_FILES
    )
    remaining = 1 - drawn / domain.N[used] if estimand == "full-set" else 1.0
    added = float((weight**2 / drawn * remaining * (steady - p * (1 - p))).sum())
    variance = share * (1 - share) / effective + added
    alike = share * (1 - share) * float((weight**2 / drawn * remaining).sum())
    rare = min(_rare_files(drawn, weight, v) for v in (p, 1 - p))
    variance = (rare * variance + PRIOR_UNITS * alike) / (rare + PRIOR_UNITS)
    return share * (1 - share) / variance


def _rare_files(n: Floats | Ints, weight: Floats, p: Floats) -> float:
    """Return among how many of the heaviest rows' worth the answers of a kind are spread."""
    row = weight / n
    total, squares = float(weight @ p), float((row * weight) @ p)
    typical = total / float(n @ p)
    return total**2 / squares * min(typical / float(row.max()), 1.0)


def _with_alike_groups(
    domain: Domain, n: Ints | Floats, estimand: Estimand, effective: float
) -> float:
    """Return an effective size as `audit.subset.intervals.effective_size` makes it cautious."""
    alike = replace(domain, p=np.full(domain.p.shape, 0.5), cluster_effect=domain.whole_effect)
    groups = effective_files(alike, n, estimand)
    if not 0 < groups < effective < np.inf:
        return effective
    weight = float(alike_weight(groups, domain.planning_share))
    return 1 / ((1 - weight) / effective + weight / groups)


def detectable_difference(
    domain: Domain,
    n: Ints | Floats,
    estimand: Estimand,
    discordant: float,
    alpha: float,
    power: float,
) -> float:
    """Return the smallest difference between two models that n_h units show with `power`."""
    # Strata separate right from wrong answers, not one model's changes from another's: the change
    # is taken to vary alike in all of them.
    flat = replace(domain, p=np.full(domain.p.shape, 0.5))
    effective = effective_files(flat, n, estimand) * student_factor(domain, n, 1 - alpha, estimand)
    if effective <= 0:
        return float("nan")
    return float(connor_difference(effective, discordant, alpha, power))
