"""Evaluations in a log: what they cost, whether those of a subset choose as all of them do, and
whether the held-out data fall back while the training gains."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    ACCURACIES,
    HELD_OUT,
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

PARTS = ("subset", "sub", "small", "mini", "quick", "fast", "partial", "sample", "sampled")
LEAST, LEAST_PAIRS = 8, 10
TOLD, MUCH, DEAR = 3.0, 0.1, 0.5
MOST_ROWS = 1000


class SubsetChoosesOtherwise(Check):
    """A subset that selects another checkpoint than the whole set.

    ## What it does
    Compares a held-out metric of a subset (`val_subset/acc`) with the whole set (`val/acc`) at
    their common steps. Counts reversed pairs of checkpoints, and measures the loss of the selected
    checkpoint.

    ## Why is this bad
    Checkpoints, early stopping and sweeps follow the subset. If it ranks differently, you keep a
    worse model.

    ## How it decides
    Fails if the selected checkpoint is behind the best by more than 10% of the gain. The difference
    must exceed three deviations of the noise, on the smoothed curve. Inconclusive with fewer than 8
    common steps, or 10 pairs that differ by three deviations. Not applicable without both metrics.

    ## Limits
    The names must be equal except for a word such as subset, small, mini or quick.
    """

    code = "LOG009"
    name = "subset-chooses-otherwise"
    causes = (
        "the subset is too small for the differences between checkpoints",
        "the subset is not drawn at random (the first files, one class, one source)",
    )
    next_step = "Plan a subset for the difference that matters: `audit subset plan RUN --help`."

    def run(self, subject: LogSubject) -> Answer:
        found = [pair for part in subject.series for pair in _twins(part, subject.series)]
        if not found:
            return absent("No held-out metric is logged of a subset and of the whole set.")
        for part, whole in found:
            steps, one, two = np.intersect1d(part.steps, whole.steps, return_indices=True)
            values = better_is(whole.name) * np.stack([part.values[one], whole.values[two]])
            finite = np.isfinite(values).all(axis=0)
            if finite.sum() >= LEAST:
                return self._judged((part, whole), steps[finite], *values[:, finite])
        return unclear(f"A subset and the whole set have fewer than {LEAST} steps in common.")

    def _judged(
        self, names: tuple[Series, Series], steps: Values, ours: Values, theirs: Values
    ) -> Answer:
        noise, curve = noise_of(theirs), smoothed(theirs, 0.3)
        apart = theirs[:, None] - theirs[None, :]
        told = apart > TOLD * np.sqrt(2) * noise
        pairs, turned = int(told.sum()), int((told & (ours[:, None] < ours[None, :])).sum())
        chosen, best = int(ours.argmax()), int(curve.argmax())
        behind, gain = float(curve[best] - curve[chosen]), float(curve[best] - curve.min())
        numbers: dict[str, Any] = {
            "steps": len(steps), "pairs": pairs, "turned": turned, "behind": behind, "gain": gain,
        }  # fmt: skip
        part, whole = (series.title for series in names)
        said = (
            f"Of {pairs} pairs of checkpoints that {whole} separates, {part} puts {turned} the "
            f"other way round; its best, step {steps[chosen]:g}, is {behind:.3g} behind step "
            f"{steps[best]:g}, of a gain of {gain:.3g}"
        )
        if pairs < LEAST_PAIRS:
            return unclear(f"{said}: too few pairs.", **numbers)
        bad = behind > max(MUCH * gain, TOLD * noise)
        return self.failed(f"{said}.", **numbers) if bad else passed(f"{said}.", **numbers)


def _twins(part: Series, series: list[Series]) -> list[tuple[Series, Series]]:
    words = name_words(part.name)
    if not words & set(PARTS) or not is_held_out(part.name) or not better_is(part.name):
        return []

    def rest(name: str) -> frozenset[str]:
        return frozenset(w for w in name_words(name) if not any(p in w for p in PARTS))

    return [
        (part, other) for other in series
        if other.log == part.log and not name_words(other.name) & set(PARTS)
        and rest(other.name) and rest(other.name) == rest(part.name)
    ]  # fmt: skip


class EvaluationsAreDear(Check):
    """Evaluations that take more time than the training between them.

    ## What it does
    Compares the time between training rows with and without an evaluation in between. The
    difference is the time of the evaluation.

    ## Why is this bad
    The accelerator computes metrics that few people read. A tenth of the samples, or half of the
    evaluations, give the same information.

    ## How it decides
    Fails if evaluations take half of the run or more, else reports the share. Inconclusive with
    fewer than three evaluations, or eight training gaps without one.

    ## Limits
    Needs rows with a clock (`wall_time`, `timestamp`, event files), and training rows between
    evaluations. Other work there (checkpoints, logged images) counts too.
    """

    code = "LOG010"
    name = "evaluations-are-dear"
    causes = ("evaluations of the whole set, too often",)
    next_step = "Evaluate a planned subset in between, the whole set at the end."

    def run(self, subject: LogSubject) -> Answer:
        clocked = [s for s in subject.series if s.seconds is not None and len(s.steps) > LEAST]
        trained = [s for s in clocked if not is_held_out(s.name) and better_is(s.name)]
        judged = [s for s in subject.series if is_held_out(s.name) and len(s.steps) > 2]
        if not trained or not judged:
            return absent("No training metric with a clock stands beside an evaluation.")
        train = max(trained, key=lambda s: len(s.steps))
        order = np.argsort(train.steps, kind="stable")
        steps, clock = train.steps[order], np.asarray(train.seconds)[order]
        at = np.unique([step for s in judged if s.log == train.log for step in s.steps])
        moved, took = np.diff(steps), np.diff(clock)
        # an evaluation at a row's own step may be logged before or after it: look at both gaps
        inside = np.searchsorted(at, steps[1:], "right") - np.searchsorted(at, steps[:-1], "left")
        sound = (moved > 0) & (took >= 0)
        without = sound & (inside == 0)
        if without.sum() < LEAST or len(at) < LEAST // 2 - 1 or not (sound & (inside > 0)).any():
            return unclear("Fewer than 8 gaps of the training have no evaluation inside.")
        pace = float(np.median(took[without] / moved[without]))
        extra = np.clip(took - pace * moved, 0, None)[sound & (inside > 0)].sum()
        total = float(took[sound].sum())
        share = float(extra) / total if total else 0.0
        numbers = {"evaluations": len(at), "seconds": float(extra), "share": share}
        said = (
            f"{len(at)} evaluations take {share:.0%} of the run ({extra / len(at):.3g} s each, as "
            f"much as {extra / len(at) / max(pace, 1e-12):.3g} steps)"
        )
        bad = share >= DEAR
        return self.failed(f"{said}.", **numbers) if bad else passed(f"{said}.", **numbers)


REGULAR = {"decay", "dropout", "drop", "smoothing", "mixup", "augment", "augmentation", "l1", "l2"}
LOST, SURELY = 0.5, 5.0  # of the whole gain; deviations of the noise of one row
MIN_EPOCH = 20  # rows
MAX_AHEAD = 0.15  # of a held-out accuracy before that of the training, which dropout explains
AHEAD_CAUSES = (
    "the held-out inputs contain the label, or the training samples",
    "a drop rate given as a keep rate, or its reverse",
    "augmentation or mixup that is too strong",
)
AHEAD_ADVICE = "Evaluate on training samples in evaluation mode, and compare both accuracies."


class Overfitted(Check):
    """A held-out metric that gets worse while the training improves.

    ## What it does
    Pairs training and held-out metrics by name (`train/loss`, `val_loss`). Measures the loss after
    the held-out best, and the gap at the end. Prints constant columns such as `weight_decay` beside
    the gaps of several logs.

    ## Why is this bad
    After the best evaluation, the model memorises the training set. At its end, the run looks worse
    than with more regularisation or an earlier stop.

    ## How it decides
    Fails if the held-out curve ends below its best by half of its gain and five deviations of its
    noise. The training must gain five deviations of its own meanwhile. Inconclusive if a held-out
    score still improves then: the model only becomes more confident. Fails if a held-out accuracy
    ends 0.15 above that of the training: leakage, or a drop rate too high. Fails if a
    training metric gains at the starts of epochs only. Needs 8 evaluations.

    ## Limits
    Losses and scores whose names are equal except for train, val, test and similar words. A wide
    but constant gap passes, and the result prints it.
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
        for series in to_improve(subject.series, 3 * MIN_EPOCH):
            if said := "" if is_held_out(series.name) else _memorised(series, subject.series):
                return self.failed(said, metric=series.title)
        pairs = [(t, h) for h in subject.series for t in _trained_beside(h, subject.series)]
        judged = [(_fallen(*pair), pair) for pair in pairs]
        if not judged:
            return absent("No metric is logged of the training and of held-out data.")
        gaps = sorted(
            (h.log, h.title, gap, _settings(h.log, subject)) for (_, gap, _), (_, h) in judged
        )
        told = "; ".join(f"{title} {gap:.3g}{said}" for _, title, gap, said in gaps[:4])
        for (lost, gap, said), (_, held) in (row for row in judged if row[0][2]):
            text, numbers = f"{held.title} {said}. Gap: {told}.", {"lost": lost, "gap": gap}
            scores = [s for s in subject.series if s.log == held.log and is_held_out(s.name)]
            if better_is(held.name) < 0 and any(_improves(s, held) for s in scores):
                return unclear(f"{text} A score beside it still improves.", **numbers)
            return self.failed(text, metric=held.title, **numbers)
        for _, (train, held) in judged:
            ends = [float(np.median(s.values[-LEAST // 2 :])) for s in (train, held)]
            ahead = (ends[1] - ends[0]) / (100 if max(ends) > 1.5 else 1)
            if name_words(held.name) & ACCURACIES and ahead > MAX_AHEAD:
                said = f"{held.title} ends at {ends[1]:.4g}, {train.title} at {ends[0]:.4g}"
                return wrong(f"{said}.", AHEAD_CAUSES, AHEAD_ADVICE, metric=held.title)
        return passed(f"No held-out metric falls back. Gap at the end: {told}.", pairs=len(pairs))


def _memorised(series: Series, beside: list[Series]) -> str:
    """Whether a training metric gains at the start of each epoch, and not within the epochs."""
    counts = [s for s in beside if s.name == "epoch" and s.log == series.log]
    if not counts or (np.diff(series.steps) < 0).any():
        return ""
    epochs = np.floor(np.interp(series.steps, counts[0].steps, counts[0].values))
    starts, values = np.flatnonzero(np.diff(epochs) > 0) + 1, better_is(series.name) * series.values
    inner = [row for row in starts if MIN_EPOCH <= row <= len(values) - MIN_EPOCH]
    if len(inner) < 2 or np.diff(starts).min() < MIN_EPOCH:
        return ""
    pairs = [(values[row - 6 : row - 1], values[row + 1 : row + 6]) for row in inner]
    gains = np.array([np.median(after) - np.median(before) for before, after in pairs])
    error, whole = noise_of(values), float(np.median(values[-5:]) - np.median(pairs[0][0]))
    if np.median(gains) < 2 * error or gains.sum() < max(2 * SURELY * error, 0.75 * whole):
        return ""
    said = f"{series.title} gains {gains.sum():.3g} at the starts of {len(gains)} epochs"
    return f"{said}, and {whole - gains.sum():.3g} within them: it memorises samples."


def _trained_beside(held: Series, series: list[Series]) -> list[Series]:
    """The training metrics of its log whose names are equal but for train, val and the like."""
    if not (is_held_out(held.name) and better_is(held.name) and len(held.steps) >= LEAST):
        return []
    return [
        s for s in series
        if s.log == held.log and not is_held_out(s.name) and len(s.steps) >= LEAST
        and np.isfinite(s.values).all() and np.isfinite(held.values).all()
        and _plain_words(s.name) == _plain_words(held.name)
    ]  # fmt: skip


def _plain_words(name: str) -> frozenset[str]:
    return frozenset(w for w in name_words(name) if not w.startswith(("train", *HELD_OUT)))


def _curve(series: Series) -> tuple[Values, float]:
    """(the curve, higher is better; the deviation of the noise of one row)."""
    values = better_is(series.name) * series.values
    if len(values) > MOST_ROWS:  # a neighbourhood of each row is a matrix of all rows
        values = np.array([part.mean() for part in np.array_split(values, MOST_ROWS)])
    return smoothed(values, 0.2), noise_of(values)


def _fallen(train: Series, held: Series) -> tuple[float, float, str]:
    """(lost since the best, gap at the end, what happened; "" where it does not fall back)."""
    (learned, own), (curve, noise) = _curve(train), _curve(held)
    best = int(curve.argmax())
    lost, gain = float(curve[best] - curve[-1]), float(curve[best] - curve[0])
    gained = float(learned[-1] - learned[round(best * (len(learned) - 1) / (len(curve) - 1))])
    gap = float(learned[-1] - curve[-1])
    if lost <= max(LOST * gain, SURELY * noise, 1e-9) or gained <= SURELY * own:
        return lost, gap, ""
    step = held.steps[round(best * (len(held.steps) - 1) / (len(curve) - 1))]
    return lost, gap, f"loses {lost:.3g} after step {step:g}, of a gain of {gain:.3g}"


def _improves(score: Series, loss: Series) -> bool:
    """Whether a score ends above its level at the best of a loss, beyond its noise."""
    if better_is(score.name) <= 0 or len(score.values) < LEAST or np.isnan(score.values).any():
        return False
    (curve, noise), (losses, _) = _curve(score), _curve(loss)
    return bool(curve[-1] > curve[int(losses.argmax()) * len(curve) // len(losses)] + noise)


def _settings(log: str, subject: LogSubject) -> str:
    """' (weight_decay 0.05)': what a log says of regularisation, where it stays the same."""
    found = [
        f"{s.name} {s.values[0]:g}" for s in subject.series
        if s.log == log and name_words(s.name) & REGULAR and np.ptp(s.values) == 0
    ]  # fmt: skip
    return f" ({', '.join(found)})" if found else ""
