"""Precision against n: what each size of subset buys, and where more examples stop paying.

The table is the plan's own arithmetic at a grid of sizes. "Stops paying" is a stated rule, not a
fit: the first size from which a tenth more examples narrows the half-width by less than a tenth of
a point (`minimum_gain`). At p = 0.5 that is about 2,200 examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.subset.goal import ESTIMANDS, Estimand, Goal, document_of
from audit.subset.plan import Allocation, choose_allocation, giant_size, take_giants
from audit.subset.population import Figures, Population, read_population

SCHEMA = "subset-curve/1"
MINIMUM_GAIN = 0.001
MORE = 1.1
POINTS = 24


@dataclass(frozen=True)
class CurvePoint:
    """What n units give: half-width and detectable difference per estimand, shares in [0, 1]."""

    n: int
    half_width: dict[Estimand, float]
    detectable_difference: dict[Estimand, float]


@dataclass(frozen=True)
class Curve:
    """The curve, and per estimand the size from which more examples stop paying (None: never)."""

    points: list[CurvePoint]
    stops_paying: dict[Estimand, int | None]
    minimum_gain: float
    reasons: list[str]

    def document(self) -> dict[str, Any]:
        """Return plain data under `subset-curve/1`; NaN becomes null."""
        names = {"minimum_gain": "worth"}  # the document's name for it
        content = {names.get(key, key): value for key, value in asdict(self).items()}
        return document_of(SCHEMA, content)


def make_curve(
    frame: pl.DataFrame,
    goal: Goal | None = None,
    *,
    sizes: Sequence[int] | None = None,
    by: Sequence[str] = (),
    group: str | None = None,
    deduplicated: bool = False,
    allocation: str | None = None,
    predictions: Sequence[pl.DataFrame] = (),
    minimum_gain: float = MINIMUM_GAIN,
    by_label: bool = True,
) -> Curve:
    """Return precision at `sizes` (default: 24 sizes from the smallest to all, evenly in log n).

    `goal` gives metric, confidence and power; its target is not used.
    """
    base = replace(goal or Goal(n=2), half_width=None, detect=None, n=2, seconds=None,
                   throughput=None)  # fmt: skip
    population = read_population(
        frame, base, by=by, group=group, deduplicated=deduplicated, predictions=predictions,
        by_label=by_label,
    )  # fmt: skip
    kind = choose_allocation(population, allocation)
    grid = _grid(population, sizes)
    made: dict[int, Allocation] = {}
    unit_sizes = np.unique(population.units.sizes)

    def at(n: int, estimand: Estimand) -> Figures:
        """Return what `n` units give; giant groups are taken whole, as a plan takes them."""
        above = giant_size(population, n)
        # Draws with the same giants share an allocation.
        key = int(np.searchsorted(unit_sizes, above, side="right")) if above else 0
        if key not in made:
            made[key] = Allocation.of(take_giants(population, n), kind)
        shares = made[key]
        return shares.figures(shares.population.overall, shares.units_per_stratum(n), estimand)

    stops = {e: _stops_paying(population, at, e, minimum_gain) for e in ESTIMANDS}
    reasons = [
        *population.reasons,
        f"More examples stop paying where 10 % more narrow the half-width by less than "
        f"{100 * minimum_gain:g} points.",
    ]
    if any(giant_size(population, n) for n in grid):
        reasons.append(
            "Groups of more files than a group of the draw stands for are all taken, as a plan of "
            "that size takes them."
        )
    bought = {n: {e: at(n, e) for e in ESTIMANDS} for n in grid}
    points = [
        CurvePoint(
            n,
            {e: f.half_width for e, f in figures.items()},
            {e: f.detectable_difference for e, f in figures.items()},
        )
        for n, figures in bought.items()
    ]
    return Curve(points, stops, minimum_gain, reasons)


def _grid(population: Population, sizes: Sequence[int] | None) -> list[int]:
    smallest, total = population.smallest, population.total
    if sizes is None:
        # Even steps in log n: precision improves with its square root, so small n need more points.
        steps = np.geomspace(smallest, total, POINTS)
        return sorted({int(v) for v in np.rint(steps)} | {smallest, total})
    grid = sorted(set(sizes))
    if grid[0] < smallest or grid[-1] > total:
        raise UsageError(
            f"Sizes must lie between {smallest} (two units in each of {population.N.size} strata) "
            f"and {total} (all): {grid[0]} to {grid[-1]} were asked for."
        )
    return grid


def _stops_paying(
    population: Population,
    at: Callable[[int, Estimand], Figures],
    estimand: Estimand,
    minimum_gain: float,
) -> int | None:
    total = population.total
    for n in np.unique(np.rint(np.geomspace(population.smallest, total, 200)).astype(int)).tolist():
        more = min(math.ceil(MORE * n), total)
        if more == n:
            break
        now, then = (at(k, estimand).half_width for k in (n, more))
        # Near the end of the set the step is less than a tenth: the gain asked for shrinks with it.
        if now - then < minimum_gain * (more - n) / ((MORE - 1) * n):
            return int(n)
    return None
