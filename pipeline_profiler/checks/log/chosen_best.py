"""LOG005: a best checkpoint that is best by luck."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear
from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
    Values,
    better_is,
    is_held_out,
    noise_of,
    smoothed,
)

LEAST, MOST = 10, 1000  # evaluations; more are thinned out
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
    """The best of many evaluations, which is better than the model is.

    ## What it does
    Takes the noise from neighbouring evaluations, the curve without it, and draws the run again
    400 times: how much better than its own curve is the evaluation that is chosen as best? Names
    the five best checkpoints, and how many the noise does not tell from the best.

    ## Why is this bad
    The best of N noisy evaluations is the luckiest: of 100 equal ones it lies 2.5 deviations too
    high. Reported as the result it cannot be reached again, and runs with more evaluations win.

    ## How it decides
    Fails where what the choice alone adds is more than a tenth of the gain that is reported (best
    over first, without the noise) and the best is not told from the last one by the noise. With
    fewer than 10 evaluations, or no gain beyond the noise, it cannot tell. In simulated runs with
    a noise of 1 or 3 % of the gain none of 2,400 is failed.

    ## What to do
    Choose on one part of the data and report on another; or average the last checkpoints, and
    report the mean of the last evaluations.

    ## Limits
    A part of what neighbours differ by may be real differences of checkpoints, so the luck is the
    most it can be. Held-out losses and scores only, by name.
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

    @staticmethod
    def _made(noise: float, count: int = 60, bend: float = 8.0) -> LogSubject:
        rng = np.random.default_rng(0)
        curve = 0.8 - 0.4 * np.exp(-np.arange(count) / bend) + rng.normal(0, noise, count)
        return LogSubject([Series("val/accuracy", 500.0 * np.arange(float(count)), curve)])

    PLANTED = (("noisy evaluations", lambda: ChosenBest._made(0.06)),)
    HEALTHY = (
        ("quiet evaluations", lambda: ChosenBest._made(0.003)),
        ("eight evaluations", lambda: ChosenBest._made(0.03, 8, 2.0)),
        ("nothing but noise", lambda: ChosenBest._made(0.03, 60, 1e9)),
    )


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
        f"{row.luck:.2g} is luck ({row.luck / row.gain:.0%} of the gain); the noise does not tell "
        f"it from {row.near - 1} others."
    )
