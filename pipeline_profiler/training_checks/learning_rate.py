"""TRAIN026: a learning rate that another one beats by far."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    Nearness,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.patience import Patience
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

FACTORS = (1.0, 0.01, 0.1, 10.0, 100.0, 1000.0)
MORE_FACTORS = (1e5, 1e7)  # where none of these moves anything
LITTLE, MUCH = 0.02, 0.2  # shares of the first loss
STEPS, SECONDS = 20, 4.0


class LearningRate(Check):
    """The learning rate beside a hundredth and a hundred times of it.

    ## What it does
    Trains 20 steps from the same start with the learning rate times 0.01, 0.1, 1, 10, 100 and
    1000 (and more where nothing moves), on the same batches, and compares the loss at the end.

    ## Why is this bad
    Too high: the loss jumps or grows; too low: the budget ends before the learning begins.

    ## How it decides
    Fails as too high where the loss ends above its start (or is no number) and a smaller rate takes
    away a tenth of it; as too low where less than 2 % goes and a rate ten times or more as high
    takes away a fifth. Between these it passes: 20 steps cannot choose between good ones.

    ## What to do
    Try the best of the factors printed, then tune around it.

    ## Limits
    20 steps: a warm-up is not through by then, so its first rates are what is tried.
    """

    code = "TRAIN026"
    name = "learning-rate"
    nearness = Nearness.EFFECT
    quick = False

    def run(self, subject: TrainingSubject) -> Answer:
        """Six short trainings."""
        return subject.weighed(self._answer(subject, _trial))

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Short trainings; a schedule cannot be scaled."""
        optimizer = subject.settings.optimizer
        if callable(getattr(optimizer, "_learning_rate", None)):
            return unclear("The learning rate is a schedule, which is not scaled here.")
        return self._answer(subject, _keras_trial)

    @staticmethod
    def _answer(subject: Any, trial: Callable[[Any, float, Patience], float]) -> Answer:
        ends: dict[float, float] = {}
        first = _mean(subject, subject.fresh(), subject.batches[:4])
        for number, factor in enumerate(FACTORS):
            patience = Patience(SECONDS, subject.time_left() / (2 * (len(FACTORS) - number)))
            ends[factor] = trial(subject, factor, patience)
            if math.isnan(ends[factor]):
                return unclear("The budget does not allow the trials.")
        if all(abs(1 - end / first) < LITTLE for end in ends.values()):
            patience = Patience(2 * SECONDS, subject.time_left() / 2)
            more = {factor: trial(subject, factor, patience) for factor in MORE_FACTORS}
            ends |= {factor: end for factor, end in more.items() if not math.isnan(end)}
        own = 1 - ends[1.0] / first if math.isfinite(ends[1.0]) else -math.inf
        gains = {f: 1 - e / first if math.isfinite(e) else -math.inf for f, e in ends.items()}
        numbers: dict[str, Any] = {"first": first, "ends": {str(f): e for f, e in ends.items()}}
        lower = max(gains[f] for f in (0.01, 0.1))
        higher = max(gain for factor, gain in gains.items() if factor > 1)
        best = max(gains, key=lambda f: gains[f])
        if not first > 0:
            return unclear(
                "The loss is not above zero, so shares of it mean nothing.", "", **numbers
            )
        said = (
            f"In {STEPS} steps the loss goes from {first:.4g} to {ends[1.0]:.4g}; with {best:g} "
            f"times the learning rate to {ends[best]:.4g}"
        )
        if own <= 0 and lower >= 0.1:
            return _failed(f"{said}: it is too high.", best, numbers)
        if own < LITTLE and higher >= MUCH:
            return _failed(f"{said}: it is too low.", best, numbers)
        return passed(f"{said}.", **numbers)

    @staticmethod
    def _rate(rate: float) -> Any:
        import torch

        return toy_training(optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=rate))

    @staticmethod
    def _high() -> Any:
        import torch

        return toy_regression(optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=10.0))

    PLANTED = (
        Example("too low", lambda: LearningRate._rate(1e-5)),
        Example("too high", _high),
    )
    HEALTHY = (
        Example("Adam at 0.003", toy_training),
        Example("SGD at 0.1", lambda: LearningRate._rate(0.1)),
        Example("numbers", toy_regression),
    )


def _trial(subject: TrainingSubject, factor: float, patience: Patience) -> float:
    """The last loss after some steps with the learning rate times a factor; NaN: no time."""
    training = subject.fresh()
    for group in training.optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    schedule = training.schedule
    if schedule is not None and hasattr(schedule, "base_lrs"):
        schedule.base_lrs = [rate * factor for rate in schedule.base_lrs]
    seed_everything(subject.seed)
    return _last_loss(subject, training, patience)


def _keras_trial(subject: KerasSubject, factor: float, patience: Patience) -> float:
    """The last loss after some steps with the learning rate times a factor; NaN: no time."""
    training = subject.fresh()
    rate = training.optimizer.learning_rate
    rate.assign(rate * factor)
    return _last_loss(subject, training, patience)


def _last_loss(subject: Any, training: Any, patience: Patience) -> float:
    batches = subject.batches[:4]
    for number in range(STEPS):
        if not math.isfinite(subject.step(training, batches[number % len(batches)])):
            return math.inf
        if patience.over:
            return math.nan  # not through: nothing to compare
    return _mean(subject, training, batches)


def _mean(subject: Any, training: Any, batches: list[Any]) -> float:
    value = sum(subject.measured(training, b, True) for b in batches) / len(batches)
    return value if math.isfinite(value) else math.inf


def _failed(text: str, best: float, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        ["the learning rate is of another scale than this model and optimizer need"],
        f"Try {best:g} times the learning rate.",
        **numbers,
    )
