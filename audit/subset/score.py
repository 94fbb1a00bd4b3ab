"""Scoring a subset: estimates with intervals, counts per class, and a verdict between two models.

Input is the drawn rows (they carry strata, units and weights) and one or two prediction files.
Every figure is given for both estimands, and with and without suspected mislabels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.statistics.intervals import alpha_for_looks
from audit.subset.baseline import Baseline
from audit.subset.compare import FRESH_DRAW, Comparison, Pairing, compare_metric, compare_right
from audit.subset.draw import planned_level
from audit.subset.goal import Estimand, document_of, parse_metric
from audit.subset.metrics import (
    LINEARISED,
    Design,
    MetricEstimate,
    MetricScore,
    Outcome,
    estimate_share,
)
from audit.subset.predictions import Missing, Unknown, classes_of, match
from audit.subset.sizes import noise_bound, seen_accuracy
from audit.subset.slices import Slices, score_slices

SCHEMA = "subset-score/1"


@dataclass(frozen=True)
class ClassScore:
    """One class in the subset, as counts: `right` of `n` files, and what one more would change."""

    label: str
    right: int
    n: int
    recall: dict[Estimand, MetricEstimate]
    sentence: str


@dataclass(frozen=True)
class ObjectClass:
    """One class of objects in the subset; `estimands` None: too few pictures to tell."""

    label: str
    objects: int
    pictures: int
    estimands: dict[Estimand, MetricEstimate] | None


@dataclass(frozen=True)
class ModelScore:
    """Everything about one model."""

    name: str
    metrics: list[MetricScore]
    without_suspected: list[MetricScore]
    classes: list[ClassScore]
    notes: list[str]
    with_baseline: list[MetricScore] = field(default_factory=list)
    objects: list[ObjectClass] = field(default_factory=list)
    slices: Slices | None = None


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
        content = asdict(self)
        for model in content["models"]:
            for name in ("with_baseline", "objects", "slices"):
                if not model[name]:
                    del model[name]
        return document_of(SCHEMA, content)


def score_subset(
    rows: pl.DataFrame,
    predictions: Sequence[pl.DataFrame],
    *,
    metrics: Sequence[str] = ("accuracy",),
    confidence: float | None = None,
    missing: Missing = "refuse",
    unknown: Unknown = "refuse",
    looks: int | None = None,
    label_noise: float | None = None,
    names: Sequence[str] = ("A", "B"),
    baseline: Baseline | None = None,
    slices: pl.DataFrame | None = None,
) -> Score:
    """Score one or two models' predictions on drawn `rows` (or on a census of the full set).

    `metrics`: accuracy, recall[:class], specificity:class, precision:class, macro-recall, macro-f1,
    auroc; two models are compared on the first. `confidence`, `looks`: as planned, else 0.95, 1.
    `missing`: for examples without a prediction; `unknown`: for predicted classes that the rows do
    not have. `baseline`: an earlier model known on all of F. `label_noise`: rate of wrong labels,
    for a note on what can be seen. `slices`: columns of the rows (`audit.subset.slices`), to
    compare right answers by their values.
    """
    if not 1 <= len(predictions) <= 2:
        raise UsageError(f"{len(predictions)} prediction files were given: score takes one or two.")
    design = Design.of(rows)
    confidence, looks = planned_level(rows, confidence, looks)
    level = 1 - alpha_for_looks(confidence, looks)
    matched = [
        match(design.rows, table, name, missing, unknown)
        for table, name in zip(predictions, names, strict=False)
    ]
    # Two models are compared on the same examples: one dropped for either is dropped for both.
    counts = np.all([~np.isnan(found.hit) for found in matched], axis=0).astype(float)
    outcomes = [
        Outcome(design, np.nan_to_num(found.hit), counts, found.prediction, found.table)
        for found in matched
    ]
    if len(outcomes) == 2 and metrics[0] == "recall":
        raise UsageError(
            "recall is one number per class, and two models are compared on one number: give "
            "recall:CLASS, or macro-recall, the mean over the classes."
        )
    # `recall` of no class is that of every class
    each = [f"recall:{label}" for label in design.rows["label"].unique().sort()]
    metrics = [name for metric in metrics for name in (each if metric == "recall" else [metric])]
    models = [
        _score_model(outcome, name, metrics, level, baseline, slices)
        for outcome, name in zip(outcomes, names, strict=False)
    ]
    for model, found, outcome in zip(models, matched, outcomes, strict=True):
        model.notes[:0] = found.notes(model.name, missing)
        if label_noise is not None:
            classes = len(classes_of(design.rows))
            seen = design.ratio(outcome.hit * outcome.counts, outcome.counts).value
            model.notes.append(seen_accuracy(label_noise, classes, float(seen)))
    notes = notes_of(design, looks)
    undrawn = len(classes_of(design.rows)) - design.rows["label"].n_unique()
    if undrawn and set(metrics) & set(LINEARISED):
        notes.append(
            f"{undrawn} of the {len(classes_of(design.rows))} classes have no example here: a mean "
            "over classes leaves them out."
        )
    pairing = Pairing(design, names, metrics[0], level)
    comparison = _comparison(outcomes, pairing, label_noise) if len(outcomes) == 2 else None
    suspected = int(design.rows["suspected_mislabel"].sum())
    return Score(*design.sizes, suspected, confidence, models, comparison, notes)


def _score_model(
    outcome: Outcome,
    name: str,
    metrics: Sequence[str],
    confidence: float,
    baseline: Baseline | None,
    slices: pl.DataFrame | None,
) -> ModelScore:
    every = np.ones(outcome.hit.size)
    clean = 1.0 - outcome.design.rows["suspected_mislabel"].to_numpy().astype(float)
    scores = [outcome.score(metric, confidence, every) for metric in metrics]
    without = [] if clean.all() else [outcome.score(m, confidence, clean) for m in metrics]
    notes = [
        f"The interval of {score.metric} is {caution}."
        for score in scores
        if (caution := score.estimands["generalisation"].caution)
    ]
    known = [baseline.score(outcome, m, confidence) for m in metrics] if baseline else []
    return ModelScore(
        name, scores, without, _class_counts(outcome, confidence), notes,
        [score for score in known if score is not None],
        slices=None if slices is None else score_slices(outcome, slices, confidence),
    )  # fmt: skip


def _class_counts(outcome: Outcome, confidence: float) -> list[ClassScore]:
    labels = outcome.design.rows["label"]
    result = []
    for label in labels.unique().sort().to_list():
        own = (labels == label).to_numpy().astype(float) * outcome.counts
        n, right_ones = int(own.sum()), int((own * outcome.hit).sum())
        recall = estimate_share(outcome.design, outcome.hit, own, confidence)
        more = f"one more right answer moves recall by {100 / max(n, 1):.1f} points"
        sentence = f"{right_ones} of {n} right; {more}" if n else "no example with a prediction"
        result.append(ClassScore(label, right_ones, n, recall, sentence))
    return result


def _comparison(outcomes: list[Outcome], pairing: Pairing, label_noise: float | None) -> Comparison:
    first, second = outcomes
    name, label = parse_metric(pairing.metric)
    if name == "precision" or name in LINEARISED:
        return compare_metric(pairing, first, second)
    top, bottom = first.share_terms(name, label)
    other, _ = second.share_terms(name, label)
    comparison = compare_right(pairing, top, other, bottom * first.counts)
    if label_noise and name == "accuracy":
        differ = (first.predicted != second.predicted).fill_null(True).to_numpy()
        differing = float(np.average(differ, weights=pairing.design.weight))
        bound, how = noise_bound(label_noise, differing), "the difference is larger than that."
        if abs(comparison.estimands["full-set"].value) <= bound:
            how = (
                "the difference is within it, so it is not guaranteed under class-dependent noise."
            )
        comparison.notes.append(
            f"Wrong labels at a rate of {label_noise:g} may shift the difference by up to "
            f"{100 * bound:.2f} points; {how}"
        )
    return comparison


def notes_of(design: Design, looks: int) -> list[str]:
    """Return what holds for every score of a subset."""
    notes = [
        "The score of a model that is chosen by its score on these examples is too high: confirm "
        f"it once on {'other data' if design.complete else FRESH_DRAW}."
    ]
    if looks > 1:
        notes.append(f"The confidence level is corrected for {looks} planned comparisons.")
    if design.complete:
        notes.append("The whole set was scored: results for this set are known, not estimated.")
    return notes
