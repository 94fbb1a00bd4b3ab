"""The best of k checkpoints on one subset: intervals that hold for all of them, and what luck adds.

The winner's score is too high because it was chosen for being high. Intervals are widened until all
k hold together: the quantile of the largest of k normal errors that are correlated as the models'
answers are (alike models cost little; Bonferroni takes them to be unrelated). The mean of that
largest error is what selection alone gives the winner of k equally good models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import norm

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats
from audit.subset.design import Design, MetricEstimate, estimate_share
from audit.subset.document import plain_data
from audit.subset.draw import planned_level
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.predictions import match, right_answers, standard_columns

SCHEMA = "subset-winner/1"
DRAWS = 20_000


@dataclass(frozen=True)
class Candidate:
    """One model: accuracy with limits that hold for all candidates together."""

    name: str
    estimands: dict[Estimand, MetricEstimate]


@dataclass(frozen=True)
class Winner:
    """The candidates, best first; `by_luck`: what selection alone gives the best of equal ones.

    `level`: the confidence of each interval that makes all hold together.
    """

    candidates: list[Candidate]
    by_luck: float
    confidence: float
    level: float
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as plain data under `subset-winner/1`."""
        return {"schema": SCHEMA, **dict(plain_data(asdict(self)))}


def find_winner(
    rows: pl.DataFrame,
    predictions: Sequence[pl.DataFrame],
    *,
    names: Sequence[str],
    confidence: float | None = None,
) -> Winner:
    """Rank models by accuracy on the same rows, with simultaneous intervals."""
    confidence = planned_level(rows, confidence)[0]
    stats.check_level(confidence, "--confidence")
    if len(predictions) < 2:
        raise UsageError("A winner needs at least two prediction files: give --predictions twice.")
    design = Design.of(rows)
    hits = np.array([
        right_answers(design.rows, match(design.rows, standard_columns(t, n), n))
        for t, n in zip(predictions, names, strict=True)
    ])  # fmt: skip
    by_luck, level = selection_alone(error_covariance(design, hits), confidence)
    ones = np.ones(hits.shape[1])
    candidates = [
        Candidate(name, {e: estimate_share(design, hit, ones, e, level) for e in ESTIMANDS})
        for name, hit in zip(names, hits, strict=True)
    ]
    candidates.sort(key=lambda c: -c.estimands["full-set"].value)
    k, best = len(candidates), candidates[0]
    notes = [
        f"{best.name} is the best of {k} on these rows. Were all {k} equally good, the best would "
        f"still show {100 * by_luck:+.2f} points more than it has, by selection alone.",
        f"Intervals hold for all {k} together (each at {100 * level:.2f} %). Confirm the winner "
        "once on a fresh draw (`audit subset draw RUN --plan PLAN --seed OTHER --fresh-from "
        "SUBSET`).",
    ]
    return Winner(candidates, by_luck, confidence, level, notes)


def error_covariance(design: Design, hits: Floats) -> Floats:
    """Return the covariance of the models' errors of estimation, for new data of the kind.

    `hits`: one row a model. Within strata and between units, as the variance of one share.
    """
    k, strata = len(hits), design.population.size
    weight = design.weight / design.weight.sum()
    centred = hits - (hits @ weight)[:, None]
    units = np.array([np.bincount(design.unit, row * weight, design.n_units) for row in centred])
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
                f"  {candidate.name}, {estimand}: {100 * one.value:.2f} % "
                f"({100 * one.low:.2f} to {100 * one.high:.2f})"
            )
    return "\n".join([*lines, *found.notes])
