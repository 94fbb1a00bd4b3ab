"""What a goal takes within one domain: first in independent examples, then in units.

A goal speaks of a simple random sample ("597 examples for plus or minus 4 points"). The units that
give as much depend on the domain: how many files a unit holds and how alike they are, how much of
the set is drawn, and how many groups are left to estimate a variance from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset import detection, precision, sizes
from audit.subset.apportionment import allocate
from audit.subset.estimate import Estimand
from audit.subset.goal import Goal
from audit.subset.noise import NoiseRate, noisy_difference
from audit.subset.population import Population
from audit.subset.precision import Domain


@dataclass(frozen=True)
class Requirement:
    """A goal on a population, under a rate of wrong labels (None: taken as right)."""

    goal: Goal
    population: Population
    noise: NoiseRate | None = None

    def domains(self) -> list[tuple[str, Domain]]:
        """Return the named parts of F that the goal's metric is about."""
        return self.population.domains(*self.goal.parsed)

    def units_for(self, domain: Domain, estimand: Estimand) -> int:
        """Return the units of a domain that its target takes, more than there are if need be."""
        rows = np.flatnonzero(domain.N > 0)
        share, centre = (None if v is None else v[rows] for v in (domain.share, domain.centre))
        even, spread = (
            np.broadcast_to(v, domain.N.shape)[rows] for v in (domain.size_evenness, domain.spread)
        )
        local = replace(
            domain, N=domain.N[rows], p=domain.p[rows], share=share, centre=centre,
            size_evenness=even, spread=spread,
        )  # fmt: skip
        ones = np.ones(rows.size)

        def meets(n: int) -> bool:
            return self.is_met(local, allocate(local.N, ones, n, 1), estimand)

        if meets(domain.total):
            population = domain.total if estimand == "full-set" else None
            return sizes.smallest_for_good(meets, domain.total, population)
        # The whole domain is not enough: extrapolate by the design effect, without its correction.
        files = self.independent_examples(domain)
        return math.ceil(files * domain.cluster_effect / domain.files_per_unit - 1e-9)

    def is_met(self, domain: Domain, n: Ints | Floats, estimand: Estimand) -> bool:
        """Return whether n_h units of a domain meet the target."""
        goal = self.goal
        if goal.half_width is not None:
            width = precision.expected_half_width(domain, n, estimand, goal.level)
            return width <= goal.half_width
        # As in `precision.detectable_difference`: a change varies alike in all strata.
        flat = replace(domain, p=np.full(domain.p.shape, 0.5))
        effective = precision.effective_files(flat, n, estimand)
        effective *= precision.student_factor(domain, n, goal.level, estimand)
        return effective >= self.independent_examples(domain) - 1e-9

    def independent_examples(self, domain: Domain) -> float:
        """Return the target as independent examples, before any design effect."""
        goal = self.goal
        if goal.half_width is not None:
            return sizes.proportion_n(goal.half_width, domain.planning_share, goal.level)
        n, why = detection.paired_n(*self.observed_difference(), goal.alpha, goal.power)
        if why not in self.population.reasons:
            self.population.reasons.append(why)
        return n

    def observed_difference(self) -> tuple[float, float]:
        """Return the difference to detect and the discordant share, as the labels show them."""
        if self.goal.detect is None:
            raise UsageError("There is no difference to plan for: give --detect.")
        return self._with_noise(self.goal.detect)

    def observed_discordant(self) -> float:
        """Return the share of examples on which exactly one model is right, as the labels show."""
        return self._with_noise(0.0)[1]

    def _with_noise(self, difference: float) -> tuple[float, float]:
        population = self.population
        if self.noise is None:
            return difference, population.discordant
        classes = population.files["label"].n_unique()
        both_wrong = population.prior.both_wrong_differ
        if both_wrong is None:
            # Two models that err independently and spread their errors evenly over the classes.
            p = population.planning_share
            both_wrong = (1 - p) ** 2 * (classes - 2) / max(classes - 1, 1)
        observed, psi = noisy_difference(
            difference, population.discordant, self.noise.rate, classes, both_wrong
        )
        # Two prediction files were compared on the noisy labels: their share already contains it.
        return observed, population.discordant if population.prior.pair_known else psi
