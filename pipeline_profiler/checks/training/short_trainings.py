"""Short trainings beside each other: as it is, and with other learning rates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience, UsersError, seed_everything
from pipeline_profiler.checks.user_training import Training

FALL_STEPS, FALL_LEAST_STEPS, FALL_SECONDS = 80, 40, 12.0
BEYOND = (2, 4, 8, 16)  # times as far as training moved the outputs
FASTER = math.sqrt(2)  # a power p makes the slope 2^(p-1) times as steep with each doubling
T_999 = 3.7  # two-sided 99.9 % with some 20 batches


class LossFalls(Check):
    """The training loss over the first 80 steps.

    ## What it does
    Trains on the first batches for up to 80 steps. Compares the loss of each batch before and
    after.

    ## Why is this bad
    If nothing is learned, the rest of the training wastes time.

    ## How it decides
    Fails if the mean paired change is above zero. Fails if it is not below zero at 99.9%, and less
    than 1% of the first loss was gained.

    ## Limits
    The result covers a few repeated batches, not new data. A warm-up may need more steps.
    """

    code = "TRAIN015"
    name = "loss-does-not-fall"
    nearness = Nearness.SYMPTOM
    causes = (
        "a cause listed before this one",
        "a learning rate far too low or too high",
    )
    next_step = "Fix what is listed above; else try the learning rate times 10 and by 10."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        start = _outputs(subject, training)
        answer = _compared(subject, training)
        if answer.judgement == "passed":
            answer = _beyond(subject, training, start, answer)
        return subject.weighed(answer)

    def run_keras(self, subject: Examined) -> Answer:
        """The same: the subject measures."""
        return _compared(subject, subject.fresh())


def _compared(subject: Examined, training: Training) -> Answer:
    batches = subject.batches
    before = [subject.measured(training, b, mode=True) for b in batches]
    patience = Patience(FALL_SECONDS, max(2.0, subject.time_left() / 5))
    number = 0
    for number in range(1, FALL_STEPS + 1):
        subject.step(training, batches[number % len(batches)])
        if patience.over:
            break
    modes = (True, False)
    after = [min(subject.measured(training, b, mode) for mode in modes) for b in batches]
    return _judge(before, after, number)


def _outputs(subject: TrainingSubject, training: Training) -> Any:
    seed_everything(subject.seed)  # a model may draw numbers
    outputs = subject.evaluated(training, subject.batches[0])
    training.model.train()
    return outputs


def _beyond(subject: TrainingSubject, training: Training, start: Any, answer: Answer) -> Answer:
    """`answer`, or that the loss has no least value where training goes."""
    end, targets = _outputs(subject, training), subject.batches[0][2]
    try:
        with torch.no_grad():
            losses = [
                float(subject.loss_of(training, _far(start, end, times), targets))
                for times in (1, *BEYOND)
            ]
    except (UsersError, TypeError, ValueError, KeyError, RuntimeError):  # outputs change their form
        return answer
    if not _bottomless(losses):
        return answer
    return wrong(
        f"{answer.sentence[:-1]}, and it falls ever faster where the outputs go: to "
        f"{losses[-1]:.4g} with outputs {BEYOND[-1]} times as far. It has no least value.",
        [
            "a term of the loss has the wrong sign",
            "a distance is made large that nothing bounds",
        ],
        "Print the terms of the loss one by one, and see which of them falls below its least.",
        **answer.evidence,
        beyond=losses,
    )


def _far(start: Any, end: Any, times: float) -> Any:
    """What lies on the line from start to end, `times` as far as the end."""
    if isinstance(end, torch.Tensor):
        return start + times * (end - start) if end.is_floating_point() else end
    if isinstance(end, Mapping):
        return {key: _far(start[key], part, times) for key, part in end.items()}
    if isinstance(end, tuple) and hasattr(end, "_fields"):
        return type(end)(*(_far(a, b, times) for a, b in zip(start, end, strict=True)))
    if isinstance(end, tuple | list):
        return type(end)(_far(a, b, times) for a, b in zip(start, end, strict=True))
    return end


def _bottomless(losses: list[float]) -> bool:
    """Whether the loss at 1, 2, 4, ... times falls by a power of the distance above 1.5."""
    if any(math.isnan(loss) or loss == math.inf for loss in losses):
        return False
    finite = [loss for loss in losses if math.isfinite(loss)]
    slopes = [(a - b) / 2**n for n, (a, b) in enumerate(itertools.pairwise(finite))]
    last = slopes[-3:]
    if len(last) < 3 or last[0] <= 0:
        return len(finite) < len(losses) and bool(last) and last[-1] > 0
    return all(b > FASTER * a for a, b in itertools.pairwise(last))


def _judge(before: list[float], after: list[float], steps: int) -> Answer:
    first, last = sum(before) / len(before), sum(after) / len(after)
    numbers: dict[str, Any] = {"steps": steps, "before": first, "after": last}
    if not math.isfinite(last):
        return LossFalls.failed(f"The loss is {last} after {steps} steps.", **numbers)
    gains = [b - a for b, a in zip(before, after, strict=True)]
    mean = sum(gains) / len(gains)
    spread = float(np.std(gains, ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    numbers |= {"gain": mean, "interval": T_999 * spread}
    said = f"The loss goes from {first:.4g} to {last:.4g} in {steps} steps on {len(before)} batches"
    if steps < FALL_LEAST_STEPS and mean < 0.01 * abs(first):
        return unclear(f"{said}; the time allowed no more steps.", **numbers)
    if mean <= 0:
        return LossFalls.failed(f"{said}.", **numbers)
    if mean < 0.01 * abs(first) and mean - T_999 * spread <= 0.001 * abs(first):
        return LossFalls.failed(f"{said}.", **numbers)
    return passed(f"{said}.", **numbers)


FACTORS = (1.0, 0.01, 0.1, 10.0, 100.0, 1000.0)
LITTLE, MUCH = 0.02, 0.2  # shares of the first loss
RATE_STEPS, RATE_SECONDS = 20, 4.0


class LearningRate(Check):
    """The learning rate compared with rates from 0.01 to 1000 times it.

    ## What it does
    Trains 20 steps with 0.01 to 1000 times the learning rate, from one start and on the same
    batches. Inconclusive if no rate changes the loss.

    ## Why is this bad
    If the rate is too high, the loss jumps or grows. If it is too low, the budget ends before
    anything is learned.

    ## How it decides
    Too high: the loss ends at or above its start, and a smaller rate gains 10%. Too low: the loss
    falls by under 2%, by under 20% with 100 times the rate, and by 20% with a higher one. If 100
    times the rate gains 20%, the result is inconclusive.

    ## What to do
    Try the best of the printed factors, then tune around it.

    ## Limits
    20 steps cannot rank good rates. With a schedule, the largest rate is tried. A rate that is too
    high is then inconclusive, because the schedule may start lower.
    """

    code = "TRAIN026"
    name = "learning-rate"
    nearness = Nearness.EFFECT
    quick = False

    def run(self, subject: TrainingSubject) -> Answer:
        return subject.weighed(_answer(subject))

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Short trainings; a schedule cannot be scaled."""
        optimizer = subject.settings.optimizer
        if callable(getattr(optimizer, "_learning_rate", None)):
            return unclear("The learning rate is a schedule, which is not scaled here.")
        return _answer(subject)


def _answer(subject: Examined) -> Answer:
    ends: dict[float, float] = {}
    first = _mean_rate(subject, subject.fresh(), subject.batches[:4])
    for number, factor in enumerate(FACTORS):
        patience = Patience(RATE_SECONDS, subject.time_left() / (2 * (len(FACTORS) - number)))
        ends[factor] = _trial(subject, factor, patience)
        if math.isnan(ends[factor]):
            return unclear("The budget does not allow the trials.")
    if all(abs(1 - end / first) < LITTLE for end in ends.values()):
        return unclear("No learning rate from 0.01 to 1000 times yours changes the loss.")
    own = 1 - ends[1.0] / first if math.isfinite(ends[1.0]) else -math.inf
    gains = {f: 1 - e / first if math.isfinite(e) else -math.inf for f, e in ends.items()}
    numbers: dict[str, Any] = {"first": first, "ends": {str(f): e for f, e in ends.items()}}
    lower = max(gains[f] for f in (0.01, 0.1))
    higher = max(gain for factor, gain in gains.items() if factor > 1)
    best = max(gains, key=lambda f: gains[f])
    if not first > 0:
        return unclear("The loss is not above zero, so shares of it mean nothing.", **numbers)
    said = (
        f"In {RATE_STEPS} steps the loss goes from {first:.4g} to {ends[1.0]:.4g}; with "
        f"{best:g} times the learning rate to {ends[best]:.4g}"
    )
    if own <= 0 and lower >= 0.1 and subject.settings.schedule is not None:
        return unclear(f"{said}; a schedule may begin lower, which 20 steps do not show.")
    if own <= 0 and lower >= 0.1:
        return _failed_rate(f"{said}: it is too high.", best, numbers)
    if own < LITTLE and max(gains[10.0], gains[100.0]) < MUCH <= higher:
        return _failed_rate(f"{said}: it is too low.", best, numbers)
    return (unclear if own < LITTLE and higher >= MUCH else passed)(f"{said}.", **numbers)


def _trial(subject: Examined, factor: float, patience: Patience) -> float:
    """The last loss after some steps with the learning rate times a factor; NaN: no time."""
    training, batches = subject.held(), subject.batches[:4]
    if isinstance(subject, KerasSubject):
        rate = training.optimizer.learning_rate
        rate.assign(rate * factor)
    else:
        for group in training.optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        seed_everything(subject.seed)
    for number in range(RATE_STEPS):
        if not math.isfinite(subject.step(training, batches[number % len(batches)])):
            return math.inf
        if patience.over:
            return math.nan  # not through: nothing to compare
    return _mean_rate(subject, training, batches)


def _mean_rate(subject: Examined, training: Training, batches: list[Any]) -> float:
    value = sum(subject.measured(training, b, True) for b in batches) / len(batches)
    return value if math.isfinite(value) else math.inf


def _failed_rate(text: str, best: float, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        ["the learning rate is of another scale than this model and optimizer need"],
        f"Try {best:g} times the learning rate.",
        **numbers,
    )
