"""Compare models on the same drawn rows: two of them, or the best of many.

The verdict is read from the design-based interval of the weighted difference. Where McNemar's test
is valid (equal weights, single files, one plain share) the interval for generalisation is the one
that inverts it (Tango), so interval and test never disagree. Of the best of k, intervals are
widened until all k hold together: the quantile of the largest of k normal errors, correlated as the
models' answers are; its mean is what selection alone gives the best of equally good models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from scipy.stats import norm

from audit.errors import UsageError
from audit.statistics.intervals import Floats, mcnemar, paired_difference
from audit.subset.draw import planned_level
from audit.subset.estimate import FEW_DEGREES, Ratio, degrees_of_freedom, difference_interval
from audit.subset.goal import ESTIMANDS, TARGET_NAMES, Documented, Estimand, level_text
from audit.subset.metrics import (
    Design,
    Linearised,
    MetricEstimate,
    Outcome,
    difference_of,
    estimate_share,
)
from audit.subset.predictions import Missing, Unknown, match
from audit.subset.sizes import connor_n


@dataclass(frozen=True)
class Difference:
    """Second model minus first, for one estimand, with the verdict in one word and in words.

    `n_to_tell`: units at which a difference of the observed size would be detected; None where
    it is detected already or there is none.
    """

    value: float
    low: float
    high: float
    verdict: str
    sentence: str
    n_to_tell: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples: counts of disagreement, and a verdict per estimand.

    `mcnemar_p` is None where the test does not apply, with the reason in `notes`.
    """

    metric: str
    second_only: int
    first_only: int
    discordant: float
    estimands: dict[Estimand, Difference]
    mcnemar_p: float | None
    notes: list[str]


@dataclass(frozen=True)
class Pairing:
    """Two models on one subset: their names, the metric, the confidence of the verdict."""

    design: Design
    names: Sequence[str]
    metric: str
    confidence: float


def compare_right(pairing: Pairing, first: Floats, second: Floats, counts: Floats) -> Comparison:
    """Compare two models' right answers on the rows that `counts` marks with 1."""
    design = pairing.design
    change = (second - first) * counts
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    difference = design.ratio(change, counts)
    discordant = design.ratio(np.abs(change), counts)
    # McNemar's test counts examples: it needs each of them to count for one, alone.
    p_value = float(mcnemar(gained, lost)) if design.equal_files else None
    # The test is about new examples of the same kind, never about the rest of a finite set.
    tested = "generalisation" if design.equal_files else None
    estimands = {e: _difference(pairing, difference, discordant, e, tested) for e in ESTIMANDS}
    psi = float(discordant.value)
    notes = []
    if not design.equal_files:
        grouped = design.n_units != design.unit.size or bool((design.multiplicity != 1).any())
        why = (
            "units hold or stand for several files" if grouped else "the rows have unequal weights"
        )
        notes.append(f"McNemar's test is not applicable: {why}.")
    change_variance = np.asarray(max(psi - float(difference.value) ** 2, 0.0))
    degrees = float(degrees_of_freedom(difference, change_variance)[0])
    if bool(difference.grouped) and degrees < FEW_DEGREES:
        notes.append(
            f"The verdict is rough: {degrees:.1f} degrees of freedom, fewer than "
            f"{FEW_DEGREES:g}. Draw more units, or smaller groups."
        )
    return Comparison(pairing.metric, gained, lost, psi, estimands, p_value, notes)


def _difference(
    pairing: Pairing,
    difference: Ratio,
    discordant: Ratio,
    estimand: Estimand,
    tested: str | None = None,
) -> Difference:
    """Return the verdict for one estimand; `tested`: the estimand that McNemar's test is about."""
    value, psi = float(difference.value), float(discordant.value)
    known = estimand == "full-set" and pairing.design.complete
    if estimand == tested:  # each example counts for one: no effective size is needed
        size = difference.moments.n.sum()
        gain, loss = (psi + value) / 2, (psi - value) / 2
        limits = (*paired_difference(gain, loss, size, pairing.confidence), size)
    else:
        limits = difference_interval(difference, discordant, estimand, pairing.confidence)
    low, high, effective = (float(v) for v in limits)
    if known:
        low = high = value
    verdict = "better" if low > 0 else "worse" if high < 0 else "equal" if known else "inconclusive"
    needed = None
    if verdict == "inconclusive" and value != 0:
        needed = _n_to_tell(pairing, value, psi, effective, estimand)
    result = Difference(value, low, high, verdict, "", needed)
    return replace(result, sentence=_sentence(pairing, result, known, estimand))


def _n_to_tell(
    pairing: Pairing, value: float, discordant: float, effective_size: float, estimand: Estimand
) -> int | None:
    # The effective size that Connor asks for, at the effective size per unit that this design has.
    design = pairing.design
    psi = min(max(discordant, abs(value)), 1.0)
    needed = connor_n(abs(value), psi, 1 - pairing.confidence)
    if not math.isfinite(effective_size) or effective_size <= 0:
        return None
    n, N = design.n_units, float(design.population.sum())
    if estimand == "generalisation":
        return math.ceil(n * needed / effective_size)
    # The correction makes n units count as r n / (1 - n/N), r being what one gives without it:
    # solved for n.
    rate = effective_size * (1 - n / N) / n
    return min(math.ceil(needed * N / (needed + rate * N)), int(N))


def _sentence(pairing: Pairing, result: Difference, known: bool, estimand: Estimand) -> str:
    (first, second), verdict, needed = pairing.names[:2], result.verdict, result.n_to_tell
    gap = f"{100 * result.value:+.2f} points of {pairing.metric}"
    if known:
        than = "to" if verdict == "equal" else "than"
        return f"{second} is {verdict} {than} {first} on this set: {gap}, known exactly."
    level = f"{100 * pairing.confidence:.4g}% CI"
    gap += f" ({level} {100 * result.low:+.2f} to {100 * result.high:+.2f})"
    if verdict != "inconclusive":
        return f"{second} is {verdict} than {first}: {gap}."
    cannot = f"Inconclusive: {second} against {first} at this size: {gap}"
    if needed is None:
        return f"{cannot}."
    total = int(pairing.design.population.sum())
    more = f"about {needed} units would detect a difference of this size"
    if estimand == "full-set" and needed >= total:
        more = "only the whole set would decide"
    elif needed > total:
        more += f", more than the {total} that exist"
    return f"{cannot}; {more}."


def compare_metric(pairing: Pairing, first: Outcome, second: Outcome) -> Comparison:
    """Compare two models on precision, a mean over classes or ranks: by each row's influence."""
    every = np.ones(first.hit.size)
    old, new = (outcome.linearised(pairing.metric, every) for outcome in (first, second))
    changed = first.counts * (
        sum(np.abs(b - a) for a, b in zip(old.against, new.against, strict=True))
        if pairing.metric == "auroc"
        else (first.predicted != second.predicted).fill_null(True).to_numpy()
    )
    change = (second.hit - first.hit) * first.counts
    why = f"McNemar's test is not shown: it compares right answers, not {pairing.metric}."
    return compare_linear(pairing, (old, new), changed, change, [why])


def compare_linear(
    pairing: Pairing,
    pair: tuple[Linearised, Linearised],
    changed: Floats,
    change: Floats,
    notes: list[str],
) -> Comparison:
    """Compare two values of a metric; `changed`: how far a row was answered otherwise, 0..1,
    `change`: above 0 where the second is better, below 0 where the first is."""
    linear = difference_of(*pair, changed)
    psi = float((pairing.design.weight * linear.share * changed).sum())
    ratios = linear.ratio(pairing.design), linear.told_apart(pairing.design)
    estimands = {e: _difference(pairing, *ratios, e) for e in ESTIMANDS}
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    return Comparison(pairing.metric, gained, lost, psi, estimands, None, notes)


DRAWS = 20_000
FRESH_DRAW = "a fresh draw (`audit subset draw RUN --plan PLAN --seed N --exclude-drawn SUBSET`)"


@dataclass(frozen=True)
class Candidate:
    """One model: accuracy with limits that hold for all candidates together."""

    name: str
    estimands: dict[Estimand, MetricEstimate]


@dataclass(frozen=True)
class Winner(Documented):
    """The candidates, best first, with intervals at the `level` at which all hold together;
    `by_luck`: what selection alone gives the best of equal ones.
    """

    SCHEMA = "subset-winner/1"
    candidates: list[Candidate]
    by_luck: float
    confidence: float
    level: float
    notes: list[str] = field(default_factory=list)


def find_winner(
    rows: pl.DataFrame,
    predictions: Sequence[pl.DataFrame],
    *,
    names: Sequence[str],
    confidence: float | None = None,
    missing: Missing = "refuse",
    unknown: Unknown = "refuse",
) -> Winner:
    """Rank models by accuracy on the same rows, with simultaneous intervals.

    `missing`, `unknown`: as in `score_subset`; a row dropped for a model is dropped for all models.
    """
    confidence = planned_level(rows, confidence)[0]
    if len(predictions) < 2:
        raise UsageError("A winner needs at least two prediction files: give --predictions twice.")
    design = Design.of(rows)
    matched = [
        match(design.rows, t, n, missing, unknown) for t, n in zip(predictions, names, strict=True)
    ]
    hits = np.array([found.hit for found in matched])
    counts = (~np.isnan(hits)).all(axis=0).astype(float)
    hits = np.nan_to_num(hits) * counts
    by_luck, level = selection_alone(error_covariance(design, hits, counts), confidence)
    candidates = [
        Candidate(name, estimate_share(design, hit, counts, level))
        for name, hit in zip(names, hits, strict=True)
    ]
    candidates.sort(key=lambda c: -c.estimands["full-set"].value)
    k, best = len(candidates), candidates[0]
    confirm = "other data" if design.complete else FRESH_DRAW
    notes = [
        f"{best.name} is the best of {k} on these rows. If all {k} were equally good, selection "
        f"alone would raise the best score by {100 * by_luck:+.2f} points.",
        f"Intervals hold for all {k} together (each at {level_text(level)}). Confirm the best "
        f"model once on {confirm}.",
    ]
    if k > 2:  # the score of two models has these notes
        pairs = zip(matched, names, strict=True)
        notes[:0] = [note for found, name in pairs for note in found.notes(name, missing)]
    return Winner(candidates, by_luck, confidence, level, notes)


def error_covariance(design: Design, hits: Floats, counts: Floats | None = None) -> Floats:
    """Return the covariance of the models' errors of estimation, for new data of the kind.

    `hits`: one row a model; `counts`: 0 for the files that were dropped. Within strata and
    between units, as the variance of one share.
    """
    k, strata = len(hits), design.population.size
    weight = design.weight if counts is None else design.weight * counts
    weight = weight / weight.sum()
    centred = hits - (hits @ weight)[:, None]
    units = np.array([design.totals(row * weight) for row in centred])
    n = np.bincount(design.stratum, minlength=strata)
    means = np.array([np.bincount(design.stratum, row, strata) for row in units]) / np.maximum(n, 1)
    rest = units - means[:, design.stratum]
    factor = (n / np.maximum(n - 1, 1))[design.stratum]
    covariance = np.asarray((rest * factor) @ rest.T)
    # Two models with the same answers have no error of their own: the root needs a little.
    return covariance + np.eye(k) * 1e-12


def selection_alone(covariance: Floats, confidence: float) -> tuple[float, float]:
    """Return the mean of the largest error, and the level at which all intervals hold together."""
    root = np.linalg.cholesky(covariance)
    # A fixed seed: the same files give the same figures.
    errors = np.random.default_rng(0).normal(size=(DRAWS, len(root))) @ root.T
    largest = np.abs(errors / np.sqrt(np.diag(covariance))).max(axis=1)
    level = float(2 * norm.cdf(np.quantile(largest, confidence)) - 1)
    bonferroni = 1 - (1 - confidence) / len(root)
    level = min(max(level, confidence), bonferroni)
    return max(float(errors.max(axis=1).mean()), 0.0), level if math.isfinite(level) else bonferroni


def winner_text(found: Winner) -> str:
    """Return it for a reader."""
    lines = []
    for candidate in found.candidates:
        for estimand, one in candidate.estimands.items():
            lines.append(
                f"  {candidate.name}, {TARGET_NAMES[estimand]}: {100 * one.value:.2f}% "
                f"({100 * one.low:.2f} to {100 * one.high:.2f})"
            )
    return "\n".join([*lines, *found.notes])
