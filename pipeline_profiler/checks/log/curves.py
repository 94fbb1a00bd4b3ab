"""Curves of one log: periods, divergence, plateaus, gaps between its steps, runs at chance."""

from __future__ import annotations

import re

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    ACCURACIES,
    MOST_BLOCKS,
    SHORTEST,
    LogSubject,
    Series,
    Values,
    better_is,
    error_of_mean,
    is_held_out,
    is_metric,
    is_own,
    name_words,
    noise_of,
    spectral_peak,
    to_improve,
    without_noise,
)

CHANCE, SURELY = 1e-6, 6.0  # of all periods; standard errors


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
            if len(s.steps) >= SHORTEST and is_metric(s.name) and np.isfinite(s.values).all()
            and _distances(s.steps, 0.01)[1] < 0.02 and not without_noise(s.values)
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
        sentence = (
            f"{series.title} swings by {peak.swing:.3g} with a period of {steps:g} steps"
            f"{_in_epochs(steps, subject, series.log)}{others}: {line} (by chance "
            f"{peak.chance:.0e})."
        )
        if not is_held_out(series.name):
            return self.failed(sentence)
        overlap = "the held-out data share samples with the training data"
        advice = "Run `audit find RUN FOLDER` on the two sets of images first."
        return wrong(sentence, (overlap, *self.causes), advice)


def _in_epochs(period: float, subject: LogSubject, log: str) -> str:
    """', once an epoch': a period in terms of the column of the epoch, where they agree."""
    for series in subject.series:
        starts = series.steps[1:][np.diff(np.floor(series.values)) > 0]
        if series.log == log and series.name.lower().endswith("epoch") and len(starts) > 1:
            times = float(np.median(np.diff(starts))) / period
            if times > 0.9 and abs(times - round(times)) < 0.03 * times:
                return f", {round(times)} times an epoch" if times > 1.5 else ", once an epoch"
    return ""


LEAST_ROWS, LEAST_BEFORE, AFTER, DENSE = 20, 10, 3, 20  # DENSE: rows of a schedule at a resume
LOST, AT_START = 0.3, 0.85  # of the gain
WINDOW, LEAP = 12, 8.0  # rows on both sides; standard errors, of the largest among all rows
LEAP_CAUSES = (
    "gradients explode (no clipping, a rate that is too high)",
    "a resume without the state of the optimizer",
    "batches that differ from the others",
)
PHASES = {"beta", "weight", "stage", "phase", "curriculum", "difficulty", "len", "length", "size"}
PHASES |= {"batch", "batch_size", "resolution", "frozen", "trainable", "alpha", "coef", "level"}
SECOND_RUN = "It may be a second run in the file."


class Diverged(Check):
    """A loss that became NaN, left its best value for good, or jumps at a resume.

    ## How it decides
    Fails with a NaN or infinite value. Fails if the last tenth of a training loss is 6 standard
    errors and half of the whole gain above its best tenth. Fails if a resume loses 30% of the gain,
    or the learning rate starts again within its schedule. Fails if a training loss steps up by 30%
    and 8 standard errors for 6 rows or more. Inconclusive for overfitting, a second run in the
    file, or a setting that changes.

    ## Limits
    Only metrics named as losses (loss, error, mse, mae, nll, perplexity, ...) or scores.
    """

    code = "LOG002"
    name = "diverged"
    causes = (
        "the learning rate is too high for this part of the training",
        "a batch with extreme values",
        "overflow in half precision",
    )
    next_step = "Lower the learning rate or clip gradients; look at the batches before that step."

    def run(self, subject: LogSubject) -> Answer:
        losses, doubts = [s for s in subject.series if better_is(s.name) < 0], list[str]()
        for jump in filter(None, map(_jump, subject.by_log())):
            doubts.append(jump)
            if not jump.endswith(SECOND_RUN):
                causes = ("the checkpoint lacks the state of weights, optimizer or schedule",)
                return wrong(jump, causes, "Save and load the state of model, optimizer, schedule.")
        for series in losses:
            if len(bad := np.flatnonzero(~np.isfinite(series.values))):
                start = f"{series.title} is no number from step {series.steps[bad[0]]:g} on"
                return self.failed(f"{start} ({len(bad)} rows).")
        for series in to_improve(losses, LEAST_ROWS):
            own = [s for s in subject.series if s.log == series.log]
            held_out, rise = is_held_out(series.name), _rise(series)
            if rise and _changes(own, *series.steps[[0, -1]]):
                doubts.append(f"{rise} A setting of the loss or the data changes meanwhile.")
            elif rise and held_out:
                doubts.append(f"{rise} A held-out loss that rises is overfitting.")
            elif rise:
                return self.failed(rise)
            elif leap := "" if held_out else _leap(series, own):
                return wrong(leap, LEAP_CAUSES, self.next_step)
        if doubts or not losses:
            return unclear([*doubts, "No metric is named as a loss."][0])
        return passed(f"{len(losses)} losses end near their best.")


def _rise(series: Series) -> str:
    """A sentence where the last tenth lies far above the best one; "" else."""
    parts = np.array_split(series.values, 10)
    medians = np.array([np.median(part) for part in parts])
    noise, best = noise_of(series.values), int(medians.argmin())
    error = 1.25 * noise * np.sqrt(2 / len(parts[-1])) + 1e-12
    gain = max(medians[0] - medians[best], noise)
    if medians[-1] - medians[best] <= max(SURELY * error, 0.5 * gain):
        return ""
    step = series.steps[sum(map(len, parts[:best]))]
    return (
        f"{series.title} ends at {medians[-1]:.4g} and was {medians[best]:.4g} about step {step:g}."
    )


def _changes(own: list[Series], start: float, end: float) -> bool:
    """Whether a logged phase, or a weight of the loss, differs between two steps."""
    settings = [s for s in own if name_words(s.name) & PHASES and not better_is(s.name)]
    levels = [np.interp([start, end], s.steps, s.values) for s in settings]
    return any(abs(first - last) > 0.01 * abs(first) for first, last in levels)


def _leap(series: Series, own: list[Series]) -> str:
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
    rates = [np.interp(steps, s.steps, s.values) for s in own if is_rate(s.name)]
    if _changes(own, *steps) or any(late > 1.5 * first for first, late in rates):
        return ""
    return (
        f"{series.title} steps up from {before:.4g} to {before + up:.4g} near step "
        f"{series.steps[row]:g}, and no logged setting changes there."
    )


def _jump(own: list[Series]) -> str:
    """What a log loses at a resume, and whether that can be the start of a second run."""
    anew = [(s, row) for s in own if is_rate(s.name) for row in _starts_again(s)]
    metrics, second = to_improve(own, 2 * LEAST_BEFORE), ""
    for s in metrics:
        rows = np.flatnonzero(np.diff(s.steps) < 0) + 1
        local = len(rows) > 1 and np.ptp(np.diff([0, *rows])) <= 1  # steps of an epoch
        back = [] if local else rows[rows >= LEAST_BEFORE].tolist()
        epochs = [e.values for e in own if e.name == "epoch" and len(e.values) == len(s.values)]
        for row in (*back, *(r for rate, r in anew if len(rate.steps) == len(s.steps))):
            lost, step = _lost(s, row), s.steps[row]
            sentence = f"{s.title} loses {lost:.0%} of its gain at the resume of step {step:g}."
            goes_on = step > s.steps[0] or any(e[row] > e[0] for e in epochs)
            if lost and (lost < AT_START or (row in back and goes_on)):
                return sentence
            second = second or f"{sentence} {SECOND_RUN}" if lost else second
    if second or not anew or not metrics:
        return second
    rate, row = anew[0]
    return (
        f"{rate.title} returns from {rate.values[row - 1]:.3g} to {rate.values[row]:.3g} at step "
        f"{rate.steps[row]:g}, within its schedule."
    )


def _lost(series: Series, row: int) -> float:
    """The share of its gain that a metric loses at a row, against earlier rows up to its step."""
    steps, values = series.steps, better_is(series.name) * series.values
    prior = steps[:row] <= (steps[row] if steps[row] > steps[0] else np.inf)
    before, start = float(values[:row][prior][-5:].mean()), float(values[:AFTER].mean())
    error = 1.4 * error_of_mean(values[max(0, row - MOST_BLOCKS) : row], AFTER)
    lost, gain = before - float(values[row:][:AFTER].mean()), before - start
    return lost / gain if gain > 0 and lost > max(SURELY * error, LOST * gain) else 0.0


def _starts_again(rate: Series) -> list[int]:
    """Return the row at which a schedule warms up again, or returns to its peak, before its end."""
    values, peak = rate.values, rate.values.max()
    rows = np.arange(DENSE + 1, len(values) - AFTER)
    before, lowest = values[rows - 1], np.minimum.accumulate(values[::-1])[::-1][rows]
    alike = [np.abs(values[rows + i] - values[i]) < 0.01 * values[i] for i in range(AFTER)]
    cycle = np.abs(before - values[rows + 1]) < 0.05 * before  # down and up alike
    warm = np.all(alike, axis=0) & ~cycle & (np.diff(values[:AFTER]) > 0).all()
    high = 0.97 * peak
    leap = (values[rows] > high) & (np.maximum.accumulate(values)[rows - 1] > high)
    leap &= (before < 0.87 * peak) & (lowest < 0.5 * before)
    found = rows[(warm | leap) & (before > 0.05 * peak) & (before < 0.9 * peak)]
    return [int(row) for row in found] if len(found) == 1 else []


LEAST_STEPS, MOST_ODD = 8, 0.25


class UnevenSteps(Check):
    """A metric with uneven distances between its steps.

    ## How it decides
    Fails if a quarter of the distances differ from the median by more than 10%. A pause or a
    resumed run changes few distances. Growing distances (1, 2, 4, ...) are inconclusive.

    ## Limits
    Needs at least 8 rows of a metric.
    """

    code = "LOG003"
    name = "uneven-steps"
    next_step = "Evaluate every n steps, not every n minutes."

    def run(self, subject: LogSubject) -> Answer:
        judged = [s for s in subject.series if len(s.steps) >= LEAST_STEPS and is_metric(s.name)]
        if not judged:
            return unclear(f"No metric has {LEAST_STEPS} rows.")
        for series in judged:
            gaps, (middle, odd) = np.diff(series.steps), _distances(series.steps)
            if odd <= MOST_ODD:
                continue
            if (np.diff(gaps) >= 0).all():
                return unclear(f"The distances of {series.title} grow: is that by design?")
            by_clock = "evaluation by the clock instead of by steps"
            if series.seconds is not None and _distances(series.seconds)[1] <= MOST_ODD:
                clock = _distances(series.seconds)[0]
                by_clock += f": the times are even, {clock:.4g} s apart"
            return self.failed(
                f"{odd:.0%} of the distances between steps of {series.title} differ from their "
                f"median {middle:g} (least {gaps.min():g}, largest {gaps.max():g}).",
                by_clock,
                "several runs in one file",
                "rows are missing",
            )
        return passed(f"{len(judged)} metrics come at even steps.")


def _distances(values: Values, near: float = 0.1) -> tuple[float, float]:
    """(median distance of neighbours, share of distances that are off by more than a share)."""
    gaps = np.diff(values)
    middle = float(np.median(gaps))
    return middle, float((np.abs(gaps - middle) > near * abs(middle)).mean())


RATE = re.compile(r"lr\d*|learningrate")
NO_RATE = {"scale", "mult", "factor", "scheduler", "ratio", "min", "max", "initial"}
CLASSES, LIKELY = (*range(2, 21), 50, 100, 1000), (*range(2, 11), 100, 1000)
MIN_ROWS, DENSE_ROWS, LONG, FROZEN = 10, 100, 20, 4
TINY_SHARE, TINY_RATE, LEAST_SHARE = 1e-5, 1e-7, 0.2  # of the peak; of any rate; of the rows
LOW, TUNED = 0.6, 1.5  # below the loss of chance for two classes; of a model that is tuned


class NothingLearned(Check):
    """A run, or its last part, that learns nothing.

    ## How it decides
    Fails if no loss falls, and the loss stands at ln(k), or above 1.5 from its first step on. Fails
    if an accuracy stands at 1/k, or repeats a number that few samples cannot give. Fails if a
    held-out metric repeats one number in its last quarter. Fails if the rate is negative, returns
    to its peak within each epoch, does not follow a column such as `scheduled_lr`, or is below
    1/100,000 of its peak in the last fifth and no loss falls.

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
        for own in subject.by_log():
            plain = to_improve(own, MIN_ROWS)
            losses = [s for s in plain if better_is(s.name) < 0]
            moves = {s.name: _moves(s) for s in plain}
            moving += list(moves.values()).count(True)
            still = {moves[s.name] for s in losses} == {False}
            rates = [s for s in own if is_rate(s.name) and len(s.values) >= MIN_ROWS]
            found = [_dead(max(rates, key=lambda s: np.median(s.values)), losses)] if rates else []
            scores = [s for s in plain if name_words(s.name) & ACCURACIES]
            found += [_chance(s, losses, still) for s in scores if moves[s.name] is not True]
            alone = all(is_own(s.name) or better_is(s.name) > 0 for s in own)
            if still and alone and True not in moves.values():
                found.append(_standing(losses, [s for s in plain if better_is(s.name) > 0]))
            found += [_frozen(s, own) for s in plain if is_held_out(s.name) and s not in scores]
            found += [_misapplied(rate, rates, own) for rate in rates]
            if sentence := next(filter(None, found), ""):
                return self.failed(sentence)
        if not moving:
            return unclear("No loss or score of a plain training moves beyond its noise.")
        return passed(f"{moving} metrics move beyond their noise.")


def _frozen(held: Series, own: list[Series]) -> str:
    """From which step on a held-out metric repeats one number, while a training loss moves."""
    values = held.values
    last = int(np.append(-1, np.flatnonzero(values != values[-1]))[-1]) + 1
    rows, digits = len(values) - last, abs(values[-1] * 1e3 - round(values[-1] * 1e3))
    trained = [s.values[s.steps >= held.steps[last]] for s in own if better_is(s.name) < 0]
    moving = any(len(np.unique(v)) > rows // 2 for v in trained)
    if rows < FROZEN or rows < len(values) / 4 or digits < 1e-6 or not moving:
        return ""
    start = held.steps[last]
    return f"{held.title} repeats {values[-1]:.6g} in its last {rows} rows, from step {start:g} on."


def _misapplied(rate: Series, rates: list[Series], own: list[Series]) -> str:
    """Whether a rate does not follow its schedule, or returns to its peak within each epoch."""
    planned = [s for s in rates if "sched" in s.name.lower() and np.ptp(s.values) > 0]
    if planned and np.ptp(rate.values) == 0:
        return (
            f"{rate.title} stays at {rate.values[0]:.3g}, and {planned[0].title} goes to "
            f"{planned[0].values[-1]:.3g}: the schedule is not applied."
        )
    epochs = max((float(np.ptp(s.values)) + 1 for s in own if s.name == "epoch"), default=np.inf)
    high = (rate.values > 0.5 * rate.values.max()).astype(int)
    returns = int((np.diff(high) > 0).sum())
    if returns < 4 or not 3 <= epochs < returns / 1.5:
        return ""
    return (
        f"{rate.title} returns to its peak {returns} times in {epochs:.0f} epochs: the schedule "
        "counts batches as epochs."
    )


def is_rate(name: str) -> bool:
    """Return whether a column is a learning rate, by its name."""
    words = name_words(name)
    return any(map(RATE.fullmatch, words)) and not words & NO_RATE


def _moves(series: Series, start: float = -np.inf, end: float = np.inf) -> bool | None:
    """Whether a metric improves; False if it surely does not by a share, None if unknown."""
    inside = (series.steps >= start) & (series.steps < end)
    values = better_is(series.name) * series.values[inside]
    if len(values) < MIN_ROWS:
        return None
    means = np.array([part.mean() for part in np.array_split(values, MOST_BLOCKS) if len(part)])
    fifths = np.array([part.mean() for part in np.array_split(means, min(5, len(means) // 3))])
    gain = float(fifths[1:].max() - fifths[0])
    error = error_of_mean(means, len(means)) * np.sqrt(len(fifths))
    early = error_of_mean(values[:MOST_BLOCKS], 3)
    fall = float(np.median(values) - values[:3].mean())
    small, least = (0.1, 1e-3) if better_is(series.name) > 0 else (0.05, 1e-9)  # of the level
    if gain > max(SURELY * error, least) or fall > max(SURELY * early, least):
        return True
    small = 0.08 if better_is(series.name) < 0 and values.mean() < -TUNED else small
    return False if gain + 4 * error < small * abs(float(values.mean())) else None


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


def _standing(losses: list[Series], scores: list[Series]) -> str:
    """Which loss stands at the level of chance, or at that of its first step."""
    loss = max(losses, key=lambda s: (not is_held_out(s.name), len(s.values)))
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


def _chance(score: Series, losses: list[Series], still: bool) -> str:
    """Why an accuracy that does not move is that of no model."""
    values = score.values / (100 if score.values.max() > 1.5 else 1)
    mean, constant = float(values.mean()), bool(np.ptp(values) < 1e-9)
    if not 0 < mean < 1:
        return ""
    start = f"{score.title} stays at {score.values.mean():.4g} in all {len(values)} rows"
    classes, log_classes = round(1 / mean), float(np.log(round(1 / mean)))
    beside = [np.median(s.values[-5:]) for s in losses if still or is_held_out(s.name)]
    error = max(0.003 * mean, error_of_mean(values[-MOST_BLOCKS:], len(values)))
    near = classes in CLASSES and abs(mean - 1 / classes) < 3 * error < 0.05 * mean
    near &= bool(min(beside, default=99) > 0.99 * log_classes) and (still or len(values) >= LONG)
    fair = name_words(score.name) & {"auc", "auroc"} or max(beside, default=99) < 1.2 * log_classes
    if near and (fair or constant or classes >= 10):
        return f"{start}, as by chance among {classes} classes."
    entropy = -mean * np.log(mean) - (1 - mean) * np.log(1 - mean)  # the loss of a constant
    rare = min(mean, 1 - mean)  # up to 12 samples can be the same in each evaluation
    few = any(abs(n / round(n / rare) - rare) < 6e-5 for n in range(1, 13))
    coarse = few or abs(mean - round(mean, 3)) < 1e-9
    sure = beside[0] > LOW or abs(beside[0] / entropy - 1) < 0.03 if still else not coarse
    return f"{start}." if constant and sure else ""
