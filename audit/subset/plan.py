"""The plan: how many units of which strata, what they give, what was left out and why.

`make_plan` turns a goal into a `Plan`, a record that survives JSON: `draw_subset` needs its recipe,
readers need its figures and reasons. Every choice that the caller did not make is in `reasons`.
Document schema: `subset-plan/1`, where the estimand full-set is called `agreement` (how far the
subset's number may be from the full set's). Beyond reading the rows (seconds for 10 million), the
cost is milliseconds, up to a second for exact tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from audit.errors import UsageError
from audit.stats import Ints
from audit.subset.allocation import (
    Allocation,
    budget_units,
    choose_allocation,
    giants_taken,
    stratum_scale,
    take_giants,
)
from audit.subset.apportionment import FIRST_UNITS
from audit.subset.document import plain_data
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.goal import Goal
from audit.subset.noise import NoiseRate, accepted_rate
from audit.subset.plan_limits import (
    Unreachable,
    cautions,
    price_of_looks,
    unequal_weights,
    unreachable_targets,
)
from audit.subset.population import (
    Population,
    count_population,
    merge_small_strata,
    read_population,
)
from audit.subset.precision import Figures
from audit.subset.recipe import SCHEMA, Recipe
from audit.subset.requirement import Requirement
from audit.subset.strata import Strata

# The document's names for the estimands.
DOCUMENT_NAMES = {"full-set": "agreement", "generalisation": "generalisation"}


@dataclass(frozen=True)
class StratumPlan:
    """One stratum: units in F and drawn, the files they stand for, the allocation weight S_h."""

    name: str
    label: str
    units: int
    files: int
    n: int
    scale: float


@dataclass(frozen=True)
class ClassPlan:
    """One class: units in F, expected in the subset, and what they give for its recall."""

    label: str
    units: int
    n: int
    step: float
    estimands: dict[Estimand, Figures]


@dataclass(frozen=True)
class Plan:
    """A planned subset; see the fields' names, and `reasons` for every automatic choice."""

    recipe: Recipe
    metric: str
    estimand: str
    target: dict[str, Any]
    confidence: float
    alpha: float
    looks: int
    n_all: int
    n_files: int
    n_units: int
    estimands: dict[Estimand, Figures]
    classes: list[ClassPlan]
    strata: list[StratumPlan]
    excluded: list[dict[str, str]]
    unreachable: list[Unreachable]
    design: dict[str, float]
    assumptions: dict[str, float]
    reasons: list[str] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Units to draw."""
        return self.recipe.n

    @property
    def hash(self) -> str:
        """Name of the plan, written into every row drawn from it."""
        return self.recipe.hash

    def document(self) -> dict[str, Any]:
        """Return the plan as plain data under `subset-plan/1`; NaN becomes null."""
        content = asdict(self)
        content["recipe"] = self.recipe.content()
        estimands = {
            DOCUMENT_NAMES[name]: {"estimand": name, **figures}
            for name, figures in content.pop("estimands").items()
        }
        content = {
            "schema": SCHEMA,
            "n": self.n,
            "hash": self.hash,
            "estimands": estimands,
            **content,
        }
        return dict(plain_data(content))

    def save(self, path: Path) -> None:
        """Write the document as JSON."""
        path.write_text(json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n", "utf-8")


# ---- making a plan ----


def make_plan(
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
    by_label: bool = True,
) -> Plan:
    """Return the plan that meets `goal` on the eligible rows of `frame` (see `audit.subset.frame`).

    `by`: columns that form strata with the label; `group`: column of units that are taken whole;
    `allocation`: proportional, neyman (needs predictions) or equal; `merge_strata`: join the
    smallest strata where n is below two per stratum instead of refusing; `predictions`: tables of
    one or two earlier models, for planning values; `label_noise`: rate of wrong labels; `by_label`
    False: the label forms no strata.
    """
    population, strata = read_population(
        frame, goal, by, group, deduplicated, predictions, by_label
    )
    classes, reasons = population.files["label"].n_unique(), population.reasons
    noise = accepted_rate(label_noise, classes, population.prior.predictions_differ, reasons)
    kind = choose_allocation(goal, population, allocation)
    limit = budget_units(goal, population)
    if limit is not None and limit < min(FIRST_UNITS * population.N.size, population.total):
        if not merge_strata:
            raise _too_few_for_strata(limit, population.N.size)
        population, strata = _merged_to(limit, goal, population, strata, group)
    shares, n = _sized(Requirement(goal, population, noise), kind, strata, limit)
    population, strata = take_giants(population, strata, group, goal, n)
    if strata.whole_above:
        reasons.append(giants_taken(population, strata))
        shares, n = _sized(Requirement(goal, population, noise), kind, strata, limit)
    scale = dict(zip(population.units.strata, shares.scale.tolist(), strict=True))
    recipe = Recipe(
        n, strata, scale, group, deduplicated, kind, confidence=goal.confidence, looks=goal.looks
    )
    return _describe(shares, recipe)


def _sized(
    requirement: Requirement, kind: str, strata: Strata, limit: int | None
) -> tuple[Allocation, int]:
    shares = Allocation(requirement, stratum_scale(requirement, kind, strata))
    if limit is not None:
        return shares, limit
    n, N = shares.size(requirement.goal.estimand), requirement.population.N
    if strata.whole_above:  # all of them, and two of each other stratum
        giant = requirement.population.units.strata.index(strata.giants)
        n = max(n, int(N[giant]) + FIRST_UNITS * (N.size - 1))
    return shares, n


def _too_few_for_strata(limit: int, strata: int) -> UsageError:
    return UsageError(
        f"{limit} units cannot give two to each of {strata} strata, and a stratum with fewer has "
        f"no interval: ask for at least {FIRST_UNITS * strata}, use fewer --by columns, or add "
        "--merge-strata."
    )


def _merged_to(
    limit: int, goal: Goal, population: Population, strata: Strata, group: str | None
) -> tuple[Population, Strata]:
    files, reasons = population.files, population.reasons
    at_most = limit // FIRST_UNITS
    units, strata = merge_small_strata(files, population.units, strata, group, at_most, reasons)
    merged = count_population(population.eligible, files, units, population.prior, reasons, goal)
    return merged, strata


def _describe(allocation: Allocation, recipe: Recipe) -> Plan:
    requirement = allocation.requirement
    goal, population = requirement.goal, requirement.population
    n_h = allocation.units_per_stratum(recipe.n)
    by_target = not goal.is_budget
    if recipe.n == population.total:
        population.reasons.append("The plan takes every unit: full-set figures are then known.")
    eligible = population.eligible
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
        n_units=population.total,
        estimands=_overall_figures(allocation, n_h),
        classes=_class_plans(allocation, n_h),
        strata=_stratum_plans(allocation, n_h),
        excluded=eligible.excluded.to_dicts(),
        unreachable=unreachable_targets(allocation, n_h) if by_target else [],
        design=_design_figures(population, n_h),
        assumptions=_assumptions(requirement),
        reasons=[
            *population.reasons,
            *cautions(requirement, n_h),
            *price_of_looks(allocation),
        ],
    )


def _overall_figures(allocation: Allocation, n_h: Ints) -> dict[Estimand, Figures]:
    requirement = allocation.requirement
    domains = requirement.domains()
    overall = domains[0][1] if len(domains) == 1 else requirement.population.domain()
    figures: dict[Estimand, Figures] = {}
    for estimand in ESTIMANDS:
        needed = None if requirement.goal.is_budget else allocation.size(estimand)
        figures[estimand] = allocation.figures(overall, n_h, estimand, needed)
    return figures


def _stratum_plans(allocation: Allocation, n_h: Ints) -> list[StratumPlan]:
    population = allocation.requirement.population
    columns = (
        population.units.strata, population.stratum_labels, population.N.tolist(),
        population.M.tolist(), n_h.tolist(), allocation.scale.tolist(),
    )  # fmt: skip
    return [StratumPlan(*row) for row in zip(*columns, strict=True)]


def _class_plans(allocation: Allocation, n_h: Ints) -> list[ClassPlan]:
    population = allocation.requirement.population
    result = []
    for label in population.labels:
        domain = population.class_domain(label)
        figures = {e: allocation.figures(domain, n_h, e) for e in ESTIMANDS}
        n = figures["full-set"].n
        # All files of a group are evaluated, but one file of a duplicate group.
        evaluated = n * (domain.files_per_unit if population.units.whole else 1.0)
        step = 1 / evaluated if n else float("nan")
        result.append(ClassPlan(label, domain.total, n, step, figures))
    return result


def _design_figures(population: Population, n_h: Ints) -> dict[str, float]:
    effect, files = population.domain().cluster_effect, float(population.M.sum())
    return {
        "rho": population.rho,
        "cluster_design_effect": effect,
        "weight_design_effect": unequal_weights(n_h, population),
        "mean_unit_size": files / population.total,
        "effective_set_size": files / effect,
    }


def _assumptions(requirement: Requirement) -> dict[str, float]:
    goal, population = requirement.goal, requirement.population
    values = {
        "p": population.planning_share, "discordant": population.discordant, "power": goal.power,
    }  # fmt: skip
    if requirement.noise is not None:
        values |= {"label_noise": requirement.noise.rate}
        if goal.detect:
            observed, psi = requirement.observed_difference()
            values |= {"difference_on_noisy_labels": observed, "discordant_on_noisy_labels": psi}
    return values
