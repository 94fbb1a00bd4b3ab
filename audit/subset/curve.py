"""Precision against n: what each size of subset buys, and where more examples stop paying.

The table is the plan's own arithmetic at a grid of sizes. "Stops paying" is a stated rule, not a
fit: the first size from which a tenth more examples narrows the half-width by less than a tenth of
a point (`minimum_gain`). At p = 0.5 that is about 2,200 examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.subset.allocation import (
    Allocation,
    choose_allocation,
    giant_size,
    stratum_scale,
    take_giants,
)
from audit.subset.apportionment import FIRST_UNITS
from audit.subset.document import plain_data
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.goal import Goal
from audit.subset.population import Population, read_population
from audit.subset.requirement import Requirement
from audit.subset.strata import Strata

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
        return {"schema": SCHEMA, **dict(plain_data(content))}


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
    population, strata = read_population(
        frame, base, by, group, deduplicated, predictions, by_label
    )
    kind = choose_allocation(base, population, allocation)
    grid = _grid(population, sizes)
    shares = _Allocations(base, population, strata, kind, group)
    stops: dict[Estimand, int | None] = {
        e: _stops_paying(shares, e, minimum_gain) for e in ESTIMANDS
    }
    reasons = [
        *population.reasons,
        f"More examples stop paying where 10 % more narrow the half-width by less than "
        f"{100 * minimum_gain:g} points.",
    ]
    if any(giant_size(population, base, n) for n in grid):
        reasons.append(
            "Groups of more files than a group of the draw stands for are all taken, as a plan of "
            "that size takes them."
        )
    return Curve([_point(shares.at(n), n) for n in grid], stops, minimum_gain, reasons)


class _Allocations:
    """How units of each size of draw are shared out; giant groups are taken whole, as by a plan."""

    def __init__(
        self, goal: Goal, population: Population, strata: Strata, kind: str, group: str | None
    ) -> None:
        self._goal, self.population, self._strata = goal, population, strata
        self._kind, self._group = kind, group
        self._made: dict[int, Allocation] = {}
        sizes = np.unique(population.units.sizes) if population.units.whole else np.zeros(0)
        self._sizes = sizes

    def at(self, n: int) -> Allocation:
        """Return the allocation for a draw of `n` units; draws with the same giants share one."""
        above = giant_size(self.population, self._goal, n)
        key = int(np.searchsorted(self._sizes, above, side="right")) if above else 0
        if key not in self._made:
            population, strata = take_giants(
                self.population, self._strata, self._group, self._goal, n
            )
            requirement = Requirement(self._goal, population)
            scale = stratum_scale(requirement, self._kind, strata)
            self._made[key] = Allocation(requirement, scale)
        return self._made[key]


def _smallest(population: Population) -> int:
    return min(FIRST_UNITS * population.N.size, population.total)


def _grid(population: Population, sizes: Sequence[int] | None) -> list[int]:
    smallest, total = _smallest(population), population.total
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


def _point(allocation: Allocation, n: int) -> CurvePoint:
    figures = {e: allocation.metric_figures(n, e) for e in ESTIMANDS}
    return CurvePoint(
        n,
        {e: f.half_width for e, f in figures.items()},
        {e: f.detectable_difference for e, f in figures.items()},
    )


def _stops_paying(shares: _Allocations, estimand: Estimand, minimum_gain: float) -> int | None:
    population = shares.population
    total = population.total
    for n in np.unique(np.rint(np.geomspace(_smallest(population), total, 200)).astype(int)):
        more = min(int(np.ceil(MORE * n)), total)
        if more == n:
            break
        now, then = (
            shares.at(int(k)).metric_figures(int(k), estimand).half_width for k in (n, more)
        )
        # Near the end of the set the step is less than a tenth: the gain asked for shrinks with it.
        if now - then < minimum_gain * (more - n) / ((MORE - 1) * n):
            return int(n)
    return None
