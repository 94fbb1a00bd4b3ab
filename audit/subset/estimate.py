"""Design-based estimates: a weighted share, its variance under both estimands, its interval.

Everything follows from per-stratum moments of unit totals: y (right answers) and x (examples that
count) of each drawn unit. The estimate is the ratio of the weighted totals; its variance comes from
the residuals y - R x within strata (Cochran 1977, sections 6.11 and 11.2), so unequal units, groups
taken whole and disproportionate allocation need no separate treatment.

Two estimands, two variances. **full-set** has the finite-population factor 1 - n_h/N_h.
**generalisation** drops it and adds what the set's own stratum shares owe to chance, (between
strata)/N, because F is itself a draw (Cochran, section 12.2): without that term an interval at
n = N would be too narrow by the variance *between* strata.

Intervals are Wilson's at the effective sample size p (1-p) / variance, with Korn and Graubard's
(1998, Survey Methodology 24:193) factor for the degrees of freedom; from a sampling fraction of one
half on, full-set intervals use Clopper-Pearson's on that size. Degrees of freedom are not units
less one: units of unequal sizes count as the effective number of clusters of Carter, Schnepel and
Steigerwald (2017, Review of Economics and Statistics 99:698), combined over strata as by
Satterthwaite (1946). One stratum of single files is treated exactly. All functions broadcast over
leading axes: a simulation of 10,000 subsets is one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions

from audit import stats
from audit.stats import Floats, Ints
from audit.subset.sizes import EXACT_FROM_FRACTION

Estimand = Literal["full-set", "generalisation"]
# How many units' worth of the design's own variance steadies an estimated one. For groups that
# value takes the files of a group to be alike: more of it would only widen the interval.
PRIOR_UNITS, PRIOR_GROUPS = 1.0, 0.2
# Degrees of freedom that each unit with the rarer answer adds to a variance between groups.
DEGREES_PER_RARE_UNIT = 3.0
# Fewer degrees of freedom than this and an interval is said to be rough: the limit at which the
# U.S. National Center for Health Statistics has a proportion reviewed before it is published
# (Parker et al. 2017, Vital and Health Statistics 2(175)).
FEW_DEGREES = 8.0
# From this loss to unequal weights on, an interval for the whole is said to be wide.
UNEQUAL_WEIGHTS = 1.5
ESTIMANDS: tuple[Estimand, Estimand] = ("full-set", "generalisation")


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


def moments(y: Floats, x: Floats, stratum: Ints, population: Floats) -> Moments:
    """Return the moments of unit totals `y` and `x` (one entry a unit) by `stratum` code."""
    count = population.size
    n = np.bincount(stratum, minlength=count).astype(float)
    held = np.maximum(n, 1)
    mean_y, mean_x, x3, x4 = (np.bincount(stratum, v, count) / held for v in (y, x, x**3, x**4))
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
    hold several files, `moments` what it was computed from.
    """

    value: Floats
    variance: dict[Estimand, Floats]
    base_n: dict[Estimand, Floats]
    within: Floats
    fraction: Floats
    rare_units: Floats
    grouped: NDArray[np.bool_]
    moments: Moments


def ratio(m: Moments) -> Ratio:
    """Return the weighted ratio of y to x with its variances.

    The O(1/n) bias of a ratio is removed as by Tin (1965), JASA 60:294; it is nil for units of one
    size. NaN where no drawn unit counts in the denominator.
    """
    total_x = (m.N * m.x).sum(-1)
    seen = total_x > 0
    safe_x = np.where(seen, total_x, 1.0)
    value = (m.N * m.y).sum(-1) / safe_x
    left = np.where(m.N > 0, 1 - m.n / np.maximum(m.N, 1), 0.0)
    weight = m.weight
    bias_xy, bias_xx = ((weight * left * v).sum(-1) / safe_x for v in (m.xy, m.xx))
    corrected = value + (bias_xy - value * bias_xx) / safe_x
    residual = _pooled_over_single_units(
        m.n, m.yy - 2 * value[..., None] * m.xy + value[..., None] ** 2 * m.xx
    )
    full = (weight * left * residual).sum(-1) / safe_x**2
    within = (weight * residual).sum(-1)
    variance = {
        "full-set": full,
        "generalisation": (within + _between(m, value, residual)) / safe_x**2,
    }
    square_x = weight * m.x2
    with np.errstate(divide="ignore"):
        base = {
            "full-set": safe_x**2 / (square_x * left).sum(-1),
            "generalisation": safe_x**2 / square_x.sum(-1),
        }
    opposite = m.xx - 2 * m.xy + m.yy
    counting = m.x > 0
    drawn, existing = (np.where(counting, v, 0).sum(-1) for v in (m.n, m.N))
    return Ratio(
        np.where(seen, np.clip(corrected, -1, 1), np.nan),
        variance,  # type: ignore[arg-type]
        base,  # type: ignore[arg-type]
        within / safe_x**2,
        drawn / np.maximum(existing, 1),
        np.minimum(_rare_units(m, m.y, m.yy), _rare_units(m, m.x - m.y, opposite)),
        np.asarray((m.xx > 0).any(-1) | (m.x > 1).any(-1)),
        m,
    )


def _effective_units(m: Moments, mean: Floats, variance: Floats) -> Floats:
    # Kish's effective number of units among which the answers of one kind are spread.
    weight = m.N / np.maximum(m.n, 1)
    total = (weight * m.n * mean).sum(-1)
    squares = (weight**2 * ((m.n - 1) * variance + m.n * mean**2)).sum(-1)
    return np.asarray(np.where(squares > 0, total**2 / np.maximum(squares, 1e-300), 0.0))


def _rare_units(m: Moments, mean: Floats, variance: Floats) -> Floats:
    # The same in the currency of the heaviest stratum: answers seen only where weights are small
    # say little about the variance there, and a heavy stratum without any shows none at all.
    weight = m.N / np.maximum(m.n, 1)
    count = (m.n * mean).sum(-1)
    typical = (weight * m.n * mean).sum(-1) / np.maximum(count, 1e-300)
    heaviest = np.where(m.x > 0, weight, 0.0).max(-1)
    relative = np.minimum(typical / np.maximum(heaviest, 1e-300), 1.0)
    return np.asarray(_effective_units(m, mean, variance) * relative)


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


# ---- degrees of freedom ----


def degrees_of_freedom(r: Ratio, spread: Floats) -> tuple[Floats, Floats]:
    """Return the degrees of freedom of the variance of `r`, and what large units leave of each.

    `spread` is the variance of one answer. A unit of m files varies by m (1 + (m - 1) rho), rho
    being what the observed variance implies; n such units are worth (sum v)^2 / sum v^2 of n equal
    ones (Carter, Schnepel and Steigerwald 2017), and strata combine as by Satterthwaite (1946). The
    second figure, in (0, 1], is that number over Kish's, which counts sizes but not their squares.
    """
    m = r.moments
    rho = _correlation(r, spread)[..., None]
    unit = (1 - rho) * m.x + rho * m.x2
    square = (1 - rho) ** 2 * m.x2 + 2 * rho * (1 - rho) * m.x3 + rho**2 * m.x4
    worth = np.divide(unit**2, square, out=np.ones_like(unit), where=square > 0)
    part = np.where((m.x > 0) & (m.n > 1), m.weight * unit, 0.0)
    total = np.maximum(part.sum(-1), 1e-300)
    each = np.maximum((m.n - 1) * worth, 1e-9)
    degrees = np.maximum(total**2 / np.maximum((part**2 / each).sum(-1), 1e-300), 1.0)
    kish = np.divide(m.x**2, m.x2, out=np.ones_like(unit), where=m.x2 > 0)
    left = (part * np.minimum(worth / np.maximum(kish, 1e-300), 1.0)).sum(-1) / total
    return degrees, np.where(part.sum(-1) > 0, left, 1.0)


def _correlation(r: Ratio, spread: Floats) -> Floats:
    # The variance lies between that of independent files and that of units all right or all wrong.
    m = r.moments
    square_total = np.maximum((m.N * m.x).sum(-1), 1e-300) ** 2
    alone, together = ((m.weight * v).sum(-1) / square_total for v in (m.x, m.x2))
    known = (spread > 0) & (together > alone * (1 + 1e-12))
    observed = np.divide(r.within, spread, out=np.ones_like(alone), where=known)
    gap = np.where(known, together - alone, 1.0)
    return np.where(known, np.clip((observed - alone) / gap, 0.0, 1.0), 1.0)


# ---- intervals ----


def proportion_interval(
    r: Ratio, estimand: Estimand, confidence: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Return low, high and effective size for a ratio that is a share in [0, 1]."""
    share = np.clip(r.value, 0.0, 1.0)
    n = effective_size(r, share, estimand, confidence)
    low, high = stats.wilson_share(share, n, confidence)
    if estimand == "full-set":
        coarse = (r.fraction >= EXACT_FROM_FRACTION) & np.isfinite(n)
        known = np.isinf(n)
        size = np.where(coarse, n, 1.0)
        exact_low, exact_high = stats.clopper_pearson(share * size, size, confidence)
        low, high = np.where(coarse, exact_low, low), np.where(coarse, exact_high, high)
        low, high = np.where(known, share, low), np.where(known, share, high)
    return low, high, n


def effective_size(r: Ratio, share: Floats, estimand: Estimand, confidence: float = 0.95) -> Floats:
    """Return the independent examples that a share rests on: p (1-p) / variance, made cautious.

    Where the rarer answer occurs in few units, the variance estimate is itself a guess. It is drawn
    towards the design's value (independent units, each all right or all wrong) by `PRIOR_UNITS` or
    `PRIOR_GROUPS` units, and for groups the degrees of freedom are limited by the units that carry
    the rarer answer. `base_n` where all answers agree. The constants are calibrated by simulation,
    on other designs than those of `benchmarks/subset_coverage.py` too.
    """
    variance, base = r.variance[estimand], r.base_n[estimand]
    spread = share * (1 - share)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = spread / base
        held = np.where(r.grouped, PRIOR_GROUPS, PRIOR_UNITS)
        steady = (r.rare_units * variance + held * plain) / (r.rare_units + held)
        n = np.where((spread > 0) & (steady > 0), spread / steady, base)
    tail = (1 - confidence) / 2
    ideal = distributions.t.isf(tail, np.maximum(base, 2))
    factor = ideal / distributions.t.isf(tail, share_degrees(r, share))
    return np.asarray(n * np.minimum(factor, 1.0) ** 2)


def share_degrees(r: Ratio, share: Floats) -> Floats:
    """Return the degrees of freedom behind the interval of a share: `effective_size` uses them."""
    degrees, left = degrees_of_freedom(r, share * (1 - share))
    few = np.where(r.grouped, DEGREES_PER_RARE_UNIT * left * r.rare_units, np.inf)
    return np.clip(np.where(few > 0, few, np.inf), 1.0, degrees)


def weight_effect(r: Ratio) -> Floats:
    """Return the design effect of unequal weights among the strata that count: Kish (1965)."""
    m = r.moments
    counts = m.x > 0
    n, N, squares = (np.where(counts, v, 0).sum(-1) for v in (m.n, m.N, m.weight))
    return np.asarray(n * squares / np.maximum(N, 1) ** 2)


def caution(r: Ratio, share: float) -> str:
    """Return how to read the interval of one share, and the cure; empty if as it stands.

    Rough: fewer than `FEW_DEGREES` degrees of freedom. Wide: weights so unequal that the rarer
    answers may all be missing from the heaviest stratum, which the interval must allow for.
    """
    behind = float(share_degrees(r, np.asarray(share)))
    effect = float(weight_effect(r))
    if behind < FEW_DEGREES:
        return f"rough: {_why_few(r, share, behind)}. Draw more units, or smaller groups"
    if effect <= UNEQUAL_WEIGHTS:
        return ""
    return (
        f"wide, and too wide near 0 and 1: the rows' weights are unequal (design effect "
        f"{effect:.2f}). Draw in proportion to the strata for this metric"
    )


def _why_few(r: Ratio, share: float, behind: float) -> str:
    by_size = float(degrees_of_freedom(r, np.asarray(share * (1 - share)))[0])
    said = f"{behind:.1f} degrees of freedom, fewer than {FEW_DEGREES:g}"
    if not bool(r.grouped):
        return f"few units were drawn from the strata that weigh most ({said})"
    if behind < by_size:
        return f"the rarer answer lies in about {float(r.rare_units):.0f} groups ({said})"
    units = int(r.moments.n.sum())
    return f"{units} groups of these sizes are worth about {by_size + 1:.0f} equal ones ({said})"


def counted_interval(
    successes: Floats,
    n: Floats,
    population: Floats,
    estimand: Estimand,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return the interval for `successes` of `n` files drawn by simple random sampling from N.

    full-set: Wilson at n (N-1)/(N-n) below n/N = 0.5, the hypergeometric limits from there on.
    """
    if estimand == "generalisation":
        return stats.wilson(successes, n, confidence)
    share = successes / np.maximum(n, 1)
    low, high = stats.wilson_share(share, stats.effective_n(n, population), confidence)
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

    Bonett and Price's interval at the size that gives the difference its design-based variance;
    zero width where the whole set was scored.
    """
    d = difference.value
    psi = np.maximum(discordant.value, np.abs(d))
    share = np.clip(psi - d**2, 0.0, 1.0)
    variance, base = difference.variance[estimand], difference.base_n[estimand]
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.where((share > 0) & (variance > 0), share / variance, base)
    tail = (1 - confidence) / 2
    student = distributions.t.isf(tail, degrees_of_freedom(difference, share)[0])
    n = n * (distributions.norm.isf(tail) / student) ** 2
    low, high = stats.paired_difference((psi + d) / 2, (psi - d) / 2, n, confidence)
    return low, high, n
