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
from audit.subset import frame as frames
from audit.subset.bootstrap import uniforms
from audit.subset.design import Design, Interval, share
from audit.subset.draw import Subset
from audit.subset.estimate import moments
from audit.subset.frame import Units
from audit.subset.plan import Recipe, plain

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
        return dict(plain(asdict(self)))


def bias_check(
    frame: pl.DataFrame,
    recipe: Recipe,
    subset: Subset,
    columns: Sequence[str] | None = None,
    redraws: int = REDRAWS,
    seed: int = 0,
) -> BiasCheck:
    """Compare the label and `columns` (default: numeric and short text ones) of S with F."""
    found = frames.eligible(frame, recipe.deduplicated)
    units = frames.units(found.files, recipe.strata, recipe.group)
    chosen = ["label", *(_usable(found.files) if columns is None else columns)]
    coded = [_codes(found.files, name) for name in dict.fromkeys(chosen)]
    unit_of_file = np.arange(len(found.files)) if units.unit_of_file is None else units.unit_of_file
    drawn = _drawn_units(units, subset)
    n_h = np.bincount(units.codes[drawn], minlength=len(units.strata)).astype(np.int64)
    layout = _Layout.of(units, unit_of_file, n_h)
    results: list[tuple[str, float, Floats, float | None]] = []
    for name, code, levels, values in coded:
        tables = layout.unit_tables(code, levels)
        target = np.bincount(code, minlength=levels) / code.size
        observed = layout.distance(tables, drawn, target)
        reference = layout.reference(tables, target, redraws, seed)
        difference = None
        if values is not None:
            difference = _standardized(values, unit_of_file, layout, drawn)
        results.append((name, observed, reference, difference))
    return _summary(results, redraws)


def _summary(results: list[tuple[str, float, Floats, float | None]], redraws: int) -> BiasCheck:
    fixed = [name for name, seen, chance, _ in results if max(seen, *chance, 0.0) < NO_DISTANCE]
    moving = [row for row in results if row[0] not in fixed]
    p_values = [
        float((1 + (chance >= seen - NO_DISTANCE).sum()) / (1 + chance.size))
        for _, seen, chance, _ in moving
    ]
    adjusted = stats.benjamini_hochberg(p_values).tolist()
    checks = [_check(*row, p, q) for row, p, q in zip(moving, p_values, adjusted, strict=True)]
    return BiasCheck(sorted(checks, key=lambda c: (c.p, c.column)), fixed, redraws)


def _usable(files: pl.DataFrame) -> list[str]:
    skip = {*frames.DEFAULTS, "sample_id", "label", "split"}
    usable = []
    for name, dtype in files.schema.items():
        if name in skip or not (dtype.is_numeric() or dtype in {pl.String, pl.Boolean}):
            continue
        if dtype == pl.String and files[name].n_unique() > MAX_LEVELS:
            continue  # a name or a hash, not a property
        usable.append(name)
    return usable


def _codes(files: pl.DataFrame, name: str) -> tuple[str, Ints, int, Floats | None]:
    column = frames._column(files, name)
    values = None
    if column.dtype.is_numeric():
        values = column.cast(pl.Float64).to_numpy()
        shares = [i / NUMERIC_BINS for i in range(1, NUMERIC_BINS)]
        edges = np.array(frames.quantile_edges(column.drop_nulls(), shares))
        code = np.searchsorted(edges, np.nan_to_num(values, nan=np.inf))
        code = np.where(np.isnan(values), edges.size + 1, code)
        return name, code.astype(np.int64), edges.size + 2, values
    text = column.cast(pl.String).fill_null(frames.MISSING)
    levels = text.unique().sort()
    code = text.cast(pl.Enum(levels)).to_physical().to_numpy().astype(np.int64)
    return name, code, len(levels), values


def _drawn_units(units: Units, subset: Subset) -> Ints:
    ids = subset.rows["unit_id"].unique()
    rows = units.table.with_row_index("row").filter(pl.col("unit_id").is_in(ids.implode()))
    return rows["row"].cast(pl.Int64).to_numpy()


@dataclass(frozen=True)
class _Layout:
    """Units sorted by stratum, with the weight N_h/n_h that a drawn unit would carry."""

    code: Ints
    weight: Floats  # per stratum
    order: Ints
    start: Ints
    n_h: Ints
    unit_of_file: Ints

    @classmethod
    def of(cls, units: Units, unit_of_file: Ints, n_h: Ints) -> _Layout:
        code = units.codes.astype(np.int64)
        N = np.bincount(code, minlength=n_h.size)
        order = np.argsort(code, kind="stable")
        weight = N / np.maximum(n_h, 1)
        return cls(code, weight, order, np.cumsum(N) - N, n_h, unit_of_file)

    def unit_tables(self, code: Ints, levels: int) -> tuple[Ints, Ints, Floats, int]:
        """Return (start, level, files) of each unit's histogram, as a compressed table."""
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


def _standardized(values: Floats, unit_of_file: Ints, layout: _Layout, drawn: Ints) -> float:
    inside = np.zeros(layout.code.size, bool)
    inside[drawn] = True
    known = ~np.isnan(values)
    picked = inside[unit_of_file] & known
    if not picked.any():
        return math.nan
    weight = layout.weight[layout.code[unit_of_file[picked]]]
    spread = float(values[known].std())
    gap = float(np.average(values[picked], weights=weight) - values[known].mean())
    return gap / spread if spread > 0 else 0.0


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


# ---- the metric itself, where a prior model's predictions cover F ----


@dataclass(frozen=True)
class MetricCheck:
    """A prior model's accuracy on S with its full-set interval beside its value on F.

    `equivalent_n`: the simple random sample of files that would be as precise as this design is for
    that model; `n`: the files that the design takes.
    """

    on_subset: Interval
    on_set: float
    n: int
    equivalent_n: float
    sentence: str

    def document(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(plain(asdict(self)))


def metric_check(
    frame: pl.DataFrame, recipe: Recipe, subset: Subset, hit: Floats, confidence: float = 0.95
) -> MetricCheck:
    """Compare accuracy on S and F for a model known on all of F, and price the stratification.

    `hit` is 1 or 0 for each row of the eligible files, in their order.
    """
    found = frames.eligible(frame, recipe.deduplicated)
    units = frames.units(found.files, recipe.strata, recipe.group)
    answers = dict(zip(found.files["sample_id"].to_list(), hit.tolist(), strict=True))
    design = Design.of(subset.rows)
    on_rows = np.array([answers[i] for i in subset.rows["sample_id"].to_list()])
    interval = share(design, on_rows, np.ones(on_rows.size), "full-set", confidence)
    drawn = _drawn_units(units, subset)
    n_h = np.bincount(units.codes[drawn], minlength=len(units.strata))
    worth, n = equivalent_n(units, hit, n_h)
    on_set = float(hit.mean())
    held = "contains" if interval.low <= on_set <= interval.high else "misses"
    sentence = (
        f"The earlier model scores {100 * interval.value:.2f} % on the subset (interval "
        f"{100 * interval.low:.2f} to {100 * interval.high:.2f}), which {held} its "
        f"{100 * on_set:.2f} % on the full set. For it, these {n} files are as precise as a simple "
        f"random sample of n = {worth:.0f}."
    )
    return MetricCheck(interval, on_set, n, worth, sentence)


def equivalent_n(units: Units, hit: Floats, n_h: Ints) -> tuple[float, int]:
    """Return (equivalent simple random sample of files, files evaluated) of an allocation n_h.

    Uses the true stratum variances of a model known on all of F: V of the design, and the n at
    which (1 - n/N) S^2 / n is the same.
    """
    unit_of_file = np.arange(hit.size) if units.unit_of_file is None else units.unit_of_file
    y = np.bincount(unit_of_file, hit, len(units.table))
    m = units.sizes.astype(float)
    N = np.bincount(units.codes, minlength=len(units.strata)).astype(float)
    whole = moments(y - hit.mean() * m, m, units.codes, N)
    held = np.maximum(n_h, 1)
    variance = float((N**2 * (1 - n_h / N) * whole.yy / held).sum()) / hit.size**2
    spread = float(hit.var(ddof=1))
    worth = 1 / (variance / spread + 1 / hit.size) if spread > 0 else float(hit.size)
    files = float((n_h * whole.x).sum()) if units.whole else float(n_h.sum())
    return worth, round(files)
