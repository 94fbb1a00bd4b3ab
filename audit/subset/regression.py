"""Regression on a number that is known for every example of F: an earlier model's right answers.

The subset says how the new number goes with the known one, F says what the known one is on
average: the estimate is the subset's mean, corrected by coefficient times (F's mean of the known
number - the subset's). It is the survey regression estimator (Cochran 1977, sections 7.2 to 7.11;
Sarndal, Swensson and Wretman 1992, section 6.6). For generalisation F is itself a draw, which adds
the variance of F's own mean: with the best coefficient this is PPI++ (Angelopoulos, Duchi and
Zrnic 2023, arXiv:2311.01453) with F less the subset as its unlabelled part, so that no row counts
twice.

Each stratum has its own coefficient where it has units enough to know one; the others share one.
Residuals are those that each unit would have had if it had not helped to choose the coefficient
(e / (1 - leverage), the jackknife's), and carry the calibration weights: a coefficient fitted to
noise widens the interval and does not narrow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from audit.stats import Floats, Ints
from audit.subset.design import Design
from audit.subset.estimate import Estimand, Ratio

OWN_COEFFICIENT_FROM = 20
"""Units of a stratum that has a coefficient of its own."""
OWN_LEVERAGE, LARGEST_LEVERAGE = 0.1, 0.2
"""No unit may have a larger part in a coefficient: ten, or five, units of the rarer known answer.
A stratum above the first shares the common coefficient; above the second there is none."""

ROUNDING = 1e-9


@dataclass(frozen=True)
class Known:
    """A number known for all of F: `values` on the subset's rows, `means` over F by stratum."""

    values: Floats
    means: Floats


@dataclass(frozen=True)
class Fit:
    """Coefficients by stratum, the share of the variance that they leave, and the ratio."""

    coefficients: Floats
    remaining: float
    ratio: Ratio


def fit_known(design: Design, top: Floats, counts: Floats, known: Known) -> Fit:
    """Return the ratio of `top` among the rows that count, regressed on the known number.

    `top`: the new number of each row; `counts`: what the row weighs, the same for both numbers and
    known on F. Its `variance` is that of the regression, its `base_n` that of the plain sample.
    """
    plain = design.ratio(top * counts, counts)
    row_stratum = design.stratum[design.unit]
    centred = (known.values - known.means[row_stratum]) * counts
    z = _unit_totals(design, (top - float(plain.value)) * counts)
    b = _unit_totals(design, centred)
    slopes = _Slopes.of(design, z, b)
    coefficient = slopes.by_stratum
    corrected = design.ratio(top * counts - coefficient[row_stratum] * centred, counts)
    residual = slopes.residuals(design, z, b)
    spread = _residual_ratio(design, residual, counts, float(corrected.value))
    squares = (design.population / np.maximum(slopes.n, 1))[design.stratum] * residual**2
    kish = float(squares.sum() ** 2 / max(float((squares**2).sum()), 1e-300))
    full = spread.variance["full-set"]
    # Plain generalisation less plain full-set: what F owes to being a draw of its own.
    variance: dict[Estimand, Floats] = {
        "full-set": full,
        "generalisation": full + plain.variance["generalisation"] - plain.variance["full-set"],
    }
    present = (counts > 0).astype(float)
    ratio = replace(
        plain,
        grouped=design.ratio(present, present).grouped,
        value=corrected.value,
        variance=variance,
        rare_units=np.minimum(plain.rare_units, kish),
        moments=spread.moments,
    )
    before = float(plain.variance["full-set"])
    return Fit(coefficient, float(full) / before if before > 0 else 1.0, ratio)


def _unit_totals(design: Design, values: Floats) -> Floats:
    return np.bincount(design.unit, values * design.multiplicity, design.n_units).astype(float)


def _residual_ratio(design: Design, residual: Floats, counts: Floats, value: float) -> Ratio:
    # The residuals as if they were answers: y - R x has them as its own linearised values.
    x = _unit_totals(design, counts)
    files = np.maximum(np.bincount(design.unit, minlength=design.n_units), 1)
    per_row = (residual / files)[design.unit] / design.multiplicity
    mean = value * (x / files)[design.unit] / design.multiplicity
    return design.ratio(per_row + mean, counts)


@dataclass(frozen=True)
class _Slopes:
    """Coefficients of groups of strata: each large stratum is a group, the others are one."""

    n: Floats
    group: Ints
    slope: Floats
    leverage: Floats
    pull: Floats

    @classmethod
    def of(cls, design: Design, z: Floats, b: Floats) -> _Slopes:
        strata = design.population.size
        n = np.bincount(design.stratum, minlength=strata).astype(float)
        dev = b - (np.bincount(design.stratum, b, strata) / np.maximum(n, 1))[design.stratum]
        # Where all known numbers agree, only rounding differs, and rounding has no slope.
        dev = np.where(
            np.abs(dev) > ROUNDING * max(float(np.abs(b).max(initial=0)), 1e-300), dev, 0
        )
        squares = np.bincount(design.stratum, dev**2, strata)
        part = dev**2 / np.where(squares > 0, squares, 1.0)[design.stratum]
        largest = np.where(squares > 0, 0.0, 1.0)
        np.maximum.at(largest, design.stratum, part)
        own = (n >= OWN_COEFFICIENT_FROM) & (largest <= OWN_LEVERAGE)
        group = np.where(own, np.arange(strata), strata).astype(np.int64)
        return cls._fitted(design, z, b, dev, n, group)

    @classmethod
    def _fitted(
        cls, design: Design, z: Floats, b: Floats, dev: Floats, n: Floats, group: Ints
    ) -> _Slopes:
        stratum, N, strata = design.stratum, design.population, design.population.size
        # What a squared deviation of a stratum counts for in the variance of the estimate.
        worth = N**2 / np.maximum(n, 1) / np.maximum(n - 1, 1)
        of = group[stratum]
        weighted = worth[stratum] * dev
        q = np.bincount(of, weighted * dev, strata + 1)
        p = np.bincount(of, weighted * z, strata + 1)
        safe = np.where(q > 0, q, 1.0)
        leverage = weighted * dev / safe[of]
        largest = np.zeros(strata + 1)
        np.maximum.at(largest, of, leverage)
        usable = (q > 0) & (largest <= LARGEST_LEVERAGE)
        slope = np.where(usable, p / safe, 0.0)
        # F's mean of the centred number is 0: the subset's shortfall is less its own mean.
        short = -np.bincount(stratum, b, strata) / np.maximum(n, 1) * N
        short_of_group = np.bincount(group, short, strata + 1)
        each = N[stratum] / np.maximum(n, 1)[stratum]
        pull = np.where(usable, short_of_group / safe, 0.0)[of] * weighted / each
        return cls(n, group, slope, np.where(usable[of], leverage, 0.0), pull)

    @property
    def by_stratum(self) -> Floats:
        return self.slope[self.group]

    def residuals(self, design: Design, z: Floats, b: Floats) -> Floats:
        """Return the residuals with their calibration weights, leverage taken out."""
        e = z - self.slope[self.group[design.stratum]] * b
        mean = np.bincount(design.stratum, e, design.population.size) / np.maximum(self.n, 1)
        centre = mean[design.stratum]
        return np.asarray(centre + (e - centre) * (1 + self.pull) / (1 - self.leverage))
