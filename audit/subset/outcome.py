"""One model's answers on the drawn rows, and any metric of them with its interval.

Shares (accuracy, recall, specificity and precision of a class) have a design-based interval;
metrics without a formula (macro-recall, macro-F1, AUROC) are resampled over units, 1,000 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset import bootstrap
from audit.subset.design import Design, MetricEstimate, estimate_share
from audit.subset.estimate import ESTIMANDS, Estimand, Ratio
from audit.subset.goal import parse_metric
from audit.subset.intervals import caution
from audit.subset.predictions import PROBABILITY

BOOTSTRAPPED = ("macro-recall", "macro-f1", "auroc")


@dataclass(frozen=True)
class MetricScore:
    """One metric of one model: an estimate per estimand, and the method."""

    metric: str
    estimands: dict[Estimand, MetricEstimate]
    method: str


@dataclass(frozen=True)
class Outcome:
    """One model's answers on the rows: right (1, 0, NaN dropped) and the predicted labels."""

    design: Design
    hit: Floats
    counts: Floats
    predicted: pl.Series
    table: pl.DataFrame

    def score(self, metric: str, confidence: float, included: Floats) -> MetricScore:
        """Return one metric over the rows that `included` marks with 1."""
        name, label = parse_metric(metric)
        if name in BOOTSTRAPPED or (name == "recall" and label is None):
            name = "macro-recall" if name == "recall" else name
            return self._resampled(name, confidence, included)
        top, bottom = self.share_terms(name, label)
        counts = bottom * self.counts * included
        estimates = {e: estimate_share(self.design, top, counts, e, confidence) for e in ESTIMANDS}
        return MetricScore(metric, estimates, "design-based interval on the effective size")

    @property
    def accuracy(self) -> Ratio:
        """The share of right answers: other metrics use its degrees of freedom."""
        return self.design.ratio(self.hit * self.counts, self.counts)

    def share_terms(self, name: str, label: str | None) -> tuple[Floats, Floats]:
        """Return a metric that is a share as (right answers, rows that count), one entry a row."""
        every = np.ones(self.hit.size)
        if name == "accuracy":
            return self.hit, every
        labels = self.design.rows["label"]
        if not (labels == label).any():
            raise UsageError(f"No example of class {label!r} is in the subset: draw more of it.")
        own = (labels == label).to_numpy().astype(float)
        called = (self.predicted == label).fill_null(False).to_numpy().astype(float)
        if name == "recall":
            return self.hit, own
        if name == "specificity":
            return 1 - called, 1 - own
        return own, called  # precision: right among what was called this class

    def metric_function(self, name: str) -> bootstrap.WeightedMetric:
        """Return a bootstrapped metric as a function of weights."""
        labels = self.design.rows["label"]
        levels = labels.unique().sort()
        label = labels.cast(pl.Enum(levels)).to_physical().to_numpy().astype(np.int64)
        if name == "auroc":
            return self._auroc(levels.to_list(), label)
        lookup = {c: i for i, c in enumerate(levels)}
        outside = len(levels)
        predicted = np.array([lookup.get(p, outside) for p in self.predicted.to_list()], np.int64)
        of = bootstrap.macro_f1 if name == "macro-f1" else bootstrap.macro_recall
        return bootstrap.confusion_metric(label, predicted, outside, of)

    def _auroc(self, levels: list[str], label: Ints) -> bootstrap.WeightedMetric:
        columns = [f"{PROBABILITY}{c}" for c in levels]
        have = [c for c in columns if c in self.table.columns]
        if len(levels) == 2 and have:
            wanted = [levels.index(have[-1].removeprefix(PROBABILITY))]
        elif len(have) == len(levels):
            wanted = list(range(len(levels)))
        else:
            absent = next(c for c in columns if c not in self.table.columns)
            raise UsageError(
                f"AUROC needs the model's probabilities: the predictions have no column {absent!r} "
                "(one prob_<class> column a class, or one of the two)."
            )
        parts = [bootstrap.auroc_metric(label == k, self._probability(columns[k])) for k in wanted]
        return lambda weights: np.nanmean([part(weights) for part in parts], axis=0)

    def _probability(self, column: str) -> Floats:
        # An example that counts as wrong for want of a prediction gets no support for any class.
        return self.table[column].fill_null(0.0).to_numpy()

    def _resampled(self, name: str, confidence: float, included: Floats) -> MetricScore:
        function = self.metric_function(name)
        weight = self.design.weight * self.counts * included
        estimates = {
            e: estimate_metric(self.design, function, weight, e, confidence, self.accuracy)
            for e in ESTIMANDS
        }
        method = f"rescaled bootstrap over units, {bootstrap.REPLICATES} replicates"
        return MetricScore(name, estimates, method)


def estimate_metric(
    design: Design,
    metric: bootstrap.WeightedMetric,
    weight: Floats,
    estimand: Estimand,
    confidence: float,
    accuracy: Ratio,
) -> MetricEstimate:
    """Return a metric with its bootstrap interval: estimate -+ t standard errors, within [0, 1].

    t has the degrees of freedom that the same units give to `accuracy`.
    """
    value = float(metric(weight[None, :])[0])
    if estimand == "full-set" and design.complete:
        return MetricEstimate(value, value, value, math.inf, True)
    draws = bootstrap.replicate_metric(
        metric, weight, design.unit, design.stratum, design.population, estimand
    )
    error = float(np.nanstd(draws, ddof=1))
    # The bootstrap has no degrees of freedom of its own; the units are those of the accuracy.
    share = min(max(float(accuracy.value), 0.0), 1.0)
    half = design.student(accuracy, share * (1 - share), confidence) * error
    low, high = max(value - half, 0.0), min(value + half, 1.0)
    # The simple sample whose share of this value would have the same error: a scale, no more.
    effective = value * (1 - value) / error**2 if error > 0 else math.inf
    return MetricEstimate(value, low, high, effective, caution=caution(accuracy, share))
