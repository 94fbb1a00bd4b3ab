"""TRAIN017: a training step that changes no weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

CALLS = 24


class NothingMoves(Check):
    """Weights that are the same after some training steps.

    ## What it does
    Runs up to 24 training steps and compares the parameters with what they were.

    ## Why is this bad
    The loss is printed, time goes by, and nothing is learned.

    ## How it decides
    Fails where no parameter with requires_grad has changed in a bit. With accumulation a step
    may come only after several calls, so it looks until one changes.

    ## What to do
    loss.backward(), then optimizer.step(), of the optimizer made for this model.

    ## Limits
    An accumulation over more than 24 batches is taken for a defect.
    """

    code = "TRAIN017"
    name = "nothing-moves"

    def run(self, subject: TrainingSubject) -> Answer:
        """Until something moves."""
        import torch

        training = subject.fresh()
        trained = [p for p in training.model.parameters() if p.requires_grad]
        before = [p.detach().clone() for p in trained]
        for number in range(1, CALLS + 1):
            subject.step(training, subject.batches[number % len(subject.batches)])
            moved = sum(not torch.equal(a, p) for a, p in zip(before, trained, strict=True))
            if moved:
                return _moved(moved, len(trained), number)
        return _still(len(trained))

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Until something moves."""
        training = subject.fresh()
        before = subject.weights(training)
        for number in range(1, CALLS + 1):
            subject.step(training, subject.batches[number % len(subject.batches)])
            after = subject.weights(training)
            moved = sum(not np.array_equal(before[name], after[name]) for name in before)
            if moved:
                return _moved(moved, len(before), number)
        return _still(len(before))

    @staticmethod
    def _no_step() -> Any:
        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            value = loss(model(batch[0]), batch[1])
            value.backward()
            optimizer.zero_grad()
            optimizer.step()
            return value

        return toy_training(toy_net(), train_step=train_step)

    PLANTED = (Example("cleared before the step", _no_step),)
    HEALTHY = (Example("a small network", toy_training),)


def _moved(moved: int, total: int, calls: int) -> Answer:
    return passed(
        f"{moved} of {total} parameters have changed after {calls} "
        f"call{'s' if calls > 1 else ''} of the step.",
        calls=calls,
        moved=moved,
    )


def _still(total: int) -> Answer:
    return wrong(
        f"None of {total} parameters has changed after {CALLS} training steps.",
        [
            "optimizer.step() or backward() is missing",
            "the optimizer holds other parameters",
            "the learning rate is 0",
            "zero_grad() comes between backward() and step()",
        ],
        "Check the order: zero_grad, backward, step.",
        calls=CALLS,
        parameters=total,
    )
