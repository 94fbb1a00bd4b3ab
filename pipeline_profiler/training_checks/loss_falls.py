"""TRAIN015: a loss that does not fall."""

from __future__ import annotations

import math
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
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STEPS, LEAST_STEPS, SECONDS = 80, 40, 12.0
T_999 = 3.7  # two-sided 99.9 % with some 20 batches


class LossFalls(Check):
    """The training loss over the first 80 steps.

    ## What it does
    Trains on the first batches for up to 80 steps, and measures the loss of each of them before
    and after.

    ## Why is this bad
    Nothing is learned: everything that follows is a waste of time.

    ## How it decides
    Fails where the mean change over batches is above zero, or not below it at 99.9 % while less
    than 1 % of the first loss was gained. A paired comparison of the same batches: what differs is
    the training alone.

    ## What to do
    Look at the causes listed before this check, then at the learning rate.

    ## Limits
    Trained on the same few batches, so it says nothing of new data. A warm-up may need longer.
    """

    code = "TRAIN015"
    name = "loss-does-not-fall"
    nearness = Nearness.SYMPTOM

    def run(self, subject: TrainingSubject) -> Answer:
        """Before and after."""
        return subject.weighed(self._compared(subject))

    @staticmethod
    def _compared(subject: Any) -> Answer:
        training, batches = subject.fresh(), subject.batches
        before = [subject.measured(training, b, mode=True) for b in batches]
        patience = Patience(SECONDS, max(2.0, subject.time_left() / 5))
        number = 0
        for number in range(1, STEPS + 1):
            subject.step(training, batches[number % len(batches)])
            if patience.over:
                break
        after = [
            min(subject.measured(training, b, True), subject.measured(training, b, False))
            for b in batches
        ]
        return _judge(before, after, number)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """The same: the subject measures."""
        return self._compared(subject)

    @staticmethod
    def _rate(rate: float) -> Any:
        import torch

        return toy_training(optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=rate))

    PLANTED = (
        Example("upwards", lambda: LossFalls._rate_negative()),
        Example("hardly at all", lambda: LossFalls._rate(1e-7)),
    )
    HEALTHY = (
        Example("classes", toy_training),
        Example("numbers", toy_regression),
        Example("slow", lambda: LossFalls._rate(0.003)),
    )

    @staticmethod
    def _rate_negative() -> Any:
        import torch

        return toy_training(
            optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.05, maximize=True)
        )


def _judge(before: list[float], after: list[float], steps: int) -> Answer:
    first, last = sum(before) / len(before), sum(after) / len(after)
    numbers: dict[str, Any] = {"steps": steps, "before": first, "after": last}
    if not math.isfinite(last):
        return _failed(f"The loss is {last} after {steps} steps.", numbers)
    gains = [b - a for b, a in zip(before, after, strict=True)]
    mean = sum(gains) / len(gains)
    if len(gains) > 1:
        spread = math.sqrt(sum((g - mean) ** 2 for g in gains) / (len(gains) - 1) / len(gains))
    else:
        spread = 0.0
    numbers |= {"gain": mean, "interval": T_999 * spread}
    said = f"The loss goes from {first:.4g} to {last:.4g} in {steps} steps on {len(before)} batches"
    if steps < LEAST_STEPS and mean < 0.01 * abs(first):
        return unclear(f"{said}; the time allowed no more steps.", "", **numbers)
    if mean <= 0:
        return _failed(f"{said}.", numbers)
    if mean < 0.01 * abs(first) and mean - T_999 * spread <= 0.001 * abs(first):
        return _failed(f"{said}.", numbers)
    return passed(f"{said}.", **numbers)


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        ["a cause listed before this one", "a learning rate far too low or too high"],
        "Fix what is listed above; else try the learning rate times 10 and by 10.",
        **numbers,
    )
