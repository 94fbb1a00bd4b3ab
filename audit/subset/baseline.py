"""Use an earlier model with answers for all of F to make a score, plan or draw more precise.

The estimate is the subset's mean, corrected by coefficient * (F's mean of the earlier model - the
subset's): the survey regression estimator (Cochran 1977, sections 7.2 to 7.11; Sarndal, Swensson
and Wretman 1992, section 6.6). For generalisation the variance of F's own mean is added: PPI++
(Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453) with F less the subset as unlabelled part.
Residuals are divided by 1 - leverage, so a coefficient fitted to noise widens the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints
from audit.subset.draw import Recipe, Subset, census
from audit.subset.estimate import PRIOR_UNITS, Ratio, unit_moments
from audit.subset.goal import SIZED_METRICS, Estimand, Goal, parse_metric
from audit.subset.metrics import (
    Design,
    MetricEstimate,
    MetricScore,
    Outcome,
    estimate_ratio,
    estimate_share,
)
from audit.subset.plan import Plan
from audit.subset.population import expected_answers, with_confidence
from audit.subset.predictions import UNLABELLED, match, standard_columns
from audit.subset.sizes import smallest
from audit.subset.source import rows_in_set, select_eligible
from audit.subset.strata import Strata, Units, form_units

OWN_COEFFICIENT_FROM = 20
"""Units of a stratum that has a coefficient of its own."""
OWN_LEVERAGE, LARGEST_LEVERAGE = 0.1, 0.2
"""No unit may have a larger part in a coefficient: ten, or five, units of the rarer known answer.
A stratum above the first shares the common coefficient; above the second there is none."""

ROUNDING = 1e-9


@dataclass(frozen=True)
class Known:
    """A number known for all of F: `values` on the subset's rows, `means` over F by stratum."""

    values: Floats
    means: Floats


@dataclass(frozen=True)
class Fit:
    """The share of the variance that regression leaves, and the ratio.

    `used` is False where no coefficient is reliable, so that the known number changes nothing.
    """

    remaining: float
    ratio: Ratio
    used: bool


def fit_known(design: Design, top: Floats, counts: Floats, known: Known) -> Fit:
    """Return the ratio of `top` among the rows that count, regressed on the known number.

    `top`: the new number of each row; `counts`: what the row weighs, the same for both numbers and
    known on F. Its `variance` is that of the regression, its `base_n` that of the plain sample.
    """
    plain = design.ratio(top * counts, counts)
    row_stratum = design.stratum[design.unit]
    centred = (known.values - known.means[row_stratum]) * counts
    files = design.multiplicity
    z = design.totals((top - float(plain.value)) * counts * files)
    b = design.totals(centred * files)
    coefficient, residual = _regressed(design, z, b)
    corrected = design.ratio(top * counts - coefficient[row_stratum] * centred, counts)
    spread = _residual_ratio(design, residual, counts, float(corrected.value))
    n = np.bincount(design.stratum, minlength=design.population.size)
    squares = (design.population / np.maximum(n, 1))[design.stratum] * residual**2
    kish = float(squares.sum() ** 2 / max(float((squares**2).sum()), 1e-300))
    full = spread.variance["full-set"]
    # Plain generalisation less plain full-set: what F owes to being a draw of its own.
    variance: dict[Estimand, Floats] = {
        "full-set": full,
        "generalisation": full + plain.variance["generalisation"] - plain.variance["full-set"],
    }
    present = (counts > 0).astype(float)
    ratio = replace(
        plain,
        grouped=design.ratio(present, present).grouped,
        value=corrected.value,
        variance=variance,
        rare_units=np.minimum(plain.rare_units, kish),
        moments=spread.moments,
    )
    before = float(plain.variance["full-set"])
    return Fit(float(full) / before if before > 0 else 1.0, ratio, bool(coefficient.any()))


def _residual_ratio(design: Design, residual: Floats, counts: Floats, value: float) -> Ratio:
    # The residuals as if they were answers: y - R x has them as its own linearised values.
    x = design.totals(counts * design.multiplicity)
    files = np.maximum(np.bincount(design.unit, minlength=design.n_units), 1)
    per_row = (residual / files)[design.unit] / design.multiplicity
    mean = value * (x / files)[design.unit] / design.multiplicity
    return design.ratio(per_row + mean, counts)


def _regressed(design: Design, z: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the coefficient of each stratum, and the units' residuals, leverage taken out.

    The totals `z` of the units are fitted to those of the known number, `b`, with a coefficient for
    each large stratum and one for the others. Residuals carry their calibration weights.
    """
    stratum, N, strata = design.stratum, design.population, design.population.size
    n = np.bincount(stratum, minlength=strata).astype(float)
    dev = b - (np.bincount(stratum, b, strata) / np.maximum(n, 1))[stratum]
    # Where all known numbers agree, only rounding differs, and rounding has no slope.
    rounding = ROUNDING * max(float(np.abs(b).max(initial=0)), 1e-300)
    dev = np.where(np.abs(dev) > rounding, dev, 0)
    squares = np.bincount(stratum, dev**2, strata)
    part = dev**2 / np.where(squares > 0, squares, 1.0)[stratum]
    largest = np.where(squares > 0, 0.0, 1.0)
    np.maximum.at(largest, stratum, part)
    own = (n >= OWN_COEFFICIENT_FROM) & (largest <= OWN_LEVERAGE)
    group = np.where(own, np.arange(strata), strata).astype(np.int64)
    # What a squared deviation of a stratum counts for in the variance of the estimate.
    worth = N**2 / np.maximum(n, 1) / np.maximum(n - 1, 1)
    of = group[stratum]
    weighted = worth[stratum] * dev
    q = np.bincount(of, weighted * dev, strata + 1)
    p = np.bincount(of, weighted * z, strata + 1)
    safe = np.where(q > 0, q, 1.0)
    leverage = weighted * dev / safe[of]
    largest = np.zeros(strata + 1)
    np.maximum.at(largest, of, leverage)
    usable = (q > 0) & (largest <= LARGEST_LEVERAGE)
    slope = np.where(usable, p / safe, 0.0)
    # F's mean of the centred number is 0: the subset's shortfall is less its own mean.
    short = -np.bincount(stratum, b, strata) / np.maximum(n, 1) * N
    short_of_group = np.bincount(group, short, strata + 1)
    each = N[stratum] / np.maximum(n, 1)[stratum]
    pull = np.where(usable, short_of_group / safe, 0.0)[of] * weighted / each
    leverage = np.where(usable[of], leverage, 0.0)
    e = z - slope[of] * b
    centre = (np.bincount(stratum, e, strata) / np.maximum(n, 1))[stratum]
    return slope[group], np.asarray(centre + (e - centre) * (1 + pull) / (1 - leverage))


PLAIN = Recipe(0, Strata(), {})


def whole_set(frame: pl.DataFrame, recipe: Recipe = PLAIN) -> Design:
    """Return F under the design of a subset drawn by `recipe`: one row an evaluated file."""
    by, group = recipe.strata, recipe.group
    return Design.of(census(frame, group=group, deduplicated=recipe.deduplicated, strata=by).rows)


def rows_of(whole: Design, design: Design) -> Ints:
    """Return the row of F of each row of a subset; raises UsageError for another set."""
    there = dict(whole.rows.select("stratum", "N_h").unique().iter_rows())
    for name, size in design.rows.select("stratum", "N_h").unique().sort("stratum").iter_rows():
        if there.get(name) != size:
            raise UsageError(
                f"The subset was drawn from another set than the one given: its stratum {name!r} "
                f"has {size} units, and there are {there.get(name, 0)}. Give the run or list it "
                "was drawn from with --from, and its plan with --plan."
            )
    return rows_in_set(design.rows["sample_id"], whole.rows["sample_id"])


def known_on(whole: Design, rows: Ints, top: Floats, counts: Floats) -> Known:
    """Return a number of F as known: at the rows `rows`, and its mean over F by stratum."""
    # Strata are sorted by name in both designs, and `rows_of` has seen that they are the same.
    stratum, strata = whole.stratum[whole.unit], whole.population.size
    weight = counts * whole.multiplicity
    total = np.bincount(stratum, weight, strata)
    means = np.bincount(stratum, weight * top, strata) / np.where(total > 0, total, 1.0)
    return Known(top[rows], np.asarray(means))


@dataclass(frozen=True)
class Baseline:
    """An earlier model's answers on all of F, under the design of the subset they serve."""

    name: str
    whole: Outcome

    @classmethod
    def of(
        cls, frame: pl.DataFrame, table: pl.DataFrame, recipe: Recipe = PLAIN, name: str = "old"
    ) -> Baseline:
        """Return the baseline of a set, all predicted, for subsets drawn by `recipe`."""
        table = standard_columns(table, name)
        design = whole_set(with_confidence(frame, [table], recipe.strata.by), recipe)
        matched = match(design.rows, table, name, "refuse", "refuse-similar")
        hit = expected_answers(design.rows, matched, name)
        return cls(name, Outcome(design, hit, np.ones(hit.size), matched.prediction, matched.table))

    def score(self, outcome: Outcome, metric: str, confidence: float) -> MetricScore | None:
        """Return a metric with what the baseline knows; None for one that it does not serve."""
        name, label = parse_metric(metric)
        unlabelled = (self.whole.design.rows["label"] == UNLABELLED).all()
        if name not in SIZED_METRICS or (unlabelled and name != "accuracy"):
            return None
        if not outcome.counts.all():
            raise UsageError(
                "--baseline needs a prediction for every row of the subset: --missing drop changes "
                "the set that the baseline is known on. Predict them, or choose --missing wrong."
            )
        whole = self.whole.design
        rows = rows_of(whole, outcome.design)
        top, counts = _terms(self.whole, whole, name, label)
        new, _ = _terms(outcome, whole, name, label)
        known_number = known_on(whole, rows, top, counts)
        fit = fit_known(outcome.design, new, counts[rows], known_number)
        old = float(np.clip(whole.ratio(top * counts, counts).value, 0, 1))
        estimates = estimate_ratio(outcome.design, fit.ratio, float(fit.ratio.value), confidence)
        known = "expects" if unlabelled else "has"
        how = (
            f"regression on {self.name}, which {known} {100 * old:.2f}% on all of the set; "
            f"R-squared {1 - min(fit.remaining, 1.0):.2f}: {100 * min(fit.remaining, 1.0):.0f}% "
            "of the variance is left"
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


@dataclass(frozen=True)
class VarianceLeft:
    """The share of the variance that a baseline leaves, and of the units that show it."""

    share: float
    shown_by: float

    def units_for(self, plain: int, population: int) -> int:
        """Return the units that give what `plain` units give without the baseline.

        R (1/n - 1/N) = 1/n0 - 1/N, R being the share left, for both estimands. R is steadied by
        units of the plain variance as in the score (`estimate.guarded_size`).
        """
        wanted = 1 / plain - 1 / population

        def meets(n: int) -> bool:
            seen = n * self.shown_by
            left = (seen * self.share + PRIOR_UNITS) / (seen + PRIOR_UNITS)
            return left * (1 / n - 1 / population) <= wanted * (1 + 1e-12)

        return smallest(meets, 1, plain)


def variance_left(baseline: Baseline, pilot: pl.DataFrame, metric: str, name: str) -> VarianceLeft:
    """Return what a baseline leaves for a model that differs from it as the `pilot` does."""
    whole = baseline.whole
    matched = match(whole.design.rows, pilot, name, "refuse", "refuse-similar")
    other = Outcome(whole.design, matched.hit, whole.counts, matched.prediction, matched.table)
    kind, label = parse_metric(metric)
    old, counts = _terms(whole, whole.design, kind, label)
    new, _ = _terms(other, whole.design, kind, label)
    # An unlimited set with the strata of this one: no finite-population factor hides a residual.
    design = replace(whole.design, population=whole.design.population * 1e6)
    every = np.arange(old.size)
    fit = fit_known(design, new, counts, known_on(whole.design, every, old, counts))
    shown_by = float(fit.ratio.rare_units) / design.n_units
    return VarianceLeft(min(max(fit.remaining, 0.0), 1.0), shown_by)


def baseline_plan(
    frame: pl.DataFrame,
    make: Callable[[Goal], Plan],
    goal: Goal,
    table: pl.DataFrame,
    pilots: Sequence[pl.DataFrame],
) -> Plan:
    """Return the plan for a set on which a baseline is known, from a pilot or a stated share.

    `make` plans from what is known of the models: the pilots, or else the baseline itself.
    """
    if goal.half_width is None:
        raise UsageError("--baseline needs a --half-width, such as 0.01.")
    plain = make(goal)
    baseline = Baseline.of(frame, table, plain.recipe, "the baseline")
    if pilots:
        left = variance_left(baseline, pilots[0], goal.metric, "predictions 1")
        source = "from the predictions given"
    elif goal.discordant is not None:
        share, source = goal.planning_value, "from the stated disagreement and expected value"
        if share is None:
            top, counts = _terms(baseline.whole, baseline.whole.design, *parse_metric(goal.metric))
            share = float(baseline.whole.design.ratio(top * counts, counts).value)
            source = (
                f"from the stated disagreement and the baseline's {goal.metric}, {100 * share:.2f}%"
            )
        left = variance_left_of(share, goal.discordant)
    else:
        raise UsageError(
            "How far the next model will differ from the baseline is not known: give --predictions "
            "of a model that differs as much, or [plan] disagreement."
        )
    N, n0 = plain.n_units, plain.n
    floor = min(2 * len(plain.strata), N)
    needed, perfect = (
        max(one.units_for(n0, N), floor, 2) for one in (left, replace(left, share=0.0))
    )
    plan = make(replace(goal, half_width=None, n=needed))
    plan.reasons.append(
        f"With the baseline {plan.n} units give a margin of error of {100 * goal.half_width:.3g} "
        f"points; without it {n0} are needed: its R-squared is {1 - left.share:.2f} ({source}). A "
        f"perfect baseline would need {perfect}. Score it with --baseline; the figures above are "
        "without it."
    )
    return plan


def variance_left_of(share: float, discordant: float) -> VarianceLeft:
    """Return 1 - r^2 as what is left: two models of accuracy `share` that differ on some."""
    spread = 2 * share * (1 - share)
    correlation = 1 - discordant / spread if spread > 0 else 0.0
    return VarianceLeft(1 - min(max(correlation, 0.0), 1.0) ** 2, min(discordant, share, 1 - share))


@dataclass(frozen=True)
class MetricCheck:
    """A prior model's accuracy on S with its full-set interval beside its value on F.

    `equivalent_n`: the simple random sample of files that would be as precise as this design is for
    that model; `n`: the files that the design takes.
    """

    on_subset: MetricEstimate
    on_set: float
    n: int
    equivalent_n: float
    sentence: str


def metric_check(
    frame: pl.DataFrame, recipe: Recipe, subset: Subset, table: pl.DataFrame
) -> MetricCheck | None:
    """Compare accuracy on S and F for a model's predictions; None unless they are known on F."""
    files = select_eligible(frame, recipe.deduplicated).files
    if (files["label"] == UNLABELLED).all():
        return None
    hit = match(files, table, "predictions", "drop", "refuse-similar").hit
    if np.isnan(hit).any():
        return None
    units = form_units(files, recipe.strata, recipe.group)
    design = Design.of(subset.rows)
    on_rows = hit[rows_in_set(subset.rows["sample_id"], files["sample_id"])]
    estimate = estimate_share(design, on_rows, np.ones(on_rows.size), 0.95)["full-set"]
    drawn = units.table["unit_id"].is_in(subset.rows["unit_id"].unique().implode()).to_numpy()
    n_h = np.bincount(units.codes[drawn], minlength=len(units.strata))
    equivalent, n = equivalent_n(units, hit, n_h)
    on_set = float(hit.mean())
    verb = "contains" if estimate.low <= on_set <= estimate.high else "misses"
    sentence = (
        f"The earlier model scores {100 * estimate.value:.2f}% on the subset (interval "
        f"{100 * estimate.low:.2f} to {100 * estimate.high:.2f}), which {verb} its "
        f"{100 * on_set:.2f}% on the whole set. For it, these {n} files are as precise as a simple "
        f"random sample of n = {equivalent:.0f}."
    )
    return MetricCheck(estimate, on_set, n, equivalent, sentence)


def equivalent_n(units: Units, hit: Floats, n_h: Ints) -> tuple[float, int]:
    """Return the simple random sample of files that is as precise as n_h units, and their files."""
    y = np.bincount(units.unit_of_file, hit, len(units.table))
    m = units.sizes.astype(float)
    N = np.bincount(units.codes, minlength=len(units.strata)).astype(float)
    # Residuals y - R m, as in the ratio estimate: unit totals alone would also vary by their sizes.
    whole = unit_moments(y - hit.mean() * m, m, units.codes, N)
    drawn = np.maximum(n_h, 1)
    variance = float((N**2 * (1 - n_h / N) * whole.yy / drawn).sum()) / hit.size**2
    answer_variance = float(hit.var(ddof=1))
    # The variance (1/n - 1/N) S^2 of n files, solved for n.
    equivalent = float(hit.size)
    if answer_variance > 0:
        equivalent = 1 / (variance / answer_variance + 1 / hit.size)
    files = float((n_h * whole.x).sum()) if units.whole else float(n_h.sum())
    return equivalent, round(files)
