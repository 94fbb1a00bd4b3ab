"""The mean of any number per example, such as a loss, an IoU or the Brier score.

The mean has the design-based variance of a ratio; its interval inverts Hall's (1992, JRSS B 54:221)
cubic transformation of the t statistic, because losses are skewed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from scipy.stats import t as student

from audit.errors import UsageError
from audit.statistics.intervals import Floats, z_value
from audit.subset.baseline import LARGEST_LEVERAGE, Known, fit_known, known_on, rows_of
from audit.subset.draw import planned_level
from audit.subset.estimate import FEW_DEGREES, Ratio, degrees_of_freedom
from audit.subset.goal import ESTIMANDS, TARGET_NAMES, Documented, Estimand, level_text
from audit.subset.metrics import Design
from audit.subset.predictions import IDS, PROBABILITY, find_column, match, value_of_each

BRIER = "brier"
SKEWED = 0.5
"""Skewness of the estimate itself from which an interval of a mean is called rough."""


@dataclass(frozen=True)
class ValueEstimate:
    """A number with its limits, in its own unit; infinite where the subset gives no limit."""

    value: float
    low: float
    high: float
    known: bool = False
    caution: str = ""


@dataclass(frozen=True)
class Measure:
    """One number of the examples: `what` it is, an estimate per estimand, and how it was made."""

    what: str
    estimands: dict[Estimand, ValueEstimate]
    method: str


@dataclass(frozen=True)
class Measures(Documented):
    """The measures of a subset; `deviation` is that of one example, for the next plan."""

    SCHEMA = "subset-values/1"
    n_files: int
    n_units: int
    population_units: int
    confidence: float
    deviation: float
    measures: list[Measure]
    notes: list[str] = field(default_factory=list)


def row_numbers(rows: pl.DataFrame, table: pl.DataFrame, column: str, name: str) -> Floats:
    """Return a finite number for each row: a column, by id or path, or `brier` of probabilities."""
    if column == BRIER and column not in table.columns:
        return brier_values(rows["label"], match(rows, table, name).table)
    if column not in table.columns:
        find_column(table, IDS, name, "id")
        raise UsageError(
            f"{name} has no column {column!r}; it has {', '.join(table.columns[:12])}."
        )
    values = value_of_each(
        rows, table, pl.col(column).cast(pl.Float64, strict=False), name, "numbers"
    )
    bad = values.is_null() | ~values.fill_null(0.0).is_finite()
    if bad.any():
        raise UsageError(
            f"{name}: {int(bad.sum())} of {len(rows)} examples have no finite {column!r}, such as "
            f"{rows['sample_id'].filter(bad)[0]!r}. Give a number for each of them."
        )
    return values.to_numpy()


def brier_values(labels: pl.Series, table: pl.DataFrame) -> Floats:
    """Return the Brier score of each row: squared errors of the probabilities, over all classes."""
    columns = [c for c in table.columns if c.startswith(PROBABILITY)]
    absent = sorted(set(labels) - {c.removeprefix(PROBABILITY) for c in columns})
    if not columns or absent:
        raise UsageError(
            "The Brier score needs the probability of every class: there is no column "
            f"{PROBABILITY + (absent or ['<class>'])[0]!r}."
        )
    total = np.zeros(len(labels))
    for column in columns:
        own = (labels == column.removeprefix(PROBABILITY)).to_numpy().astype(float)
        total += (table[column].to_numpy() - own) ** 2
    return total


def estimate_mean(
    design: Design, values: Floats, confidence: float, known: Known | None = None
) -> dict[Estimand, ValueEstimate]:
    """Return the mean of a number with its limits, regressed on a number known for F if given."""
    ones = np.ones(values.size)
    # Ratios are kept within [-1, 1]: the number is scaled there and back.
    low, scale = float(values.min()), float(np.ptp(values)) or 1.0
    y = (values - low) / scale
    if known is None:
        r = design.ratio(y, ones)
    else:
        unit = Known(known.values / scale, known.means / scale)
        r = fit_known(design, y, ones, unit).ratio
    value = low + scale * float(r.value)
    estimates: dict[Estimand, ValueEstimate] = {}
    for e in ESTIMANDS:
        down, up, caution = _mean_limits(design, r, y, e, confidence)
        estimates[e] = ValueEstimate(
            value, value - scale * down, value + scale * up, False, caution
        )
    if design.complete:
        estimates["full-set"] = ValueEstimate(value, value, value, known=True)
    return estimates


def _mean_limits(
    design: Design, r: Ratio, y: Floats, estimand: Estimand, confidence: float
) -> tuple[float, float, str]:
    error = math.sqrt(max(float(r.variance[estimand]), 0.0))
    if error == 0:
        return math.inf, math.inf, "missing: all numbers drawn are the same and have no spread"
    spread = float(np.average((y - float(r.value)) ** 2, weights=design.weight))
    degrees = float(degrees_of_freedom(r, np.asarray(spread))[0])
    quantile = float(student.isf((1 - confidence) / 2, degrees))
    # of the weighted mean: that of one unit over the root of their number
    unit = design.totals(design.weight * (y - float(r.value)))
    squares = float((unit**2).sum())
    skew = float((unit**3).sum()) / squares**1.5 if squares > 0 else 0.0
    caution = ""
    if degrees < FEW_DEGREES:
        caution = f"rough: {degrees:.1f} degrees of freedom, fewer than {FEW_DEGREES:g}"
    elif abs(skew) > SKEWED:
        caution = "rough: few large numbers decide the mean. Draw more"
    return error * _hall(quantile, skew), -error * _hall(-quantile, skew), caution


def _hall(quantile: float, skew: float) -> float:
    # The inverse of t + a t^2 / 3 + a^2 t^3 / 27 + a / 6, which is nearly normal for skewness a.
    if abs(skew) < 1e-9:
        return quantile
    return float(3 / skew * (np.cbrt(1 + skew * (quantile - skew / 6)) - 1))


def measure_subset(
    rows: pl.DataFrame,
    table: pl.DataFrame,
    column: str,
    *,
    confidence: float | None = None,
    baseline: tuple[Design, pl.DataFrame] | None = None,
    name: str = "the numbers",
) -> Measures:
    """Measure the mean of one number per example on drawn rows.

    `table`: an id and `column`, for every row; `brier` is made from probabilities. `baseline`: the
    whole set, and a table with the same column of an earlier model for all of it.
    """
    confidence = planned_level(rows, confidence)[0]
    design = Design.of(rows)
    values = row_numbers(design.rows, table, column, name)
    mean = estimate_mean(design, values, confidence)
    measures = [Measure(f"mean {column}", mean, "Hall's interval")]
    notes: list[str] = []
    if baseline is not None:
        whole, earlier = baseline
        old = row_numbers(whole.rows, earlier, column, "the baseline")
        known = known_on(whole, rows_of(whole, design), old, np.ones(old.size))
        mean = estimate_mean(design, values, confidence, known)
        how = "regression on the baseline's numbers, Hall's interval"
        if not fit_known(design, values, np.ones(values.size), known).used:
            how = "Hall's interval; the baseline was not used"
            notes.append(
                f"The baseline was not used: a single example has over {LARGEST_LEVERAGE:.0%} of "
                "the weight in the regression. Draw more examples."
            )
        measures.append(Measure(f"mean {column} with the baseline", mean, how))
    plain_mean = np.average(values, weights=design.weight)
    spread = float(np.average((values - plain_mean) ** 2, weights=design.weight))
    return Measures(*design.sizes, confidence, math.sqrt(spread), measures, notes)


def units_for_mean(
    deviation: float, half_width: float, confidence: float, population: int | None = None
) -> int:
    """Return the examples that give a mean this half-width, from a pilot's standard deviation.

    `population`: size of a finite set whose own mean is wanted; None for new data of the kind.
    """
    if not (deviation > 0 and half_width > 0 and math.isfinite(deviation / half_width)):
        raise UsageError("[plan] deviation and --half-width must be finite and greater than 0.")
    plain = (z_value(confidence) * deviation / half_width) ** 2
    for _ in range(5):  # Student's quantile depends on the size: a few rounds settle it
        quantile = float(student.isf((1 - confidence) / 2, max(plain - 1, 1)))
        plain = (quantile * deviation / half_width) ** 2
    return max(math.ceil(plain if population is None else plain / (1 + plain / population)), 2)


def measures_text(found: Measures) -> str:
    """Return the measures for a reader."""
    lines = [
        f"{found.n_files} files in {found.n_units} units drawn from {found.population_units}; "
        f"confidence level {level_text(found.confidence)}. Standard deviation of one example: "
        f"{found.deviation:.4g}."
    ]
    for measure in found.measures:
        for estimand, one in measure.estimands.items():
            lines.append(f"  {measure.what}, {TARGET_NAMES[estimand]}: {_limits(one)}")
        caution = measure.estimands["generalisation"].caution
        lines += [f"    The interval is {caution}."] if caution else []
    return "\n".join([*lines, *found.notes])


def _limits(one: ValueEstimate) -> str:
    if one.known:
        return f"{one.value:.4g} (known: the whole set was measured)"
    low, high = (f"{v:.4g}" if math.isfinite(v) else "no limit" for v in (one.low, one.high))
    return f"{one.value:.4g} ({low} to {high})"
