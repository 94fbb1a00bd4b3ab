"""TRAIN011: a batch that gives other outputs than its examples one by one."""

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
from pipeline_profiler.checking.nested_batches import batch_size, cut_batch
from pipeline_profiler.checking.toy_trainings import toy_language, toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import UsersError

MOST, EXAMPLES = 1e-3, 4


class OneByOne(Check):
    """A batch and its examples one by one, in eval mode.

    ## What it does
    Runs the first four examples as a batch and one by one and compares the outputs; and with
    `reference(model, example)` where your file has one.

    ## Why is this bad
    Code that was vectorised wrongly, or that squeezes a batch of one away, works in training and
    fails where single examples are predicted.

    ## How it decides
    Fails where outputs differ by more than a thousandth of their deviation, or a single example
    raises. Float32 sums in another order differ by less than a hundred-thousandth.

    ## What to do
    squeeze(dim) with its axis; nothing over axis 0; no state between calls.

    ## Limits
    Models that need whole batches (contrastive ones) are no defect: skip this check there.
    """

    code = "TRAIN011"
    name = "batch-unlike-single"

    def run(self, subject: TrainingSubject) -> Answer:
        """Compare."""
        import torch

        training = subject.fresh()
        training.model.eval()
        inputs = subject.batches[0][1]
        size = batch_size(inputs)
        count = min(EXAMPLES, size)
        if count < 2:
            return unclear("A batch of one cannot be compared with single examples.")
        with torch.no_grad():
            whole = subject.output(training, cut_batch(inputs, size, 0, count))
            again = subject.output(training, cut_batch(inputs, size, 0, count))
            if again.shape == whole.shape and not torch.allclose(again, whole, atol=1e-5):
                return unclear(
                    "Two predictions of one batch differ in eval mode: the model draws random "
                    "numbers there, so batch and single examples cannot be compared.",
                    "Right for a model that samples; else look for dropout that is always on.",
                )
            try:
                rows = [
                    subject.output(training, cut_batch(inputs, size, i, i + 1))
                    for i in range(count)
                ]
            except UsersError as error:
                return _failed(f"A single example cannot be predicted: {error}", {})
        if not whole.ndim or whole.shape[0] != count:
            return unclear(
                f"The output has the shape {tuple(whole.shape)}: its first axis is not the batch."
            )
        shapes = {tuple(row.shape) for row in rows}
        if shapes != {(1, *whole.shape[1:])}:
            return _failed(
                f"Single examples give outputs of shape {shapes.pop()}, the batch gives "
                f"{tuple(whole.shape)}.",
                {},
            )
        apart = float((torch.cat(rows) - whole).abs().max() / (whole.float().std() + 1e-12))
        if apart > MOST:
            return _failed(
                f"Outputs one by one differ from those of the batch by {apart:.1%} of "
                "their deviation, in eval mode.",
                {"apart": apart},
            )
        return self._reference(subject, training, inputs, whole, apart)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Compare."""
        inputs, training = subject.batches[0][0], subject.fresh()
        size = batch_size(inputs)
        count = min(EXAMPLES, size)
        if count < 2:
            return unclear("A batch of one cannot be compared with single examples.")
        whole = subject.outputs(training, cut_batch(inputs, size, 0, count))
        try:
            singles = [cut_batch(inputs, size, i, i + 1) for i in range(count)]
            rows = [subject.outputs(training, single) for single in singles]
        except UsersError as error:
            return _failed(f"A single example cannot be predicted: {error}", {})
        shapes = {row.shape for row in rows}
        if not whole.ndim or len(whole) != count:
            return unclear("The first axis of the output is not the batch.")
        if shapes != {(1, *whole.shape[1:])}:
            shape = shapes.pop()
            return _failed(f"Single examples give {shape}, the batch gives {whole.shape}.", {})
        apart = float(abs(np.concatenate(rows) - whole).max() / (whole.std() + 1e-12))
        if apart > MOST:
            return _failed(
                f"Outputs one by one differ by {apart:.1%} of their deviation.", {"apart": apart}
            )
        return passed(f"Outputs one by one agree to {apart:.0e} of their deviation.", apart=apart)

    @staticmethod
    def _reference(
        subject: TrainingSubject, training: Any, inputs: Any, whole: Any, apart: float
    ) -> Answer:
        import torch

        if training.reference is None:
            return passed(
                f"Outputs one by one agree with those of the batch to {apart:.0e} of "
                "their deviation.",
                apart=apart,
            )
        with torch.no_grad():
            rows = [
                torch.as_tensor(training.reference(training.model, inputs[i]))
                for i in range(len(whole))
            ]
        off = float(
            (torch.stack([r.reshape(whole.shape[1:]) for r in rows]) - whole).abs().max()
            / (whole.float().std() + 1e-12)
        )
        if off > MOST:
            return _failed(
                f"reference() differs from the model by {off:.1%} of the outputs' deviation.",
                {"apart": off},
            )
        return passed(
            f"Outputs agree one by one ({apart:.0e}) and with reference() ({off:.0e}).",
            apart=apart,
            reference=off,
        )

    @staticmethod
    def _squeezed() -> Any:
        from torch import nn

        class Squeezed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = toy_net()

            def forward(self, pixels: Any) -> Any:
                return self.net(pixels).squeeze()

        return toy_training(Squeezed())

    @staticmethod
    def _sampling() -> Any:
        from torch import nn

        class Sampling(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = toy_net()

            def forward(self, pixels: Any) -> Any:
                found = self.net(pixels)
                return found + 0.1 * found.new_empty(found.shape).normal_()

        return toy_training(Sampling())

    PLANTED = (Example("squeeze without an axis", _squeezed),)
    HEALTHY = (
        Example("a small network", toy_training),
        Example("a transformer", toy_language),
        Example("a model that samples", _sampling),
    )


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [
            "squeeze() without an axis",
            "a reduction, softmax or norm over the batch",
            "state kept between calls",
        ],
        "Run the model on one example and follow the shapes.",
        **numbers,
    )
