"""The best checkpoint: by luck or not, and whether it is saved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    ACCURACIES,
    LogSubject,
    Series,
    Values,
    better_is,
    is_held_out,
    name_words,
    noise_of,
    smoothed,
    to_improve,
)

LEAST, MOST = 10, 1000  # evaluations; more are thinned out, and say no more of the noise
DRAWS, MUCH, KEPT = 400, 0.1, 5
MAX_LUCK, MAX_TINY = 1 / 3, 20  # of the gain; samples of an evaluation
BEYOND, SURELY = 3.0, 5.0  # standard errors that a curve must exceed its noise by; of one row
LAST_NAME = re.compile("last|latest|final")
STEP_IN_NAME = re.compile(r"(?:step|epoch|iter|ckpt|point|model|[-_=])[-_=]?(\d+)(?![\d.]*\d)")


class Selection(NamedTuple):
    """The best evaluation of one metric; `luck` is what the choice alone is expected to add."""

    series: Series
    best: int
    luck: float
    gain: float  # of the best, along the curve without noise, over the first evaluation
    noise: float
    near: int  # evaluations that the noise does not tell from the best


class ChosenBest(Check):
    """A best evaluation that is better than the model by chance, or whose checkpoint is lost.

    ## What it does
    Estimates the noise from neighbouring evaluations. Simulates the run 400 times, to measure what
    the choice of the best adds. Lists the five best checkpoints. Compares them with the files
    beside the log, by their names (`last.pt`, `epoch=3.ckpt`, `checkpoint-500`).

    ## Why is this bad
    The best of N noisy evaluations is biased: 2.5 deviations for 100 equal evaluations. The result
    cannot be reproduced, and runs with more evaluations win. A best that is not saved is lost.

    ## How it decides
    Fails if the choice alone adds a third of the gain of each metric, and noise explains best minus
    last. Fails if an accuracy only takes multiples of 1/n, for n below 20, and jumps by more than
    1/n. Fails if all checkpoints are behind the best by 10% of the gain and 5 deviations, in each
    metric. Inconclusive with fewer than 10 evaluations, or without a gain beyond the noise.

    ## Limits
    Only held-out losses and scores, by name. Real differences between neighbouring checkpoints
    count as noise, so the bias is an upper bound. Checkpoints without a step in their names pass.
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
        judged = [s for s in to_improve(subject.series, LEAST) if is_held_out(s.name)]
        if not judged:
            return unclear(f"No held-out loss or score has {LEAST} evaluations.")
        for series in judged:
            if samples := _few_samples(series):
                return self.failed(
                    f"{series.title} only takes multiples of 1/{samples}: the evaluation has "
                    f"{samples} samples, or few more."
                )
        rows = [select_best(series) for series in judged]
        told = [row for row in rows if row.gain > BEYOND * row.noise]
        if subject.checkpoints and all(_is_lost(row, subject.checkpoints) for row in rows):
            names = ", ".join(file.name for file in subject.checkpoints[:KEPT])
            series, step = rows[0].series, rows[0].series.steps[rows[0].best]
            return wrong(
                f"{series.title} is best at step {step:g}, and no checkpoint is of it ({names}).",
                ("each save replaces the last", "no metric is monitored"),
                "Save a second file when the held-out metric improves, such as `best.pt`.",
                **_told(rows[0]),
            )
        if told and all(row.luck > MAX_LUCK * row.gain and _like_last(row) for row in told):
            return self.failed(_sentence(told[0]), **_told(told[0]))
        row = (told or rows)[0]
        if not told:
            return unclear(f"{row.series.title} gains nothing beyond its noise.", **_told(row))
        return passed(_sentence(row), **_told(row))


def select_best(series: Series) -> Selection:
    """What the choice of the best evaluation is worth, and what of it is luck."""
    kept = np.linspace(0, len(series.steps) - 1, min(MOST, len(series.steps))).round().astype(int)
    series = Series(series.name, series.steps[kept], series.values[kept], log=series.log)
    values = better_is(series.name) * series.values
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


def _few_samples(series: Series) -> int:
    """Return of how many samples an accuracy is, where these are few and it jumps; 0 else."""
    values = series.values / (100 if series.values.max() > 1.5 else 1)
    if not name_words(series.name) & ACCURACIES or len(np.unique(values)) < 3:
        return 0
    apart = (
        n for n in range(2, MAX_TINY) if np.abs(values * n - np.round(values * n)).max() < 0.01
    )
    samples = next(apart, 0)
    jumps = np.abs(np.diff(values)) * samples > 1.5
    return samples if jumps.mean() > MUCH else 0


def _like_last(row: Selection) -> bool:
    """Whether the curve's own best is told from its end: then it was right to choose."""
    values = better_is(row.series.name) * row.series.values
    tail = max(3, len(values) // 10)
    around = values[max(0, row.best - tail // 2) : row.best + tail // 2 + 1]
    error = row.noise * np.sqrt(1 / len(around) + 1 / tail)
    # the best itself is in `around` and lucky: what it adds is taken off
    above = float(around.mean() - row.luck / len(around) - values[-tail:].mean())
    return bool(above < BEYOND * error)


def _is_lost(row: Selection, files: Sequence[Path]) -> bool:
    """Whether no checkpoint is of an evaluation that is as good as the best, by their names."""
    steps, values = row.series.steps, better_is(row.series.name) * row.series.values
    curve, rows = smoothed(values, share=0.3), set[int]()
    for name in (file.stem.lower() for file in files):
        numbers = [int(number) for number in STEP_IN_NAME.findall(name)]
        own = {n - first for n in numbers for first in (0, 1)} & set(range(len(values)))  # epochs
        own |= {int(np.abs(steps - n).argmin()) for n in numbers if n <= steps[-1]}
        own |= {len(values) - 1} if LAST_NAME.search(name) else set()
        if "best" in name or not own:
            return False
        rows |= own
    behind = values[row.best] - row.luck - max(max(values[i], curve[i]) for i in rows)
    return bool(behind > max(SURELY * (values - curve).std(), MUCH * abs(row.gain)))


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
