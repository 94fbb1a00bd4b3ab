"""TRAIN012: gradients or updates of a size that cannot work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
from pipeline_profiler.checking.nested_batches import gradient_values
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STEPS = 8
LARGE, SMALL = 0.3, 1e-6  # update over weight, by step; about 1e-3 is usual


class UpdateSizes(Check):
    """How far one step moves the weights, layer by layer.

    ## What it does
    Over eight steps, takes the norm of the change of each weight relative to the weight's own
    (tensors of two and more axes), and looks for gradients that are NaN or infinite.

    ## Why is this bad
    About a thousandth is usual. A third a step forgets the start in three steps; a millionth needs
    a million steps.

    ## How it decides
    Fails where a gradient is not finite although the loss is, where the median over layers is above
    0.3, or where the largest step is below 1e-6 (median over layers). Both bounds lie a factor of
    300 or more from what is usual; layers that start at zero are left out.

    ## What to do
    Change the learning rate by factors of 10; look for clipping at a tiny norm, and for a schedule
    that divides once more.

    ## Limits
    A warm-up that begins very low is seen at its beginning only (TRAIN014 looks further).
    """

    code = "TRAIN012"
    name = "update-sizes"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """Change over size."""
        training = subject.fresh()
        weights = {
            n: p
            for n, p in training.model.named_parameters()
            if p.requires_grad and p.ndim > 1 and float(p.detach().float().norm()) > 0
        }
        if not weights:
            return unclear("No weight of two or more axes is trained.")
        ratios: dict[str, list[float]] = {name: [] for name in weights}
        infinite: set[str] = set()
        for number in range(STEPS):
            before = {n: p.detach().clone() for n, p in weights.items()}
            loss = subject.step(training, subject.batches[number % len(subject.batches)])
            for name, parameter in weights.items():
                change = float((parameter.detach() - before[name]).float().norm())
                ratios[name].append(change / (float(before[name].float().norm()) + 1e-12))
                gradient = parameter.grad
                if gradient is not None and not bool(gradient_values(gradient).isfinite().all()):
                    infinite.add(name)
            if not math.isfinite(loss):
                break
        return _judge(ratios, infinite)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Change over size."""
        training = subject.fresh()
        before = subject.weights(training)
        names = [n for n, w in before.items() if w.ndim > 1 and np.linalg.norm(w) > 0]
        if not names:
            return unclear("No weight of two or more axes is trained.")
        ratios: dict[str, list[float]] = {name: [] for name in names}
        infinite: set[str] = set()
        for number in range(STEPS):
            batch = subject.batches[number % len(subject.batches)]
            sizes = subject.gradients(training, batch)
            infinite |= {n for n in names if not math.isfinite(sizes[n] or 0.0)}
            loss = subject.step(training, batch)
            after = subject.weights(training)
            for name in names:
                size = float(np.linalg.norm(before[name])) + 1e-12
                ratios[name].append(float(np.linalg.norm(after[name] - before[name])) / size)
            before = after
            if not math.isfinite(loss):
                break
        return _judge(ratios, infinite)

    @staticmethod
    def _rate(kind: str, rate: float) -> Any:
        import torch

        return toy_training(optimizer=lambda m: getattr(torch.optim, kind)(m.parameters(), lr=rate))

    PLANTED = (
        Example("Adam at 1", lambda: UpdateSizes._rate("Adam", 1.0)),
        Example("SGD at 1e-9", lambda: UpdateSizes._rate("SGD", 1e-9)),
    )
    HEALTHY = (
        Example("Adam at 0.003", toy_training),
        Example("SGD at 0.1", lambda: UpdateSizes._rate("SGD", 0.1)),
        Example("numbers", toy_regression),
    )


def _judge(ratios: dict[str, list[float]], infinite: set[str]) -> Answer:
    means = {name: sum(values) / len(values) for name, values in ratios.items()}
    ordered = sorted(means.values())
    median = ordered[len(ordered) // 2]
    most = sorted(max(values) for values in ratios.values())[len(ordered) // 2]
    numbers: dict[str, Any] = {
        "median": median,
        "by_layer": dict(list(means.items())[:40]),
        "not_finite": sorted(infinite)[:20],
    }
    names = sorted(infinite)[:3]
    if infinite:
        return wrong(
            f"Gradients of {len(infinite)} weights are not finite: {', '.join(names)}.",
            [
                "overflow in half precision",
                "a square root or logarithm at zero",
                "a learning rate that is far too high",
            ],
            "Set torch.autograd.set_detect_anomaly(True), and try a tenth of the learning rate.",
            **numbers,
        )
    if median > LARGE or not math.isfinite(median):
        return wrong(
            f"One step changes the weights by {median:.0%} of their size (median over layers).",
            ["the learning rate is too high", "gradients are summed instead of averaged"],
            "Try a hundredth of the learning rate.",
            **numbers,
        )
    if most < SMALL:
        return wrong(
            f"One step changes the weights by {median:.1e} of their size (median over layers).",
            [
                "the learning rate is too low",
                "gradients are clipped to a tiny norm",
                "the schedule starts at almost zero",
            ],
            "Try a thousand times the learning rate.",
            **numbers,
        )
    return passed(
        f"One step changes the weights by {median:.1e} of their size (median over "
        f"{len(means)} layers; about 1e-3 is usual).",
        **numbers,
    )
