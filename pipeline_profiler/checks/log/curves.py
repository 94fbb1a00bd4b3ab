"""Curves of one log: periods, divergence, lost states, runs that learn nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    MOST_BLOCKS,
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
    chance below one in a million. It must swing by a quarter of the noise, or a fiftieth of the
    range. Settings, clocks, counts and columns without noise are ignored.

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
        found = [(s, p) for s, p in found if p.swing > max(p.noise / 4, np.ptp(s.values) / 50)]
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
    noise: float  # the deviation beside it


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
    noise = math.sqrt(max(0.0, float(plain.var() - folded.var())))
    return Period(rows, float(ratio[best]), chance, float(np.ptp(folded)), noise)


def _comb(chances: Values, best: int, share: int) -> float:
    """Evidence for the lines up to twice the best that its share adds; noise takes 2 off each."""
    if share == 1:
        return COMB_BOUND
    at = np.array([m for m in range(1, 2 * share) if m % share]) * (best + LOWEST_LINE) / share
    at = np.round(at).astype(int) - LOWEST_LINE
    return float((-np.log(np.maximum(chances[at[at < len(chances)]], 1e-12)) - 3).sum())


MIN_ROWS, LEAST_ROWS, AFTER = 10, 20, 3  # rows: of a metric; of a loss that rises; after a resume
WINDOW, LEAP = 12, 8.0  # rows on both sides; standard errors, of the largest among all rows
LOST, AT_START = 0.3, 0.85  # of the gain
PHASES = {"beta", "weight", "stage", "phase", "curriculum", "difficulty", "len", "length", "size"}
PHASES |= {"batch", "batch_size", "resolution", "frozen", "trainable", "alpha", "coef", "level"}
CLASSES, LIKELY = (*range(2, 21), 50, 100, 1000), (*range(2, 11), 100, 1000)
DENSE_ROWS, LONG, FROZEN = 100, 20, 4
TINY_SHARE, TINY_RATE, LEAST_SHARE = 1e-5, 1e-7, 0.2  # of the peak; of any rate; of the rows
LOW, TUNED = 0.6, 1.5  # below the loss of chance for two classes; of a model that is tuned


class NothingLearned(Check):
    """A run that diverges, loses its state, or learns nothing.

    ## How it decides
    Fails if a training loss is NaN, ends half of its gain above its best, steps up by 30% for 6
    rows at equal settings, or loses 30% of its gain at a resume. Fails if no loss falls from ln(k)
    or from above 1.5, an accuracy stands at 1/k, or a held-out metric repeats one number. Fails for
    a rate that is negative, starts again, or is below 1/100,000 of its peak while no loss falls.

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
            for find in (_not_finite, _rises, _resumes):
                if sentence := find(log):
                    return wrong(sentence, DIVERGED_CAUSES, DIVERGED_ADVICE)
            for find in (_rates, _chance, _stands, _freezes):
                if sentence := find(log):
                    return self.failed(sentence)
            moving += sum(_moves(s) is True for s in log.metrics(MIN_ROWS))
        if not moving:
            return unclear("No loss or score of a plain training moves beyond its noise.")
        return passed(f"{moving} metrics move beyond their noise.")


DIVERGED_CAUSES = (
    "the learning rate is too high for this part of the training, or gradients explode",
    "a batch with extreme values, or overflow in half precision",
    "a resume without the state of weights, optimizer or schedule",
)
DIVERGED_ADVICE = (
    "Lower the rate or clip gradients; look at the batches before that step; save and load the "
    "state of model, optimizer and schedule."
)


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
        if series.sign > 0 or series.is_held_out:
            continue
        if sentence := _rise(series, log) or _leap(series, log):
            return sentence
    return ""


def _rise(series: Series, log: LogSubject) -> str:
    """A sentence where the last tenth lies far above the best one; "" else."""
    parts = np.array_split(series.values, 10)
    medians = np.array([np.median(part) for part in parts])
    noise, best = series.noise, int(medians.argmin())
    error = 1.25 * noise * np.sqrt(2 / len(parts[-1])) + 1e-12
    gain = max(medians[0] - medians[best], noise)
    up = medians[-1] - medians[best]
    if up <= max(SURELY * error, 0.5 * gain) or _changes(log, *series.steps[[0, -1]]):
        return ""
    step = series.steps[sum(map(len, parts[:best]))]
    return (
        f"{series.title} ends at {medians[-1]:.4g} and was {medians[best]:.4g} about step {step:g}."
    )


def _changes(log: LogSubject, start: float, end: float) -> bool:
    """Whether a logged phase, or a weight of the loss, differs between two steps."""
    settings = [s for s in log.series if s.words & PHASES and not s.sign]
    levels = [np.interp([start, end], s.steps, s.values) for s in settings]
    return any(abs(first - last) > 0.01 * abs(first) for first, last in levels)


def _leap(series: Series, log: LogSubject) -> str:
    """Where a loss steps up from one row to the next and stays for a while, at equal settings."""
    values = series.values
    if len(values) < 4 * WINDOW or (np.diff(series.steps) < 0).any():
        return ""  # a resume, a second run, steps of an epoch
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, WINDOW), axis=1)
    ups = (medians[WINDOW:] - medians[:-WINDOW])[2 * WINDOW :]
    row = int(ups.argmax()) + 3 * WINDOW
    before, up, early = medians[row - WINDOW], ups.max(), max(0, row - 4 * WINDOW)
    error = 1.25 * noise_of(values[early:row]) * np.sqrt(2 / WINDOW)
    if up <= max(LEAP * error, 0.05 * np.ptp(medians), 0.3 * abs(before), 1e-9):
        return ""
    near = np.lib.stride_tricks.sliding_window_view(values[row - WINDOW : row + WINDOW], AFTER)
    start = values[:AFTER].mean() - medians.min()
    if AT_START < (np.median(near, axis=1).max() - medians.min()) / max(start, 1e-12) < 1.15:
        return ""  # a second run in the file
    steps = series.steps[[early, row + WINDOW - 1]]
    rates = [np.interp(steps, s.steps, s.values) for s in log.series if s.is_rate]
    if _changes(log, *steps) or any(late > 1.5 * first for first, late in rates):
        return ""
    return (
        f"{series.title} steps up from {before:.4g} to {before + up:.4g} near step "
        f"{series.steps[row]:g}, and no logged setting changes there."
    )


def _resumes(log: LogSubject) -> str:
    """What a log loses where its steps go back, or its schedule starts again."""
    second_run = False
    for s in log.metrics(LEAST_ROWS):
        rows = np.flatnonzero(np.diff(s.steps) < 0) + 1
        if len(rows) > 1 and np.ptp(np.diff([0, *rows])) <= 1:
            continue  # steps of an epoch
        epochs = [
            e.values for e in log.series if e.name == "epoch" and len(e.values) == len(s.values)
        ]
        for row in rows[rows >= MIN_ROWS]:
            lost, step = _lost(s, row), s.steps[row]
            goes_on = step > s.steps[0] or any(e[row] > e[0] for e in epochs)
            if lost and (lost < AT_START or goes_on):
                return f"{s.title} loses {lost:.0%} of its gain at the resume of step {step:g}."
            second_run |= bool(lost)
    for rate in log.series:
        if rate.is_rate and not second_run and (row := _starts_again(rate)):
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
    error = 1.4 * error_of_mean(values[max(0, row - MOST_BLOCKS) : row], AFTER)
    lost, gain = before - float(values[row:][:AFTER].mean()), before - start
    return lost / gain if gain > 0 and lost > max(SURELY * error, LOST * gain) else 0.0


def _starts_again(rate: Series) -> int:
    """Return the row at which a schedule warms up again, or returns to its peak, before its end."""
    values, peak = rate.values, rate.values.max()
    rows = np.arange(LEAST_ROWS + 1, len(values) - AFTER)
    if not len(rows):
        return 0
    before, lowest = values[rows - 1], np.minimum.accumulate(values[::-1])[::-1][rows]
    alike = [np.abs(values[rows + i] - values[i]) < 0.01 * values[i] for i in range(AFTER)]
    cycle = np.abs(before - values[rows + 1]) < 0.05 * before  # down and up alike
    warm = np.all(alike, axis=0) & ~cycle & (np.diff(values[:AFTER]) > 0).all()
    high = 0.97 * peak
    leap = (values[rows] > high) & (np.maximum.accumulate(values)[rows - 1] > high)
    leap &= (before < 0.87 * peak) & (lowest < 0.5 * before)
    found = rows[(warm | leap) & (before > 0.05 * peak) & (before < 0.9 * peak)]
    return int(found[0]) if len(found) == 1 else 0


def _moves(series: Series, start: float = -np.inf, end: float = np.inf) -> bool | None:
    """Whether a metric improves; False if it surely does not by a share, None if unknown."""
    inside = (series.steps >= start) & (series.steps < end)
    values = series.gains[inside]
    if len(values) < MIN_ROWS:
        return None
    means = np.array([part.mean() for part in np.array_split(values, MOST_BLOCKS) if len(part)])
    fifths = np.array([part.mean() for part in np.array_split(means, min(5, len(means) // 3))])
    gain = float(fifths[1:].max() - fifths[0])
    error = error_of_mean(means, len(means)) * np.sqrt(len(fifths))
    early = error_of_mean(values[:MOST_BLOCKS], 3)
    fall = float(np.median(values) - values[:3].mean())
    small, least = (0.1, 1e-3) if series.sign > 0 else (0.05, 1e-9)  # of the level
    if gain > max(SURELY * error, least) or fall > max(SURELY * early, least):
        return True
    small = 0.08 if series.sign < 0 and values.mean() < -TUNED else small
    return False if gain + 4 * error < small * abs(float(values.mean())) else None


def _freezes(log: LogSubject) -> str:
    """From which step on a held-out metric repeats one number, while a training loss moves."""
    for held in log.metrics(MIN_ROWS):
        values = held.values
        last = int(np.append(-1, np.flatnonzero(values != values[-1]))[-1]) + 1
        rows, digits = len(values) - last, abs(values[-1] * 1e3 - round(values[-1] * 1e3))
        if not held.is_held_out or held.is_accuracy or digits < 1e-6:
            continue
        trained = [s.values[s.steps >= held.steps[last]] for s in log.series if s.sign < 0]
        moving = any(len(np.unique(v)) > rows // 2 for v in trained)
        if rows >= max(FROZEN, len(values) / 4) and moving:
            start = f"{held.title} repeats {values[-1]:.6g} in its last {rows} rows"
            return f"{start}, from step {held.steps[last]:g} on."
    return ""


def _rates(log: LogSubject) -> str:
    """What is wrong with a learning rate: it is dead, not applied, or back within each epoch."""
    rates = [s for s in log.series if s.is_rate and len(s.values) >= MIN_ROWS]
    losses = [s for s in log.metrics(MIN_ROWS) if s.sign < 0]
    if rates and (dead := _dead(max(rates, key=lambda s: np.median(s.values)), losses)):
        return dead
    planned = [s for s in rates if "sched" in s.name.lower() and np.ptp(s.values) > 0]
    epochs = max((float(np.ptp(s.values)) + 1 for s in log.series if s.name == "epoch"), default=0)
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
    # a logger that rounds to six decimals writes 0 for a small rate
    fell = any(_moves(s, steps[first // 2], steps[first]) for s in losses) if first else losses
    if not fell and (values == np.round(values, 6)).all():
        return ""
    start = f"{rate.title} is at most {values[first:].max():.2g} from step {steps[first]:g} on"
    return f"{start} ({share:.0%} of the rows); its peak is {peak:.3g}."


def _stands(log: LogSubject) -> str:
    """Which loss stands at the level of chance, or at that of its first step."""
    plain = log.metrics(MIN_ROWS)
    losses, scores = [[s for s in plain if s.sign == sign] for sign in (-1, 1)]
    alone = all(s.is_own or s.sign > 0 for s in log.series)
    if (
        not losses
        or not alone
        or any(_moves(s) for s in scores)
        or {_moves(s) for s in losses} != {False}
    ):
        return ""
    loss = max(losses, key=lambda s: (not s.is_held_out, len(s.values)))
    level, gap = float(np.median(loss.values)), float(np.median(np.diff(loss.steps)))
    start = f"{loss.title} never falls: it is {level:.4g} in {len(loss.values)} rows"
    levels = [float(np.median(s.values)) for s in scores]
    skill = max((v / 100 if v > 1.5 else v for v in levels), default=0.0)
    near = next((k for k in LIKELY if -0.005 < level / np.log(k) - 1 < 0.015), 0)
    if near and skill < 1.5 / near and loss.steps[0] <= LONG * max(gap, 1):  # from no checkpoint
        return f"{start}, as by chance among {near} classes."
    dense = loss.steps[0] <= 1 and 0 < gap <= 10 and len(loss.steps) >= DENSE_ROWS
    dense |= bool(levels) and max(levels) < 1e-3
    return f"{start}, from its first step on." if dense and level > TUNED and skill < 0.75 else ""


def _chance(log: LogSubject) -> str:
    """Why an accuracy that does not move is that of no model."""
    plain = log.metrics(MIN_ROWS)
    losses = [s for s in plain if s.sign < 0]
    still = {_moves(s) for s in losses} == {False}
    scores = [s for s in plain if s.is_accuracy and not _moves(s)]
    return next(filter(None, (_chance_of(s, losses, still) for s in scores)), "")


def _chance_of(score: Series, losses: list[Series], still: bool) -> str:
    values = score.values / (100 if score.values.max() > 1.5 else 1)
    mean, constant = float(values.mean()), bool(np.ptp(values) < 1e-9)
    if not 0 < mean < 1:
        return ""
    start = f"{score.title} stays at {score.values.mean():.4g} in all {len(values)} rows"
    classes, log_classes = round(1 / mean), float(np.log(round(1 / mean)))
    beside = [np.median(s.values[-5:]) for s in losses if still or s.is_held_out]
    error = max(0.003 * mean, error_of_mean(values[-MOST_BLOCKS:], len(values)))
    near = classes in CLASSES and abs(mean - 1 / classes) < 3 * error < 0.05 * mean
    near &= bool(min(beside, default=99) > 0.99 * log_classes) and (still or len(values) >= LONG)
    fair = score.words & {"auc", "auroc"} or max(beside, default=99) < 1.2 * log_classes
    if near and (fair or constant or classes >= 10):
        return f"{start}, as by chance among {classes} classes."
    entropy = -mean * np.log(mean) - (1 - mean) * np.log(1 - mean)  # the loss of a constant
    rare = min(mean, 1 - mean)  # up to 12 samples can be the same in each evaluation
    few = any(abs(n / round(n / rare) - rare) < 6e-5 for n in range(1, 13))
    coarse = few or abs(mean - round(mean, 3)) < 1e-9
    sure = beside[0] > LOW or abs(beside[0] / entropy - 1) < 0.03 if still else not coarse
    return f"{start}." if constant and sure else ""
