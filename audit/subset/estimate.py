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
half on, full-set intervals use Clopper-Pearson's on that size. One stratum of single files is
treated exactly. All functions broadcast over leading axes: a simulation of 10,000 subsets is one
call.
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
# How many units' worth of the design's own variance steadies an estimated one (single files).
PRIOR_UNITS = 1.0
# Degrees of freedom that each unit with the rarer answer adds to a variance between groups.
DEGREES_PER_RARE_UNIT = 2.5
# Units of very unequal sizes carry fewer: a factor (1 + cv^2)^-2, but at least this.
LEAST_SIZE_FACTOR = 0.5
ESTIMANDS: tuple[Estimand, Estimand] = ("full-set", "generalisation")


@dataclass(frozen=True)
class Moments:
    """Per-stratum moments of unit totals; every array has shape (..., H).

    `n`, `N`: drawn and existing units; `y`, `x`: means; `yy`, `xx`, `xy`: variances and covariance
    with divisor n - 1 (0 where n is 1).
    """

    n: Floats
    N: Floats
    y: Floats
    x: Floats
    yy: Floats
    xx: Floats
    xy: Floats


def moments(y: Floats, x: Floats, stratum: Ints, population: Floats) -> Moments:
    """Return the moments of unit totals `y` and `x` (one entry a unit) by `stratum` code."""
    count = population.size
    n = np.bincount(stratum, minlength=count).astype(float)
    held = np.maximum(n, 1)
    mean_y, mean_x = (np.bincount(stratum, v, count) / held for v in (y, x))
    dy, dx = y - mean_y[stratum], x - mean_x[stratum]
    yy, xx, xy = (
        np.bincount(stratum, v, count) / np.maximum(n - 1, 1) for v in (dy * dy, dx * dx, dy * dx)
    )
    return Moments(n, population.astype(float), mean_y, mean_x, yy, xx, xy)


@dataclass(frozen=True)
class Ratio:
    """A weighted ratio Y/X: `value`, its `variance` per estimand, what backs them.

    `base_n` is the effective size that the design has for a constant share (the fall-back where all
    observed answers agree), `degrees` the degrees of freedom of the variance,
    `fraction` the sampling fraction, `rare_units` the units among which the rarer answer is spread,
    `size_factor` what unequal unit sizes leave of them, `grouped` whether units hold several files.
    """

    value: Floats
    variance: dict[Estimand, Floats]
    base_n: dict[Estimand, Floats]
    degrees: Floats
    fraction: Floats
    rare_units: Floats
    size_factor: Floats
    grouped: NDArray[np.bool_]


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
    weight = m.N**2 / np.maximum(m.n, 1)
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
    square_x = weight * (m.xx * np.maximum(m.n - 1, 0) / np.maximum(m.n, 1) + m.x**2)
    with np.errstate(divide="ignore"):
        base = {
            "full-set": safe_x**2 / (square_x * left).sum(-1),
            "generalisation": safe_x**2 / square_x.sum(-1),
        }
    drawn_units = np.maximum(m.n.sum(-1), 1)
    opposite = m.xx - 2 * m.xy + m.yy
    counting = m.x > 0
    # Satterthwaite's degrees for strata of equal spread: n less the strata if weights are equal,
    # little more than those of the heaviest stratum if they are not.
    part = np.where(counting & (m.n > 1), weight, 0.0)
    parts = (part**2 / np.maximum(m.n - 1, 1)).sum(-1)
    degrees = np.maximum(part.sum(-1) ** 2 / np.maximum(parts, 1e-300), 1.0)
    drawn, existing = (np.where(counting, v, 0).sum(-1) for v in (m.n, m.N))
    return Ratio(
        np.where(seen, np.clip(corrected, -1, 1), np.nan),
        variance,  # type: ignore[arg-type]
        base,  # type: ignore[arg-type]
        degrees,
        drawn / np.maximum(existing, 1),
        np.minimum(_rare_units(m, m.y, m.yy), _rare_units(m, m.x - m.y, opposite)),
        np.clip((_effective_units(m, m.x, m.xx) / drawn_units) ** 2, LEAST_SIZE_FACTOR, 1.0),
        np.asarray((m.xx > 0).any(-1) | (m.x > 1).any(-1)),
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
    towards the design's value for independent units by `PRIOR_UNITS` units, and for groups the
    degrees of freedom are limited by the units that carry the rarer answer. `base_n` where all
    answers agree. Both constants are calibrated by `benchmarks/subset_coverage.py`.
    """
    variance, base = r.variance[estimand], r.base_n[estimand]
    spread = share * (1 - share)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = spread / base
        held = np.where(r.grouped, 0.0, PRIOR_UNITS)
        steady = (r.rare_units * variance + held * plain) / (r.rare_units + held)
        n = np.where((spread > 0) & (steady > 0), spread / steady, base)
    few = np.where(r.grouped, DEGREES_PER_RARE_UNIT * r.size_factor * r.rare_units, np.inf)
    degrees = np.clip(few, 1.0, r.degrees)
    tail = (1 - confidence) / 2
    ideal = distributions.t.isf(tail, np.maximum(base, 2))
    return np.asarray(n * np.minimum(ideal / distributions.t.isf(tail, degrees), 1.0) ** 2)


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
    student = distributions.t.isf(tail, difference.degrees)
    n = n * (distributions.norm.isf(tail) / student) ** 2
    low, high = stats.paired_difference((psi + d) / 2, (psi - d) / 2, n, confidence)
    return low, high, n
