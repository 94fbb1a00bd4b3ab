"""Evaluations in a log: cost, subsets, the selected checkpoint, and overfitting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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

LEAST, LEAST_PAIRS = 8, 10  # evaluations; pairs of them that differ
APART, SURELY = 3.0, 5.0  # standard errors; deviations of the noise of one row
MUCH, LOST, DEAR = 0.1, 0.5, 0.5  # of the gain; of the gain; of the run
SUBSETS = {"subset", "sub", "small", "mini", "quick", "fast", "partial", "sample", "sampled"}
DATA = sorted(("training", "train", "evaluation", *HELD_OUT, *SUBSETS), key=len, reverse=True)
DATA_WORD = re.compile("|".join((*DATA, "[^a-z0-9]")))


def _named_alike(first: Series, second: Series) -> bool:
    """Whether two metrics of a log have equal names but for the words of their data."""
    names = [DATA_WORD.sub("", series.name.lower()) for series in (first, second)]
    return first.log == second.log and names[0] == names[1]


class SubsetChoosesOtherwise(Check):
    """A subset that selects another checkpoint than the whole set.

    ## How it decides
    Compares a held-out metric of a subset (`val_subset/acc`) with the whole set (`val/acc`) at
    their common steps. Fails if the selected checkpoint is behind the best by 10% of the gain and
    three deviations of the noise, on the smoothed curve. Inconclusive with fewer than 8 common
    steps, or 10 pairs of checkpoints that differ by three deviations.

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
        metrics = [s for s in to_improve(subject.series, LEAST) if is_held_out(s.name)]
        subsets = [s for s in metrics if name_words(s.name) & SUBSETS]
        wholes = [s for s in metrics if not name_words(s.name) & SUBSETS]
        pairs = [(part, whole) for part in subsets for whole in wholes if _named_alike(part, whole)]
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
        sign = better_is(whole.name)
        ours, theirs = sign * part.values[rows], sign * whole.values[whole_rows]
        noise, curve = noise_of(theirs), smoothed(theirs, 0.3)
        apart = theirs[:, None] - theirs > APART * np.sqrt(2) * noise
        pairs, turned = apart.sum(), (apart & (ours[:, None] < ours)).sum()
        chosen, best = int(ours.argmax()), int(curve.argmax())
        behind, gain = curve[best] - curve[chosen], curve[best] - curve.min()
        sentence = (
            f"Of {pairs} pairs of checkpoints that {whole.title} separates, {part.title} puts "
            f"{turned} the other way round; its best, step {steps[chosen]:g}, is {behind:.3g} "
            f"behind step {steps[best]:g}, of a gain of {gain:.3g}"
        )
        if pairs < LEAST_PAIRS:
            return unclear(f"{sentence}: too few pairs.")
        fails = behind > max(MUCH * gain, APART * noise)
        return self.failed(f"{sentence}.") if fails else passed(f"{sentence}.")


class EvaluationsAreDear(Check):
    """Evaluations that take more time than the training between them.

    ## How it decides
    Compares the time between training rows with and without an evaluation in between. Fails if
    evaluations take half of the run or more, else reports the share. Inconclusive with fewer than
    three evaluations, or eight training gaps without one.

    ## Limits
    Needs rows with a clock (`wall_time`, `timestamp`, event files), and training rows between
    evaluations. Other work there (checkpoints, logged images) counts too.
    """

    code = "LOG010"
    name = "evaluations-too-costly"
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
        share = extra / max(took[sound].sum(), 1e-12)
        sentence = (
            f"{len(at)} evaluations take {share:.0%} of the run ({extra / len(at):.3g} s each, as "
            f"much as {extra / len(at) / max(pace, 1e-12):.3g} steps)."
        )
        return self.failed(sentence) if share >= DEAR else passed(sentence)


LEAST_CHOSEN, MOST = 10, 1000  # evaluations; more are thinned out, and add nothing to the noise
DRAWS, LISTED = 400, 5
MAX_LUCK, MAX_TINY = 1 / 3, 20  # of the gain; samples of an evaluation
LAST_NAME = re.compile("last|latest|final")
STEP_IN_NAME = re.compile(r"(?:step|epoch|iter|ckpt|point|model|[-_=])[-_=]?(\d+)(?![\d.]*\d)")


class Selection(NamedTuple):
    """The best evaluation of one metric; `luck` is what the choice alone is expected to add."""

    series: Series
    best: int
    luck: float
    gain: float  # of the best, along the curve without noise, over the first evaluation
    noise: float
    near: int  # evaluations that differ from the best by less than the noise

    def answer(self) -> tuple[str, dict[str, Any]]:
        """Return a sentence, and the evidence for the table of runs."""
        value, title = float(self.series.values[self.best]), self.series.title
        sentence = (
            f"The best of {len(self.series.values)} evaluations of {title} is {value:.4g} at step "
            f"{self.series.steps[self.best]:g}, of which about {self.luck:.2g} is luck "
            f"({self.luck / self.gain:.0%} of the gain); the noise hides the difference to "
            f"{self.near - 1} other evaluations."
        )
        return sentence, {"metric": title, "best": value}


class ChosenBest(Check):
    """A best evaluation that is better than the model by chance, or whose checkpoint is lost.

    ## Why is this bad
    The best of N noisy evaluations is biased: 2.5 deviations for 100 equal evaluations.

    ## How it decides
    Simulates the run 400 times with its noise. Fails if the choice alone adds a third of the gain
    of each metric, and noise explains best minus last. Fails if an accuracy only takes multiples of
    1/n, for n below 20. Fails if all checkpoints beside the log are behind the best by 10% of the
    gain and 5 deviations, in each metric. Inconclusive with fewer than 10 evaluations.

    ## Limits
    Only held-out losses and scores, by name. Checkpoints without a step in their names pass.
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
        metrics = [s for s in to_improve(subject.series, LEAST_CHOSEN) if is_held_out(s.name)]
        if not metrics:
            return unclear(f"No held-out loss or score has {LEAST_CHOSEN} evaluations.")
        for series in metrics:
            if samples := _few_samples(series):
                return self.failed(
                    f"{series.title} only takes multiples of 1/{samples}: the evaluation has "
                    f"{samples} samples, or few more."
                )
        rows = [select_best(series) for series in metrics]
        if subject.checkpoints and all(_is_lost(row, subject.checkpoints) for row in rows):
            names = ", ".join(file.name for file in subject.checkpoints[:LISTED])
            series, step = rows[0].series, rows[0].series.steps[rows[0].best]
            return wrong(
                f"{series.title} is best at step {step:g}, and no checkpoint is of it ({names}).",
                ("each save replaces the last", "no metric is monitored"),
                "Save a second file when the held-out metric improves, such as `best.pt`.",
                **rows[0].answer()[1],
            )
        gaining = [row for row in rows if row.gain > max(APART * row.noise, 1e-9)]
        if not gaining:
            return unclear(f"{rows[0].series.title} gains nothing beyond its noise.")
        sentence, evidence = gaining[0].answer()
        if all(row.luck > MAX_LUCK * row.gain and _like_last(row) for row in gaining):
            return self.failed(sentence, **evidence)
        return passed(sentence, **evidence)


def select_best(series: Series) -> Selection:
    """What the choice of the best evaluation is worth, and what of it is luck."""
    rows = np.linspace(0, len(series.steps) - 1, min(MOST, len(series.steps))).round().astype(int)
    series = Series(series.name, series.steps[rows], series.values[rows], log=series.log)
    values = better_is(series.name) * series.values
    noise, curve = noise_of(values), smoothed(values, share=0.3)
    luck = expected_luck(curve, noise)
    best = int(values.argmax())
    near = int((values >= values[best] - 2 * noise * np.sqrt(2)).sum())
    gain = float(curve[best] - values[0])  # a smooth curve would begin too late
    return Selection(series, best, luck, gain, noise, near)


def expected_luck(curve: Values, noise: float) -> float:
    """Mean of (best evaluation - curve there) over noisy copies of a curve."""
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
    """Return whether the best of the curve lies within the noise of its end."""
    values = better_is(row.series.name) * row.series.values
    tail = max(3, len(values) // 10)
    around = values[max(0, row.best - tail // 2) : row.best + tail // 2 + 1]
    error = row.noise * np.sqrt(1 / len(around) + 1 / tail)
    # the best itself is in `around` and lucky: what it adds is taken off
    above = float(around.mean() - row.luck / len(around) - values[-tail:].mean())
    return bool(above < APART * error)


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

    ## How it decides
    Pairs metrics by name (`train/loss`, `val_loss`). Fails if the held-out curve ends below its
    best by half of its gain and five deviations of its noise, and the training gains five of its
    own. Inconclusive if a held-out score still improves: the model only becomes more confident.
    Fails if a held-out accuracy ends 0.15 above that of the training, or a training metric gains
    at the starts of epochs only. Needs 8 evaluations.

    ## Limits
    A wide but constant gap passes, and the result prints it.
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
        metrics = to_improve(subject.series, LEAST)
        held_out = [s for s in metrics if is_held_out(s.name)]
        trained = [s for s in metrics if not is_held_out(s.name)]
        for series in trained:
            if sentence := _memorised(series, subject.series):
                return self.failed(sentence)
        pairs = [(t, h) for h in held_out for t in trained if _named_alike(t, h)]
        if not pairs:
            return absent("No metric is logged of the training and of held-out data.")
        gaps = [f"{h.title} {_curve(t)[0][-1] - _curve(h)[0][-1]:.3g}" for t, h in pairs]
        gap = f"Gap at the end: {'; '.join(gaps[:4])}."
        for train, held in pairs:
            if fall := _fall(train, held):
                scores = [s for s in held_out if s.log == held.log and better_is(s.name) > 0]
                if better_is(held.name) < 0 and any(_improves(s, held) for s in scores):
                    return unclear(f"{fall} {gap} A score beside it still improves.")
                return self.failed(f"{fall} {gap}")
        for train, held in pairs:
            ends = [float(np.median(s.values[-LEAST // 2 :])) for s in (train, held)]
            ahead = (ends[1] - ends[0]) / (100 if max(ends) > 1.5 else 1)
            if name_words(held.name) & ACCURACIES and ahead > MAX_AHEAD:
                sentence = f"{held.title} ends at {ends[1]:.4g}, {train.title} at {ends[0]:.4g}."
                return wrong(sentence, AHEAD_CAUSES, AHEAD_ADVICE)
        return passed(f"No held-out metric falls back. {gap}")


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
    start = f"{series.title} gains {gains.sum():.3g} at the starts of {len(gains)} epochs"
    return f"{start}, and {whole - gains.sum():.3g} within them: it memorises samples."


def _curve(series: Series) -> tuple[Values, float]:
    """(the curve, higher is better; the deviation of the noise of one row)."""
    values = better_is(series.name) * series.values
    return smoothed(values, 0.2), noise_of(values)


def _fall(train: Series, held: Series) -> str:
    """What a held-out metric loses after its best while the training gains; '' else."""
    (learned, own), (curve, noise) = _curve(train), _curve(held)
    best = int(curve.argmax())
    lost, gain = curve[best] - curve[-1], curve[best] - curve[0]
    gained = learned[-1] - learned[round(best * (len(learned) - 1) / (len(curve) - 1))]
    if lost <= max(LOST * gain, SURELY * noise, 1e-9) or gained <= SURELY * own:
        return ""
    step = held.steps[best]
    return f"{held.title} loses {lost:.3g} after step {step:g}, of a gain of {gain:.3g}."


def _improves(score: Series, loss: Series) -> bool:
    """Whether a score ends above its level at the best of a loss, beyond its noise."""
    (curve, noise), (losses, _) = _curve(score), _curve(loss)
    return bool(curve[-1] > curve[int(losses.argmax()) * len(curve) // len(losses)] + 2 * noise)
