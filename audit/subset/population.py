"""The eligible set in numbers, and what n units of it give, before anything is drawn.

A metric's *domains* are the parts of F that it is a share of: all examples for accuracy and for the
mean over classes, one class for its recall, all others for its specificity. Figures of a domain
have the variance formulas of `audit.subset.estimate`, with planning values in place of data: those
of earlier models, or the cautious ends p = 0.5, two models that err independently, and files of one
group all right or all wrong together (rho = 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints, clopper_pearson, intraclass_correlation
from audit.subset.estimate import PRIOR_FILES, PRIOR_UNITS, alike_weight
from audit.subset.goal import Estimand, Goal
from audit.subset.predictions import UNLABELLED, Matched, match
from audit.subset.sizes import (
    EXACT_FROM_FRACTION,
    NoiseRate,
    accepted_rate,
    half_width,
    noisy_difference,
    paired_n,
    proportion_n,
    smallest_for_good,
)
from audit.subset.source import EligibleSet, select_eligible
from audit.subset.strata import (
    FIRST_UNITS,
    Strata,
    Units,
    allocate,
    cut_points,
    form_units,
    listed,
    merged_strata,
    quantile_edges,
)

WORST_SHARE = 0.5
LIKELY_SHARE = 0.9  # what many models reach: shows what the worst case costs
# Weight of the overall share in each stratum's: two imaginary examples keep S_h above 0.
PSEUDO_EXAMPLES = 2.0


@dataclass(frozen=True)
class Prior:
    """Outcomes of one or two earlier models on F: 1 right, 0 wrong, NaN unknown."""

    labels: np.ndarray | None = None
    first: Floats | None = None
    second: Floats | None = None
    source: str = "the first predictions"
    predictions_differ: float | None = None
    both_wrong_differ: float | None = None

    @property
    def accuracy(self) -> float:
        """Accuracy of the first model where it is known."""
        return float(np.nanmean(self.first)) if self.first is not None else WORST_SHARE

    def class_share(self, label: str, stated: float | None) -> float:
        """Return the planning value for the recall of one class."""
        if stated is not None or self.first is None or self.labels is None:
            return WORST_SHARE if stated is None else stated
        own = self.first[(self.labels == label) & ~np.isnan(self.first)]
        return float((own.sum() + PSEUDO_EXAMPLES * self.accuracy) / (own.size + PSEUDO_EXAMPLES))

    def stratum_shares(self, units: Units, stated: float | None) -> tuple[Floats, str]:
        """Return the planning share of each stratum, and where it comes from."""
        count = len(units.strata)
        if stated is not None:
            return np.full(count, stated), f"Planning value p = {stated:g} (as stated)."
        if self.first is None:
            worst = np.full(count, WORST_SHARE)
            return worst, f"Planning value p = {WORST_SHARE:g} (the worst case)."
        code = units.codes[units.unit_of_file]
        known = ~np.isnan(self.first)
        hits = np.bincount(code[known], self.first[known], count)
        files = np.bincount(code[known], minlength=count)
        # Without the pseudo-examples a small stratum that is all right would get S_h = 0: no units.
        p = (hits + PSEUDO_EXAMPLES * self.accuracy) / (files + PSEUDO_EXAMPLES)
        return p, (
            f"Planning values p per stratum from {self.source} ({known.sum()} files, "
            f"accuracy {self.accuracy:.3f}), each stratum drawn towards the whole by two examples."
        )

    def correlation(self, units: Units, stated: float | None) -> tuple[float, str]:
        """Return rho, the correlation of two files of one unit, and where it comes from."""
        if not units.whole:
            return 1.0, ""  # a unit is one file, or copies of one picture: one answer
        if stated is not None:
            return stated, f"Within-group correlation {stated:g} (as stated)."
        if self.first is not None:
            known = ~np.isnan(self.first)
            rho = intraclass_correlation(self.first[known], units.unit_of_file[known])
            if not np.isnan(rho):
                return rho, f"Within-group correlation {rho:.3f} (from {self.source})."
        return 1.0, (
            "Within-group correlation 1 (the worst case: files of a group are all right or "
            "all wrong). Give --predictions, or --set plan.correlation=VALUE."
        )

    def discordant(self, stated: float | None, difference: float, p: float) -> tuple[float, str]:
        """Return psi, the share of examples on which exactly one model is right, and its source."""
        if stated is not None:
            return stated, f"Disagreement of two models {stated:g} (as stated)."
        if self.first is not None and self.second is not None:
            known = ~np.isnan(self.first) & ~np.isnan(self.second)
            psi = float((self.first[known] != self.second[known]).mean())
            return psi, f"Disagreement of two models {psi:.4f} (from the two prediction files)."
        # Shares p - d/2 and p + d/2, one of them right and the other wrong by chance alone.
        d = difference
        low, high = max(p - d / 2, 0.0), min(p + d / 2, 1.0)
        psi = max(low * (1 - high) + high * (1 - low), d)
        return psi, (
            f"Disagreement of two models {psi:.3f} (models with independent errors). Related "
            "models differ less and need fewer examples: give two prediction files, or --set "
            "plan.disagreement=SHARE."
        )


def marked_noise(files: pl.DataFrame) -> NoiseRate:
    """Return the share of files that an audit marked as suspected mislabels, with exact limits."""
    marked, n = int(files["suspected_mislabel"].sum()), len(files)
    low, high = (float(v) for v in clopper_pearson(marked, n))
    source = f"{marked} of {n} files marked as suspected mislabels by the audit"
    return NoiseRate(marked / n, low, high, source, automatic=True)


def read_prior(
    files: pl.DataFrame,
    tables: Sequence[pl.DataFrame],
    wants_confidence: bool,
    source: str = Prior.source,
) -> tuple[pl.DataFrame, Prior, list[str]]:
    """Return F (with a `confidence` column if it is stratified on), the prior, and notes."""
    if len(tables) > 2:
        raise UsageError(f"{len(tables)} prediction files were given: a plan takes one or two.")
    notes, aligned, answers = [], [], []
    for number, table in enumerate(tables, 1):
        name = f"predictions {number}"
        matched = match(files, table, name, "drop", "refuse-similar")
        if matched.missing:
            notes.append(
                f"{name}: {matched.missing} of {len(files)} eligible files have no prediction."
            )
        aligned.append(matched.table)
        answers.append(expected_answers(files, matched, name))
    labels = files["label"].to_numpy()
    if wants_confidence:
        known_by = [*aligned, files][0]
        if "confidence" not in known_by.columns:
            raise UsageError(
                "Stratifying by confidence needs the confidence of an earlier model: give "
                "--predictions with a `confidence` column, or drop --by confidence."
            )
        files = files.with_columns(known_by["confidence"])
    if not answers:
        return files, Prior(), []
    if len(answers) == 1:
        return files, Prior(labels, answers[0], source=source), notes
    first, second = answers
    known = ~np.isnan(first) & ~np.isnan(second)
    said = [table["prediction"] for table in aligned]
    differ = (said[0] != said[1]).fill_null(False).to_numpy()
    both = differ & (first == 0) & (second == 0)
    shares = float(differ[known].mean()), float(both[known].mean())
    return files, Prior(labels, first, second, source, *shares), notes


def expected_answers(files: pl.DataFrame, matched: Matched, name: str) -> Floats:
    """Return right answers, or where no class is known the model's own chance of being right."""
    if not (files["label"] == UNLABELLED).all():
        return matched.hit
    if "confidence" not in matched.table.columns:
        raise UsageError(
            f"{name}: without classes, only the confidence of the model predicts its errors. Add a "
            "`confidence` column, or one prob_<class> column a class."
        )
    return matched.table["confidence"].to_numpy()


def with_confidence(
    frame: pl.DataFrame, tables: Sequence[pl.DataFrame], by: Sequence[str]
) -> pl.DataFrame:
    """Return a frame with the prior model's `confidence`, for a recipe that stratifies by it."""
    if "confidence" not in by or "confidence" in frame.columns:
        return frame
    if not tables or "confidence" not in tables[0].columns:
        raise UsageError(
            "This plan stratifies by confidence: give the same --predictions that it was made with "
            "(with their `confidence` column)."
        )
    rows = frame if "path" in frame.columns else frame.with_columns(path="sample_id")
    matched = match(rows, tables[0], "predictions", "drop", "refuse-similar")
    return frame.with_columns(confidence=matched.table["confidence"])


@dataclass(frozen=True)
class Domain:
    """The part of F that a figure is about: all of it, or one class.

    `N`: units per stratum; `p`: planning share per stratum; `files_per_unit`: mean unit size;
    `cluster_effect`: the loss from units of several files; `whole_effect`: the same where all files
    of a unit are alike; `size_evenness`: equal units per unit, for the variance of a stratum;
    `spread`: what a unit of a stratum varies by, over the mean unit. Of a mean over classes:
    `share`, what each stratum weighs (None: by its units), and `centre`, the mean that `p` varies
    around.
    """

    N: Ints
    p: Floats
    files_per_unit: float = 1.0
    cluster_effect: float = 1.0
    whole_effect: float = 1.0
    size_evenness: Floats | None = None
    spread: Floats | None = None
    share: Floats | None = None
    centre: Floats | None = None

    @property
    def total(self) -> int:
        """Units of the domain in F."""
        return int(self.N.sum())

    @property
    def planning_share(self) -> float:
        """The planning value for the whole domain."""
        return float(self.weight @ self.p)

    @property
    def weight(self) -> Floats:
        """What each stratum weighs in the metric; the sum is 1."""
        return np.asarray(self.N / max(self.total, 1) if self.share is None else self.share)

    @property
    def files(self) -> bool:
        """True where every unit is a file."""
        return self.cluster_effect == 1.0 and self.files_per_unit == 1.0


@dataclass(frozen=True)
class Figures:
    """What n units give for one estimand; shares in [0, 1], NaN where it is unknown.

    `n_for_target` is the size that the target would take under this estimand (None without a
    target), `effective_n` the independent examples that the design is equivalent to.
    """

    n: int
    effective_n: float
    half_width: float
    detectable_difference: float
    n_for_target: int | None = None


def effective_files(domain: Domain, n: Ints | Floats, estimand: Estimand) -> float:
    """Return the independent examples that n_h units are equivalent to; inf at n = N (full-set)."""
    used = n > 0
    if not used.any():
        return 0.0
    total = domain.N[used].sum()
    weight = domain.weight[used] / domain.weight[used].sum()
    p, drawn, existing = domain.p[used], n[used], domain.N[used]
    mean = float(weight @ p)
    # At a planning value of 0 or 1 every variance is 0: strata are then taken to vary alike.
    uncertain = 0 < mean < 1
    within = p * (1 - p) if uncertain else np.ones(p.shape)
    within = within if domain.spread is None else within * domain.spread[used]
    whole = mean * (1 - mean) if uncertain else 1.0
    if estimand == "full-set":
        remaining = 1 - drawn / existing
        # A finite set's variance has divisor N - 1: this makes one stratum n (N-1)/(N-n).
        variance = float((weight**2 * remaining * within / drawn).sum()) * total / max(total - 1, 1)
    else:
        # F is itself a draw: its stratum sizes are random, which adds (between strata)/N.
        centre = mean if domain.centre is None else domain.centre[used]
        between = float(weight @ (p - centre) ** 2) if uncertain else 0.0
        variance = float((weight**2 * within / drawn).sum()) + between / total
    if variance <= 0:
        return float("inf")
    # So far in units of one file. Kish's design effect of groups divides what their files give.
    return float(whole / variance * domain.files_per_unit / domain.cluster_effect)


def expected_degrees(
    domain: Domain, n: Ints | Floats, estimand: Estimand = "generalisation"
) -> float:
    """Return the degrees of freedom that a score will have for groups; infinite for files."""
    if domain.files:
        return float("inf")
    used = n > 0
    evenness, spread = (
        np.ones(int(used.sum())) if v is None else v[used]
        for v in (domain.size_evenness, domain.spread)
    )
    drawn, existing = n[used], domain.N[used]
    part = existing**2 / drawn * spread
    if estimand == "full-set" and np.any(drawn < existing):
        part = part * (1 - drawn / existing)
    each = np.maximum((drawn - 1) * evenness, 1e-9)
    return max(float(part.sum() ** 2 / (part**2 / each).sum()), 1.0)


def student_factor(
    domain: Domain, n: Ints | Floats, confidence: float, estimand: Estimand = "generalisation"
) -> float:
    """Return what groups leave of an effective size: Korn and Graubard's squared quantile ratio."""
    from scipy.stats import t as student

    tail, degrees = (1 - confidence) / 2, expected_degrees(domain, n, estimand)
    if np.isinf(degrees):
        return 1.0
    ideal = student.isf(tail, max(float(n.sum()), 2.0))
    return float(min(ideal / student.isf(tail, degrees), 1.0) ** 2)


def expected_half_width(
    domain: Domain, n: Ints | Floats, estimand: Estimand, confidence: float
) -> float:
    """Return the half-width that a score is expected to print; NaN without units."""
    drawn = float(n.sum())
    if drawn == 0:
        return float("nan")
    effective = effective_files(domain, n, estimand)
    effective *= student_factor(domain, n, confidence, estimand)
    effective = (_steadied if domain.files else _with_alike_groups)(domain, n, estimand, effective)
    if np.isinf(effective):
        return 0.0
    # The same choice of method as in the score, so that the plan predicts what will be printed.
    full = estimand == "full-set"
    if full and (domain.N > 0).sum() == 1 and domain.cluster_effect == 1.0:  # a simple sample
        return float(half_width(drawn, domain.planning_share, confidence, domain.total)[0])
    coarse = full and drawn >= EXACT_FROM_FRACTION * domain.total
    if not coarse:
        return float(half_width(effective, domain.planning_share, confidence)[0])
    low, high = clopper_pearson(domain.planning_share * effective, effective, confidence)
    return float(high - low) / 2


def _steadied(domain: Domain, n: Ints | Floats, estimand: Estimand, effective: float) -> float:
    """Return an effective size as `audit.subset.estimate.guarded_size` steadies it, for files."""
    share, used = domain.planning_share, n > 0
    if not 0 < share < 1 or not 0 < effective < np.inf:
        return effective
    drawn, p, weight = n[used], domain.p[used], domain.weight[used]
    # Each stratum's variance by one file, then their sum by as many as its rarer answers lack.
    steady = (p * (1 - p) * (drawn - 1) + PRIOR_FILES * share * (1 - share)) / (
        drawn - 1 + PRIOR_FILES
    )
    remaining = 1 - drawn / domain.N[used] if estimand == "full-set" else 1.0
    added = float((weight**2 / drawn * remaining * (steady - p * (1 - p))).sum())
    variance = share * (1 - share) / effective + added
    alike = share * (1 - share) * float((weight**2 / drawn * remaining).sum())
    rare = min(_rare_files(drawn, weight, v) for v in (p, 1 - p))
    variance = (rare * variance + PRIOR_UNITS * alike) / (rare + PRIOR_UNITS)
    return share * (1 - share) / variance


def _rare_files(n: Floats | Ints, weight: Floats, p: Floats) -> float:
    """Return among how many of the heaviest rows' worth the answers of a kind are spread."""
    row = weight / n
    total, squares = float(weight @ p), float((row * weight) @ p)
    typical = total / float(n @ p)
    return total**2 / squares * min(typical / float(row.max()), 1.0)


def _with_alike_groups(
    domain: Domain, n: Ints | Floats, estimand: Estimand, effective: float
) -> float:
    """Return an effective size as `audit.subset.estimate.effective_size` makes it cautious."""
    alike = replace(domain, p=np.full(domain.p.shape, 0.5), cluster_effect=domain.whole_effect)
    groups = effective_files(alike, n, estimand)
    if not 0 < groups < effective < np.inf:
        return effective
    weight = float(alike_weight(groups, domain.planning_share))
    return 1 / ((1 - weight) / effective + weight / groups)


def paired_files(domain: Domain, n: Ints | Floats, estimand: Estimand, level: float) -> float:
    """Return the independent pairs that n_h units are equivalent to for a difference."""
    # Strata separate right from wrong answers, not one model's changes from another's: the change
    # is taken to vary alike in all of them.
    flat = replace(domain, p=np.full(domain.p.shape, 0.5))
    return effective_files(flat, n, estimand) * student_factor(domain, n, level, estimand)


MEAN = "mean over classes"
CONFIDENCE_COLUMN = "confidence"
# Fifths: an earlier model's mistakes are among its least confident answers, where cuts pay most.
CONFIDENCE_SHARES = (0.2, 0.4, 0.6, 0.8)


@dataclass
class Population:
    """A goal on a set: units and files by stratum and class, and the planning values.

    `reasons` collects a sentence for every choice that the caller did not make; `noise`: the rate
    of wrong labels (None: they are taken as right); `cells`: stratum (code), label, units, and the
    sums of the powers 1 to 4 of the unit sizes; `N`, `M`: units and files by stratum, `p` the
    planning share there, `stratum_labels` the class that most of its units have; `rho`: correlation
    of two files of a unit; `discordant`: share on which exactly one of two models is right.
    """

    goal: Goal
    eligible: EligibleSet
    files: pl.DataFrame
    group: str | None
    prior: Prior
    reasons: list[str]
    strata: Strata
    units: Units
    noise: NoiseRate | None = None
    cells: pl.DataFrame = field(init=False)
    N: Ints = field(init=False)
    M: Ints = field(init=False)
    stratum_labels: list[str] = field(init=False)
    p: Floats = field(init=False)
    rho: float = field(init=False)
    discordant: float = field(init=False)

    def __post_init__(self) -> None:
        # Powers of the sizes are what design effects and degrees of freedom need of the rows.
        size = pl.col("size")
        by_cell = self.units.table.group_by(pl.col("stratum").to_physical(), "label").agg(
            units=pl.len().cast(pl.Int64),
            files=size.sum(),
            squares=(size**2).sum(),
            cubes=(size.cast(pl.Float64) ** 3).sum(),
            fourths=(size.cast(pl.Float64) ** 4).sum(),
        )
        self.cells = by_cell.sort("stratum", "label")
        self.N, self.M = (
            self._by_stratum(self.cells, c).astype(np.int64) for c in ("units", "files")
        )
        major = self.cells.sort("stratum", "units", "label", descending=[False, True, False])
        first = major.unique("stratum", keep="first").sort("stratum")
        self.stratum_labels = first["label"].to_list()
        goal, prior = self.goal, self.prior
        self.p, share_reason = prior.stratum_shares(self.units, goal.planning_value)
        self.rho, rho_reason = prior.correlation(self.units, goal.rho)
        self.discordant, psi_reason = prior.discordant(
            goal.discordant, goal.detect or 0.0, self.planning_share
        )
        for reason in (share_reason, rho_reason, psi_reason):
            self.note(reason)

    def _by_stratum(self, cells: pl.DataFrame, column: str) -> Floats:
        code, values = cells["stratum"].to_numpy(), cells[column].to_numpy()
        return np.asarray(np.bincount(code, values, len(self.units.strata)), float)

    def note(self, reason: str) -> None:
        """Keep a reason, once."""
        if reason and reason not in self.reasons:
            self.reasons.append(reason)

    @property
    def total(self) -> int:
        """Units in F."""
        return int(self.N.sum())

    @property
    def smallest(self) -> int:
        """The smallest subset: two units of each stratum that has them."""
        return min(FIRST_UNITS * self.N.size, self.total)

    @property
    def labels(self) -> list[str]:
        """The classes, sorted."""
        return self.cells["label"].unique().sort().to_list()

    @property
    def planning_share(self) -> float:
        """The planning value for all files."""
        return float(self.p @ self.M / self.M.sum())

    def under(self, strata: Strata) -> Population:
        """Return the set under other strata."""
        return replace(self, strata=strata, units=form_units(self.files, strata, self.group))

    def domain(self, mask: pl.Series | None = None, label: str | None = None) -> Domain:
        """Return all of F, or the cells picked by a mask, as a domain; `label` if it is a class."""
        cells = self.cells if mask is None else self.cells.filter(mask)
        m, squares = int(cells["files"].sum()), int(cells["squares"].sum())
        N = self._by_stratum(cells, "units").astype(np.int64)
        units, rho = int(N.sum()), self.rho
        # Kish (1965), section 5.4, with the size-weighted mean size in place of m, as in Eldridge,
        # Ashby and Kerry (2006), Int J Epidemiol 35:1292.
        effect = 1.0 + (squares / m - 1.0) * rho
        # Effective number of units (Carter, Schnepel and Steigerwald 2017): (sum v)^2 / sum v^2
        # with v = m (1 + (m - 1) rho), the variance of a unit of m files, within each stratum.
        sums = [self._by_stratum(cells, c) for c in ("files", "squares", "cubes", "fourths")]
        alone = 1 - rho
        v = alone * sums[0] + rho * sums[1]
        v_squares = alone**2 * sums[1] + 2 * rho * alone * sums[2] + rho**2 * sums[3]
        count = np.maximum(N, 1)
        evenness = np.divide(v**2, v_squares * count, out=np.ones(v.shape), where=v_squares > 0)
        spread = v / count / (effect * m / units)
        p = self.p
        if label is not None:
            p = np.full(len(N), self.prior.class_share(label, self.goal.planning_value))
        return Domain(N, p, m / units, effect, squares / m, np.minimum(evenness, 1.0), spread)

    def class_domain(self, label: str) -> Domain:
        """Return one class as a domain."""
        return self.domain(self.cells["label"] == label, label)

    def mean_domain(self) -> Domain:
        """Return F for a mean over its classes: every class weighs the same, whatever its size."""
        label = np.array(self.stratum_labels)
        share, centre = np.zeros(len(self.N)), np.zeros(len(self.N))
        for one in np.unique(label):
            own = label == one
            files = self.M[own].sum()
            share[own] = self.M[own] / files / np.unique(label).size
            centre[own] = self.p[own] @ self.M[own] / files
        return replace(self.domain(), share=share, centre=centre)

    @cached_property
    def domains(self) -> list[tuple[str, Domain]]:
        """What the goal's metric is about: all of F, each class, or one class or its rest."""
        (metric, label), labels = self.goal.parsed, self.labels
        if label is not None and label not in labels:
            raise UsageError(
                f"There is no class {label!r} in the eligible set: {listed(labels)} are there."
            )
        if metric == "macro-recall":
            return [(MEAN, self.mean_domain())]
        if metric == "recall":
            return [(c, self.class_domain(c)) for c in (labels if label is None else [label])]
        if metric == "specificity":
            if len(labels) == 1:
                raise UsageError("Specificity needs a second class, and the set has one.")
            return [(f"not {label}", self.domain(self.cells["label"] != label))]
        return [("all", self.domain())]

    @property
    def overall(self) -> Domain:
        """The domain of the metric as a whole."""
        return self.domains[0][1] if len(self.domains) == 1 else self.domain()

    def units_for(self, domain: Domain, estimand: Estimand) -> int:
        """Return the units of a domain that its target takes, more than there are if need be."""
        arrays = {k: v for k, v in vars(domain).items() if isinstance(v, np.ndarray)}
        by_stratum: dict[str, Any] = {k: v[domain.N > 0] for k, v in arrays.items()}
        local = replace(domain, **by_stratum)
        ones = np.ones(local.N.size)

        def meets(n: int) -> bool:
            return self.is_met(local, allocate(local.N, ones, n, 1), estimand)

        if meets(domain.total):
            population = domain.total if estimand == "full-set" else None
            return smallest_for_good(meets, domain.total, population)
        # The whole domain is not enough: extrapolate by the design effect, without its correction.
        files = self.independent_examples(domain)
        return math.ceil(files * domain.cluster_effect / domain.files_per_unit - 1e-9)

    def is_met(self, domain: Domain, n: Ints | Floats, estimand: Estimand) -> bool:
        """Return whether n_h units of a domain meet the target."""
        goal = self.goal
        if goal.half_width is not None:
            return expected_half_width(domain, n, estimand, goal.level) <= goal.half_width
        effective = paired_files(domain, n, estimand, goal.level)
        return effective >= self.independent_examples(domain) - 1e-9

    def independent_examples(self, domain: Domain) -> float:
        """Return the target as independent examples, before any design effect."""
        goal = self.goal
        if goal.half_width is not None:
            return proportion_n(goal.half_width, domain.planning_share, goal.level)
        n, why = paired_n(*self.observed(goal.detect or 0.0), goal.alpha, goal.power)
        self.note(why)
        return n

    def observed(self, difference: float) -> tuple[float, float]:
        """Return a difference and the discordant share as they appear under the labels."""
        if self.noise is None:
            return difference, self.discordant
        classes = self.files["label"].n_unique()
        both_wrong = self.prior.both_wrong_differ
        if both_wrong is None:
            # Two models that err independently and spread their errors evenly over the classes.
            both_wrong = (1 - self.planning_share) ** 2 * (classes - 2) / max(classes - 1, 1)
        observed, psi = noisy_difference(
            difference, self.discordant, self.noise.rate, classes, both_wrong
        )
        # Two prediction files were compared on the noisy labels: their share already contains it.
        return observed, self.discordant if self.prior.second is not None else psi


def read_population(
    frame: pl.DataFrame,
    goal: Goal,
    *,
    by: Sequence[str] = (),
    group: str | None = None,
    deduplicated: bool = False,
    predictions: Sequence[pl.DataFrame] = (),
    by_label: bool = True,
    label_noise: float | NoiseRate | None = None,
    source: str = Prior.source,
) -> Population:
    """Return the eligible set of `frame` under a goal; options as in `audit.subset.make_plan`."""
    goal.check()
    eligible = select_eligible(frame, deduplicated, [*by, *([group] if group else [])])
    files, prior, reasons = read_prior(eligible.files, predictions, CONFIDENCE_COLUMN in by, source)
    if deduplicated:
        reasons.append(
            "Deduplicated: every distinct image counts once, so the target is the metric over "
            "distinct images, not over the files of the set."
        )
    edges = cut_points(files, by)
    if CONFIDENCE_COLUMN in edges:
        edges[CONFIDENCE_COLUMN] = quantile_edges(files[CONFIDENCE_COLUMN], CONFIDENCE_SHARES)
    strata = Strata(tuple(by), edges, label=by_label)
    units = form_units(files, strata, group)
    if (merged := merged_strata(units, strata, reasons)) is not strata:
        strata, units = merged, form_units(files, merged, group)
    population = Population(goal, eligible, files, group, prior, reasons, strata, units)
    population.noise = accepted_rate(
        label_noise, files["label"].n_unique(), prior.predictions_differ, reasons
    )
    return population
