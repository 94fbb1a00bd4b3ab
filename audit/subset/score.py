"""Scoring a subset: estimates with intervals, counts per class, and a verdict between two models.

Input is the drawn rows (they carry strata, units and weights) and one or two prediction files; no
run directory, no plan. Every figure is given for both estimands, and with and without suspected
mislabels. Nothing here assumes equal weights or independent files unless the rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats
from audit.subset.design import Design, Interval, share
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.goal import parse_metric
from audit.subset.outcome import BOOTSTRAPPED, MetricScore, Outcome, resampled
from audit.subset.plan import plain
from audit.subset.predictions import Matched, Missing, match, right, tidy
from audit.subset.verdict import Comparison, compare_metric, compare_right

SCHEMA = "subset-score/1"
UserMetric = Callable[[np.ndarray, np.ndarray, Floats], float]


@dataclass(frozen=True)
class ClassCount:
    """One class in the subset, as counts: `right` of `n` files, and what one more would change."""

    label: str
    right: int
    n: int
    recall: dict[Estimand, Interval]
    sentence: str


@dataclass(frozen=True)
class ModelScore:
    """Everything about one model."""

    name: str
    metrics: list[MetricScore]
    without_suspected: list[MetricScore]
    classes: list[ClassCount]
    notes: list[str]


@dataclass(frozen=True)
class Score:
    """The scores of one or two models on a subset, and the comparison of the two."""

    n_files: int
    n_units: int
    population_units: int
    suspected: int
    confidence: float
    models: list[ModelScore]
    comparison: Comparison | None = None
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the score as plain data under `subset-score/1`."""
        return {"schema": SCHEMA, **dict(plain(asdict(self)))}


# ---- the score ----


def score(
    rows: pl.DataFrame,
    predictions: Sequence[pl.DataFrame],
    *,
    metrics: Sequence[str] = ("accuracy",),
    confidence: float = 0.95,
    missing: Missing = "refuse",
    looks: int = 1,
    power: float = 0.8,
    label_noise: float | None = None,
    names: Sequence[str] = ("A", "B"),
    user_metrics: dict[str, UserMetric] | None = None,
) -> Score:
    """Score one or two models' predictions on drawn `rows` (or on a census of the full set).

    `metrics`: accuracy, recall[:class], specificity:class, precision:class, macro-recall, macro-f1,
    auroc; two models are compared on the first. `user_metrics`: functions of (labels, predictions,
    weights). `missing`: what to do with examples without a prediction.
    """
    if not 1 <= len(predictions) <= 2:
        raise UsageError(f"{len(predictions)} prediction files were given: score takes one or two.")
    design = Design.of(rows)
    level = 1 - stats.alpha_for_looks(confidence, looks)
    matched = [
        match(design.rows, _tidied(table, name), name, missing)
        for table, name in zip(predictions, names, strict=False)
    ]
    outcomes = _outcomes(design, matched, missing)
    models = [
        _model(outcome, name, metrics, level, user_metrics or {}, found.notes(name, missing))
        for outcome, name, found in zip(outcomes, names, matched, strict=False)
    ]
    comparison = None
    if len(outcomes) == 2:
        comparison = _comparison(outcomes, metrics[0], level, power, label_noise, names)
    suspected = int(design.rows["suspected_mislabel"].sum())
    return Score(
        len(design.rows), design.n_units, int(design.population.sum()), suspected, confidence,
        models, comparison, _notes(design, looks),
    )  # fmt: skip


def _tidied(table: pl.DataFrame, name: str) -> pl.DataFrame:
    return table if "key" in table.columns else tidy(table, name)


def _outcomes(design: Design, matched: list[Matched], missing: Missing) -> list[Outcome]:
    hits = [right(design.rows, found, missing) for found in matched]
    # Two models are compared on the same examples: one dropped for either is dropped for both.
    counts = np.all([~np.isnan(hit) for hit in hits], axis=0).astype(float)
    return [
        Outcome(design, np.nan_to_num(hit), counts, found.prediction, found.table)
        for hit, found in zip(hits, matched, strict=True)
    ]


def _model(
    outcome: Outcome,
    name: str,
    metrics: Sequence[str],
    confidence: float,
    user_metrics: dict[str, UserMetric],
    notes: list[str],
) -> ModelScore:
    every = np.ones(outcome.hit.size)
    clean = 1.0 - outcome.design.rows["suspected_mislabel"].to_numpy().astype(float)
    found = [outcome.of(metric, confidence, every) for metric in metrics]
    found += [_user(outcome, m, f, confidence) for m, f in user_metrics.items()]
    without = [] if clean.all() else [outcome.of(m, confidence, clean) for m in metrics]
    notes = [*notes, *_cautions(found)]
    return ModelScore(name, found, without, _class_counts(outcome, confidence), notes)


def _cautions(metrics: list[MetricScore]) -> list[str]:
    return [
        f"The interval of {metric.metric} is {said}."
        for metric in metrics
        if (said := metric.estimands["generalisation"].caution)
    ]


def _user(outcome: Outcome, name: str, function: UserMetric, confidence: float) -> MetricScore:
    labels = outcome.design.rows["label"].to_numpy()
    predicted = outcome.predicted.to_numpy()

    def metric(weights: Floats) -> Floats:
        return np.array([function(labels, predicted, row) for row in weights])

    weight = outcome.design.weight * outcome.counts
    found = {
        e: resampled(outcome.design, metric, weight, e, confidence, outcome.accuracy)
        for e in ESTIMANDS
    }
    return MetricScore(name, found, "rescaled bootstrap over units")


def _class_counts(outcome: Outcome, confidence: float) -> list[ClassCount]:
    labels = outcome.design.rows["label"]
    result = []
    for label in labels.unique().sort().to_list():
        own = (labels == label).to_numpy().astype(float) * outcome.counts
        n, right_ones = int(own.sum()), int((own * outcome.hit).sum())
        found = {e: share(outcome.design, outcome.hit, own, e, confidence) for e in ESTIMANDS}
        result.append(ClassCount(label, right_ones, n, found, _count_said(right_ones, n)))
    return result


def _count_said(right_ones: int, n: int) -> str:
    if n == 0:
        return "no example with a prediction"
    return f"{right_ones} of {n} right; one more right answer moves recall by {100 / n:.1f} points"


def _comparison(
    outcomes: list[Outcome],
    metric: str,
    confidence: float,
    power: float,
    label_noise: float | None,
    names: Sequence[str],
) -> Comparison:
    first, second = outcomes
    design = first.design
    name, label = parse_metric(metric)
    differ = (first.predicted != second.predicted).fill_null(True).to_numpy()
    differing = float(np.average(differ, weights=design.weight))
    if name in BOOTSTRAPPED or name == "precision" or (name == "recall" and label is None):
        name = "macro-recall" if name == "recall" else name
        return compare_metric(first, second, name, metric, confidence, names)
    top, bottom = first._terms(name, label)
    other, _ = second._terms(name, label)
    return compare_right(
        design, top, other, bottom * first.counts, metric, confidence, power, names,
        label_noise, differing,
    )  # fmt: skip


def _notes(design: Design, looks: int) -> list[str]:
    notes = [
        "If models were or will be chosen by their scores on this same subset, no correction makes "
        "the winner's score honest: confirm it once on a fresh draw (`audit subset draw RUN --plan "
        "PLAN --seed OTHER --fresh-from SUBSET`)."
    ]
    if looks > 1:
        notes.append(f"Intervals share the error rate among {looks} comparisons fixed in advance.")
    if design.complete:
        notes.append("The whole set was scored: full-set figures are known, not estimated.")
    return notes
