"""The design of a drawn subset, read from its rows, and weighted shares under it.

Each row carries its stratum, unit, n_h, N_h and weight; `Design` turns them into numbers once,
checks that no row is missing, and gives ratios with design-based variances. `estimate_share` picks
the interval: exact for a plain count (one stratum of single files), on the effective size
otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset.draw import COLUMNS
from audit.subset.estimate import (
    Estimand,
    Ratio,
    degrees_of_freedom,
    unit_moments,
    weighted_ratio,
)
from audit.subset.intervals import caution, counted_interval, proportion_interval


@dataclass(frozen=True)
class MetricEstimate:
    """An estimate with its limits for one estimand; `known` where the whole set was scored.

    `caution` says how to read the limits where they are rough or wide, and what to do about it.
    """

    value: float
    low: float
    high: float
    effective_n: float
    known: bool = False
    caution: str = ""


@dataclass(frozen=True)
class Design:
    """Strata and units of the rows of a subset, as numbers.

    `unit` codes each row's unit, `stratum` each unit's stratum, `population` is N_h, `multiplicity`
    the files each row stands for within its unit, `weight` the design weight of each row.
    """

    rows: pl.DataFrame
    unit: Ints
    stratum: Ints
    population: Floats
    multiplicity: Floats
    weight: Floats

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Design:
        """Read the design from drawn rows; raises UsageError for a table that is not a subset."""
        absent = [c for c in COLUMNS if c not in rows.columns]
        if absent:
            raise UsageError(
                f"This is not a drawn subset: it has no column {absent[0]!r}. Make one with `audit "
                "subset draw`, and keep all its columns."
            )
        if rows.is_empty():
            raise UsageError("The subset has no rows: draw it again.")
        rows = rows.with_columns(
            pl.col("sample_id", "path", "label", "stratum", "unit_id").cast(pl.String)
        )
        _check_values(rows)
        strata = rows.select("stratum", "N_h").unique().sort("stratum")
        if strata["stratum"].is_duplicated().any():
            raise UsageError("A stratum has two sizes N_h: the rows come from different draws.")
        unit = np.unique(rows["rank"].to_numpy(), return_inverse=True)[1]
        code = rows["stratum"].cast(pl.Enum(strata["stratum"])).to_physical().to_numpy()
        stratum = np.zeros(int(unit.max()) + 1, np.int64)
        stratum[unit] = code
        # A shortened file keeps its old n_h: weights from it would be too small without a warning.
        drawn = np.bincount(stratum, minlength=len(strata))
        if np.any(drawn[code] != rows["n_h"].to_numpy()):
            raise UsageError(
                "Rows are missing from this subset (n_h does not match the rows): weights would be "
                "wrong. Use the file that `draw` wrote, or --first N for a shorter one."
            )
        weight = rows["weight"].to_numpy().astype(float)
        # Whole by construction; CSV and floating point leave a trace of rounding.
        multiplicity = np.rint(weight * rows["inclusion_probability"].to_numpy())
        population = strata["N_h"].to_numpy().astype(float)
        return cls(rows, unit, stratum, population, multiplicity, weight)

    @property
    def n_units(self) -> int:
        """Drawn units."""
        return int(self.stratum.size)

    @property
    def complete(self) -> bool:
        """True where every unit of the set was drawn."""
        return bool(self.n_units >= self.population.sum())

    @property
    def equal_files(self) -> bool:
        """True where weights are equal and every unit is one file: plain counts mean something."""
        single = self.n_units == self.unit.size and bool((self.multiplicity == 1).all())
        return single and bool(np.ptp(self.weight) <= 1e-9 * self.weight.max())

    def ratio(self, top: Floats, bottom: Floats) -> Ratio:
        """Return the weighted ratio of two per-row columns."""
        y, x = (
            np.bincount(self.unit, v * self.multiplicity, self.n_units).astype(float)
            for v in (top, bottom)
        )
        return weighted_ratio(unit_moments(y, x, self.stratum, self.population))

    def student(self, r: Ratio, answer_variance: float, confidence: float) -> float:
        """Return the quantile of Student's t that goes with the variance of a ratio."""
        from scipy.stats import t as student

        degrees = float(degrees_of_freedom(r, np.asarray(answer_variance))[0])
        return float(student.isf((1 - confidence) / 2, degrees))


def _check_values(rows: pl.DataFrame) -> None:
    chance, weight = pl.col("inclusion_probability"), pl.col("weight")
    number = chance.is_between(0, 1, closed="right") & weight.is_finite() & (weight > 0)
    bad = rows.filter(~number.fill_null(False) | pl.col("label").is_null())
    if len(bad):
        raise UsageError(
            f"The subset is damaged: {len(bad)} of {len(rows)} rows have no label, or no weight "
            f"above 0, such as {bad['sample_id'][0]!r}. Use the file that `draw` wrote."
        )


def estimate_share(
    design: Design, hit: Floats, counts: Floats, estimand: Estimand, confidence: float
) -> MetricEstimate:
    """Return the weighted share of `hit` among the rows that `counts` marks with 1."""
    # A simple random sample needs no approximation by an effective size.
    plain_count = _simple_counts(design, hit, counts)
    if plain_count is not None:
        return _counted(*plain_count, estimand, confidence)
    r = design.ratio(hit * counts, counts)
    value = min(max(float(r.value), 0.0), 1.0)
    if math.isnan(float(r.value)):
        return MetricEstimate(math.nan, 0.0, 1.0, 0.0)
    if estimand == "full-set" and design.complete:
        return MetricEstimate(value, value, value, math.inf, True)
    low, high, effective = (float(v) for v in proportion_interval(r, estimand, confidence))
    return MetricEstimate(value, low, high, effective, caution=caution(r, value))


def _counted(k: int, n: int, N: int, estimand: Estimand, confidence: float) -> MetricEstimate:
    if estimand == "full-set" and n >= N:
        return MetricEstimate(k / n, k / n, k / n, math.inf, True)
    successes, size, total = (np.array(float(v)) for v in (k, n, N))
    low, high = counted_interval(successes, size, total, estimand, confidence)
    effective = n if estimand == "generalisation" else float(stats.effective_n(n, N))
    return MetricEstimate(k / n, float(low), float(high), effective)


def _simple_counts(design: Design, hit: Floats, counts: Floats) -> tuple[int, int, int] | None:
    # All counted rows in one stratum, which they fill, as single files: a plain count (k, n, N).
    used = np.unique(design.stratum[design.unit[counts > 0]])
    if used.size != 1 or not bool((design.multiplicity[counts > 0] == 1).all()):
        return None
    inside = design.stratum[design.unit] == used[0]
    single = int(inside.sum()) == int((design.stratum == used[0]).sum())
    if not single or bool((counts[inside] == 0).any()):
        return None
    return int(hit[inside].sum()), int(inside.sum()), int(design.population[used[0]])
