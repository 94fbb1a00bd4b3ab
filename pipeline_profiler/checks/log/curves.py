"""Curves of one log: periods, divergence, lost states, runs that learn nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    OTHER_GOALS,
    LogSubject,
    Series,
    Values,
    error_of_mean,
    noise_of,
    off_pace,
    smoothed,
)

CHANCE, SURELY = 1e-6, 6.0  # of all periods; standard errors
LOWEST_LINE, BESIDE, FREEDOM, SHORTEST = 9, 28, 12, 131  # lines on a side; SHORTEST: rows
COMB_BOUND, MOST_SHARES = 6.0, 64  # evidence for a longer period; times as long


class Periodic(Check):
    """A metric with a fixed period.

    ## How it decides
    Fails if the strongest line of the spectrum exceeds its surroundings (about 40 times) with a
    chance below one in a million, and it swings by a fiftieth of the range. Settings, clocks,
    counts and columns without noise are ignored.

    ## Limits
    Needs 131 rows at even steps, and nine periods. Schedules with restarts have their own period.
    """

    code = "LOG001"
    name = "periodic-metric"
    causes = (
        "the data come in the same order each epoch",
        "the batches of a part of the data differ (sorted, by source)",
        "a schedule with restarts",
    )
    next_step = "Is this the number of steps of an epoch? Then shuffle anew in each epoch."

    def run(self, subject: LogSubject) -> Answer:
        judged = [
            s for s in subject.series
            if len(s.steps) >= SHORTEST and s.is_metric and np.isfinite(s.values).all()
            and off_pace(s.steps, 0.01)[1] < 0.02 and not _without_noise(s.values)
        ]  # fmt: skip
        if not judged:
            return unclear(f"No metric has {SHORTEST} rows of noisy numbers at even steps.")
        peaks = [(s, spectral_peak(s.values)) for s in judged]
        found = [row for row in peaks if row[1].chance * len(judged) < CHANCE]
        found = [(s, p) for s, p in found if p.swing > np.ptp(s.values) / 50]
        series, peak = max(found or peaks, key=lambda row: row[1].ratio)
        line = f"its spectrum has a line {peak.ratio:.0f} times its surroundings"
        if not found:
            return passed(f"{len(judged)} metrics have no period. {series.title}: {line}.")
        steps = float(f"{np.median(np.diff(series.steps)) * peak.rows:.3g}")
        others = f" ({len(found)} metrics do)" if len(found) > 1 else ""
        return self.failed(
            f"{series.title} swings by {peak.swing:.3g} with a period of {steps:g} steps"
            f"{_in_epochs(steps, subject, series.log)}{others}: {line} (by chance "
            f"{peak.chance:.0e})."
        )


def _without_noise(values: Values) -> bool:
    """Whether a column is smooth within its rounding: a setting or a clock."""
    digits = float(np.diff(np.unique(values)).min(initial=np.inf))
    return noise_of(values, 4) <= max(1e-5 * float(np.ptp(values)), digits)


def _in_epochs(period: float, subject: LogSubject, log: str) -> str:
    """', once an epoch': a period in terms of the column of the epoch, where they agree."""
    for series in subject.series:
        starts = series.steps[1:][np.diff(np.floor(series.values)) > 0]
        if series.log == log and series.name.lower().endswith("epoch") and len(starts) > 1:
            times = float(np.median(np.diff(starts))) / period
            if times > 0.9 and abs(times - round(times)) < 0.03 * times:
                return f", {round(times)} times an epoch" if times > 1.5 else ", once an epoch"
    return ""


class Period(NamedTuple):
    """A line of a spectrum: its period, its height over its surroundings, and what it moves."""

    rows: float
    ratio: float
    chance: float  # of this height
    swing: float  # from top to bottom


def spectral_peak(values: Values) -> Period:
    """Return the strongest period of a series, and its fundamental if the line is a harmonic.

    The series has at least `SHORTEST` rows. It is detrended, whitened (AR(1)) and windowed. A line
    of noise over the median of about 50 neighbours exceeds x with probability (1 + x/v)^-v, v = 12
    (Brockwell and Davis, Time Series, 10.3).
    """
    plain = values - smoothed(values, 0.36)
    share = (plain[1:] * plain[:-1]).sum() / max((plain**2).sum(), 1e-300)
    white = plain[1:] - share * plain[:-1]
    power = np.abs(np.fft.rfft(white * np.hanning(len(white)))) ** 2
    lines = np.arange(LOWEST_LINE, len(power) - 1)
    offsets = np.arange(-BESIDE, BESIDE + 1)  # without those that the window mixes in
    beside = np.lib.stride_tricks.sliding_window_view(power, len(offsets))[:, np.abs(offsets) > 2]
    inside = np.clip(lines - BESIDE, 2, len(beside) - 3)
    ratio = power[lines] / np.maximum(np.median(beside[inside], axis=1), 1e-300) * math.log(2)
    alone, best = (1 + ratio / FREEDOM) ** -FREEDOM, int(ratio.argmax())
    shares = range(1, min(MOST_SHARES, lines[best] // LOWEST_LINE) + 1)
    rows = len(white) / lines[best] * max(shares, key=lambda k: _comb(alone, best, k))
    chance = -math.expm1(len(ratio) * math.log1p(-min(float(alone[best]), 1 - 1e-12)))
    late, lag = plain[len(plain) // 3 :], round(rows * math.ceil(12 / rows))
    if np.corrcoef(late[lag:], late[:-lag])[0, 1] < 2 / math.sqrt(len(late) - lag):
        chance = 1.0  # a steep beginning has all periods
    phase = (np.arange(len(values)) % rows / rows * min(12, max(2, int(rows)))).astype(int)
    folded = np.bincount(phase, plain) / np.bincount(phase)
    return Period(rows, float(ratio[best]), chance, float(np.ptp(folded)))


def _comb(chances: Values, best: int, share: int) -> float:
    """Evidence for the lines up to twice the best that its share adds; noise takes 2 off each."""
    if share == 1:
        return COMB_BOUND
    at = np.array([m for m in range(1, 2 * share) if m % share]) * (best + LOWEST_LINE) / share
    at = np.round(at).astype(int) - LOWEST_LINE
    return float((-np.log(np.maximum(chances[at[at < len(chances)]], 1e-12)) - 3).sum())


MIN_ROWS, LEAST_ROWS, AFTER = 10, 20, 3  # rows: of a metric; of a rise; after a resume
WINDOW, LEAP = 12, 8.0  # rows; standard errors, of the largest among all rows
LOST, AT_START = 0.3, 0.85  # of the gain
PHASES = {"beta", "weight", "stage", "phase", "curriculum", "difficulty", "len", "length", "size"}
PHASES |= {"batch", "batch_size", "resolution", "frozen", "trainable", "alpha", "coef", "level"}
CLASSES = (*range(2, 21), 50, 100, 1000)
DENSE_ROWS, MAX_START, FROZEN = 100, 20, 4  # rows; distances of rows; rows
TINY_SHARE, TINY_RATE, LEAST_SHARE = 1e-5, 1e-7, 0.2  # of the peak; of any rate; of the rows
TUNED, SKILLED = 1.5, 0.55  # a loss below, or a score above, may be that of a tuned model
DIVERGED_CAUSES = (
    "the learning rate is too high for this part of the training, or gradients explode",
    "a batch with extreme values, or overflow in half precision",
    "a resume without the state of weights, optimizer or schedule",
)
DIVERGED_ADVICE = (
    "Lower the rate or clip gradients; look at the batches before that step; save and load the "
    "state of model, optimizer and schedule."
)


class NothingLearned(Check):
    """A run that diverges, loses its state, or learns nothing.

    ## How it decides
    Fails if a training loss is NaN, ends half of its gain above its best, or loses 30% at a resume
    or step at equal settings; if no loss falls from ln(k) or from 1.5, an accuracy stands at 1/k, a
    held-out metric repeats a number; if a rate is negative, restarts, or 1e-5 of its peak.

    ## Limits
    Losses of GANs and RL, and references such as `best_acc`, are not judged. Needs 10 rows.
    """

    code = "LOG012"
    name = "nothing-learned"
    causes = (
        "no gradient reaches the weights (frozen, detached, another optimizer, a rate of zero)",
        "labels do not belong to their inputs, or the inputs are constant",
        "the schedule is shorter than the run, or counts other steps",
    )
    next_step = "Train on one batch until its loss is near zero: `check -- train.py` does."

    def run(self, subject: LogSubject) -> Answer:
        moving = 0
        for log in subject.by_log():
            if sentence := _not_finite(log) or _rises(log) or _resumes(log):
                return wrong(sentence, DIVERGED_CAUSES, DIVERGED_ADVICE)
            if sentence := _rates(log) or _stands(log) or _freezes(log):
                return self.failed(sentence)
            moving += sum(_moves(s) is True for s in log.metrics(MIN_ROWS))
        if not moving:
            return unclear("No loss or score of a plain training moves beyond its noise.")
        return passed(f"{moving} metrics move beyond their noise.")


def _not_finite(log: LogSubject) -> str:
    """Where a loss is NaN or infinite."""
    for series in log.series:
        bad = np.flatnonzero(~np.isfinite(series.values))
        if series.sign < 0 and len(bad):
            start = f"{series.title} is no number from step {series.steps[bad[0]]:g} on"
            return f"{start} ({len(bad)} rows)."
    return ""


def _rises(log: LogSubject) -> str:
    """Where a training loss rises for good, or steps up for a while, at equal settings."""
    for series in log.metrics(LEAST_ROWS):
        values, width = series.values, min(WINDOW, len(series.values) // 10)
        if series.sign > 0 or series.is_held_out or (np.diff(series.steps) < 0).any():
            continue  # a resume, a second run, steps of an epoch
        levels = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
        best, error = int(levels.argmin()), 1.25 * series.noise * np.sqrt(2 / width)
        row = int((levels[3 * width :] - levels[2 * width : -width]).argmax()) + 2 * width
        top, start = np.sort(values[row : row + 2 * width])[-AFTER], values[:AFTER].mean()
        second_run = abs(top - start) < 0.15 * (start - levels[best])
        rise = (best, len(levels) - 1, max(SURELY * error, (levels[0] - levels[best]) / 2))
        leap = (row, row + width, max(LEAP * error, 0.3 * abs(levels[row])))
        for early, late, least in (rise,) if second_run else (rise, leap):
            steps, up = series.steps[[early, late + width - 1]], levels[late] - levels[early]
            if up > least + 1e-9 and not _changes(log, *steps, rates=late < len(levels) - 1):
                return (
                    f"{series.title} rises from {levels[early]:.4g} to {levels[late]:.4g} between "
                    f"steps {steps[0]:g} and {steps[1]:g}, and no logged setting changes there."
                )
    return ""


def _changes(log: LogSubject, start: float, end: float, *, rates: bool = False) -> bool:
    """Whether a phase, or a weight of the loss, differs between two steps, or a rate rises."""
    for series in log.series:
        first, last = np.interp([start, end], series.steps, series.values)
        if series.words & PHASES and not series.sign and abs(last - first) > 0.01 * abs(first):
            return True
        if rates and series.is_rate and last > 1.5 * first:
            return True
    return False


def _resumes(log: LogSubject) -> str:
    """What a log loses where its steps go back, or its schedule starts again."""
    counts = [s.values for s in log.series if s.name == "epoch"]
    for series in log.metrics(LEAST_ROWS):
        steps, rows = series.steps, np.flatnonzero(np.diff(series.steps) < 0) + 1
        if len(rows) > 1 and np.ptp(np.diff([0, *rows])) <= 1:
            continue  # steps of an epoch
        for row in rows[rows >= MIN_ROWS]:
            epochs = [e for e in counts if len(e) == len(steps)]
            goes_on = steps[row] > steps[0] or any(e[row] > e[0] for e in epochs)
            lost = _lost(series, row)
            if lost and (lost < AT_START or goes_on):
                start = f"{series.title} loses {lost:.0%} of its gain"
                return f"{start} at the resume of step {steps[row]:g}."
    for rate in log.rates(LEAST_ROWS):
        if row := _restart(rate):
            return (
                f"{rate.title} returns from {rate.values[row - 1]:.3g} to {rate.values[row]:.3g} "
                f"at step {rate.steps[row]:g}, within its schedule."
            )
    return ""


def _lost(series: Series, row: int) -> float:
    """The share of its gain that a metric loses at a row, against earlier rows up to its step."""
    steps, values = series.steps, series.gains
    prior = steps[:row] <= (steps[row] if steps[row] > steps[0] else np.inf)
    before, start = float(values[:row][prior][-5:].mean()), float(values[:AFTER].mean())
    lost, gain = before - float(values[row:][:AFTER].mean()), before - start
    return lost / gain if gain > 0 and lost > max(LEAP * series.noise, LOST * gain) else 0.0


def _restart(rate: Series) -> int:
    """Return the row at which a schedule warms up again, or returns to its peak, before its end."""
    values, peak = rate.values, rate.values.max()
    rows = np.arange(LEAST_ROWS + 1, len(values) - AFTER)
    before, lowest = values[rows - 1], np.minimum.accumulate(values[::-1])[::-1][rows]
    alike = [np.abs(values[rows + i] - values[i]) < 0.01 * values[i] for i in range(AFTER)]
    warm = np.all(alike, axis=0) & (np.diff(values[:AFTER]) > 0).all()
    tops = np.minimum(values[rows], np.maximum.accumulate(values)[rows - 1])
    back = (tops > 0.97 * peak) & (before < 0.87 * peak) & (lowest < 0.5 * before)
    found = rows[(warm | back) & (before > 0.05 * peak)]
    return int(found[0]) if len(found) == 1 else 0


def _moves(series: Series, start: float = -np.inf) -> bool | None:
    """Whether a metric improves; False if it surely does not by a share, None if unknown."""
    values = series.gains[series.steps >= start]
    if len(values) < MIN_ROWS:
        return None
    parts = np.array([p.mean() for p in np.array_split(values, min(5, len(values) // 3))])
    gain, fall = float(parts[1:].max() - parts[0]), float(np.median(values) - values[:3].mean())
    error = error_of_mean(values, len(values)) * np.sqrt(len(parts))
    small, least = (0.1, 1e-3) if series.sign > 0 else (0.08, 1e-9)  # of the level
    if gain > max(SURELY * error, least) or fall > max(SURELY * series.noise, least):
        return True
    return False if gain + 4 * error < small * abs(float(values.mean())) else None


def _freezes(log: LogSubject) -> str:
    """From which step on a held-out metric repeats one number."""
    for held in log.metrics(MIN_ROWS):
        values = held.values
        last = int(np.append(-1, np.flatnonzero(values != values[-1]))[-1]) + 1
        rows, rounded = len(values) - last, abs(values[-1] - round(values[-1], 3)) < 1e-9
        frozen = rows >= max(FROZEN, len(values) / 4) and not rounded
        if frozen and held.is_held_out and not held.is_accuracy:
            start = f"{held.title} repeats {values[-1]:.6g} in its last {rows} rows"
            return f"{start}, from step {held.steps[last]:g} on."
    return ""


def _rates(log: LogSubject) -> str:
    """What is wrong with a learning rate: it is dead, not applied, or back within each epoch."""
    rates = log.rates(MIN_ROWS)
    losses = [s for s in log.metrics(MIN_ROWS) if s.sign < 0]
    planned = [s for s in rates if "sched" in s.name.lower() and np.ptp(s.values) > 0]
    epochs = max((float(np.ptp(s.values)) + 1 for s in log.series if s.name == "epoch"), default=0)
    if rates and (dead := _dead(max(rates, key=lambda s: np.median(s.values)), losses)):
        return dead
    for rate in rates:
        if planned and np.ptp(rate.values) == 0:
            return (
                f"{rate.title} stays at {rate.values[0]:.3g}, and {planned[0].title} goes to "
                f"{planned[0].values[-1]:.3g}: the schedule is not applied."
            )
        high = (rate.values > 0.5 * rate.values.max()).astype(int)
        returns = int((np.diff(high) > 0).sum())
        if returns >= 4 and 3 <= epochs < returns / 1.5:
            return (
                f"{rate.title} returns to its peak {returns} times in {epochs:.0f} epochs: the "
                "schedule counts batches as epochs."
            )
    return ""


def _dead(rate: Series, losses: list[Series]) -> str:
    """What is wrong with a learning rate at which no loss falls."""
    values, steps, peak = rate.values, rate.steps, float(rate.values.max())
    if (below := np.flatnonzero(values < 0)).size:
        return f"{rate.title} is negative from step {steps[below[0]]:g} on."
    first = int(np.flatnonzero(values > TINY_SHARE * peak)[-1]) + 1 if peak > TINY_RATE else 0
    share = 1 - first / len(values)
    if share < LEAST_SHARE or any(_moves(s, steps[first]) for s in losses):
        return ""
    start = f"{rate.title} is at most {values[first:].max():.2g} from step {steps[first]:g} on"
    return f"{start} ({share:.0%} of the rows); its peak is {peak:.3g}."


def _stands(log: LogSubject) -> str:
    """Which accuracy or loss stays at the level of chance, or at that of its first step."""
    plain = log.metrics(MIN_ROWS)
    losses = [s for s in plain if s.sign < 0]
    moves = {s.name: _moves(s) for s in plain}
    still = {moves[s.name] for s in losses} == {False}
    for score in plain:
        stands = score.is_accuracy and not moves[score.name]
        if stands and (sentence := _chance(score, losses, still)):
            return sentence
    alone = not any(s.words & OTHER_GOALS and s.sign <= 0 for s in log.series)
    if not still or not alone or True in moves.values():
        return ""
    loss = max(losses, key=lambda s: not s.is_held_out)
    level, gap = float(np.median(loss.values)), float(np.median(np.diff(loss.steps)))
    skill = max((_level(s) for s in plain if s.sign > 0), default=np.nan)
    from_checkpoint = loss.steps[0] > MAX_START * max(gap, 1) or skill > SKILLED
    if from_checkpoint or _changes(log, *loss.steps[[0, -1]]):
        return ""
    start = f"{loss.title} never falls: it is {level:.4g} in {len(loss.values)} rows"
    for classes in CLASSES:
        if abs(level / np.log(classes) - 1) < 0.015:
            return f"{start}, as by chance among {classes} classes."
    dense = (gap <= 10 and len(loss.steps) >= DENSE_ROWS) or skill < 1e-3
    return f"{start}, from its first step on." if dense and level > TUNED else ""


def _level(score: Series) -> float:
    """The mean of a score as a share, also of percent."""
    return float(score.values.mean()) / (100 if score.values.max() > 1.5 else 1)


def _chance(score: Series, losses: list[Series], still: bool) -> str:
    """Why an accuracy that does not move is that of no model."""
    mean = _level(score)
    if not 0 < mean < 1:
        return ""
    start = f"{score.title} stays at {score.values.mean():.4g} in all {len(score.values)} rows"
    classes, log_classes = round(1 / mean), float(np.log(round(1 / mean)))
    beside = [np.median(s.values[len(s.values) // 2 :]) for s in losses if still or s.is_held_out]
    near = classes in CLASSES and abs(mean * classes - 1) < 0.03
    near &= bool(min(beside, default=99) > 0.99 * log_classes)
    if near and (classes >= 10 or max(beside, default=99) < 1.2 * log_classes):
        return f"{start}, as by chance among {classes} classes."
    entropy = -mean * np.log(mean) - (1 - mean) * np.log(1 - mean)  # the loss of a constant
    rare = min(mean, 1 - mean)  # up to 12 samples can be the same in each evaluation
    few = any(abs(n / round(n / rare) - rare) < 6e-5 for n in range(1, 13))
    sure = abs(beside[0] / entropy - 1) < 0.03 if still else not few
    return f"{start}." if sure and np.ptp(score.values) < 1e-9 else ""
