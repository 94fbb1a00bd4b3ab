"""What won, and whether by luck or by length: the best checkpoint, the best of several runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, skipped, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
    Values,
    better_is,
    error_of_mean,
    is_held_out,
    noise_of,
    smoothed,
)

LEAST, MOST = 10, 1000  # evaluations; more are thinned out, and say no more of the noise
DRAWS, MUCH, KEPT = 400, 0.1, 5
BEYOND = 3.0  # standard errors that a curve must exceed its noise by


class Selection(NamedTuple):
    """The best evaluation of one metric; `luck` is what the choice alone is expected to add."""

    series: Series
    best: int
    luck: float
    gain: float  # of the best, along the curve without noise, over the first evaluation
    noise: float
    near: int  # evaluations that the noise does not tell from the best


class ChosenBest(Check):
    """A best evaluation that is better than the model by chance.

    ## What it does
    Estimates the noise from neighbouring evaluations. Simulates the run 400 times, to measure what
    the choice of the best adds. Lists the five best checkpoints.

    ## Why is this bad
    The best of N noisy evaluations is biased: 2.5 deviations for 100 equal evaluations. The result
    cannot be reproduced, and runs with more evaluations win.

    ## How it decides
    Fails if the choice alone adds more than 10% of the reported gain, and noise explains best minus
    last. Inconclusive with fewer than 10 evaluations, or without a gain beyond the noise.

    ## Limits
    Only held-out losses and scores, by name. Real differences between neighbouring checkpoints
    count as noise, so the bias is an upper bound.
    """

    code = "LOG005"
    name = "best-by-luck"
    causes = (
        "the evaluation is small or random (few examples, augmentation, dropout left on)",
        "many evaluations, and the best of them is reported",
        "the learning rate is still high, so that checkpoints differ",
    )
    next_step = "Report the mean of the last evaluations, or choose and report on different data."

    def run(self, subject: LogSubject) -> Answer:
        judged = [s for s in subject.series if is_held_out(s.name) and better_is(s.name)]
        judged = [s for s in judged if len(s.values) >= LEAST and np.isfinite(s.values).all()]
        if not judged:
            return unclear(f"No held-out loss or score has {LEAST} evaluations.")
        rows = [select_best(series) for series in judged]
        told = [row for row in rows if row.gain > BEYOND * row.noise]
        for row in told:
            if row.luck > MUCH * row.gain and _like_last(row):
                return self.failed(_sentence(row), **_told(row))
        row = (told or rows)[0]
        if not told:
            return unclear(f"{row.series.title} gains nothing beyond its noise.", **_told(row))
        return passed(_sentence(row), **_told(row))


def select_best(series: Series) -> Selection:
    """What the choice of the best evaluation is worth, and what of it is luck."""
    steps, sign = series.steps, better_is(series.name)
    values = sign * series.values
    if len(values) > MOST:
        kept = np.linspace(0, len(values) - 1, MOST).astype(int)
        steps, values = steps[kept], values[kept]
        series = Series(series.name, steps, sign * values, log=series.log)
    noise, curve = noise_of(values), smoothed(values, share=0.3)
    luck = expected_luck(curve, noise)
    best = int(values.argmax())
    near = int((values >= values[best] - 2 * noise * np.sqrt(2)).sum())
    gain = float(curve[best] - values[0])  # a smooth curve would begin too late
    return Selection(series, best, luck, gain, noise, near)


def expected_luck(curve: Values, noise: float) -> float:
    """Mean of (best evaluation - curve there) over noisy copies of a curve."""
    if not noise > 0:
        return 0.0
    drawn = np.random.default_rng(0).normal(0, noise, (DRAWS, len(curve)))
    chosen = (curve[None, :] + drawn).argmax(axis=1)
    return float(drawn[np.arange(DRAWS), chosen].mean())


def _like_last(row: Selection) -> bool:
    """Whether the curve's own best is told from its end: then it was right to choose."""
    values = better_is(row.series.name) * row.series.values
    tail = max(3, len(values) // 10)
    around = values[max(0, row.best - tail // 2) : row.best + tail // 2 + 1]
    error = row.noise * np.sqrt(1 / len(around) + 1 / tail)
    # the best itself is in `around` and lucky: what it adds is taken off
    above = float(around.mean() - row.luck / len(around) - values[-tail:].mean())
    return bool(above < BEYOND * error)


def _told(row: Selection) -> dict[str, Any]:
    order = np.argsort(-better_is(row.series.name) * row.series.values, kind="stable")[:KEPT]
    return {
        "metric": row.series.title,
        "best": float(row.series.values[row.best]),
        "best_step": float(row.series.steps[row.best]),
        "luck": row.luck,
        "noise": row.noise,
        "gain": row.gain,
        "evaluations": len(row.series.values),
        "not_told_apart": row.near,
        "best_steps": [float(row.series.steps[i]) for i in order],
        "best_values": [float(row.series.values[i]) for i in order],
    }


def _sentence(row: Selection) -> str:
    return (
        f"The best of {len(row.series.values)} evaluations of {row.series.title} is "
        f"{row.series.values[row.best]:.4g} at step {row.series.steps[row.best]:g}, of which about "
        f"{row.luck:.2g} is luck ({row.luck / row.gain:.0%} of the gain); the noise hides "
        f"the difference to {row.near - 1} other evaluations."
    )


LEAST_ROWS, LAST = 8, 5  # of a log; of a mean
LONGER = 1.05
Z_BOUND = 4.5  # two-sided 7e-6, for the errors are estimated


class Level(NamedTuple):
    """Where a run stands at a budget: the mean of its last rows, better is larger."""

    log: str
    value: float
    error: float
    rows: int


class EqualBudget(Check):
    """A run that wins because it trained longer.

    ## What it does
    Compares common losses and scores of several logs at their ends and at the largest common step
    (means of five rows).

    ## Why is this bad
    A better curve with more steps shows the value of the steps, not of the change.

    ## How it decides
    Fails if the best run at its end has 5% more steps than the shortest, but does not lead at the
    common step. Passes if one run leads at both. A lead is 4.5 standard errors. Inconclusive with
    one log, fewer than 8 rows, or no lead.

    ## What to do
    Compare at the same number of steps (or samples, or hours, if you pay for these). Train each
    setting with several seeds.

    ## Limits
    Only the noise within a run counts; the noise between seeds is larger. Runs with other batch
    sizes need steps that count samples.
    """

    code = "LOG006"
    name = "unequal-budgets"

    def run(self, subject: LogSubject) -> Answer:
        logs: dict[str, dict[str, Series]] = {series.log: {} for series in subject.series}
        if len(logs) < 2:
            return skipped(
                "There is one log.", "Give several logs to compare them at an equal budget."
            )
        for s in subject.series:
            if len(s.values) >= LEAST_ROWS and better_is(s.name) and np.isfinite(s.values).all():
                logs[s.log].setdefault(s.name, s)
        shared = set.intersection(*map(set, logs.values()))
        if not shared:
            return unclear(f"The logs share no loss or score with {LEAST_ROWS} rows.")
        answers = [
            _compared([log[name] for log in logs.values()])
            for name in sorted(shared, key=lambda n: (not is_held_out(n), n))
        ]
        order = ("failed", "passed", "inconclusive")
        return min(answers, key=lambda answer: order.index(answer.judgement))


def level_at(series: Series, step: float) -> Level:
    """The mean of the last rows up to a step, with its standard error."""
    values = better_is(series.name) * series.values[series.steps <= step]
    last = values[-LAST:]
    mean = float(last.mean()) if len(last) else float("nan")
    # the last rows are as noisy as the others, and a thousand of them show it
    error = error_of_mean(series.values[-MOST:], max(len(last), 1))
    return Level(series.log, mean, error, len(values))


def _leader(levels: list[Level]) -> Level | None:
    """The best one, where it is ahead of all others beyond the noise."""
    best = max(levels, key=lambda level: level.value)
    for other in levels:
        apart = Z_BOUND * np.hypot(best.error, other.error)
        if other is not best and not best.value - other.value > apart:
            return None
    return best


def _compared(runs: list[Series]) -> Answer:
    budgets = {run.log: float(run.steps.max()) for run in runs}
    common = min(budgets.values())
    at_end = [level_at(run, budgets[run.log]) for run in runs]
    at_common = [level_at(run, common) for run in runs]
    name, sign = runs[0].name, better_is(runs[0].name)
    numbers: dict[str, Any] = {
        "metric": name,
        "budgets": budgets,
        "common_step": common,
        "at_end": {level.log: sign * level.value for level in at_end},
        "at_common_step": {level.log: sign * level.value for level in at_common},
        "rows": {level.log: level.rows for level in at_end},
    }
    if min(level.rows for level in at_common) < LAST:
        return unclear(f"The logs share too few rows up to step {common:g}.", **numbers)
    winner, fair = _leader(at_end), _leader(at_common)
    if winner is None:
        return unclear(f"No run is ahead in {name} beyond the noise.", **numbers)
    same = fair is not None and fair.log == winner.log
    if same or budgets[winner.log] < LONGER * common:
        return passed(
            f"{winner.log} is ahead in {name} at its end ({sign * winner.value:.4g})"
            + (f" and at step {common:g}, which all runs reached." if same else "."),
            **numbers,
        )
    instead = f"{fair.log} is ahead" if fair else "no run is ahead beyond the noise"
    said = ", ".join(f"{log} {value:.4g}" for log, value in numbers["at_common_step"].items())
    return wrong(
        f"{winner.log} is ahead in {name} after {budgets[winner.log]:g} steps, but at step "
        f"{common:g}, which all runs reached, {instead} ({said}).",
        ["the run trained longer", "the other run was ended early, or is still going on"],
        "Compare at equal steps, and train each setting with several seeds.",
        **numbers,
    )
