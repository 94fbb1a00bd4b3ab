"""Writing a plan: every figure that n units buy, and every target that they cannot reach."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from audit.stats import Floats, Ints
from audit.subset import precision
from audit.subset.allocation import allocate
from audit.subset.estimate import DEGREES_PER_RARE_UNIT, ESTIMANDS, FEW_DEGREES, UNEQUAL_WEIGHTS
from audit.subset.goal import Goal
from audit.subset.plan import ClassPlan, Plan, Recipe, StratumPlan, Unreachable
from audit.subset.precision import Domain
from audit.subset.problem import Problem


def report(problem: Problem, n: int, scale: Floats, recipe: Recipe) -> Plan:
    """Return the plan with everything that n buys."""
    drawn = allocate(problem.N, scale, n)
    found = problem.domains()
    overall = found[0][1] if len(found) == 1 else problem.domain()
    sized = not problem.goal.is_budget
    figures = {
        e: problem.figures(overall, drawn, e, problem.size_under(e, scale) if sized else None)
        for e in ESTIMANDS
    }
    names = problem.units.strata
    rows = [
        StratumPlan(*row)
        for row in zip(
            names, problem.stratum_labels, problem.N.tolist(), problem.M.tolist(), drawn.tolist(),
            scale.tolist(), strict=True,
        )
    ]  # fmt: skip
    recipe = replace(recipe, n=n, scale=dict(zip(names, scale.tolist(), strict=True)))
    if n == problem.total:
        problem.reasons.append("The plan takes every unit: full-set figures are then known.")
    goal, eligible = problem.goal, problem.found
    return Plan(
        recipe=recipe,
        metric=goal.metric,
        estimand=goal.estimand,
        target=goal.target(),
        confidence=goal.level,
        alpha=goal.alpha,
        looks=goal.looks,
        n_all=eligible.n_all,
        n_files=len(eligible.files),
        n_units=problem.total,
        estimands=figures,
        classes=_class_plans(problem, drawn),
        strata=rows,
        excluded=eligible.excluded.to_dicts(),
        unreachable=_unreachable(problem, found, drawn) if sized else [],
        design=_design(problem, drawn),
        assumptions=_assumptions(problem),
        reasons=problem.reasons + _cautions(problem, drawn) + _price_of_looks(problem, scale),
    )


def _class_plans(problem: Problem, drawn: Ints) -> list[ClassPlan]:
    result = []
    for label in problem.cells["label"].unique().sort().to_list():
        domain = problem.domain(problem.cells["label"] == label, label)
        figures = {e: problem.figures(domain, drawn, e) for e in ESTIMANDS}
        n = figures["full-set"].n
        evaluated = n * (domain.files_per_unit if problem.units.whole else 1.0)
        step = 1 / evaluated if n else float("nan")
        result.append(ClassPlan(label, domain.total, n, step, figures))
    return result


def _unreachable(
    problem: Problem, found: list[tuple[str, Domain]], drawn: Ints
) -> list[Unreachable]:
    target = problem.goal.half_width or problem.goal.detect or 0.0
    result = []
    for name, domain in found:
        needs = problem.units_for(domain, problem.goal.estimand)
        step = math.ceil(1 / target - 1e-9)
        # A full-set share is known at n = N however fine; a difference is still counted in answers.
        coarse = problem.goal.detect or problem.goal.estimand == "generalisation"
        finer = bool(coarse) and domain.total < step
        if needs <= domain.total and not finer:
            continue
        got = problem.figures(domain, drawn, problem.goal.estimand)
        reached = got.detectable_difference if problem.goal.detect else got.half_width
        needs = max(needs, step) if finer else needs
        result.append(_too_few(name, target, reached, domain.total, needs, problem.goal, finer))
    return result


def _design(problem: Problem, drawn: Ints) -> dict[str, float]:
    domain = problem.domain()
    m = float(problem.M.sum())
    weights = np.repeat(problem.N / np.maximum(drawn, 1), np.minimum(drawn, 1)) * 1.0
    units = drawn[drawn > 0]
    unequal = float(units.sum() * (units * weights**2).sum() / (units * weights).sum() ** 2)
    return {
        "rho": problem.rho,
        "cluster_design_effect": domain.cluster_effect,
        "weight_design_effect": unequal,
        "mean_unit_size": m / problem.total,
        "effective_set_size": m / domain.cluster_effect,
    }


def _assumptions(problem: Problem) -> dict[str, float]:
    share = float(problem.p @ problem.M / problem.M.sum())
    found = {"p": share, "discordant": problem.discordant, "power": problem.goal.power}
    if problem.noise is not None:
        found |= {"label_noise": problem.noise.rate}
        if problem.goal.detect:
            seen, psi = problem.seen_difference()
            found |= {"difference_on_noisy_labels": seen, "discordant_on_noisy_labels": psi}
    return found


def _cautions(problem: Problem, drawn: Ints) -> list[str]:
    # The warnings that a score of this plan is likely to print, while more can still be drawn.
    found = problem.domains()
    unequal = _design(problem, drawn)["weight_design_effect"]
    if found[0][0] == "all" and unequal > UNEQUAL_WEIGHTS and drawn.sum() < problem.total:
        return [
            f"Warning: the rows will have unequal weights (design effect {unequal:.2f}); intervals "
            f"for {problem.goal.metric} are wide, and too wide near 0 and 1. Use proportional "
            "allocation for this metric."
        ]
    domain = problem.domain()
    degrees = precision.degrees_of_freedom(domain, drawn)
    if math.isinf(degrees) or drawn.sum() >= problem.total:
        return []
    n, limit = int(drawn.sum()), FEW_DEGREES
    if degrees < limit:
        return [
            f"Warning: {n} groups of these sizes are worth about {degrees + 1:.0f} equal ones: "
            f"with fewer than {limit:g} degrees of freedom intervals and verdicts are rough. Draw "
            "more groups, or group by something finer."
        ]
    share = float(problem.p @ problem.M / problem.M.sum())
    worth = min(precision.effective_files(domain, drawn, "generalisation"), float(n))
    rare = worth * min(share, 1 - share)
    if rare * DEGREES_PER_RARE_UNIT >= limit:
        return []
    return [
        f"Warning: about {rare:.1f} of the {n} groups are expected to hold the rarer answer; with "
        f"fewer than {limit / DEGREES_PER_RARE_UNIT:.0f} the interval is rough. Draw more groups."
    ]


def _price_of_looks(problem: Problem, scale: Floats) -> list[str]:
    goal = problem.goal
    if goal.looks == 1 or goal.is_budget:
        return []
    single = replace(problem, goal=replace(goal, looks=1), reasons=[])
    one, many = single.size(scale), problem.size(scale)
    method = "Sidak" if goal.looks_method == "sidak" else "Bonferroni"
    return [
        f"{goal.looks} comparisons fixed in advance: {method} at {goal.alpha:.4g} each takes "
        f"{many} units where one comparison takes {one}. This does not cover models that are "
        "chosen by their scores on this subset: confirm those on a fresh draw."
    ]


def _too_few(
    name: str, target: float, reached: float, held: int, needs: int, goal: Goal, finer: bool
) -> Unreachable:
    where = "the set" if name == "all" else name
    kind = "a difference of" if goal.detect else "a half-width of"
    unit = "units"
    why = f"; one of {held} {unit} is already {100 / held:.2g} points" if finer else ""
    got = "nothing can be told" if math.isnan(reached) else f"it gets {100 * reached:.3g} points"
    sentence = (
        f"{where}: {kind} {100 * target:.3g} points is unreachable with {held} {unit}{why}; {got}, "
        f"and {needs - held} more {unit} ({needs} in all) would reach it."
    )
    return Unreachable(name, target, reached, needs, needs - held, sentence)
