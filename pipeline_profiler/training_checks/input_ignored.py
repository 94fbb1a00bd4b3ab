"""TRAIN002: a model that does as well without its input."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.toy_trainings import toy_net, toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STEPS = 12
SAME = 1e-6  # relative difference of outputs


class InputIgnored(Check):
    """Outputs that are the same for every input.

    ## What it does
    Trains for 12 steps and compares the outputs for different examples, and for the batch with its
    inputs set to zero.

    ## Why is this bad
    Such a model learns the base rates and stops there: the loss falls, and looks like training.

    ## How it decides
    Fails where outputs of different examples agree to one part in a million, at the start and
    after the steps. Rounding alone differs by less, a working model by far more.

    ## What to do
    Follow one example through the layers: where does its activation become equal to another's?

    ## Limits
    A model that uses a part of its input only passes. Whether it learns from it: TRAIN003.
    """

    code = "TRAIN002"
    name = "input-ignored"

    def run(self, subject: TrainingSubject) -> Answer:
        """Differences between examples, before and after some steps."""
        training = subject.fresh()
        before = _difference(subject, training)
        for number in range(STEPS):
            subject.step(training, subject.batches[number % len(subject.batches)])
        after = _difference(subject, training)
        return _judge(before, after)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Differences between examples, before and after some steps."""
        inputs, training = subject.batches[0][0], subject.fresh()
        before = _apart(subject.outputs(training, inputs))
        for number in range(STEPS):
            subject.step(training, subject.batches[number % len(subject.batches)])
        return _judge(before, _apart(subject.outputs(training, inputs)))

    @staticmethod
    def _zeroed() -> Any:
        from torch import nn

        class Zeroed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = toy_net()

            def forward(self, pixels: Any) -> Any:
                return self.net(pixels * 0)

        return toy_training(Zeroed())

    PLANTED = (Example("multiplied by zero", _zeroed),)
    HEALTHY = (
        Example("a small network", toy_training),
        Example("a regression", toy_regression),
    )


def _judge(before: float | None, after: float | None) -> Answer:
    if before is None or after is None:
        return unclear("There are fewer than two examples, or inputs without numbers.")
    numbers = {"before": before, "after": after}
    if max(before, after) < SAME:
        return wrong(
            f"Outputs for different inputs differ by {after:.1e} of their size: the input does "
            "not reach the output.",
            [
                "a layer whose output is overwritten or multiplied by zero",
                "all units are dead or saturated",
                "the wrong variable goes on in forward()",
            ],
            "Print the deviation over the batch after each layer.",
            **numbers,
        )
    return passed(
        f"Outputs of different inputs differ by {after:.2g} of their size after "
        f"{STEPS} steps ({before:.2g} at the start).",
        **numbers,
    )


def _difference(subject: TrainingSubject, training: Any) -> float | None:
    """Deviation of outputs over the examples, relative to their size."""
    import torch

    inputs = subject.batches[0][1]
    if main_tensor(inputs) is None or main_tensor(inputs).shape[0] < 2:
        return None
    training.model.eval()
    with torch.no_grad():
        outputs = subject.output(training, inputs).double()
    training.model.train()
    size = float(outputs.abs().mean()) + 1e-30
    return float((outputs - outputs[:1]).abs().mean()) / size


def _apart(outputs: Any) -> float | None:
    """Deviation of outputs over the examples, relative to their size."""
    if len(outputs) < 2:
        return None
    numbers = np.asarray(outputs, np.float64)
    return float(np.abs(numbers - numbers[:1]).mean() / (np.abs(numbers).mean() + 1e-30))
