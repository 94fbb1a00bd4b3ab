"""Looking again and again while a draw grows: an interval that holds at every size at once.

For one model, or one fixed pair, scored on the first n rows of one draw, with n grown until the
answer is clear. The confidence sequence is by betting (Waudby-Smith and Ramdas 2020, NeurIPS; and
2024, JRSS B 86:1): for each possible mean, the capital of a gambler who bets against it; a mean
that would have made him 1/alpha times richer, at any size so far, is out. Drawn without
replacement, the fair price of the next answer is the mean of what is left of the set, so the
sequence ends in the full set's number; for generalisation it is the mean itself. It needs rows in
plain random order: one stratum of single files. Cost: rows times `GRID`, a second for 10,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats
from audit.subset.design import Design
from audit.subset.document import plain_data
from audit.subset.draw import planned_level
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.predictions import match, right_answers, standard_columns

SCHEMA = "subset-anytime/1"
GRID = 1001
LARGEST_BET = 0.75
"""Of the bet that could lose everything: the truncation that Waudby-Smith and Ramdas use."""


@dataclass(frozen=True)
class AnytimeInterval:
    """The share or difference so far, limits that hold at every size, and a fixed-size half-width.

    `fixed` is what a subset of this size, scored once, would have: the price of looking at will.
    """

    value: float
    low: float
    high: float
    fixed: float


@dataclass(frozen=True)
class Anytime:
    """One model's accuracy, or the difference of a fixed pair, at the rows scored so far."""

    what: str
    n: int
    population: int
    estimands: dict[Estimand, AnytimeInterval]
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as plain data under `subset-anytime/1`."""
        return {"schema": SCHEMA, **dict(plain_data(asdict(self)))}


def score_anytime(
    rows: pl.DataFrame,
    predictions: Sequence[pl.DataFrame],
    *,
    names: Sequence[str] = ("A", "B"),
    confidence: float | None = None,
) -> Anytime:
    """Score one model, or the difference of two, with limits that hold however often one looks."""
    confidence = planned_level(rows, confidence)[0]
    stats.check_level(confidence, "--confidence")
    if not 1 <= len(predictions) <= 2:
        raise UsageError(
            "--anytime is for one model or one fixed pair: many models on the same rows are "
            "another problem (`audit subset winner`)."
        )
    design = Design.of(rows.sort("rank"))
    if design.population.size != 1 or not design.equal_files:
        raise UsageError(
            "--anytime needs rows of equal weight in plain random order: plan with "
            "--no-label-strata, without --by and --group."
        )
    hits = [
        right_answers(design.rows, match(design.rows, standard_columns(t, n), n))
        for t, n in zip(predictions, names, strict=False)
    ]
    pair = len(hits) == 2
    # A difference lies in [-1, 1]: it is bet on as (1 + difference) / 2.
    x = (hits[1] - hits[0] + 1) / 2 if pair else hits[0]
    N = int(design.population[0])
    found: dict[Estimand, AnytimeInterval] = {}
    for estimand in ESTIMANDS:
        low, high = betting_limits(x, confidence, N if estimand == "full-set" else None)
        left = 1 - x.size / N if estimand == "full-set" else 1.0
        fixed = stats.z_value(confidence) * math.sqrt(float(x.var()) * left / x.size)
        numbers = (float(x.mean()), low, high)
        value, low, high = (2 * v - 1 for v in numbers) if pair else numbers
        found[estimand] = AnytimeInterval(value, low, high, fixed * (2 if pair else 1))
    what = f"{names[1]} minus {names[0]}" if pair else f"accuracy of {names[0]}"
    return Anytime(what, x.size, N, found, [
        "These limits hold at every size of this draw at once, for this model or pair alone: grow "
        "the subset and look as often as you like. They say nothing of models chosen by them."
    ])  # fmt: skip


def betting_limits(
    x: Floats, confidence: float, population: int | None = None
) -> tuple[float, float]:
    """Return limits for the mean of numbers in [0, 1], in drawn order, valid at every size so far.

    `population`: size of the set drawn from without replacement; None for independent draws.
    """
    alpha, n = 1 - confidence, x.size
    means = np.linspace(0, 1, GRID)
    bet = _bets(x, alpha)
    up, down = np.zeros(GRID), np.zeros(GRID)
    least = np.full(GRID, -np.inf)
    drawn = 0.0
    for i in range(n):
        # The fair price of the next answer if the mean is m: that of what is left of the set.
        fair = means if population is None else (population * means - drawn) / (population - i)
        possible = (fair >= -1e-12) & (fair <= 1 + 1e-12)
        price = np.clip(fair, 1e-9, 1 - 1e-9)
        gain = x[i] - price
        up += np.log1p(np.minimum(bet[i], LARGEST_BET / price) * gain)
        down += np.log1p(-np.minimum(bet[i], LARGEST_BET / (1 - price)) * gain)
        least = np.maximum(least, np.where(possible, np.maximum(up, down) - math.log(2), np.inf))
        drawn += float(x[i])
    kept = np.flatnonzero(least < math.log(1 / alpha))
    step = 1 / (GRID - 1)
    if kept.size == 0:  # narrower than the grid: the mean so far, give or take one step
        low, high = float(x.mean()) - step, float(x.mean()) + step
    else:  # a mean between two of the grid may hold where its neighbour does not
        low, high = means[kept[0]] - step, means[kept[-1]] + step
    if population is not None:
        low, high = max(low, drawn / population), min(high, 1 - (n - drawn) / population)
    return max(float(low), 0.0), min(float(high), 1.0)


def _bets(x: Floats, alpha: float) -> Floats:
    """Return each bet from what was drawn before it: the predictable plug-in of the paper."""
    count = np.arange(1, x.size + 1)
    mean = (0.5 + np.cumsum(x)) / (count + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.asarray(np.sqrt(2 * math.log(2 / alpha) / (before * count * np.log(count + 1))))


def anytime_text(found: Anytime) -> str:
    """Return it for a reader."""
    lines = [f"{found.n} of {found.population} files scored so far."]
    for estimand, one in found.estimands.items():
        lines.append(
            f"  {found.what}, {estimand}: {100 * one.value:.2f} ({100 * one.low:.2f} to "
            f"{100 * one.high:.2f}) points; scored once at this size it would be "
            f"{100 * one.value:.2f} give or take {100 * one.fixed:.2f}"
        )
    return "\n".join([*lines, *found.notes])
