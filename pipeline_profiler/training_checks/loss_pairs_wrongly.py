"""TRAIN018: a loss that compares outputs with the targets of other examples."""

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
from pipeline_profiler.checking.toy_trainings import toy_language, toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

SAME = 1e-5


class LossPairsWrongly(Check):
    """A loss that does not care which target belongs to which output.

    ## What it does
    Computes your loss of random outputs, spread as the model's are at first (and for numbers as the
    targets are), and again with the targets in another order.

    ## Why is this bad
    Outputs of shape (B, 1) and targets of shape (B,) broadcast to (B, B): each output is compared
    with every target, and the best answer is the mean for all.

    ## How it decides
    Fails where the loss stays the same to 1 part in 100,000 for three other orders of targets that
    differ: a loss that pairs them changes by far more.

    ## What to do
    `outputs.squeeze(1)`, or `targets.unsqueeze(1)`: make both shapes equal.

    ## Limits
    Losses over sets (matching, contrastive) may rightly not care: skip this check there.
    """

    code = "TRAIN018"
    name = "loss-pairs-wrongly"

    def run(self, subject: TrainingSubject) -> Answer:
        """Other orders of the targets."""
        import torch

        if not subject.takes_tensor:
            return unclear("The loss does not take one tensor.")
        targets, shape = subject.batches[0][2], subject.first_outputs
        tensor = main_tensor(targets)
        if tensor is None or tensor is not targets or len(tensor) < 3:
            return unclear("The targets are not one tensor of three or more examples.")
        generator = torch.Generator().manual_seed(1)
        drawn = torch.randn(shape.shape, generator=generator).to(shape.device)
        orders = [torch.randperm(len(tensor), generator=generator) for _ in range(3)]
        others = [tensor[order.to(tensor.device)] for order in orders]
        if any(torch.equal(other, tensor) for other in others):
            return unclear("All targets of the first batch are alike.")
        places = [(float(shape.float().std()) + 1e-3, float(shape.float().mean()))]
        if subject.task.kind == "regression":  # about the targets, so that their order shows
            places.append((float(tensor.float().std()), float(tensor.float().mean())))
        values = max(
            (
                [
                    float(subject.loss_of(subject.settings, outputs, targets).detach())
                    for targets in (tensor, *others)
                ]
                for outputs in (subject.formed(drawn * spread + mean) for spread, mean in places)
            ),
            key=_spread,
        )
        return _judge(values, list(shape.shape), list(tensor.shape))

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Other orders of the targets."""
        shape, (inputs, targets, weights) = subject.first_outputs, subject.batches[0]
        if not subject.takes_tensor or not isinstance(targets, np.ndarray) or len(targets) < 3:
            return unclear("The targets are not one array of three or more examples.")
        rng, outputs = np.random.default_rng(1), np.asarray(shape, np.float32)
        noise = rng.normal(0, 1, shape.shape).astype(np.float32)
        if subject.task.kind == "regression":
            outputs = noise * targets.std() + targets.mean()
        else:
            formed = subject.loss_alone.formed(noise)
            outputs = formed.numpy() if hasattr(formed, "numpy") else formed
        values = []
        for number in range(4):
            order = rng.permutation(len(targets)) if number else np.arange(len(targets))
            if number and np.array_equal(targets[order], targets):
                return unclear("All targets of the first batch are alike.")
            batch = (inputs, targets[order], weights)
            values.append(float(subject.loss_of(subject.settings, outputs, batch)))
        return _judge(values, list(shape.shape), list(targets.shape))

    @staticmethod
    def _flat() -> Any:
        def squared(outputs: Any, targets: Any) -> Any:
            return ((outputs - targets) ** 2).mean()

        return toy_regression(flat=True, loss=squared)

    PLANTED = (Example("(B, 1) minus (B,)", _flat),)
    HEALTHY = (
        Example("classes", toy_training),
        Example("numbers", toy_regression),
        Example("counts", lambda: _counts()),
        Example("sequences", toy_language),
    )


def _counts() -> Any:
    """Counts of about 28 by Poisson's loss, which takes the logarithm of the mean."""
    from torch import nn

    return toy_regression(loss=nn.PoissonNLLLoss(), mean=20.0, scale=2.0)


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / (abs(values[0]) + 1e-12)


def _judge(values: list[float], outputs: list[int], targets: list[int]) -> Answer:
    spread = _spread(values)
    numbers: dict[str, Any] = {
        "spread": spread,
        "outputs": outputs,
        "targets": targets,
    }
    if spread < SAME:
        return wrong(
            f"The loss is the same for targets in any order (to {spread:.0e}): outputs are "
            f"{tuple(outputs)}, targets {tuple(targets)}.",
            [
                "outputs (B, 1) and targets (B,) broadcast to (B, B)",
                "the loss does not use the targets",
            ],
            "Make both shapes equal before the loss.",
            **numbers,
        )
    return passed(f"The loss changes by {spread:.0%} when targets change places.", **numbers)
