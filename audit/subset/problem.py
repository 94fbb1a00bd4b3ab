"""The planning problem in numbers: one line per stratum and class, domains, sizes, figures.

`Problem` holds what the rows were boiled down to and the goal; its methods answer "how many units"
and "what does that buy" by arithmetic on those lines. The metric's *domains* are the parts of F
that it is a share of: all examples for accuracy, one class for its recall, all others for its
specificity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset import precision, sizes
from audit.subset.allocation import FIRST_UNITS, allocate, spread_over_classes
from audit.subset.estimate import Estimand
from audit.subset.frame import Eligible, Units
from audit.subset.goal import Goal, NoiseRate
from audit.subset.plan import Figures
from audit.subset.precision import Domain
from audit.subset.prior import Prior
from audit.subset.wording import listed


@dataclass
class Problem:
    """One line per (stratum, class) of units, the domains that the metric is about, the goal."""

    goal: Goal
    found: Eligible
    files: pl.DataFrame
    units: Units
    prior: Prior
    reasons: list[str]
    N: Ints  # units per stratum
    M: Ints  # files per stratum
    stratum_labels: list[str]
    cells: pl.DataFrame  # stratum (code), label, units, sums of powers 1 to 4 of the unit sizes
    p: Floats  # planning share per stratum
    rho: float
    discordant: float
    noise: NoiseRate | None = None
    classes: int = 0

    @classmethod
    def of(
        cls,
        goal: Goal,
        found: Eligible,
        files: pl.DataFrame,
        units: Units,
        prior: Prior,
        reasons: list[str],
        whole: bool,
    ) -> Problem:
        """Count units and files by stratum and class, and settle the planning values."""
        cells = (
            units.table.group_by(pl.col("stratum").to_physical(), "label")
            .agg(
                units=pl.len().cast(pl.Int64),
                files=pl.col("size").sum(),
                squares=(pl.col("size") ** 2).sum(),
                cubes=(pl.col("size").cast(pl.Float64) ** 3).sum(),
                fourths=(pl.col("size").cast(pl.Float64) ** 4).sum(),
            )
            .sort("stratum", "label")
        )
        count = len(units.strata)
        code = cells["stratum"].to_numpy()
        N = np.bincount(code, cells["units"].to_numpy(), count).astype(np.int64)
        M = np.bincount(code, cells["files"].to_numpy(), count).astype(np.int64)
        major = cells.sort("stratum", "units", "label", descending=[False, True, False])
        labels = major.unique("stratum", keep="first").sort("stratum")["label"].to_list()
        p, said = prior.stratum_shares(units, goal.planning_value)
        rho, rho_said = prior.correlation(units, goal.rho, whole)
        psi, psi_said = prior.discordant(files, goal, float(p @ M / M.sum()))
        for reason in (said, rho_said, psi_said):
            if reason and reason not in reasons:
                reasons.append(reason)
        return cls(
            goal, found, files, units, prior, reasons, N, M, labels, cells, p, rho, psi,
            classes=files["label"].n_unique(),
        )  # fmt: skip

    def with_units(self, units: Units) -> Problem:
        """Return the same problem over other units (strata merged)."""
        fresh = Problem.of(
            self.goal, self.found, self.files, units, self.prior, self.reasons, self.units.whole
        )
        fresh.noise = self.noise
        return fresh

    @property
    def total(self) -> int:
        """Units in F."""
        return int(self.N.sum())

    def domain(self, rows: pl.Series | None = None, label: str | None = None) -> Domain:
        """Return all of F, or the cells picked by a mask, as a domain for `precision`."""
        cells = self.cells if rows is None else self.cells.filter(rows)
        code = cells["stratum"].to_numpy()
        m, squares = int(cells["files"].sum()), int(cells["squares"].sum())
        count = len(self.N)
        N = np.bincount(code, cells["units"].to_numpy(), count).astype(np.int64)
        effect = 1.0 + (squares / m - 1.0) * self.rho
        cubes, fourths = float(cells["cubes"].sum()), float(cells["fourths"].sum())
        alone = 1 - self.rho
        spread = alone**2 * squares + 2 * self.rho * alone * cubes + self.rho**2 * fourths
        p = self.p
        if label is not None:
            p = np.full(count, self.prior.class_share(label, self.goal.planning_value))
        units = int(N.sum())
        return Domain(N, p, m / units, effect, min((effect * m) ** 2 / (spread * units), 1.0))

    def drawn(self, domain: Domain, n: Ints) -> Floats:
        """Return the units of a domain expected among n_h drawn from each stratum."""
        return np.asarray(n * domain.N / self.N, float)

    def domains(self) -> list[tuple[str, Domain]]:
        """Return what the metric is about: all of F, each class, or one class or its rest."""
        metric, label = self.goal.parsed
        every = self.cells["label"].unique().sort().to_list()
        if label is not None and label not in every:
            raise UsageError(
                f"There is no class {label!r} in the eligible set: {listed(every)} are there."
            )
        if metric in {"recall", "macro-recall"}:
            chosen = every if label is None else [label]
            return [(c, self.domain(self.cells["label"] == c, c)) for c in chosen]
        if metric == "specificity":
            if len(every) == 1:
                raise UsageError("Specificity needs a second class, and the set has one.")
            return [(f"not {label}", self.domain(self.cells["label"] != label))]
        return [("all", self.domain())]

    # ---- allocation ----

    def allocation(self, asked: str | None) -> str:
        """Return how units go to strata, with the reason."""
        per_class = self.goal.parsed[0] in {"recall", "macro-recall", "specificity"}
        if asked is None:
            asked = "equal" if per_class else "proportional"
            why = "the metric is per class" if per_class else "the metric is over all examples"
            self.reasons.append(f"Allocation: {asked}, because {why}.")
        if asked not in {"proportional", "equal", "neyman"}:
            raise UsageError(
                f"Allocation {asked!r} does not exist: choose proportional, equal or neyman."
            )
        if asked == "neyman" and not self.prior.known:
            raise UsageError(
                "Neyman allocation needs to know where a model errs: give --predictions of an "
                "earlier model, or use proportional allocation."
            )
        return asked

    def scale(self, allocation: str) -> Floats:
        """Return S_h, rounded so that every machine orders the units alike."""
        if allocation == "neyman":
            raw = np.sqrt(self.p * (1 - self.p))
        elif allocation == "proportional":
            return np.ones(self.N.size)
        else:
            raw = self._steered()
        return np.array([float(f"{v:.9g}") for v in raw])

    def _steered(self) -> Floats:
        found = self.domains()
        if found[0][0] == "all":
            found = [(c, self.domain(self.cells["label"] == c, c)) for c in
                     self.cells["label"].unique().sort().to_list()]  # fmt: skip
        names = [name for name, _ in found]
        rest = len(names)
        own = {name: i for i, name in enumerate(names)}
        negative = names[0].removeprefix("not ") if names[0].startswith("not ") else None
        code = np.array(
            [
                (0 if label != negative else rest) if negative else own.get(label, rest)
                for label in self.stratum_labels
            ]
        )
        wanted = np.zeros(rest + 1)
        for i, (_, domain) in enumerate(found):
            wanted[i] = 1.0 if self.goal.is_budget else self._needed(domain)
        return spread_over_classes(self.N, code, wanted)

    def _needed(self, domain: Domain) -> int:
        # Units that the target takes within one domain, as far as there are any.
        return min(self.units_for(domain, self.goal.estimand), domain.total)

    def units_for(self, domain: Domain, estimand: Estimand) -> int:
        """Return the units of a domain that its target takes, more than there are if need be."""
        held = np.flatnonzero(domain.N > 0)
        N, p = domain.N[held], domain.p[held]
        local = replace(domain, N=N, p=p)
        ones = np.ones(N.size)

        def meets(n: int) -> bool:
            return self._meets(local, allocate(N, ones, n, 1), estimand)

        if meets(domain.total):
            population = domain.total if estimand == "full-set" else None
            return sizes.smallest_for_good(meets, domain.total, population)
        files = self._simple_files(domain)
        return math.ceil(files * domain.cluster_effect / domain.files_per_unit - 1e-9)

    def _meets(self, domain: Domain, n: Ints | Floats, estimand: Estimand) -> bool:
        goal = self.goal
        if goal.half_width is not None:
            width = precision.half_width(domain, n, estimand, goal.level, goal.interval)
            return width <= goal.half_width
        flat = replace(domain, p=np.full(domain.p.shape, 0.5))
        worth = precision.effective_files(flat, n, estimand)
        worth *= precision.student_loss(domain, n, goal.level)
        return worth >= self._simple_files(domain) - 1e-9

    def _simple_files(self, domain: Domain) -> float:
        # The target as independent examples, before any design effect.
        goal = self.goal
        if goal.half_width is not None:
            return sizes.proportion_n(
                goal.half_width, domain.share, goal.level, None, goal.interval
            )
        difference, discordant = self.seen_difference()
        if goal.paired:
            return self._paired(difference, discordant)
        low, high = sizes.split_around(domain.share, difference)
        if goal.test == "exact":
            n = sizes.two_proportion_n(low, high, goal.alpha, goal.power)
            why = "Fisher's test, Fleiss-corrected n per model (Fleiss, Tytun and Ury 1980)"
            n = sizes.fleiss_corrected(n, difference)
        else:
            n, why = sizes.unpaired_n(low, high, goal.alpha, goal.power)
        self._say(why)
        return n

    def _paired(self, difference: float, discordant: float) -> float:
        method: stats.McNemarMethod = "exact" if self.goal.test == "exact" else "midp"
        n, why = sizes.paired_n(difference, discordant, self.goal.alpha, self.goal.power, method)
        self._say(why)
        return n

    def _say(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    # ---- label noise ----

    def apply_noise(self, given: float | NoiseRate | None) -> None:
        """Take a noise rate into the problem, or say why it is not used."""
        if given is None:
            return
        rate = given if isinstance(given, NoiseRate) else NoiseRate(given, given, given, "stated")
        rate.check(self.classes)
        if rate.automatic and rate.low <= 0:
            self.reasons.append(
                f"Label noise: not used, because the interval of {rate.source} "
                f"({rate.low:.3f} to {rate.high:.3f}) includes 0."
            )
            return
        self.noise = rate
        self.reasons.append(self._noise_said(rate))

    def _noise_said(self, rate: NoiseRate) -> str:
        differ = self.prior.predictions_differ
        # Models may disagree on more examples than the discordant ones: unknown counts as all.
        bound = sizes.noise_bound(rate.rate, 1.0 if differ is None else differ)
        return (
            f"Label noise: rate {rate.rate:.3f} ({rate.source}), taken as uniform and independent "
            f"of the models. If wrong labels lean towards confusable classes there is no formula: "
            f"they may shift a difference by up to {bound:.3f}, and a difference below that is not "
            "guaranteed under class-dependent noise."
        )

    def seen_difference(self) -> tuple[float, float]:
        """Return the difference to detect and the discordant share, as the labels show them."""
        difference = self.goal.detect
        if difference is None:
            raise UsageError("There is no difference to plan for: give --detect.")
        return self._with_noise(difference)

    def _with_noise(self, difference: float) -> tuple[float, float]:
        if self.noise is None:
            return difference, self.discordant
        p = float(self.p @ self.M / self.M.sum())
        both = self.prior.both_wrong_differ
        if both is None:
            both = (1 - p) ** 2 * (self.classes - 2) / max(self.classes - 1, 1)
        seen, psi = sizes.noisy_difference(
            difference, self.discordant, self.noise.rate, self.classes, both
        )
        # Two prediction files were compared on the noisy labels: their share already contains it.
        return seen, self.discordant if self.prior.pair_known else psi

    # ---- from the goal to n ----

    def budget(self) -> int | None:
        """Return the units that n, or seconds x throughput, pay for; None for a target."""
        n = self.goal.budget_units(self.M.sum() / self.N.sum() if self.units.whole else 1.0)
        if n is None:
            return None
        if n > self.total and self.goal.seconds is not None:
            self.reasons.append(
                f"The budget pays for {n} units and the eligible set has {self.total}: the plan "
                "takes all of them."
            )
            return self.total
        if n > self.total:
            raise UsageError(
                f"{n} units were asked for and the eligible set has {self.total}: ask for at most "
                f"{self.total}, or evaluate the full set (`audit subset score RUN`)."
            )
        return n

    def size(self, scale: Floats) -> int:
        """Return the units that meet the target in every domain, or all that help."""
        return self.size_under(self.goal.estimand, scale)

    def size_under(self, estimand: Estimand, scale: Floats) -> int:
        """Return `size` for one estimand."""
        floor = min(FIRST_UNITS * self.N.size, self.total)
        found = [(d, min(self.units_for(d, estimand), d.total)) for _, d in self.domains()]
        everything = len(found) == 1 and found[0][0].total == self.total

        def meets(n: int) -> bool:
            drawn = allocate(self.N, scale, n)
            if everything:
                return n >= self.total or self._meets(found[0][0], drawn, estimand)
            return all(self.drawn(d, drawn).sum() >= need - 1e-9 for d, need in found)

        population = self.total if everything and estimand == "full-set" else None
        return max(floor, sizes.smallest_for_good(meets, self.total, population))

    # ---- what n units buy ----

    def bought(self, n: int, scale: Floats, estimand: Estimand) -> Figures:
        """Return what `n` units buy for the metric as a whole."""
        found = self.domains()
        domain = found[0][1] if len(found) == 1 else self.domain()
        return self.figures(domain, allocate(self.N, scale, n), estimand)

    def figures(
        self, domain: Domain, drawn: Ints, estimand: Estimand, needed: int | None = None
    ) -> Figures:
        """Return what n_h drawn units buy for one domain."""
        expected = self.drawn(domain, drawn)
        goal = self.goal
        discordant = self._with_noise(0.0)[1]
        detectable = precision.detectable_difference(
            domain, expected, estimand, discordant, goal.alpha, goal.power, goal.paired
        )
        return Figures(
            round(float(expected.sum())),
            precision.effective_files(domain, expected, estimand),
            precision.half_width(domain, expected, estimand, goal.level, goal.interval),
            detectable,
            needed,
        )
