"""Plan a subset: how many units of which strata, their precision, and the reasons.

`make_plan` turns a goal into a `Plan`, which survives JSON (schema `subset-plan/1`, where the
estimand full-set is called `agreement`). Three allocations: *proportional* gives every file the
same weight, *equal* gives each class what its own target takes, *Neyman* puts units where an
earlier model's answers vary most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints
from audit.subset.draw import PLAN_SCHEMA, Recipe
from audit.subset.estimate import FEW_DEGREES
from audit.subset.goal import ESTIMANDS, Estimand, Goal, counted_points, document_of
from audit.subset.population import (
    LIKELY_SHARE,
    MEAN,
    WORST_SHARE,
    Domain,
    Figures,
    Population,
    Prior,
    effective_files,
    expected_degrees,
    expected_half_width,
    paired_files,
    read_population,
)
from audit.subset.sizes import NoiseRate, connor_difference, smallest_for_good
from audit.subset.strata import FIRST_UNITS, allocate, merged_strata, scale_for_classes

LEAST_DEVIATION = 0.3
"""Of the largest S_h: between 0.2 and 0.35 costs the planned model little and protects the next."""
# From this loss to unequal weights on, a plan for the whole says so.
UNEQUAL_WEIGHTS = 1.5
NO_PREDICTIONS = "Without predictions"  # how the sentence on the worst case starts
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
class Unreachable:
    """A target that the data cannot give, what it gets instead, and how many more would do."""

    what: str
    target: float
    reached: float
    needs: int
    more: int
    sentence: str

    @classmethod
    def of(
        cls, goal: Goal, what: str, figures: Figures, needs: int, units: int, *, why: str = "",
        about: str = "",
    ) -> Unreachable:  # fmt: skip
        """Return the target of a goal on `units`, where it takes `needs`, with its sentence."""
        target = goal.half_width or goal.detect or 0.0
        reached = figures.detectable_difference if goal.detect else figures.half_width
        gets = "no estimate" if math.isnan(reached) else f"it gets {counted_points(reached)}"
        kind = "a difference of" if goal.detect else "a margin of error of"
        sentence = (
            f"{'the set' if what == 'all' else what}: {kind} {counted_points(target)} is "
            f"unreachable with {units} units{why}; {gets}, and {about}{needs - units} more units "
            f"({needs} in all) would reach it."
        )
        return cls(what, target, reached, needs, needs - units, sentence)


@dataclass(frozen=True)
class Plan:
    """A planned subset; see the fields' names, and `reasons` for every automatic choice.

    `split`: what a command read the set from, `all` for every file; None where it was not said.
    """

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
    split: str | None = None

    @property
    def n(self) -> int:
        """Units to draw."""
        return self.recipe.n

    @property
    def hash(self) -> str:
        """Name of the plan, written into every row drawn from it."""
        return self.recipe.hash

    @property
    def assumed(self) -> str:
        """The sentence on what planning without predictions costs, "" where it costs nothing."""
        return next((one for one in self.reasons if one.startswith(NO_PREDICTIONS)), "")

    def document(self) -> dict[str, Any]:
        """Return the plan as plain data under `subset-plan/1`; NaN becomes null."""
        content = asdict(self) | {"recipe": self.recipe.content()}
        if self.split is None:
            del content["split"]
        estimands = {
            DOCUMENT_NAMES[name]: {"estimand": name, **figures}
            for name, figures in content.pop("estimands").items()
        }
        head = {"n": self.n, "hash": self.hash, "estimands": estimands}
        return document_of(PLAN_SCHEMA, head | content)

    def save(self, path: Path) -> None:
        """Write the document as JSON."""
        path.write_text(json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n", "utf-8")


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
    source: str = Prior.source,
) -> Plan:
    """Return the plan that meets `goal` on the eligible rows of `frame` (`audit.subset.source`).

    `by`: columns that form strata with the label; `group`: column of units that are taken whole;
    `allocation`: proportional, neyman (needs predictions) or equal; `merge_strata`: join the
    smallest strata where n is below two per stratum instead of refusing; `predictions`: tables of
    one or two earlier models, for planning values, and `source` what they are called;
    `label_noise`: rate of wrong labels; `by_label` False: the label forms no strata.
    """
    population = read_population(
        frame, goal, by=by, group=group, deduplicated=deduplicated, predictions=predictions,
        by_label=by_label, label_noise=label_noise, source=source,
    )  # fmt: skip
    kind = choose_allocation(population, allocation)
    limit = budget_units(population)
    if limit is not None and limit < population.smallest:
        if not merge_strata:
            raise UsageError(
                f"{limit} units are too few: each of {population.N.size} strata needs two. Use at "
                f"least {FIRST_UNITS * population.N.size} units, fewer --by columns, or --set "
                "plan.merge_strata=true."
            )
        population = population.under(
            merged_strata(
                population.units, population.strata, population.reasons, limit // FIRST_UNITS
            )
        )
    shares, n = _sized(population, kind, limit)
    population = take_giants(population, n)
    if population.strata.whole_above:
        giant = _giants(population)
        population.reasons.append(
            f"{population.N[giant]} groups of more than {population.strata.whole_above} files hold "
            f"{100 * population.M[giant] / population.M.sum():.0f}% of all files: the plan takes "
            "all of them and draws from the rest."
        )
        shares, n = _sized(population, kind, limit)
    scale = dict(zip(population.units.strata, shares.scale.tolist(), strict=True))
    recipe = Recipe(
        n, population.strata, scale, group, deduplicated, kind, goal.confidence, goal.looks
    )
    return _describe(shares, recipe)


def choose_allocation(population: Population, asked: str | None) -> str:
    """Return how units go to strata; the reason is noted where nobody asked for it."""
    if asked is None:
        per_class = population.goal.parsed[0] in {"recall", "macro-recall", "specificity"}
        asked = "equal" if per_class else "proportional"
        why = "the metric is per class" if per_class else "the metric is over all examples"
        population.reasons.append(f"Allocation: {asked}, because {why}.")
    if asked not in ("proportional", "equal", "neyman"):
        raise UsageError(
            f"Allocation {asked!r} does not exist: choose proportional, equal or neyman."
        )
    if asked == "neyman" and population.prior.first is None:
        raise UsageError(
            "Neyman allocation needs the errors of a model: give --predictions of an "
            "earlier model, or use proportional allocation."
        )
    return asked


def budget_units(population: Population) -> int | None:
    """Return the units that n, or seconds x throughput, pay for; None for a target."""
    whole, total = population.units.whole, population.total
    n = population.goal.budget_units(population.M.sum() / population.N.sum() if whole else 1.0)
    if n is None or n <= total:
        return n
    if population.goal.seconds is None:
        raise UsageError(
            f"{n} units are too many: the eligible set has {total}. Give --n {total} or less, "
            "or evaluate the whole set (`audit subset score RUN`)."
        )
    population.reasons.append(
        f"The budget is enough for {n} units and the eligible set has {total}: the plan "
        "takes all of them."
    )
    return total


def _sized(population: Population, kind: str, limit: int | None) -> tuple[Allocation, int]:
    shares = Allocation.of(population, kind)
    if limit is not None:
        return shares, limit
    n, N = shares.size(population.goal.estimand), population.N
    if population.strata.whole_above:  # all of them, and two of each other stratum
        n = max(n, int(N[_giants(population)]) + FIRST_UNITS * (N.size - 1))
    return shares, n


def giant_size(population: Population, n: int) -> int:
    """Return the size in files above which groups are all taken when `n` are drawn; 0 if none are.

    A group that holds more than files / n decides a plain draw by being in it or not. Two at least,
    for a variance; none where n leaves no two units for each other stratum, or under a budget of
    time.
    """
    sizes = population.units.sizes
    budget = population.goal.seconds
    if not population.units.whole or budget or n >= population.total or sizes.size < 3:
        return 0
    above = int(population.M.sum() // n)
    if not (sizes > above).any():
        return 0
    above = min(above, int(np.partition(sizes, -2)[-2]) - 1)
    left = n - int((sizes > above).sum())
    return above if above > 0 and left >= FIRST_UNITS * population.N.size else 0


def take_giants(population: Population, n: int) -> Population:
    """Return the population in which giants, for a draw of `n`, are a stratum taken whole."""
    above = giant_size(population, n)
    strata = replace(population.strata, whole_above=above)
    return population.under(strata) if above else population


def _giants(population: Population) -> int:
    return population.units.strata.index(population.strata.giants)


@dataclass(frozen=True)
class Allocation:
    """A population with the weights S_h by which its units are shared out."""

    population: Population
    scale: Floats

    @classmethod
    def of(cls, population: Population, kind: str) -> Allocation:
        """Return the allocation of a kind; S_h is rounded, so that every machine orders alike."""
        raw = np.ones(population.N.size)
        if kind != "proportional":
            # Neyman (1934), JRSS 97:558: units in proportion to N_h times the deviation there.
            raw = model_scale(population.p) if kind == "neyman" else _class_scale(population)
        if population.strata.whole_above:
            # Large enough that the last unit there precedes any third unit elsewhere.
            raw[_giants(population)] = 10 * float(population.N.max() * raw.max())
        return cls(population, np.array([float(f"{v:.9g}") for v in raw]))

    def units_per_stratum(self, n: int) -> Ints:
        """Return n_h for a subset of `n` units."""
        return allocate(self.population.N, self.scale, n)

    def expected_units(self, domain: Domain, n_h: Ints) -> Floats:
        """Return the units of a domain expected among n_h drawn from each stratum."""
        return np.asarray(n_h * domain.N / self.population.N, float)

    def size(self, estimand: Estimand) -> int:
        """Return the units that meet the target in every domain, or all that help."""
        population = self.population
        domains = [domain for _, domain in population.domains]
        needs = [(d, min(population.units_for(d, estimand), d.total)) for d in domains]
        everything = len(domains) == 1 and domains[0].total == population.total

        def meets(n: int) -> bool:
            n_h = self.units_per_stratum(n)
            if everything:
                return n >= population.total or population.is_met(domains[0], n_h, estimand)
            # Units of one class bring some of the next where strata mix labels: expected counts.
            return all(self.expected_units(d, n_h).sum() >= need - 1e-9 for d, need in needs)

        limit = population.total if everything and estimand == "full-set" else None
        return max(population.smallest, smallest_for_good(meets, population.total, limit))

    def units_needed(self, estimand: Estimand) -> int:
        """Return the units that meet the target; for all of F more than it has if unreachable."""
        population = self.population
        domain = population.domains[0][1]
        if len(population.domains) == 1 and domain.total == population.total:
            units = population.units_for(domain, estimand)
            if units > population.total:
                return units
        return self.size(estimand)

    def figures(
        self, domain: Domain, n_h: Ints, estimand: Estimand, needed: int | None = None
    ) -> Figures:
        """Return what n_h drawn units give for one domain."""
        expected, goal = self.expected_units(domain, n_h), self.population.goal
        discordant = self.population.observed(0.0)[1]
        paired = paired_files(domain, expected, estimand, 1 - goal.alpha)
        # The smallest difference between two models that these units show with `power`: wrong
        # labels make it look smaller, and it is at most the share on which one alone is right.
        detected = math.nan
        if paired > 0:
            seen = connor_difference(paired, discordant, goal.alpha, goal.power)
            detected = float(seen) / self.population.observed(1.0)[0]
        if detected > max(self.population.discordant, goal.detect or 0.0):
            detected = math.nan
        return Figures(
            round(float(expected.sum())),
            effective_files(domain, expected, estimand),
            expected_half_width(domain, expected, estimand, goal.level),
            detected,
            needed,
        )


def model_scale(p: Floats) -> Floats:
    """Return the deviations of an earlier model's answers by stratum, none far below the rest."""
    deviation = np.sqrt(p * (1 - p))
    return np.maximum(deviation, LEAST_DEVIATION * max(float(deviation.max()), 1e-3))


def _class_scale(population: Population) -> Floats:
    goal, domains = population.goal, population.domains
    by_mean = domains[0][0] == MEAN
    if by_mean or domains[0][0] == "all":  # or equal shares were asked for
        domains = [(label, population.class_domain(label)) for label in population.labels]
    names = [name for name, _ in domains]
    rest = len(names)  # the number of the class that no domain is about
    if names[0].startswith("not "):
        negative = names[0].removeprefix("not ")
        code = [rest if label == negative else 0 for label in population.stratum_labels]
    else:
        number = {name: i for i, name in enumerate(names)}
        code = [number.get(label, rest) for label in population.stratum_labels]
    wanted = np.zeros(rest + 1)
    for i, (_, domain) in enumerate(domains):
        # A budget and a mean have no target per class: all get the same. No class can get more than
        # it has.
        alike, total = goal.is_budget or by_mean, domain.total
        wanted[i] = 1.0 if alike else min(population.units_for(domain, goal.estimand), total)
    return scale_for_classes(population.N, np.array(code), wanted)


def _describe(allocation: Allocation, recipe: Recipe) -> Plan:
    population, n_h = allocation.population, allocation.units_per_stratum(recipe.n)
    goal, eligible = population.goal, population.eligible
    if recipe.n == population.total:
        population.reasons.append(
            "The plan takes every unit: the metric of this set is then known."
        )
    needed = {e: None if goal.is_budget else allocation.units_needed(e) for e in ESTIMANDS}
    effect, files = population.domain().cluster_effect, float(population.M.sum())
    weight_effect = unequal_weights(n_h, population)
    warned = cautions(population, n_h, weight_effect)
    strata = zip(
        population.units.strata, population.stratum_labels, population.N.tolist(),
        population.M.tolist(), n_h.tolist(), allocation.scale.tolist(), strict=True,
    )  # fmt: skip
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
        estimands={e: allocation.figures(population.overall, n_h, e, needed[e]) for e in ESTIMANDS},
        classes=[_class_plan(allocation, label, n_h) for label in population.labels],
        strata=[StratumPlan(*row) for row in strata],
        excluded=eligible.excluded.to_dicts(),
        unreachable=[] if goal.is_budget else unreachable_targets(allocation, n_h),
        design={
            "rho": population.rho,
            "cluster_design_effect": effect,
            "weight_design_effect": weight_effect,
            "mean_unit_size": files / population.total,
            "effective_set_size": files / effect,
        },
        assumptions=_assumptions(population),
        reasons=[
            *_cost_of_worst_case(allocation, recipe.allocation),
            *population.reasons,
            *warned,
            *price_of_looks(allocation),
        ],
    )


def _cost_of_worst_case(allocation: Allocation, kind: str) -> list[str]:
    """Return how much smaller the plan is where a model is right more often than p = 0.5 says."""
    population = allocation.population
    goal = population.goal
    if goal.is_budget or population.prior.first is not None or goal.planning_value is not None:
        return []
    likely = replace(population, goal=replace(goal, planning_value=LIKELY_SHARE), reasons=[])
    needed, units = (
        one.units_needed(goal.estimand)
        if len(population.domains) == 1
        else sum(one.population.units_for(d, goal.estimand) for _, d in one.population.domains)
        for one in (allocation, Allocation.of(likely, kind))
    )
    if units >= needed:
        return []
    return [
        f"{NO_PREDICTIONS}, p = {WORST_SHARE:g} makes n {needed / units:.1f} times too large if "
        f"{goal.metric} is {LIKELY_SHARE:.0%} ({units:,} instead of {needed:,} units): give "
        "--predictions FILE."
    ]


def _class_plan(allocation: Allocation, label: str, n_h: Ints) -> ClassPlan:
    domain = allocation.population.class_domain(label)
    figures = {e: allocation.figures(domain, n_h, e) for e in ESTIMANDS}
    n = figures["full-set"].n
    # All files of a group are evaluated, but one file of a duplicate group.
    evaluated = n * (domain.files_per_unit if allocation.population.units.whole else 1.0)
    return ClassPlan(label, domain.total, n, 1 / evaluated if n else float("nan"), figures)


def _assumptions(population: Population) -> dict[str, float]:
    goal = population.goal
    values = {
        "p": population.planning_share, "discordant": population.discordant, "power": goal.power,
    }  # fmt: skip
    if population.noise is not None:
        values |= {"label_noise": population.noise.rate}
        if goal.detect:
            observed, psi = population.observed(goal.detect)
            values |= {"difference_on_noisy_labels": observed, "discordant_on_noisy_labels": psi}
    return values


def unreachable_targets(allocation: Allocation, n_h: Ints) -> list[Unreachable]:
    """Return the targets that all units of a domain together do not meet."""
    population, goal = allocation.population, allocation.population.goal
    # One answer of n moves a share by 1/n: a finer target is met in the formula only.
    step = math.ceil(1 / (goal.half_width or goal.detect or 0.0) - 1e-9)
    # A full-set share is known at n = N however fine; a difference is still counted in answers.
    coarse = bool(goal.detect) or goal.estimand == "generalisation"
    result = []
    for name, domain in population.domains:
        needs, units = population.units_for(domain, goal.estimand), domain.total
        too_fine = coarse and units < step
        if needs <= units and not too_fine:
            continue
        figures, why = allocation.figures(domain, n_h, goal.estimand), ""
        if too_fine:
            needs = max(needs, step)
            why = f" (one unit alone changes the metric by {counted_points(1 / units)})"
        result.append(Unreachable.of(goal, name, figures, needs, units, why=why))
    return result


def unequal_weights(n_h: Ints, population: Population) -> float:
    """Return n sum w^2 / (sum w)^2, the loss from unequal weights: Kish (1965), section 11.7."""
    weight = population.N / n_h
    return float(n_h.sum() * (n_h * weight**2).sum() / (n_h * weight).sum() ** 2)


def cautions(population: Population, n_h: Ints, effect: float) -> list[str]:
    """Return what a score will suffer from: unequal weights (their `effect`), or too few groups."""
    n = int(n_h.sum())
    if n >= population.total:
        return []
    if population.domains[0][0] == "all" and effect > UNEQUAL_WEIGHTS:
        return [
            f"Warning: unequal weights (design effect {effect:.2f}). Proportional allocation needs "
            f"{math.ceil(n / effect)} units for the same precision of {population.goal.metric}."
        ]
    # Single files have as many degrees of freedom as files: only groups can have too few.
    degrees = expected_degrees(population.domain(), n_h)
    if degrees >= FEW_DEGREES:
        return []
    return [
        f"Warning: {n} groups of unequal size give the precision of {degrees + 1:.0f} equal ones. "
        "Intervals and verdicts are rough. Draw more groups, or group by a finer column."
    ]


def price_of_looks(allocation: Allocation) -> list[str]:
    """Return what several comparisons cost in units, as a sentence; empty for one comparison."""
    population, goal = allocation.population, allocation.population.goal
    if goal.looks == 1 or goal.is_budget:
        return []
    # The plan for one comparison is hypothetical: its reasons are not this plan's.
    silent = replace(population, reasons=[], goal=replace(goal, looks=1))
    one = replace(allocation, population=silent).size(goal.estimand)
    many = allocation.size(goal.estimand)
    return [
        f"{goal.looks} planned comparisons (Bonferroni, alpha {goal.alpha:.4g}) need {many} units; "
        f"one comparison needs {one}. Confirm models that were chosen by their scores on this "
        "subset on a fresh draw."
    ]


# "Stops paying" is a stated rule, not a fit: the first size from which a tenth more examples
# narrows the half-width by less than a tenth of a point. At p = 0.5 that is about 2,200 examples.

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
        return document_of("subset-curve/1", content)


def make_curve(
    frame: pl.DataFrame,
    goal: Goal | None = None,
    *,
    sizes: Sequence[int] | None = None,
    allocation: str | None = None,
    minimum_gain: float = MINIMUM_GAIN,
    **options: Any,
) -> Curve:
    """Return precision at `sizes` (default: 24 sizes from the smallest to all, evenly in log n).

    `goal` gives metric, confidence and power; its target is not used. `options`: `by`, `group`,
    `deduplicated`, `predictions` and `by_label`, as of `make_plan`.
    """
    base = replace(goal or Goal(n=2), half_width=None, detect=None, n=2, seconds=None,
                   throughput=None)  # fmt: skip
    population = read_population(frame, base, **options)
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
        "More examples add little if 10% more examples reduce the margin of error by less than "
        f"{100 * minimum_gain:g} points.",
    ]
    if any(giant_size(population, n) for n in grid):
        reasons.append("Groups larger than the sampling interval are always included.")
    points = []
    for n in grid:
        figures = {e: at(n, e) for e in ESTIMANDS}
        widths = {e: f.half_width for e, f in figures.items()}
        points.append(
            CurvePoint(n, widths, {e: f.detectable_difference for e, f in figures.items()})
        )
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
            f"and {total} (all), not {grid[0]} to {grid[-1]}."
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
