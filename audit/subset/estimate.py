"""Design-based estimates: a weighted share, its variance under both estimands, and its interval.

The estimate is the ratio of weighted totals y (right answers) and x (examples that count); its
variance comes from the residuals y - R x within strata (Cochran 1977, sections 6.11 and 11.2).
**full-set** has the finite-population factor 1 - n_h/N_h. **generalisation** drops it and adds
(between strata)/N, because F is itself a draw (Cochran, section 12.2). The interval is Wilson's at
p (1-p) / variance, with the factor of Korn and Graubard (1998, Survey Methodology 24:193); from a
sampling fraction of one half full-set intervals are Clopper-Pearson's. All functions broadcast over
leading axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.statistics.intervals import (
    Floats,
    Ints,
    clopper_pearson,
    effective_n,
    hypergeometric_limits,
    paired_difference,
)
from audit.subset.goal import Estimand
from audit.subset.sizes import EXACT_FROM_FRACTION, share_limits

# How many files' worth of the overall variance of answers steadies that of a stratum of files.
PRIOR_FILES = 1.0


@dataclass(frozen=True)
class Moments:
    """Per-stratum moments of unit totals; every array has shape (..., H).

    `n`, `N`: drawn and existing units; `y`, `x`: means; `yy`, `xx`, `xy`: variances and covariance
    with divisor n - 1 (0 where n is 1); `x3`, `x4`: means of the third and fourth powers of x.
    """

    n: Floats
    N: Floats
    y: Floats
    x: Floats
    yy: Floats
    xx: Floats
    xy: Floats
    x3: Floats
    x4: Floats

    @property
    def weight(self) -> Floats:
        """N^2 / n: what a unit's variance counts for in that of the total."""
        return np.asarray(self.N**2 / np.maximum(self.n, 1))

    @property
    def x2(self) -> Floats:
        """Mean square of x."""
        return np.asarray(self.xx * np.maximum(self.n - 1, 0) / np.maximum(self.n, 1) + self.x**2)


def unit_moments(y: Floats, x: Floats, stratum: Ints, population: Floats) -> Moments:
    """Return the moments of unit totals `y` and `x` (one entry a unit) by `stratum` code."""
    count = population.size
    n = np.bincount(stratum, minlength=count).astype(float)
    at_least_one = np.maximum(n, 1)
    mean_y, mean_x, x3, x4 = (
        np.bincount(stratum, v, count) / at_least_one for v in (y, x, x**3, x**4)
    )
    # Centred before squaring: the difference of two large sums would lose most of its digits.
    dy, dx = y - mean_y[stratum], x - mean_x[stratum]
    yy, xx, xy = (
        np.bincount(stratum, v, count) / np.maximum(n - 1, 1) for v in (dy * dy, dx * dx, dy * dx)
    )
    return Moments(n, population.astype(float), mean_y, mean_x, yy, xx, xy, x3, x4)


@dataclass(frozen=True)
class Ratio:
    """A weighted ratio Y/X: `value`, its `variance` per estimand, what backs them.

    `base_n` is the effective size that the design has for a constant share (the fall-back where all
    observed answers agree), `within` the variance of an unlimited set, `fraction` the sampling
    fraction, `rare_units` the units among which the rarer answer is spread, `grouped` whether units
    hold several files, `moments` what it was computed from, `curved` whether it is no mean of rows.
    """

    value: Floats
    variance: dict[Estimand, Floats]
    base_n: dict[Estimand, Floats]
    within: Floats
    fraction: Floats
    rare_units: Floats
    grouped: NDArray[np.bool_]
    moments: Moments
    curved: bool = False


def weighted_ratio(m: Moments) -> Ratio:
    """Return the weighted ratio of y to x with its variances.

    The O(1/n) bias of a ratio is removed as by Tin (1965), JASA 60:294; it is nil for units of one
    size. NaN where no drawn unit counts in the denominator.
    """
    total_x = (m.N * m.x).sum(-1)
    counted = total_x > 0
    safe_x = np.where(counted, total_x, 1.0)
    value = (m.N * m.y).sum(-1) / safe_x
    # The finite-population factor: a stratum that was drawn whole adds no sampling error.
    remaining = np.where(m.N > 0, 1 - m.n / np.maximum(m.N, 1), 0.0)
    weight = m.weight
    bias_xy, bias_xx = ((weight * remaining * v).sum(-1) / safe_x for v in (m.xy, m.xx))
    corrected = value + (bias_xy - value * bias_xx) / safe_x
    # Linearisation: the variance of Y/X is that of the residuals y - R x, over X squared.
    residual = _pooled_over_single_units(
        m.n, m.yy - 2 * value[..., None] * m.xy + value[..., None] ** 2 * m.xx
    )
    full = (weight * remaining * residual).sum(-1) / safe_x**2
    within = (weight * residual).sum(-1)
    variance: dict[Estimand, Floats] = {
        "full-set": full,
        "generalisation": (within + _between(m, value, residual)) / safe_x**2,
    }
    # The variance of x - y, wrong answers: the rarer answer may be either kind.
    opposite = m.xx - 2 * m.xy + m.yy
    counting = m.x > 0
    drawn, existing = (np.where(counting, v, 0).sum(-1) for v in (m.n, m.N))
    return Ratio(
        value=np.where(counted, np.clip(corrected, -1, 1), np.nan),
        variance=variance,
        base_n=_base_sizes(m, safe_x, remaining),
        within=within / safe_x**2,
        fraction=drawn / np.maximum(existing, 1),
        rare_units=np.minimum(_rare_units(m, m.y, m.yy), _rare_units(m, m.x - m.y, opposite)),
        grouped=np.asarray((m.xx > 0).any(-1) | (m.x > 1).any(-1)),
        moments=m,
    )


def _base_sizes(m: Moments, total_x: Floats, remaining: Floats) -> dict[Estimand, Floats]:
    # If all answers agree the residuals are 0 and say nothing. This is what the design alone gives:
    # the size at which units that are each all right or all wrong would have this variance.
    square_x = m.weight * m.x2
    with np.errstate(divide="ignore"):
        return {
            "full-set": total_x**2 / (square_x * remaining).sum(-1),
            "generalisation": total_x**2 / square_x.sum(-1),
        }


def _rare_units(m: Moments, mean: Floats, variance: Floats) -> Floats:
    # Kish's effective number of units among which the answers of one kind are spread.
    weight = m.N / np.maximum(m.n, 1)
    total = (weight * m.n * mean).sum(-1)
    squares = (weight**2 * ((m.n - 1) * variance + m.n * mean**2)).sum(-1)
    kish = np.where(squares > 0, total**2 / np.maximum(squares, 1e-300), 0.0)
    # In the currency of the heaviest stratum: answers seen only where weights are small say little
    # about the variance there, and a heavy stratum without any shows none at all.
    typical = total / np.maximum((m.n * mean).sum(-1), 1e-300)
    heaviest = np.where(m.x > 0, weight, 0.0).max(-1)
    return np.asarray(kish * np.minimum(typical / np.maximum(heaviest, 1e-300), 1.0))


def _pooled_over_single_units(n: Floats, residual: Floats) -> Floats:
    # A stratum from which one unit was drawn shows no variance: it borrows the others' mean.
    known = n > 1
    pooled = np.where(known, residual, 0).sum(-1) / np.maximum(known.sum(-1), 1)
    return np.maximum(np.where(known, residual, np.expand_dims(pooled, -1)), 0.0)


def _between(m: Moments, value: Floats, residual: Floats) -> Floats:
    # N times the variance of stratum means around the ratio, less what sampling noise adds to it.
    total = np.maximum(m.N.sum(-1, keepdims=True), 1.0)
    share = m.N / total
    means = m.y - np.expand_dims(value, -1) * m.x
    noise = (share * (1 - share) * residual / np.maximum(m.n, 1)).sum(-1)
    return np.asarray(total[..., 0] * np.maximum((share * means**2).sum(-1) - noise, 0.0))


def degrees_of_freedom(
    r: Ratio, answer_variance: Floats, estimand: Estimand = "generalisation"
) -> tuple[Floats, Floats]:
    """Return the degrees of freedom of the variance of `r`, and what large units leave of each.

    A unit of m files varies by m (1 + (m - 1) rho), rho from `answer_variance`, that of one answer;
    n such units count as (sum v)^2 / sum v^2 equal ones (Carter, Schnepel and Steigerwald 2017,
    Review of Economics and Statistics 99:698), and strata combine as by Satterthwaite (1946). The
    second figure, in (0, 1], is that number over Kish's, which counts sizes but not their squares.
    """
    m, grouped = r.moments, np.expand_dims(r.grouped, -1)
    rho = _implied_correlation(r, answer_variance)[..., None]
    # Means over the units of v = m (1 + (m - 1) rho) = (1 - rho) m + rho m^2, and of its square.
    unit = (1 - rho) * m.x + rho * m.x2
    square = (1 - rho) ** 2 * m.x2 + 2 * rho * (1 - rho) * m.x3 + rho**2 * m.x4
    # Equal units for each unit: 1 if all sizes are equal, small where a few units hold most files.
    equal_units = np.divide(unit**2, square, out=np.ones_like(unit), where=square > 0)
    # A stratum counts for as much as it adds to the variance; one unit shows no variance at all.
    part = np.where((m.x > 0) & (m.n > 1), m.weight * unit, 0.0)
    if estimand == "full-set":  # a stratum that was drawn whole adds nothing
        left = part * (1 - m.n / np.maximum(m.N, 1))
        part = np.where(left.sum(-1, keepdims=True) > 0, left, part)
    total = np.maximum(part.sum(-1), 1e-300)
    each = np.maximum((m.n - 1) * equal_units + np.where(grouped, 0.0, PRIOR_FILES), 1e-9)
    degrees = np.maximum(total**2 / np.maximum((part**2 / each).sum(-1), 1e-300), 1.0)
    kish = np.divide(m.x**2, m.x2, out=np.ones_like(unit), where=m.x2 > 0)
    beyond_kish = np.minimum(equal_units / np.maximum(kish, 1e-300), 1.0)
    fraction = (part * beyond_kish).sum(-1) / total
    return degrees, np.where(part.sum(-1) > 0, fraction, 1.0)


def _implied_correlation(r: Ratio, answer_variance: Floats) -> Floats:
    # The variance lies between that of independent files (rho = 0) and that of units all right or
    # all wrong (rho = 1); where nothing can be observed, 1 is the cautious end.
    m = r.moments
    square_total = np.maximum((m.N * m.x).sum(-1), 1e-300) ** 2
    independent, alike = ((m.weight * v).sum(-1) / square_total for v in (m.x, m.x2))
    known = (answer_variance > 0) & (alike > independent * (1 + 1e-12))
    observed = np.divide(r.within, answer_variance, out=np.ones_like(independent), where=known)
    gap = np.where(known, alike - independent, 1.0)
    return np.where(known, np.clip((observed - independent) / gap, 0.0, 1.0), 1.0)


# How many units' worth of the design's own variance steadies an estimated one. For groups that
# value takes the files of a group to be alike: more of it would only widen the interval.
PRIOR_UNITS, PRIOR_GROUPS = 1.0, 0.2
# With fewer groups than this that could hold all rarer answers, a sample may well lack the few that
# are wrong as a whole.
RARE_GROUPS = 10.0
# Degrees of freedom that each unit with the rarer answer adds to a variance between groups.
DEGREES_PER_RARE_UNIT = 3.0
# Fewer degrees of freedom than this and an interval is called rough: the limit at which the U.S.
# National Center for Health Statistics has a proportion reviewed before it is published (Parker et
# al. 2017, Vital and Health Statistics 2(175)).
FEW_DEGREES = 8.0


def proportion_interval(
    r: Ratio, estimand: Estimand, confidence: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Return low, high and effective size for a ratio that is a share in [0, 1]."""
    share = np.clip(r.value, 0.0, 1.0)
    n = effective_size(r, share, estimand, confidence)
    low, high = share_limits(share, n, confidence)
    if estimand == "full-set":
        # With most of the set drawn, what is left is a handful of answers: too coarse a
        # distribution for a normal approximation, hence binomial limits on the effective size.
        coarse = (r.fraction >= EXACT_FROM_FRACTION) & np.isfinite(n)
        size = np.where(coarse, n, 1.0)
        exact_low, exact_high = clopper_pearson(share * size, size, confidence)
        low, high = np.where(coarse, exact_low, low), np.where(coarse, exact_high, high)
    return low, high, n


def effective_size(r: Ratio, share: Floats, estimand: Estimand, confidence: float = 0.95) -> Floats:
    """Return the independent examples that a share rests on: p (1-p) / variance, made cautious.

    Where few groups that are wrong as a whole could hold all rarer answers, a sample may miss them:
    the variance is drawn towards that of groups that are all right or all wrong.
    """
    n, base = guarded_size(r, share * (1 - share), estimand, confidence), r.base_n[estimand]
    alike = np.where(r.grouped & (n > base), alike_weight(base, share), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(1 / ((1 - alike) / n + alike / base))


def alike_weight(groups: Floats | float, share: Floats | float) -> Floats:
    """Return how far groups must be taken for all right or all wrong, 0..1."""
    known = np.minimum(groups, 1e12)  # all groups were drawn: nothing is missing
    rare = known * np.minimum(share, 1 - np.asarray(share))
    return np.asarray(np.clip(1 - rare / RARE_GROUPS, 0.0, 1.0) ** 2)


def guarded_size(
    r: Ratio, answer_variance: Floats, estimand: Estimand, confidence: float = 0.95
) -> Floats:
    """Return the independent examples that shares, means over classes and differences rest on.

    `answer_variance`: of one example's answer. Where the rarer answer occurs in few units, the
    variance is drawn towards the design's value (units that are all right or all wrong) by
    `PRIOR_UNITS` or `PRIOR_GROUPS` units, and for groups these units limit the degrees of freedom.
    `base_n` where all answers agree.
    """
    from scipy.stats import t as student

    variance = r.variance[estimand] + _steadying(r, answer_variance, estimand)
    base = r.base_n[estimand]
    with np.errstate(divide="ignore", invalid="ignore"):
        # A weighted mean of the observed variance and the design's: with few rare answers the
        # observed one is often far too small, and the interval would promise too much.
        by_design = answer_variance / base
        prior_units = np.where(r.grouped, PRIOR_GROUPS, PRIOR_UNITS)
        steadied = r.rare_units * variance + prior_units * by_design
        steadied = steadied / (r.rare_units + prior_units)
        if r.curved:  # a row's effect is not bounded by its weight, as the design's value takes it
            steadied = np.maximum(steadied, r.variance[estimand])
        n = np.where((answer_variance > 0) & (steadied > 0), answer_variance / steadied, base)
    # Wilson's limits use the normal quantile. Korn and Graubard shrink n by the squared ratio of
    # Student quantiles instead, which widens the interval and keeps it inside [0, 1].
    tail = (1 - confidence) / 2
    ideal = student.isf(tail, np.maximum(base, 2))
    degrees, fraction = degrees_of_freedom(r, answer_variance, estimand)
    # A variance between groups rests on the groups that differ from the rest, however many agree.
    by_rare = np.where(r.grouped, DEGREES_PER_RARE_UNIT * fraction * r.rare_units, np.inf)
    # No rare answer at all: the effective size is the design's, not an estimate, and has no limit.
    degrees = np.clip(np.where(by_rare > 0, by_rare, np.inf), 1.0, degrees)
    factor = ideal / student.isf(tail, degrees)
    # Never above 1: more degrees of freedom than units may not add information.
    return np.asarray(n * np.minimum(factor, 1.0) ** 2)


def _steadying(r: Ratio, answer_variance: Floats, estimand: Estimand) -> Floats:
    """Return what is added to a variance for strata from which few files were drawn."""
    m = r.moments
    value = np.expand_dims(r.value, -1)
    residual = np.maximum(m.yy - 2 * value * m.xy + value**2 * m.xx, 0.0)
    expected = np.expand_dims(answer_variance, -1) * m.x2
    share = np.where((m.n > 1) & ~np.expand_dims(r.grouped, -1), 1.0, 0.0)
    share = share * PRIOR_FILES / np.maximum(m.n - 1 + PRIOR_FILES, 1.0)
    remaining = 1 - m.n / np.maximum(m.N, 1) if estimand == "full-set" else 1.0
    total = np.maximum((m.N * m.x).sum(-1), 1e-300) ** 2
    return np.asarray((m.weight * remaining * share * (expected - residual)).sum(-1) / total)


def caution(r: Ratio, share: float) -> str:
    """Return why an interval is rough, and what to do; "" where it rests on enough groups."""
    if not bool(r.grouped):
        return ""
    degrees = float(degrees_of_freedom(r, np.asarray(share * (1 - share)))[0])
    if degrees >= FEW_DEGREES:
        return ""
    return (
        f"rough: {int(r.moments.n.sum())} groups of these sizes are equivalent to "
        f"{degrees + 1:.0f} equal groups ({degrees:.1f} degrees of freedom, fewer than "
        f"{FEW_DEGREES:g}). Draw more units, or smaller groups"
    )


def counted_interval(
    successes: Floats,
    n: Floats,
    population: Floats,
    estimand: Estimand,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return the interval for `successes` of `n` files drawn by simple random sampling from N."""
    share = successes / np.maximum(n, 1)
    if estimand == "generalisation":
        return share_limits(share, n, confidence)
    # The finite-population correction enters Wilson's limits as a larger sample size.
    low, high = share_limits(share, effective_n(n, population), confidence)
    coarse = n >= EXACT_FROM_FRACTION * population
    if np.any(coarse):
        least, most = hypergeometric_limits(successes, n, population, confidence)
        low = np.where(coarse, least / population, low)
        high = np.where(coarse, most / population, high)
    return low, high


def difference_interval(
    difference: Ratio, discordant: Ratio, estimand: Estimand, confidence: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Return low, high and effective size for a weighted paired difference.

    Tango's interval at the size that gives the difference its design-based variance, guarded as
    that of a share is. Zero width where the whole set was scored.
    """
    d = difference.value
    # Tin's correction may push |d| past the discordant share, which it cannot exceed.
    psi = np.maximum(discordant.value, np.abs(d))
    change_variance = np.clip(psi - d**2, 0.0, 1.0)  # of one pair: +1, 0 or -1
    told_apart = replace(difference, rare_units=discordant.rare_units, grouped=discordant.grouped)
    n = guarded_size(told_apart, change_variance, estimand, confidence)
    low, high = paired_difference((psi + d) / 2, (psi - d) / 2, n, confidence)
    return low, high, n
