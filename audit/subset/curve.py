"""Precision against n: what each size of subset buys, and where more examples stop paying.

The table is the plan's own arithmetic at a grid of sizes. "Stops paying" is a stated rule, not a
fit: the first size from which a tenth more examples narrows the half-width by less than a tenth of
a point (`worth`). At p = 0.5 that is about 2,200 examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.goal import Goal
from audit.subset.plan import plain
from audit.subset.planning import prepare
from audit.subset.problem import Problem

SCHEMA = "subset-curve/1"
WORTH = 0.001
MORE = 1.1
POINTS = 24


@dataclass(frozen=True)
class CurvePoint:
    """What n units buy: half-width and detectable difference per estimand, shares in [0, 1]."""

    n: int
    half_width: dict[Estimand, float]
    detectable_difference: dict[Estimand, float]


@dataclass(frozen=True)
class Curve:
    """The curve, and per estimand the size from which more examples stop paying (None: never)."""

    points: list[CurvePoint]
    stops_paying: dict[Estimand, int | None]
    worth: float
    reasons: list[str]

    def document(self) -> dict[str, Any]:
        """Return plain data under `subset-curve/1`; NaN becomes null."""
        return {"schema": SCHEMA, **dict(plain(asdict(self)))}


def curve(
    frame: pl.DataFrame,
    goal: Goal | None = None,
    *,
    sizes: Sequence[int] | None = None,
    by: Sequence[str] = (),
    group: str | None = None,
    deduplicated: bool = False,
    allocation: str | None = None,
    predictions: Sequence[pl.DataFrame] = (),
    worth: float = WORTH,
) -> Curve:
    """Return precision at `sizes` (default: 24 sizes from the smallest to all, evenly in log n).

    `goal` gives metric, confidence and power; its target is not used.
    """
    base = replace(goal or Goal(n=2), half_width=None, detect=None, n=2, seconds=None,
                   throughput=None)  # fmt: skip
    problem, _ = prepare(frame, base, by, group, deduplicated, predictions)
    scale = problem.scale(problem.allocation(allocation))
    smallest = min(2 * problem.N.size, problem.total)
    grid = _grid(smallest, problem.total) if sizes is None else sorted(set(sizes))
    if grid[0] < smallest or grid[-1] > problem.total:
        raise UsageError(
            f"Sizes must lie between {smallest} (two units in each of {problem.N.size} strata) and "
            f"{problem.total} (all): {grid[0]} to {grid[-1]} were asked for."
        )
    points = [_point(problem, scale, n) for n in grid]
    stops: dict[Estimand, int | None] = {
        e: _stops_paying(problem, scale, smallest, e, worth) for e in ESTIMANDS
    }
    reasons = [
        *problem.reasons,
        f"More examples stop paying where 10 % more narrow the half-width by less than "
        f"{100 * worth:g} points.",
    ]
    return Curve(points, stops, worth, reasons)


def _grid(smallest: int, total: int) -> list[int]:
    steps = np.geomspace(smallest, total, POINTS)
    return sorted({int(v) for v in np.rint(steps)} | {smallest, total})


def _point(problem: Problem, scale: np.ndarray, n: int) -> CurvePoint:
    found = {e: problem.bought(n, scale, e) for e in ESTIMANDS}
    return CurvePoint(
        n,
        {e: f.half_width for e, f in found.items()},
        {e: f.detectable_difference for e, f in found.items()},
    )


def _stops_paying(
    problem: Problem, scale: np.ndarray, smallest: int, estimand: Estimand, worth: float
) -> int | None:
    grid = np.unique(np.rint(np.geomspace(smallest, problem.total, 200)).astype(int))
    for n in grid:
        more = min(int(np.ceil(MORE * n)), problem.total)
        if more == n:
            break
        now, then = (problem.bought(int(k), scale, estimand).half_width for k in (n, more))
        if now - then < worth * (more - n) / ((MORE - 1) * n):
            return int(n)
    return None
