"""One model's answers on the drawn rows, and any metric of them with its interval.

Shares (accuracy, recall, specificity and precision of a class) have a design-based interval, and
so have means over classes and ranks (macro-recall, macro-F1, AUROC), by linearisation. Only a
user's own function is resampled over units, 1,000 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset import bootstrap, linearised
from audit.subset.design import Design, MetricEstimate, estimate_share
from audit.subset.estimate import ESTIMANDS, Estimand, Ratio
from audit.subset.goal import parse_metric
from audit.subset.intervals import caution, proportion_interval
from audit.subset.linearised import Linearised
from audit.subset.probabilities import PROBABILITY

LINEARISED = ("macro-recall", "macro-f1", "auroc")


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
        if is_linearised(name):
            estimates = estimate_linear(self.design, self.linearised(metric, included), confidence)
            return MetricScore(metric, estimates, "design-based interval, by linearisation")
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

    def linearised(self, metric: str, included: Floats) -> Linearised:
        """Return a metric by the influence of each row that `included` marks with 1."""
        name, of_class = parse_metric(metric)
        labels = self.design.rows["label"]
        levels = labels.unique().sort()
        label = labels.cast(pl.Enum(levels)).to_physical().to_numpy().astype(np.int64)
        weight = self.design.weight * self.counts * included
        if name == "auroc":
            return self._auroc(levels.to_list(), label, weight)
        if not is_linearised(name):
            return linearised.share_of(*self.share_terms(name, of_class), weight)
        if name == "macro-recall":
            return linearised.macro_recall(label, self.hit, weight, len(levels))
        known = self.predicted.is_in(levels.implode())
        codes = self.predicted.set(~known.fill_null(False), None).cast(pl.Enum(levels))
        predicted = codes.to_physical().cast(pl.Int64).fill_null(len(levels)).to_numpy()
        return linearised.macro_f1(label, predicted, self.hit, weight, len(levels))

    def _auroc(self, levels: list[str], label: Ints, weight: Floats) -> Linearised:
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
        return linearised.mean_of(
            [linearised.auroc(label == k, self._probability(columns[k]), weight) for k in wanted]
        )

    def _probability(self, column: str) -> Floats:
        # An example that counts as wrong for want of a prediction gets no support for any class.
        return self.table[column].fill_null(0.0).to_numpy()


def is_linearised(name: str) -> bool:
    """Say whether a metric is a mean over classes or ranks."""
    return name in LINEARISED


def estimate_linear(
    design: Design, linear: Linearised, confidence: float
) -> dict[Estimand, MetricEstimate]:
    """Return a linearised metric with the interval of a share that has its variance."""
    if math.isnan(linear.value):
        return dict.fromkeys(ESTIMANDS, MetricEstimate(math.nan, 0.0, 1.0, 0.0))
    value, r = min(max(linear.value, 0.0), 1.0), linear.ratio(design)
    estimates: dict[Estimand, MetricEstimate] = {}
    for estimand in ESTIMANDS:
        low, high, effective = (float(v) for v in proportion_interval(r, estimand, confidence))
        estimates[estimand] = MetricEstimate(value, low, high, effective, caution=caution(r, value))
    if design.complete:
        estimates["full-set"] = MetricEstimate(value, value, value, math.inf, True)
    return estimates


def estimate_metric(
    design: Design,
    metric: bootstrap.WeightedMetric,
    weight: Floats,
    estimand: Estimand,
    confidence: float,
    accuracy: Ratio,
) -> MetricEstimate:
    """Return a metric with its bootstrap interval: estimate -+ t standard errors.

    t has the degrees of freedom that the same units give to `accuracy`. Where the replicates do not
    differ, or by less than the same units tell of a share of this value, the share's interval.
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
    if not 0 <= value <= 1:
        low, high = (value - half, value + half) if half > 0 else (-math.inf, math.inf)
        return MetricEstimate(value, low, high, math.nan, caution=caution(accuracy, share))
    # The simple sample whose share of this value would have the same error: a scale, no more.
    effective = value * (1 - value) / error**2 if error > 0 else math.inf
    effective = min(effective, float(accuracy.base_n[estimand]))
    wilson = [float(v) for v in stats.wilson_share(value, effective, confidence)]
    low, high = min(max(value - half, 0.0), wilson[0]), max(min(value + half, 1.0), wilson[1])
    return MetricEstimate(value, low, high, effective, caution=caution(accuracy, share))
