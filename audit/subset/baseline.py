"""An earlier checkpoint whose answers exist for all of F: what they save, in a score and in a plan.

Neighbouring checkpoints are right on nearly the same examples. What the subset has to find out is
where they differ; the rest is known (`audit.subset.regression`). Works for metrics that are means
over rows whose weight in F is known before the model answers: accuracy, recall, specificity and
macro-recall. Cost: one pass over F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.stats import Floats
from audit.subset.design import Design, MetricEstimate
from audit.subset.draw import census
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.frame import UNLABELLED
from audit.subset.goal import SIZED_METRICS, Goal, parse_metric
from audit.subset.intervals import PRIOR_UNITS, caution, proportion_interval
from audit.subset.outcome import MetricScore, Outcome
from audit.subset.plan import Plan
from audit.subset.predictions import match, right_answers, standard_columns
from audit.subset.prior import expected_answers, with_confidence
from audit.subset.recipe import Recipe
from audit.subset.regression import Known, fit_known
from audit.subset.sizes import smallest
from audit.subset.strata import Strata

PLAIN = Recipe(0, Strata(), {})


@dataclass(frozen=True)
class WholeSet:
    """F under the design of a subset that was drawn from it: one row an evaluated file."""

    design: Design

    @classmethod
    def of(cls, frame: pl.DataFrame, recipe: Recipe = PLAIN) -> WholeSet:
        """Return F with the strata and units of a plan's recipe.

        The recipe may be left out where strata are the labels and units are files.
        """
        full = census(
            frame, group=recipe.group, deduplicated=recipe.deduplicated, strata=recipe.strata
        )
        return cls(Design.of(full.rows))

    def places(self, design: Design) -> np.ndarray:
        """Return the row of F of each row of the subset; raises UsageError for another set."""
        sizes = self._sizes()
        for name, size in design.rows.select("stratum", "N_h").unique().iter_rows():
            if sizes.get(name) != size:
                raise UsageError(
                    f"The subset was drawn from another set than the one given: its stratum "
                    f"{name!r} has {size} units, and there are {sizes.get(name, 0)}. Give the run "
                    "or list it was drawn from with --from, and its plan with --plan."
                )
        ids = self.design.rows["sample_id"]
        where = pl.DataFrame({"sample_id": ids, "place": np.arange(len(ids))})
        place = design.rows.select("sample_id").join(
            where, on="sample_id", how="left", maintain_order="left"
        )["place"]
        if place.null_count():
            lost = design.rows["sample_id"].filter(place.is_null())[0]
            raise UsageError(
                f"{place.null_count()} rows of the subset, such as {lost!r}, are not in the set "
                "given with --from: give the one that it was drawn from."
            )
        return place.to_numpy()

    def _sizes(self) -> dict[str, int]:
        return dict(self.design.rows.select("stratum", "N_h").unique().iter_rows())

    def means(self, top: Floats, counts: Floats) -> Floats:
        """Return the mean of a number over F, by stratum of the subset."""
        # Strata are sorted by name in both designs, and `places` has seen that they are the same.
        design = self.design
        stratum, strata = design.stratum[design.unit], design.population.size
        weight = counts * design.multiplicity
        total = np.bincount(stratum, weight, strata)
        mean = np.bincount(stratum, weight * top, strata) / np.where(total > 0, total, 1.0)
        return np.asarray(mean)


@dataclass(frozen=True)
class Baseline:
    """An earlier model's answers on all of F, under the design of the subset they serve."""

    name: str
    whole: Outcome

    @classmethod
    def of(
        cls, frame: pl.DataFrame, table: pl.DataFrame, recipe: Recipe = PLAIN, name: str = "old"
    ) -> Baseline:
        """Return the baseline of a set: every example of F needs a prediction.

        `recipe` is that of the plan that the subset was drawn by (see `WholeSet.of`).
        """
        table = standard_columns(table, name)
        frame = with_confidence(frame, [table], recipe.strata.by)
        design = WholeSet.of(frame, recipe).design
        matched = match(design.rows, table, name, "refuse", "refuse-similar")
        hit = expected_answers(design.rows, matched, name)
        return cls(name, Outcome(design, hit, np.ones(hit.size), matched.prediction, matched.table))

    @property
    def _unlabelled(self) -> bool:
        return bool((self.whole.design.rows["label"] == UNLABELLED).all())

    def score(self, outcome: Outcome, metric: str, confidence: float) -> MetricScore | None:
        """Return a metric with what the baseline knows; None for one that it does not serve."""
        name, label = parse_metric(metric)
        if name not in SIZED_METRICS or (self._unlabelled and name != "accuracy"):
            return None
        if not outcome.counts.all():
            raise UsageError(
                "--baseline needs a prediction for every row of the subset: --missing drop changes "
                "the set that the baseline is known on. Predict them, or choose --missing wrong."
            )
        whole = WholeSet(self.whole.design)
        place = whole.places(outcome.design)
        top, counts = _terms(self.whole, self.whole.design, name, label)
        new, _ = _terms(outcome, self.whole.design, name, label)
        fit = fit_known(
            outcome.design, new, counts[place], Known(top[place], whole.means(top, counts))
        )
        r = self.whole.design.ratio(top * counts, counts)
        old = float(np.clip(r.value, 0, 1))
        value = float(np.clip(fit.ratio.value, 0, 1))
        estimates: dict[Estimand, MetricEstimate] = {}
        for estimand in ESTIMANDS:
            low, high, size = (
                float(v) for v in proportion_interval(fit.ratio, estimand, confidence)
            )
            estimates[estimand] = MetricEstimate(
                value, low, high, size, caution=caution(fit.ratio, value)
            )
        if outcome.design.complete:
            estimates["full-set"] = MetricEstimate(value, value, value, math.inf, True)
        known = "expects" if self._unlabelled else "has"
        how = (
            f"regression on {self.name}, which {known} {100 * old:.2f} % on all of the set; "
            f"{100 * min(fit.remaining, 1.0):.0f} % of the variance is left"
        )
        return MetricScore(metric, estimates, how)


def _terms(outcome: Outcome, whole: Design, name: str, label: str | None) -> tuple[Floats, Floats]:
    """Return right answers and weights of the rows; a mean over classes weighs by class size."""
    if name == "recall" and label is None:
        raise UsageError("recall is one number per class: give recall:CLASS, or macro-recall.")
    if name != "macro-recall":
        return outcome.share_terms(name, label)
    files = whole.rows.select("label", files=pl.Series(whole.multiplicity)).group_by("label")
    sizes = dict(files.agg(pl.col("files").sum()).iter_rows())
    mean = sum(sizes.values()) / len(sizes)
    weight = {label: mean / size for label, size in sizes.items()}
    return outcome.hit, outcome.design.rows["label"].replace_strict(weight).to_numpy()


# ---- planning ----


@dataclass(frozen=True)
class VarianceLeft:
    """The share of the variance that a baseline leaves, and of the units that show it."""

    share: float
    shown_by: float

    def units_for(self, plain: int, population: int) -> int:
        """Return the units that give what `plain` units give without the baseline.

        R (1/n - 1/N) = 1/n0 - 1/N, R being the share left; the same holds for both estimands, as
        what F owes to being a draw is in both sizes. The score steadies R by units of the plain
        variance where few units show it (`intervals.guarded_size`), and so does the plan.
        """
        wanted = 1 / plain - 1 / population

        def meets(n: int) -> bool:
            seen = n * self.shown_by
            left = (seen * self.share + PRIOR_UNITS) / (seen + PRIOR_UNITS)
            return left * (1 / n - 1 / population) <= wanted * (1 + 1e-12)

        return smallest(meets, 1, plain)


def variance_left(baseline: Baseline, pilot: pl.DataFrame, metric: str, name: str) -> VarianceLeft:
    """Return what a baseline leaves, as a third model's answers show.

    `pilot`: predictions of a model that differs from the baseline as much as the next one will.
    """
    whole = baseline.whole
    table = standard_columns(pilot, name)
    matched = match(whole.design.rows, table, name, "refuse", "refuse-similar")
    hit = right_answers(whole.design.rows, matched)
    other = Outcome(whole.design, hit, whole.counts, matched.prediction, matched.table)
    kind, label = parse_metric(metric)
    old, counts = _terms(whole, whole.design, kind, label)
    new, _ = _terms(other, whole.design, kind, label)
    # An unlimited set with the strata of this one: no finite-population factor hides a residual.
    design = replace(whole.design, population=whole.design.population * 1e6)
    fit = fit_known(design, new, counts, Known(old, WholeSet(whole.design).means(old, counts)))
    return VarianceLeft(
        min(max(fit.remaining, 0.0), 1.0), float(fit.ratio.rare_units) / design.n_units
    )


def baseline_plan(
    frame: pl.DataFrame,
    make: Callable[[Goal], Plan],
    goal: Goal,
    table: pl.DataFrame,
    pilots: Sequence[pl.DataFrame],
) -> Plan:
    """Return the plan for a set on which a baseline is known, from a pilot or a stated share."""
    if goal.half_width is None:
        raise UsageError("--baseline sizes a --half-width: give one, such as 0.01.")
    plain = make(goal)
    baseline = Baseline.of(frame, table, plain.recipe, "the baseline")
    if pilots:
        left = variance_left(baseline, pilots[0], goal.metric, "predictions 1")
        return plan_with_baseline(make, goal, plain, left, "as the given predictions show, it")
    if goal.discordant is None:
        raise UsageError(
            "How far the next model will differ from the baseline is not known: give --predictions "
            "of a model that differs as much, or --discordant with the share of examples."
        )
    share = goal.planning_value or float(baseline.whole.accuracy.value)
    left = variance_left_of(share, goal.discordant)
    return plan_with_baseline(make, goal, plain, left, "at this discordant share it")


def variance_left_of(share: float, discordant: float) -> VarianceLeft:
    """Return 1 - r^2 as what is left: two models of accuracy `share` that differ on some."""
    spread = 2 * share * (1 - share)
    correlation = 1 - discordant / spread if spread > 0 else 0.0
    return VarianceLeft(1 - min(max(correlation, 0.0), 1.0) ** 2, min(discordant, share, 1 - share))


def plan_with_baseline(
    make: Callable[[Goal], Plan], goal: Goal, plain: Plan, left: VarianceLeft, source: str
) -> Plan:
    """Return the plan of `make` at the size that the baseline leaves to be drawn."""
    N, n0 = plain.n_units, plain.n
    floor = min(2 * len(plain.strata), N)
    plan = make(replace(goal, half_width=None, n=max(left.units_for(n0, N), floor, 2)))
    plan.reasons.append(
        f"With the baseline {plan.n} units give plus or minus "
        f"{100 * (goal.half_width or 0):.3g} points, "
        f"where a plain subset takes {n0}: {source} leaves {100 * left.share:.0f} % of the "
        "variance. Score it with --baseline; the figures above are without it."
    )
    return plan
