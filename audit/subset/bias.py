"""Does the subset look like the set? A description; unbiasedness belongs to the design.

For the label and every chosen column, the weighted distribution of S is compared with F by total
variation (0 same, 1 disjoint) and, for numbers, the difference of means in standard deviations. How
large such a distance is by chance alone is answered by 999 redraws under the same plan. A low
p-value is reported and never redrawn away: choosing a subset for its looks would make its weights
wrong; the remedy is to stratify on that column, or to post-stratify.

Cost: 999 partial shuffles of n units in compiled code, about 1 s for n = 10,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from audit import stats
from audit.stats import Floats, Ints
from audit.subset.bootstrap import uniforms
from audit.subset.document import plain_data
from audit.subset.draw import Subset
from audit.subset.frame import DEFAULTS, MISSING, checked_column, select_eligible
from audit.subset.recipe import Recipe
from audit.subset.strata import quantile_edges
from audit.subset.units import Units, form_units

REDRAWS = 999
NUMERIC_BINS = 20
MAX_LEVELS = 1000
# Reported as unusual below this, after control for the number of columns.
LOW_P = 0.05
NO_DISTANCE = 1e-12


@dataclass(frozen=True)
class ColumnCheck:
    """One column: `distance` (total variation), its 95 % quantile and p over redraws.

    `p` is the share of redraws at least as far from F, `p_adjusted` the same controlled for the
    number of columns; `standardized_difference` compares means (None for text).
    """

    column: str
    distance: float
    usual: float
    p: float
    p_adjusted: float
    standardized_difference: float | None
    sentence: str


@dataclass(frozen=True)
class BiasCheck:
    """The bias check of a subset: one line per column, worst first.

    `fixed` names the columns that no draw under this plan could change.
    """

    columns: list[ColumnCheck]
    fixed: list[str]
    redraws: int

    def document(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(plain_data(asdict(self)))


def bias_check(
    frame: pl.DataFrame,
    recipe: Recipe,
    subset: Subset,
    columns: Sequence[str] | None = None,
    redraws: int = REDRAWS,
    seed: int = 0,
) -> BiasCheck:
    """Compare the label and `columns` (default: numeric and short text ones) of S with F."""
    files = select_eligible(frame, recipe.deduplicated).files
    units = form_units(files, recipe.strata, recipe.group)
    drawn = drawn_units(units, subset)
    n_h = np.bincount(units.codes[drawn], minlength=len(units.strata)).astype(np.int64)
    design = _Redraw.of(units, len(files), n_h)
    rows = []
    for name in dict.fromkeys(["label", *(_properties(files) if columns is None else columns)]):
        column = _coded(files, name)
        tables = design.unit_tables(column.code, column.levels)
        target = np.bincount(column.code, minlength=column.levels) / column.code.size
        distance = design.distance(tables, drawn, target)
        by_chance = design.reference(tables, target, redraws, seed)
        values = column.values
        difference = None if values is None else _standardized(values, design, drawn)
        rows.append((name, distance, by_chance, difference))
    return _summary(rows, redraws)


def _summary(rows: list[tuple[str, float, Floats, float | None]], redraws: int) -> BiasCheck:
    # A column that the strata are made of has the same distribution in every draw: nothing to test.
    fixed = [name for name, seen, chance, _ in rows if max(seen, *chance, 0.0) < NO_DISTANCE]
    moving = [row for row in rows if row[0] not in fixed]
    # The subset itself is one of the draws, hence the 1: p is never 0, and exact at any number of
    # redraws (Davison and Hinkley 1997, section 4.2).
    p_values = [
        float((1 + (chance >= distance - NO_DISTANCE).sum()) / (1 + chance.size))
        for _, distance, chance, _ in moving
    ]
    adjusted = stats.benjamini_hochberg(p_values).tolist()
    checks = [_check(*row, p, q) for row, p, q in zip(moving, p_values, adjusted, strict=True)]
    return BiasCheck(sorted(checks, key=lambda c: (c.p, c.column)), fixed, redraws)


def _properties(files: pl.DataFrame) -> list[str]:
    skip = {*DEFAULTS, "sample_id", "label", "split"}
    properties = []
    for name, dtype in files.schema.items():
        if name in skip or not (dtype.is_numeric() or dtype in {pl.String, pl.Boolean}):
            continue
        if dtype == pl.String and files[name].n_unique() > MAX_LEVELS:
            continue  # a name or a hash, not a property
        properties.append(name)
    return properties


@dataclass(frozen=True)
class _Coded:
    """A column as level numbers, with its values where it is numeric."""

    code: Ints
    levels: int
    values: Floats | None


def _coded(files: pl.DataFrame, name: str) -> _Coded:
    column = checked_column(files, name)
    if not column.dtype.is_numeric():
        text = column.cast(pl.String).fill_null(MISSING)
        levels = text.unique().sort()
        code = text.cast(pl.Enum(levels)).to_physical().to_numpy().astype(np.int64)
        return _Coded(code, len(levels), None)
    values = column.cast(pl.Float64).to_numpy()
    shares = [i / NUMERIC_BINS for i in range(1, NUMERIC_BINS)]
    edges = np.array(quantile_edges(column.drop_nulls(), shares))
    code = np.searchsorted(edges, np.nan_to_num(values, nan=np.inf))
    code = np.where(np.isnan(values), edges.size + 1, code)  # missing: a level of its own
    return _Coded(code.astype(np.int64), edges.size + 2, values)


def drawn_units(units: Units, subset: Subset) -> Ints:
    """Return the rows of `units.table` that a subset holds."""
    ids = subset.rows["unit_id"].unique()
    rows = units.table.with_row_index("row").filter(pl.col("unit_id").is_in(ids.implode()))
    return rows["row"].cast(pl.Int64).to_numpy()


@dataclass(frozen=True)
class _Redraw:
    """A plan's design, ready to be drawn again: units by stratum, the weight N_h/n_h of each."""

    code: Ints
    weight: Floats  # per stratum
    order: Ints
    start: Ints
    n_h: Ints
    unit_of_file: Ints

    @classmethod
    def of(cls, units: Units, n_files: int, n_h: Ints) -> _Redraw:
        unit_of_file = units.unit_of_file
        if unit_of_file is None:
            unit_of_file = np.arange(n_files)
        code = units.codes.astype(np.int64)
        N = np.bincount(code, minlength=n_h.size)
        order = np.argsort(code, kind="stable")
        weight = N / np.maximum(n_h, 1)
        return cls(code, weight, order, np.cumsum(N) - N, n_h, unit_of_file)

    def unit_tables(self, code: Ints, levels: int) -> tuple[Ints, Ints, Floats, int]:
        """Return (start, level, files) of each unit's histogram, as a compressed table."""
        # (unit, level) as one number: one sort instead of a histogram for every unit.
        pair, files = np.unique(self.unit_of_file * levels + code, return_counts=True)
        unit = pair // levels
        start = np.searchsorted(unit, np.arange(self.code.size + 1))
        return start, pair % levels, files.astype(float), levels

    def distance(
        self, tables: tuple[Ints, Ints, Floats, int], drawn: Ints, target: Floats
    ) -> float:
        """Return the total variation between the weighted subset and `target`."""
        start, level, files, levels = tables
        total = np.zeros(levels)
        # The rows start[u]:start[u + 1] of all drawn units at once.
        for_unit = start[drawn + 1] - start[drawn]
        rows = np.repeat(start[drawn], for_unit) + (
            np.arange(for_unit.sum()) - np.repeat(np.cumsum(for_unit) - for_unit, for_unit)
        )
        weight = np.repeat(self.weight[self.code[drawn]], for_unit)
        np.add.at(total, level[rows], weight * files[rows])
        return stats.total_variation(total, target)

    def reference(
        self, tables: tuple[Ints, Ints, Floats, int], target: Floats, redraws: int, seed: int
    ) -> Floats:
        """Return the distances of `redraws` subsets drawn under the same plan."""
        from audit.subset.redraw_kernel import redraw_distances

        start, level, files, _ = tables
        size = int(self.n_h.sum())
        result = np.empty(redraws)
        # Blocks bound the memory of the random numbers to 16 MB.
        order = self.order.copy()
        block = max(1, 2_000_000 // max(size, 1))
        for first in range(0, redraws, block):
            count = min(block, redraws - first)
            chance = uniforms(count * size, seed * 1_000_003 + first).reshape(count, size)
            result[first : first + count] = redraw_distances(
                chance, order, self.start, self.n_h, np.append(self.start[1:], order.size),
                self.weight, start, level, files, target,
            )  # fmt: skip
        return result


def _standardized(values: Floats, design: _Redraw, drawn: Ints) -> float:
    inside = np.zeros(design.code.size, bool)
    inside[drawn] = True
    known = ~np.isnan(values)
    in_subset = inside[design.unit_of_file] & known
    if not in_subset.any():
        return math.nan
    weight = design.weight[design.code[design.unit_of_file[in_subset]]]
    deviation = float(values[known].std())
    gap = float(np.average(values[in_subset], weights=weight) - values[known].mean())
    return gap / deviation if deviation > 0 else 0.0


def _check(
    name: str, observed: float, reference: Floats, difference: float | None, p: float, q: float
) -> ColumnCheck:
    usual = float(np.quantile(reference, 0.95)) if reference.size else math.nan
    shift = "" if difference is None else f", mean off by {difference:+.3f} standard deviations"
    sentence = (
        f"{name}: distance {observed:.4f} (95 % of redraws stay below {usual:.4f}, p = {p:.3f})"
        f"{shift}"
    )
    if q < LOW_P:
        sentence += "; unusual, but do not redraw for it: stratify by this column, or post-stratify"
    return ColumnCheck(name, observed, usual, p, q, difference, sentence + ".")
