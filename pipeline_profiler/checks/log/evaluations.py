"""Evaluations in a log: steps and cost, subsets, the selected checkpoint, and overfitting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    HELD_OUT,
    LogSubject,
    Series,
    Values,
    off_pace,
)

LEAST, LEAST_CHOSEN = 8, 10  # evaluations
APART, SURELY = 3.0, 5.0  # deviations of the noise of one row
MUCH, LOST, DEAR = 0.1, 0.5, 0.5  # of the gain; of the gain; of the run
MAX_ODD = 0.25  # of the distances
SUBSETS = {"subset", "sub", "small", "mini", "quick", "fast", "partial", "sample", "sampled"}
DATA = sorted(("training", "train", "evaluation", *HELD_OUT, *SUBSETS), key=len, reverse=True)
DATA_WORD = re.compile("|".join((*DATA, "[^a-z0-9]")))


def _pairs(firsts: Sequence[Series], seconds: Sequence[Series]) -> list[tuple[Series, Series]]:
    """Return pairs of metrics of a log with equal names but for the words of their data."""
    keys = {id(s): (s.log, DATA_WORD.sub("", s.name.lower())) for s in (*firsts, *seconds)}
    return [(a, b) for b in seconds for a in firsts if keys[id(a)] == keys[id(b)]]


class EvaluationSchedule(Check):
    """Evaluations at uneven steps, or that take more time than the training.

    ## How it decides
    Fails if a quarter of the distances between steps differ from their median by 10%, or if
    evaluations take half of the run: the time of training rows with and without one in between.

    ## Limits
    Needs 8 rows, a clock, and 3 evaluations. Other work (checkpoints, images) counts too.
    """

    code = "LOG010"
    name = "evaluations-too-costly"
    causes = ("evaluations of the whole set, too often",)
    next_step = "Evaluate a planned subset in between, the whole set at the end."

    def run(self, subject: LogSubject) -> Answer:
        metrics = [s for s in subject.series if len(s.steps) >= LEAST and s.is_metric]
        for series in metrics:
            if sentence := _uneven(series):
                causes = ("evaluation by the clock", "several runs in one file", "lost rows")
                return wrong(sentence, causes, "Evaluate every n steps, not every n minutes.")
        trained = [s for s in metrics if s.seconds is not None and not s.is_held_out and s.sign]
        if not metrics:
            return unclear(f"No metric has {LEAST} rows.")
        even = passed(f"{len(metrics)} metrics come at even steps; no clock gives their cost.")
        longest = sorted(trained, key=lambda s: len(s.steps))[-1:]
        return next((self._cost(train, subject.series) or even for train in longest), even)

    def _cost(self, train: Series, beside: Sequence[Series]) -> Answer | None:
        """Return the share of a run that its evaluations take, by the gaps of a training metric."""
        held_out = [s.steps for s in beside if s.is_held_out and s.log == train.log]
        steps, at = train.steps, np.unique(np.concatenate([[], *held_out]))
        moved, took = np.diff(steps), np.diff(np.asarray(train.seconds))
        # an evaluation at a row's own step may be logged before or after it: look at both gaps
        inside = np.searchsorted(at, steps[1:], "right") - np.searchsorted(at, steps[:-1], "left")
        sound = (moved > 0) & (took >= 0)
        without, within = sound & (inside == 0), sound & (inside > 0)
        if without.sum() < LEAST or len(at) < 3 or not within.any():
            return None
        pace = float(np.median(took[without] / moved[without]))
        extra = np.clip(took - pace * moved, 0, None)[within].sum()
        share, each = extra / max(took[sound].sum(), 1e-12), extra / len(at)
        sentence = (
            f"{len(at)} evaluations take {share:.0%} of the run ({each:.3g} s each, as "
            f"much as {each / max(pace, 1e-12):.3g} steps)."
        )
        return self.failed(sentence) if share >= DEAR else passed(sentence)


def _uneven(series: Series) -> str:
    """Describe distances between steps that differ; "" if they are even or only grow."""
    gaps, (middle, odd) = np.diff(series.steps), off_pace(series.steps)
    if odd <= MAX_ODD or (np.diff(gaps) >= 0).all():
        return ""
    clock, odd_times = (0.0, 1.0) if series.seconds is None else off_pace(series.seconds)
    return (
        f"{odd:.0%} of the distances between steps of {series.title} differ from their median "
        f"{middle:g} (least {gaps.min():g}, largest {gaps.max():g})"
        + (f"; the times are even, {clock:.4g} s apart." if odd_times <= MAX_ODD else ".")
    )


class SubsetRanksDifferently(Check):
    """A subset that selects another checkpoint than the whole set.

    ## How it decides
    Compares a held-out metric of a subset (`val_subset/acc`) with the whole set (`val/acc`) at
    their common steps. Fails if the selected checkpoint is behind the best by 10% of the gain and
    five deviations of the noise. Inconclusive with fewer than 8 common steps, or 10 pairs of
    checkpoints that differ by three deviations.

    ## Limits
    The names must be equal except for a word such as subset, small, mini or quick.
    """

    code = "LOG009"
    name = "subset-ranks-differently"
    causes = (
        "the subset is too small for the differences between checkpoints",
        "the subset is not drawn at random (the first files, one class, one source)",
    )
    next_step = "Plan a subset for the difference that matters: `audit subset plan RUN --help`."

    def run(self, subject: LogSubject) -> Answer:
        metrics = [s for s in subject.metrics(LEAST) if s.is_held_out]
        subsets = [s for s in metrics if s.words & SUBSETS]
        pairs = _pairs(subsets, [s for s in metrics if not s.words & SUBSETS])
        if not pairs:
            return absent(f"No held-out metric has {LEAST} rows of a subset and of the whole set.")
        for part, whole in pairs:
            steps, *rows = np.intersect1d(part.steps, whole.steps, return_indices=True)
            if len(steps) >= LEAST:
                return self._compare(part, whole, steps, *rows)
        return unclear(f"A subset and the whole set have fewer than {LEAST} steps in common.")

    def _compare(
        self, part: Series, whole: Series, steps: Values, rows: Any, whole_rows: Any
    ) -> Answer:
        ours, theirs = part.gains[rows], whole.gains[whole_rows]
        apart = theirs[:, None] - theirs > APART * np.sqrt(2) * whole.noise
        pairs, turned = int(apart.sum()), int((apart & (ours[:, None] < ours)).sum())
        chosen = int(ours.argmax())
        behind = _behind(whole, [whole_rows[chosen]])
        sentence = (
            f"Of {pairs} pairs of checkpoints that {whole.title} separates, {part.title} puts "
            f"{turned} the other way round; its best is step {steps[chosen]:g}, that of the whole "
            f"set step {whole.steps[whole.curve.argmax()]:g}"
        )
        if pairs < LEAST_CHOSEN:
            return unclear(f"{sentence}: too few pairs.")
        return self.failed(f"{sentence}.") if behind else passed(f"{sentence}.")


DRAWS, MAX_CHOSEN = 400, 1000  # more evaluations are thinned out, and add nothing to the noise
MAX_LUCK, MAX_TINY = 1 / 3, 20  # of the gain; samples of an evaluation
LAST_NAME = re.compile("last|latest|final")
STEP_IN_NAME = re.compile(r"(?:step|epoch|iter|ckpt|point|model|[-_=])[-_=]?(\d+)(?![\d.]*\d)")


class ChosenBest(Check):
    """A best evaluation by luck, or one without its checkpoint.

    ## How it decides
    Simulates the run 400 times with its noise. Fails if the choice adds a third of the gain of each
    metric, and noise explains best minus last; if an accuracy only takes multiples of 1/n, n < 20;
    if all checkpoints beside the log are behind the best by 10% of the gain and the noise.

    ## Limits
    Needs 10 held-out rows. Checkpoints without a step in their names pass.
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
        metrics = [s for s in subject.metrics(LEAST_CHOSEN) if s.is_held_out]
        if not metrics:
            return unclear(f"No held-out loss or score has {LEAST_CHOSEN} evaluations.")
        for series in metrics:
            if samples := _few_samples(series):
                return self.failed(
                    f"{series.title} only takes multiples of 1/{samples}: the evaluation has "
                    f"{samples} samples, or few more."
                )
        gain = {s.name: float(s.curve[s.gains.argmax()] - s.gains[0]) for s in metrics}
        gaining = [s for s in metrics if gain[s.name] > max(APART * s.noise, 1e-9)]
        series = [*gaining, *metrics][0]
        luck, best = expected_luck(series.curve, series.noise), int(series.gains.argmax())
        evidence = {"metric": series.title, "best": float(series.values[best])}
        if subject.checkpoints and all(_is_lost(s, subject.checkpoints) for s in metrics):
            names = ", ".join(file.name for file in subject.checkpoints[:5])
            return wrong(
                f"{series.title} is best at step {series.steps[best]:g}, and no checkpoint is of "
                f"it ({names}).",
                ("each save replaces the last", "no metric is monitored"),
                "Save a second file when the held-out metric improves, such as `best.pt`.",
                **evidence,
            )
        if not gaining:
            return unclear(f"{series.title} gains nothing beyond its noise.")
        sentence = (
            f"The best of {len(series.steps)} evaluations of {series.title} is "
            f"{series.values[best]:.4g} at step {series.steps[best]:g}, of which about {luck:.2g} "
            f"is luck ({luck / gain[series.name]:.0%} of the gain)."
        )
        if all(_is_luck(s, MAX_LUCK * gain[s.name]) for s in gaining):
            return self.failed(sentence, **evidence)
        return passed(sentence, **evidence)


def expected_luck(curve: Values, noise: float) -> float:
    """Mean of (best evaluation - curve there) over noisy copies of a curve."""
    curve = curve[:: len(curve) // MAX_CHOSEN + 1]
    drawn = np.random.default_rng(0).normal(0, noise, (DRAWS, len(curve)))
    chosen = (curve[None, :] + drawn).argmax(axis=1)
    return float(drawn[np.arange(DRAWS), chosen].mean())


def _few_samples(series: Series) -> int:
    """Return of how many samples an accuracy is, where these are few and it jumps; 0 else."""
    values = series.values / (100 if series.values.max() > 1.5 else 1)
    counts = np.outer(np.arange(2, MAX_TINY), values)
    fits = np.flatnonzero(np.abs(counts - np.round(counts)).max(axis=1) < 0.01)
    if not series.is_accuracy or len(np.unique(values)) < 3 or not len(fits):
        return 0
    jumps = np.abs(np.diff(counts[fits[0]])) > 1.5
    return int(fits[0]) + 2 if jumps.mean() > MUCH else 0


def _is_luck(series: Series, bound: float) -> bool:
    """Whether luck exceeds a bound, and the level at the best is within the noise of the end."""
    values, best = series.gains, int(series.gains.argmax())
    luck, tail = expected_luck(series.curve, series.noise), max(3, len(values) // 10)
    around = values[max(0, best - tail // 2) : best + tail // 2 + 1]
    error = series.noise * np.sqrt(1 / len(around) + 1 / tail)
    # the best itself is in `around` and lucky: what it adds is taken off
    above = float(around.mean() - luck / len(around) - values[-tail:].mean())
    return luck > bound and above < APART * error


def _is_lost(series: Series, files: Sequence[Path]) -> bool:
    """Whether no checkpoint is of an evaluation that is as good as the best, by their names."""
    steps, count, rows = series.steps, len(series.steps), set[int]()
    for name in (file.stem.lower() for file in files):
        numbers = [int(number) for number in STEP_IN_NAME.findall(name)]
        own = {n - first for n in numbers for first in (0, 1)} & set(range(count))  # epochs
        own |= {int(np.abs(steps - n).argmin()) for n in numbers if n <= steps[-1]}
        own |= {count - 1} if LAST_NAME.search(name) else set()
        if "best" in name or not own:
            return False
        rows |= own
    return _behind(series, [*rows]) > 0


def _behind(series: Series, rows: Sequence[int]) -> float:
    """How far the best of some rows is behind the best, beyond the noise and 10% of the range."""
    behind = series.curve.max() - np.maximum(series.gains, series.curve)[rows].max()
    least = max(SURELY * series.noise, MUCH * np.ptp(series.curve))
    return float(behind) if behind > least else 0.0


MIN_EPOCH = 20  # rows
MAX_AHEAD = 0.15  # of a held-out accuracy before that of the training, which dropout explains
AHEAD_CAUSES = (
    "the held-out inputs contain the label, or the training samples",
    "a drop rate given as a keep rate, or its reverse",
    "augmentation or mixup that is too strong",
)


class Overfitted(Check):
    """A held-out metric that gets worse while the training improves.

    ## How it decides
    Fails if a held-out curve ends below its best by half of its gain and 5 deviations of the noise,
    that of the training (`train/loss`, `val_loss`) gains 5, and no held-out score improves; if a
    held-out accuracy ends 0.15 above the training; if a training gains at starts of epochs only.

    ## Limits
    Needs 8 evaluations. A wide but constant gap passes.
    """

    code = "LOG011"
    name = "overfitted"
    nearness = Nearness.SYMPTOM
    causes = (
        "too little regularisation for so few examples",
        "more epochs than the data bear",
        "training and held-out data differ (augmentation, source)",
    )
    next_step = "Regularise more, or end at the best evaluation and keep its weights."

    def run(self, subject: LogSubject) -> Answer:
        metrics = subject.metrics(LEAST)
        held_out = [s for s in metrics if s.is_held_out]
        trained = [s for s in metrics if not s.is_held_out]
        for series in trained:
            if sentence := _memorised(series, subject.series):
                return self.failed(sentence)
        pairs = _pairs(trained, held_out)
        for train, held in pairs:
            if fall := _fall(train, held):
                scores = [s for s in held_out if s.log == held.log and s.sign > 0]
                if held.sign < 0 and any(_improves(s, held) for s in scores):
                    return unclear(f"{fall} A score beside it still improves.")
                return self.failed(fall)
            ends = [float(np.median(s.values[-LEAST // 2 :])) for s in (train, held)]
            if held.is_accuracy and ends[1] - ends[0] > MAX_AHEAD * (100 if max(ends) > 1.5 else 1):
                sentence = f"{held.title} ends at {ends[1]:.4g}, {train.title} at {ends[0]:.4g}."
                advice = "Evaluate on training samples in evaluation mode; compare both accuracies."
                return wrong(sentence, AHEAD_CAUSES, advice)
        if not pairs:
            return absent("No metric is logged of the training and of held-out data.")
        gaps = [f"{h.title} {t.curve[-1] - h.curve[-1]:.3g}" for t, h in pairs[:4]]
        return passed(f"No held-out metric falls back. Gap at the end: {'; '.join(gaps)}.")


def _memorised(series: Series, beside: list[Series]) -> str:
    """Whether a training metric gains at the start of each epoch, and not within the epochs."""
    counts = [s for s in beside if s.name == "epoch" and s.log == series.log]
    if not counts or (np.diff(series.steps) < 0).any():
        return ""
    epochs = np.floor(np.interp(series.steps, counts[0].steps, counts[0].values))
    starts, values = np.flatnonzero(np.diff(epochs) > 0) + 1, series.gains
    inner = [row for row in starts if MIN_EPOCH <= row <= len(values) - MIN_EPOCH]
    if len(inner) < 2 or np.diff(starts).min() < MIN_EPOCH:
        return ""
    pairs = [(values[row - 6 : row - 1], values[row + 1 : row + 6]) for row in inner]
    gains = np.array([np.median(after) - np.median(before) for before, after in pairs])
    error, whole = series.noise, float(np.median(values[-5:]) - np.median(pairs[0][0]))
    if np.median(gains) < 2 * error or gains.sum() <= max(2 * SURELY * error, 0.75 * whole):
        return ""
    start = f"{series.title} gains {gains.sum():.3g} at the starts of {len(gains)} epochs"
    return f"{start}, and {whole - gains.sum():.3g} within them: it memorises samples."


def _fall(train: Series, held: Series) -> str:
    """What a held-out metric loses after its best while the training gains; '' else."""
    learned, curve, best = train.curve, held.curve, int(held.curve.argmax())
    lost, gain = curve[best] - curve[-1], curve[best] - curve[0]
    gained = learned[-1] - learned[round(best * (len(learned) - 1) / (len(curve) - 1))]
    if lost <= max(LOST * gain, SURELY * held.noise, 1e-9) or gained <= SURELY * train.noise:
        return ""
    step = held.steps[best]
    return f"{held.title} loses {lost:.3g} after step {step:g}, of a gain of {gain:.3g}."


def _improves(score: Series, loss: Series) -> bool:
    """Whether a score ends above its level at the best of a loss, beyond its noise."""
    curve, row = score.curve, int(loss.curve.argmax()) * len(score.curve) // len(loss.curve)
    return bool(curve[-1] > curve[row] + 2 * score.noise)
