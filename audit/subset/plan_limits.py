"""What a plan cannot give: targets out of reach, intervals that will be rough, and prices.

All of it is known before anything is drawn, while more units, other groups or another allocation
can still be chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from audit.stats import Ints
from audit.subset import precision
from audit.subset.allocation import Allocation
from audit.subset.goal import Goal
from audit.subset.intervals import FEW_DEGREES
from audit.subset.population import Population
from audit.subset.precision import Domain
from audit.subset.requirement import Requirement

# From this loss to unequal weights on, a plan for the whole says so.
UNEQUAL_WEIGHTS = 1.5


@dataclass(frozen=True)
class Unreachable:
    """A target that the data cannot give, what it gets instead, and how many more would do."""

    what: str
    target: float
    reached: float
    needs: int
    more: int
    sentence: str


def unreachable_targets(allocation: Allocation, n_h: Ints) -> list[Unreachable]:
    """Return the targets that all units of a domain together do not meet."""
    requirement = allocation.requirement
    goal = requirement.goal
    target = goal.half_width or goal.detect or 0.0
    # One answer of n moves a share by 1/n: a finer target is met in the formula only.
    step = math.ceil(1 / target - 1e-9)
    # A full-set share is known at n = N however fine; a difference is still counted in answers.
    coarse = bool(goal.detect) or goal.estimand == "generalisation"
    result = []
    for name, domain in requirement.domains():
        needs = requirement.units_for(domain, goal.estimand)
        too_fine = coarse and domain.total < step
        if needs <= domain.total and not too_fine:
            continue
        figures = allocation.figures(domain, n_h, goal.estimand)
        reached = figures.detectable_difference if goal.detect else figures.half_width
        needs = max(needs, step) if too_fine else needs
        sentence = _shortfall(name, domain, goal, target, reached, needs, too_fine)
        result.append(Unreachable(name, target, reached, needs, needs - domain.total, sentence))
    return result


def _shortfall(
    name: str,
    domain: Domain,
    goal: Goal,
    target: float,
    reached: float,
    needs: int,
    too_fine: bool,
) -> str:
    where = "the set" if name == "all" else name
    kind = "a difference of" if goal.detect else "a half-width of"
    units = domain.total
    why = f"; one of {units} units is already {100 / units:.2g} points" if too_fine else ""
    result = "nothing can be told" if math.isnan(reached) else f"it gets {100 * reached:.3g} points"
    return (
        f"{where}: {kind} {100 * target:.3g} points is unreachable with {units} units{why}; "
        f"{result}, and {needs - units} more units ({needs} in all) would reach it."
    )


def unequal_weights(n_h: Ints, population: Population) -> float:
    """Return n sum w^2 / (sum w)^2, the loss from unequal weights: Kish (1965), section 11.7."""
    weight = np.repeat(population.N / np.maximum(n_h, 1), np.minimum(n_h, 1)) * 1.0
    units = n_h[n_h > 0]
    return float(units.sum() * (units * weight**2).sum() / (units * weight).sum() ** 2)


def cautions(requirement: Requirement, n_h: Ints) -> list[str]:
    """Return what a score of this plan will suffer from: unequal weights, too few groups."""
    population = requirement.population
    n = int(n_h.sum())
    if n >= population.total:
        return []
    effect = unequal_weights(n_h, population)
    if requirement.domains()[0][0] == "all" and effect > UNEQUAL_WEIGHTS:
        return [
            f"Warning: the rows will have unequal weights (design effect {effect:.2f}): for "
            f"{requirement.goal.metric}, {math.ceil(n / effect)} units in proportion to the strata "
            "tell as much."
        ]
    # Single files have as many degrees of freedom as files: only groups can have too few.
    degrees = precision.expected_degrees(population.domain(), n_h)
    if degrees >= FEW_DEGREES:
        return []
    return [
        f"Warning: {n} groups of these sizes are worth about {degrees + 1:.0f} equal ones: "
        f"with fewer than {FEW_DEGREES:g} degrees of freedom intervals and verdicts are rough. "
        "Draw more groups, or group by something finer."
    ]


def price_of_looks(allocation: Allocation) -> list[str]:
    """Return what several comparisons cost in units, as a sentence; empty for one comparison."""
    requirement = allocation.requirement
    goal = requirement.goal
    if goal.looks == 1 or goal.is_budget:
        return []
    # The plan for one comparison is hypothetical: its reasons are not this plan's.
    silent = replace(requirement.population, reasons=[])
    single = replace(requirement, goal=replace(goal, looks=1), population=silent)
    one = replace(allocation, requirement=single).size(goal.estimand)
    many = allocation.size(goal.estimand)
    return [
        f"{goal.looks} comparisons fixed in advance: Bonferroni at {goal.alpha:.4g} each takes "
        f"{many} units where one comparison takes {one}. This does not cover models that are "
        "chosen by their scores on this subset: confirm those on a fresh draw."
    ]
