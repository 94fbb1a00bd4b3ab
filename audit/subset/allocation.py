"""How many units, and where: the size that meets a goal, shared out among the strata.

Three ways to share. *Proportional* (S_h = 1) gives every file the same weight, which no metric over
all examples needs to pay for. *Equal* gives each class what its own target takes, for metrics per
class. *Neyman* puts units where an earlier model's answers vary most. In all three the units go out
one by one (`audit.subset.apportionment`), so subsets of different sizes lie inside one another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset import precision, sizes
from audit.subset.apportionment import FIRST_UNITS, allocate, scale_for_classes
from audit.subset.estimate import Estimand
from audit.subset.goal import Goal
from audit.subset.population import MEAN, Population, count_population
from audit.subset.precision import Domain, Figures
from audit.subset.requirement import Requirement
from audit.subset.strata import Strata
from audit.subset.units import form_units

LEAST_DEVIATION = 0.3
"""Of the largest S_h: between 0.2 and 0.35 costs the planned model little and protects the next."""
ALLOCATIONS = ("proportional", "equal", "neyman")


def choose_allocation(goal: Goal, population: Population, asked: str | None) -> str:
    """Return how units go to strata; the reason is noted where nobody asked for it."""
    if asked is None:
        per_class = goal.parsed[0] in {"recall", "macro-recall", "specificity"}
        asked = "equal" if per_class else "proportional"
        why = "the metric is per class" if per_class else "the metric is over all examples"
        population.reasons.append(f"Allocation: {asked}, because {why}.")
    if asked not in ALLOCATIONS:
        raise UsageError(
            f"Allocation {asked!r} does not exist: choose proportional, equal or neyman."
        )
    if asked == "neyman" and not population.prior.known:
        raise UsageError(
            "Neyman allocation needs to know where a model errs: give --predictions of an "
            "earlier model, or use proportional allocation."
        )
    return asked


def budget_units(goal: Goal, population: Population) -> int | None:
    """Return the units that n, or seconds x throughput, pay for; None for a target."""
    whole = population.units.whole
    n = goal.budget_units(population.M.sum() / population.N.sum() if whole else 1.0)
    total = population.total
    if n is not None and n > total and goal.seconds is not None:
        population.reasons.append(
            f"The budget pays for {n} units and the eligible set has {total}: the plan "
            "takes all of them."
        )
        return total
    if n is not None and n > total:
        raise UsageError(
            f"{n} units were asked for and the eligible set has {total}: ask for at most "
            f"{total}, or evaluate the full set (`audit subset score RUN`)."
        )
    return n


def stratum_scale(requirement: Requirement, allocation: str, strata: Strata) -> Floats:
    """Return S_h, rounded so that every machine orders the units alike."""
    population = requirement.population
    raw = np.ones(population.N.size)
    if allocation != "proportional":
        # Neyman (1934), JRSS 97:558: units in proportion to N_h times the standard deviation there.
        by_model = allocation == "neyman"
        raw = model_scale(population.p) if by_model else _class_scale(requirement)
    if strata.whole_above:
        # Large enough that the last unit there precedes any third unit elsewhere.
        giant = population.units.strata.index(strata.giants)
        raw[giant] = 10 * float(population.N.max() * raw.max())
    return np.array([float(f"{v:.9g}") for v in raw])


def giant_size(population: Population, goal: Goal, n: int) -> int:
    """Return the size in files above which groups are all taken when `n` are drawn; 0 if none are.

    A group that holds more files than n groups share out (files / n) decides a plain draw by being
    in it or not. Two at least, so that their stratum has a variance; none where n leaves no two
    units for each other stratum, and none under a budget of time, which they would exceed.
    """
    sizes = population.units.sizes
    if not population.units.whole or goal.seconds or n >= population.total or sizes.size < 3:
        return 0
    above = int(population.M.sum() // n)
    if not (sizes > above).any():
        return 0
    above = min(above, int(np.partition(sizes, -2)[-2]) - 1)
    left = n - int((sizes > above).sum())
    return above if above > 0 and left >= FIRST_UNITS * population.N.size else 0


def take_giants(
    population: Population, strata: Strata, group: str | None, goal: Goal, n: int
) -> tuple[Population, Strata]:
    """Return the population and strata in which giants, for a draw of `n`, are taken whole."""
    above = giant_size(population, goal, n)
    if not above:
        return population, strata
    strata = replace(strata, whole_above=above)
    units = form_units(population.files, strata, group)
    counted = count_population(
        population.eligible, population.files, units, population.prior, population.reasons, goal
    )
    return counted, strata


def giants_taken(population: Population, strata: Strata) -> str:
    """Return what was taken whole, as a sentence."""
    giant = population.units.strata.index(strata.giants)
    share = population.M[giant] / population.M.sum()
    return (
        f"{population.N[giant]} groups of more than {strata.whole_above} files hold "
        f"{100 * share:.0f} % of all files: each of them is taken, and the others are drawn."
    )


def model_scale(p: Floats) -> Floats:
    """Return the standard deviations that an earlier model's answers have, none far below the rest.

    Another model errs elsewhere: strata that this one gets all right need units too, or the score's
    interval must allow for what they do not show.
    """
    deviation = np.sqrt(p * (1 - p))
    return np.maximum(deviation, LEAST_DEVIATION * max(float(deviation.max()), 1e-3))


def _class_scale(requirement: Requirement) -> Floats:
    population, goal = requirement.population, requirement.goal
    domains = requirement.domains()
    by_mean = domains[0][0] == MEAN
    if by_mean or domains[0][0] == "all":  # or equal shares were asked for
        domains = [(label, population.class_domain(label)) for label in population.labels]
    names = [name for name, _ in domains]
    rest = len(names)  # the number of the class that no domain is about
    number = {name: i for i, name in enumerate(names)}
    if names[0].startswith("not "):
        negative = names[0].removeprefix("not ")
        code = [rest if label == negative else 0 for label in population.stratum_labels]
    else:
        code = [number.get(label, rest) for label in population.stratum_labels]
    wanted = np.zeros(rest + 1)
    for i, (_, domain) in enumerate(domains):
        # A budget and a mean have no target per class: all get the same. No class can get more than
        # it has.
        alike, total = goal.is_budget or by_mean, domain.total
        wanted[i] = 1.0 if alike else min(requirement.units_for(domain, goal.estimand), total)
    return scale_for_classes(population.N, np.array(code), wanted)


@dataclass(frozen=True)
class Allocation:
    """A requirement with the weights S_h by which its units are shared out."""

    requirement: Requirement
    scale: Floats

    def units_per_stratum(self, n: int) -> Ints:
        """Return n_h for a subset of `n` units."""
        return allocate(self.requirement.population.N, self.scale, n)

    def size(self, estimand: Estimand) -> int:
        """Return the units that meet the target in every domain, or all that help."""
        requirement, population = self.requirement, self.requirement.population
        floor = min(FIRST_UNITS * population.N.size, population.total)
        domains = [domain for _, domain in requirement.domains()]
        needs = [(d, min(requirement.units_for(d, estimand), d.total)) for d in domains]
        everything = len(domains) == 1 and domains[0].total == population.total

        def meets(n: int) -> bool:
            n_h = self.units_per_stratum(n)
            if everything:
                return n >= population.total or requirement.is_met(domains[0], n_h, estimand)
            # Units of one class bring some of the next where strata mix labels: expected counts.
            return all(population.expected_units(d, n_h).sum() >= need - 1e-9 for d, need in needs)

        limit = population.total if everything and estimand == "full-set" else None
        return max(floor, sizes.smallest_for_good(meets, population.total, limit))

    def metric_figures(self, n: int, estimand: Estimand) -> Figures:
        """Return what `n` units give for the metric as a whole."""
        domains = self.requirement.domains()
        overall = domains[0][1] if len(domains) == 1 else self.requirement.population.domain()
        return self.figures(overall, self.units_per_stratum(n), estimand)

    def figures(
        self, domain: Domain, n_h: Ints, estimand: Estimand, needed: int | None = None
    ) -> Figures:
        """Return what n_h drawn units give for one domain."""
        expected = self.requirement.population.expected_units(domain, n_h)
        goal, discordant = self.requirement.goal, self.requirement.observed_discordant()
        return Figures(
            round(float(expected.sum())),
            precision.effective_files(domain, expected, estimand),
            precision.expected_half_width(domain, expected, estimand, goal.level),
            precision.detectable_difference(
                domain, expected, estimand, discordant, goal.alpha, goal.power
            ),
            needed,
        )
