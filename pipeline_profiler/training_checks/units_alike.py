"""TRAIN019: units that start alike and stay alike."""

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
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STEPS = 6


class UnitsAlike(Check):
    """Layers all of whose units compute the same.

    ## What it does
    After six training steps, compares the units (rows) of each weight with each other.

    ## Why is this bad
    Units that start with equal weights get equal gradients and stay equal: a layer of 64 is one.

    ## How it decides
    Fails where all rows of a weight with several rows are equal to one part in a million after the
    steps. A last layer or a branch that starts at zero (as is often wanted) has different rows
    after two steps. Random weights are never equal.

    ## What to do
    Draw weights at random (the default); use constants for norms and biases only.

    ## Limits
    Weights with one row, or frozen ones, are not judged.
    """

    code = "TRAIN019"
    name = "units-alike"

    def run(self, subject: TrainingSubject) -> Answer:
        """Rows after some steps."""
        training = subject.fresh()
        for number in range(STEPS):
            subject.step(training, subject.batches[number % len(subject.batches)])
        weights = {
            n: p.detach().float()
            for n, p in training.model.named_parameters()
            if p.requires_grad and p.ndim > 1 and p.shape[0] > 1
        }
        if not weights:
            return unclear("No weight with several rows is trained.")
        alike = [
            n
            for n, w in weights.items()
            if float((w - w[:1]).abs().max()) <= 1e-6 * (float(w.abs().max()) + 1e-12)
        ]
        return _judge(alike, len(weights))

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Units are the last axis of a kernel."""
        training = subject.fresh()
        for number in range(STEPS):
            subject.step(training, subject.batches[number % len(subject.batches)])
        kernels = {
            name: weight
            for name, weight in subject.weights(training).items()
            if name.endswith("kernel") and weight.ndim > 1 and weight.shape[-1] > 1
        }
        if not kernels:
            return unclear("No kernel with several units is trained.")
        alike = [
            name
            for name, w in kernels.items()
            if float(np.abs(w - w[..., :1]).max()) <= 1e-6 * (float(np.abs(w).max()) + 1e-12)
        ]
        return _judge(alike, len(kernels))

    @staticmethod
    def _constant(layers: list[int], value: float) -> Any:
        model = toy_net()
        for number in layers:
            model[number].weight.data.fill_(value)
        return toy_training(model)

    PLANTED = (Example("constants", lambda: UnitsAlike._constant([0, 5], 0.1)),)
    HEALTHY = (
        Example("random", toy_training),
        Example("a last layer of zeros", lambda: UnitsAlike._constant([5], 0.0)),
    )


def _judge(alike: list[str], weights: int) -> Answer:
    if alike:
        return wrong(
            f"All units of {', '.join(alike[:3])} are equal after {STEPS} steps.",
            ["weights are initialised with a constant (zeros_, ones_, constant_)"],
            "Initialise them at random (the default).",
            alike=alike[:20],
        )
    return passed(f"The units of all {weights} weights differ.", weights=weights)
