"""From a target to a plan: strata, sizes, what they buy, and what cannot be reached.

The rows are touched a constant number of times (group-bys, in `prepare`); everything after that
works on one line per stratum and class, in `audit.subset.problem`. Every choice that the caller did
not make is written into `Plan.reasons`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from audit.errors import UsageError
from audit.subset import frame as frames
from audit.subset import strata
from audit.subset.allocation import FIRST_UNITS
from audit.subset.frame import Strata, Units
from audit.subset.goal import Goal, NoiseRate
from audit.subset.plan import Plan, Recipe
from audit.subset.plan_report import report
from audit.subset.prior import read_prior
from audit.subset.problem import Problem
from audit.subset.wording import listed

CONFIDENCE_COLUMN = "confidence"
CONFIDENCE_SHARES = (0.2, 0.4, 0.6, 0.8)


def plan(
    frame: pl.DataFrame,
    goal: Goal,
    *,
    by: Sequence[str] = (),
    group: str | None = None,
    deduplicated: bool = False,
    allocation: str | None = None,
    merge_strata: bool = False,
    predictions: Sequence[pl.DataFrame] = (),
    label_noise: float | NoiseRate | None = None,
) -> Plan:
    """Return the plan that meets `goal` on the eligible rows of `frame` (see `audit.subset.frame`).

    `by`: columns that form strata with the label; `group`: column of units that are taken whole;
    `allocation`: proportional, neyman (needs predictions) or equal; `merge_strata`: join the
    smallest strata where n is below two per stratum instead of refusing; `predictions`: tables of
    one or two earlier models, for planning values; `label_noise`: rate of wrong labels.
    """
    problem, layout = prepare(frame, goal, by, group, deduplicated, predictions)
    problem.apply_noise(label_noise)
    chosen = problem.allocation(allocation)
    limit = problem.budget()
    floor = FIRST_UNITS * len(problem.N)
    if limit is not None and limit < min(floor, problem.total):
        if not merge_strata:
            raise UsageError(
                f"{limit} units cannot give two to each of {len(problem.N)} strata, and a stratum "
                f"with fewer has no interval: ask for at least {floor}, use fewer --by columns, or "
                "add --merge-strata."
            )
        units, layout = _merged(
            problem.files, problem.units, layout, group, limit // FIRST_UNITS, problem.reasons
        )
        problem = problem.with_units(units)
    scale = problem.scale(chosen)
    n = limit if limit is not None else problem.size(scale)
    return report(problem, n, scale, Recipe(n, layout, {}, group, deduplicated, chosen))


def prepare(
    frame: pl.DataFrame,
    goal: Goal,
    by: Sequence[str],
    group: str | None,
    deduplicated: bool,
    predictions: Sequence[pl.DataFrame],
) -> tuple[Problem, Strata]:
    """Return the eligible set boiled down to a `Problem`, and the strata it uses."""
    goal.check()
    found = frames.eligible(frame, deduplicated, [*by, *([group] if group else [])])
    files, prior, reasons = read_prior(found.files, predictions, CONFIDENCE_COLUMN in by)
    if deduplicated:
        reasons.append(
            "Deduplicated: every distinct picture counts once, so the target is the metric over "
            "distinct pictures, not over the files of the set."
        )
    layout = Strata(tuple(by), _edges(files, by))
    units = frames.units(files, layout, group)
    units, layout = _merged(files, units, layout, group, None, reasons)
    problem = Problem.of(goal, found, files, units, prior, reasons, group is not None)
    return problem, layout


def _edges(files: pl.DataFrame, by: Sequence[str]) -> dict[str, tuple[float, ...]]:
    edges = frames.cut_points(files, by)
    if CONFIDENCE_COLUMN in edges:
        shares = CONFIDENCE_SHARES
        edges[CONFIDENCE_COLUMN] = frames.quantile_edges(files[CONFIDENCE_COLUMN], shares)
    return edges


def _merged(
    files: pl.DataFrame,
    units: Units,
    layout: Strata,
    group: str | None,
    at_most: int | None,
    reasons: list[str],
) -> tuple[Units, Strata]:
    if at_most is not None and at_most < 1:
        raise UsageError("A subset needs at least 2 units, one stratum of two: ask for more.")
    counts = (
        units.table.group_by("stratum")
        .agg(pl.len().alias("units"), pl.col("label").mode().sort().first())
        .sort("stratum")
    )
    names = counts["stratum"].cast(pl.String).to_list()
    joined = strata.merges(names, counts["units"].to_list(), counts["label"].to_list(), at_most)
    if not joined:
        return units, layout
    why = "one unit each" if at_most is None else f"more than {at_most} for this n"
    reasons.append(
        f"{len(joined)} strata were merged into {len(set(joined.values()))} ({why}; an interval "
        f"needs two units in every stratum): {listed(sorted(joined))}."
    )
    carried = {old: joined.get(new, new) for old, new in layout.merged.items()}
    layout = replace(layout, merged={**joined, **carried})
    return frames.units(files, layout, group), layout
