"""TRAIN013: an output bias that starts far from the base rate or the mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import as_array
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
from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

FAR = 10.0  # deviations of the targets


class BaseRate(Check):
    """Where the outputs start, compared with the mean of the targets.

    ## What it does
    Computes what the first steps have to learn that the last bias could have been told: for numbers
    the distance of the mean of the targets in deviations, for classes the difference between
    log K and the entropy of the labels.

    ## Why is this bad
    Hundreds of steps go into learning a mean; their large gradients disturb all other weights.

    ## How it decides
    Fails for numbers whose mean lies more than 10 deviations from the first outputs: it is more
    than the deviation itself by so much that the squared error is 100 times what it should be.
    For classes it only reports what a bias at the base rates would save.

    ## What to do
    Standardise the targets, or set `layer.bias` to the mean (for classes to log base rates).

    ## Limits
    Base rates of one batch are rough; take those of the training set.
    """

    code = "TRAIN013"
    name = "far-from-base-rate"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """By the kind of task."""
        import torch

        task = subject.task
        if task.kind == "regression":
            targets = torch.cat([main_tensor(b[2]).flatten() for b in subject.batches]).float()
            outputs = subject.first_outputs.float()
            spread = float(targets.std()) + 1e-12
            if subject.takes_tensor:
                wanted = float(subject.loss_alone.shared_outputs[1].mean())
                if abs(wanted - float(main_tensor(subject.batches[0][2]).mean())) > spread:
                    return unclear(
                        f"The best constant output is {wanted:.4g}, and the mean of the targets "
                        f"{float(targets.mean()):.4g}: the loss asks for another number."
                    )
            return _judge_numbers(float(targets.mean()), spread, float(outputs.mean()))
        if task.kind in ("classes", "binary") and subject.takes_tensor:
            return _judge_classes(subject.uniform_loss - subject.constant_loss)
        return unclear("The task is neither of classes nor of numbers.")

    def run_keras(self, subject: KerasSubject) -> Answer:
        """By the kind of task."""
        if subject.task.kind == "regression":
            targets = [as_array(batch[1]) for batch in subject.batches]
            flat = np.concatenate([t.reshape(-1) for t in targets if t is not None])
            start = float(subject.first_outputs.mean())
            return _judge_numbers(float(flat.mean()), float(flat.std()) + 1e-12, start)
        if subject.task.kind in ("classes", "binary"):
            return _judge_classes(subject.uniform_loss - subject.constant_loss)
        return unclear("The task is neither of classes nor of numbers.")

    PLANTED = (Example("a mean of 20 deviations", lambda: toy_regression(mean=20.0)),)
    HEALTHY = (
        Example("standardised", toy_regression),
        Example("counts, of which outputs are logarithms", lambda: _counts()),
        Example("classes", toy_training),
    )


def _counts() -> Any:
    from torch import nn

    return toy_regression(mean=200.0, loss=nn.PoissonNLLLoss())


def _judge_numbers(mean: float, spread: float, start: float) -> Answer:
    distance = abs(mean - start) / spread
    numbers = {"mean": mean, "deviation": spread, "distance": distance}
    if distance > FAR:
        return wrong(
            f"Targets have mean {mean:.4g} and deviation {spread:.4g}; outputs start "
            f"{distance:.0f} deviations from that mean.",
            ["targets are not standardised"],
            "Subtract the mean and divide by the deviation, or set the last bias.",
            **numbers,
        )
    return passed(
        f"Outputs start {distance:.2f} deviations from the mean of the targets.", **numbers
    )


def _judge_classes(saved: float) -> Answer:
    return passed(
        f"A last bias at the base rates would start {saved:.3f} nats lower.", saved_nats=saved
    )
