"""Intervals for weighted shares and differences, and how far to trust them.

Wilson's interval at the effective sample size p (1-p) / variance, with Korn and Graubard's (1998,
Survey Methodology 24:193) factor for the degrees of freedom; from a sampling fraction of one half
on, full-set intervals use Clopper-Pearson's on that size, and one stratum of single files is
treated exactly. Degrees of freedom are not units less one: units of unequal sizes count as their
effective number (`estimate.degrees_of_freedom`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit import stats
from audit.stats import Floats
from audit.subset.estimate import PRIOR_FILES, Estimand, Ratio, degrees_of_freedom
from audit.subset.sizes import EXACT_FROM_FRACTION, share_limits

# How many units' worth of the design's own variance steadies an estimated one. For groups that
# value takes the files of a group to be alike: more of it would only widen the interval.
PRIOR_UNITS, PRIOR_GROUPS = 1.0, 0.2
# With fewer groups than this that could hold all rarer answers, a sample may well lack the few that
# are wrong as a whole: where 30 % of 150 groups are all right or all wrong, 84 % of intervals for
# 3 % of wrong answers held without this, 99 % with it.
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
        exact_low, exact_high = stats.clopper_pearson(share * size, size, confidence)
        low, high = np.where(coarse, exact_low, low), np.where(coarse, exact_high, high)
    return low, high, n


def effective_size(r: Ratio, share: Floats, estimand: Estimand, confidence: float = 0.95) -> Floats:
    """Return the independent examples that a share rests on: p (1-p) / variance, made cautious.

    A few groups that are wrong as a whole are likely to be missing from a sample whose other groups
    are mixed. Where few such groups could hold all rarer answers, the variance is drawn towards
    that of groups that are all right or all wrong.
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

    `answer_variance`: the variance of one example's answer. Where the rarer answer occurs in few
    units, the variance estimate is itself a guess. It is drawn towards the design's value
    (independent units, each all right or all wrong) by `PRIOR_UNITS` or `PRIOR_GROUPS` units, and
    for groups the degrees of freedom are limited by the units that carry the rarer answer. `base_n`
    where all answers agree. The constants are calibrated by simulation, on other designs than those
    of `benchmarks/subset_coverage.py` too.
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
        n = np.where((answer_variance > 0) & (steadied > 0), answer_variance / steadied, base)
    # Wilson's limits use the normal quantile. Korn and Graubard shrink n by the squared ratio of
    # Student quantiles instead, which widens the interval and keeps it inside [0, 1].
    tail = (1 - confidence) / 2
    ideal = student.isf(tail, np.maximum(base, 2))
    factor = ideal / student.isf(tail, share_degrees(r, answer_variance, estimand))
    # Never above 1: more degrees of freedom than units may not add information.
    return np.asarray(n * np.minimum(factor, 1.0) ** 2)


def _steadying(r: Ratio, answer_variance: Floats, estimand: Estimand) -> Floats:
    """Return what is added to a variance for strata from which few files were drawn.

    Two files of a stratum agree more often than not and then show no variance. Each stratum's is
    drawn by `PRIOR_FILES` files towards that of the answers as a whole.
    """
    m = r.moments
    value = np.expand_dims(r.value, -1)
    residual = np.maximum(m.yy - 2 * value * m.xy + value**2 * m.xx, 0.0)
    expected = np.expand_dims(answer_variance, -1) * m.x2
    share = np.where((m.n > 1) & ~np.expand_dims(r.grouped, -1), 1.0, 0.0)
    share = share * PRIOR_FILES / np.maximum(m.n - 1 + PRIOR_FILES, 1.0)
    remaining = 1 - m.n / np.maximum(m.N, 1) if estimand == "full-set" else 1.0
    total = np.maximum((m.N * m.x).sum(-1), 1e-300) ** 2
    return np.asarray((m.weight * remaining * share * (expected - residual)).sum(-1) / total)


def share_degrees(r: Ratio, answer_variance: Floats, estimand: Estimand) -> Floats:
    """Return the degrees of freedom behind an interval: `guarded_size` uses them."""
    degrees, fraction = degrees_of_freedom(r, answer_variance, estimand)
    # A variance between groups rests on the groups that differ from the rest, however many agree.
    by_rare = np.where(r.grouped, DEGREES_PER_RARE_UNIT * fraction * r.rare_units, np.inf)
    # No rare answer at all: the effective size is the design's, not an estimate, and has no limit.
    return np.clip(np.where(by_rare > 0, by_rare, np.inf), 1.0, degrees)


def caution(r: Ratio, share: float) -> str:
    """Return why an interval is rough, and what to do; "" where it rests on enough groups.

    Only groups can be too few: what a file's answer varies by is known from the share itself.
    """
    if not bool(r.grouped):
        return ""
    degrees = float(degrees_of_freedom(r, np.asarray(share * (1 - share)))[0])
    if degrees >= FEW_DEGREES:
        return ""
    return (
        f"rough: {int(r.moments.n.sum())} groups of these sizes are worth about "
        f"{degrees + 1:.0f} equal ones ({degrees:.1f} degrees of freedom, fewer than "
        f"{FEW_DEGREES:g}). Draw more units, or smaller groups"
    )


def counted_interval(
    successes: Floats,
    n: Floats,
    population: Floats,
    estimand: Estimand,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return the interval for `successes` of `n` files drawn by simple random sampling from N.

    full-set: at n (N-1)/(N-n) below n/N = 0.5, the hypergeometric limits from there on.
    """
    if estimand == "generalisation":
        return share_limits(successes / np.maximum(n, 1), n, confidence)
    # The finite-population correction enters Wilson's limits as a larger sample size.
    share = successes / np.maximum(n, 1)
    low, high = share_limits(share, stats.effective_n(n, population), confidence)
    coarse = n >= EXACT_FROM_FRACTION * population
    if np.any(coarse):
        low, high = (np.array(np.broadcast_to(v, coarse.shape)) for v in (low, high))
        k, size, total = (
            np.broadcast_to(v, coarse.shape)[coarse] for v in (successes, n, population)
        )
        exact_low, exact_high = stats.hypergeometric_limits(k, size, total, confidence)
        low[coarse], high[coarse] = exact_low / total, exact_high / total
    return low, high


def difference_interval(
    difference: Ratio, discordant: Ratio, estimand: Estimand, confidence: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Return low, high and effective size for a weighted paired difference.

    Tango's interval at the size that gives the difference its design-based variance, guarded as
    that of a share is: where few examples tell the models apart, and those weigh little, the
    observed variance says little. Zero width where the whole set was scored.
    """
    d = difference.value
    # Tin's correction may push |d| past the discordant share, which it cannot exceed.
    psi = np.maximum(discordant.value, np.abs(d))
    change_variance = np.clip(psi - d**2, 0.0, 1.0)  # of one pair: +1, 0 or -1
    told_apart = replace(difference, rare_units=discordant.rare_units, grouped=discordant.grouped)
    n = guarded_size(told_apart, change_variance, estimand, confidence)
    low, high = stats.paired_difference((psi + d) / 2, (psi - d) / 2, n, confidence)
    return low, high, n
