"""TRAIN004: examples of a batch that influence each other."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.nested_batches import batch_size, main_tensor
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.toy_trainings import toy_language, toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

MOST = 1e-3  # relative to the deviation of outputs; float32 sums in another order stay below 1e-5


class ExamplesMixed(Check):
    """Outputs of one example that depend on the other examples of the batch.

    ## What it does
    In eval mode, keeps one example and exchanges all others, and compares its output.

    ## Why is this bad
    Information leaks between examples: the training uses it, and at prediction time it is not
    there. The usual way is a view or reshape that mixes axes, or a softmax or mean over the batch.

    ## How it decides
    Fails where an output moves by more than a thousandth of the deviation of outputs. Sums in
    another order move it by less than a hundred-thousandth.

    ## What to do
    Replace view and reshape by permute; give every reduction its axis.

    ## Limits
    Batch norm mixes examples in train mode by design and is not judged here (TRAIN025).
    """

    code = "TRAIN004"
    name = "examples-mixed"

    def run(self, subject: TrainingSubject) -> Answer:
        """Exchange the others."""
        import torch

        inputs = subject.batches[0][1]
        count = main_tensor(inputs).shape[0]
        if count < 3:
            return unclear(f"A batch of {count} is too small to exchange examples.")
        training = subject.fresh()
        training.model.eval()
        order = [0, *range(count - 1, 0, -1)]
        twice = [0, *([1] * (count - 1))]
        with torch.no_grad():
            whole = _seeded_output(subject, training, inputs)
            moved = (
                max(
                    float(
                        (
                            _seeded_output(subject, training, _taken(inputs, count, places))[0]
                            - whole[0]
                        )
                        .abs()
                        .max()
                    )
                    for places in (order, twice)
                )
                if whole.ndim and whole.shape[0] == count
                else None
            )
        if moved is None:
            return unclear(
                f"The output has the shape {tuple(whole.shape)}: its first axis is not "
                f"the batch of {count}."
            )
        share = moved / (float(whole.float().std()) + 1e-12)
        return _judge(share)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Exchange the others."""
        inputs, training = subject.batches[0][0], subject.fresh()
        count = batch_size(inputs)
        if count < 3:
            return unclear(f"A batch of {count} is too small to exchange examples.")
        whole = subject.outputs(training, inputs)
        if not whole.ndim or len(whole) != count:
            return unclear("The first axis of the output is not the batch.")
        orders = [0, *range(count - 1, 0, -1)], [0, *([1] * (count - 1))]
        others = [subject.outputs(training, _taken(inputs, count, o))[0] for o in orders]
        moved = max(float(abs(other - whole[0]).max()) for other in others)
        return _judge(moved / (float(whole.std()) + 1e-12))

    @staticmethod
    def _over_batch() -> Any:
        from torch import nn

        class OverBatch(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = toy_net()

            def forward(self, pixels: Any) -> Any:
                outputs = self.net(pixels)
                return outputs - outputs.mean(0, keepdim=True)

        return toy_training(OverBatch())

    PLANTED = (Example("a mean over the batch", _over_batch),)
    HEALTHY = (
        Example("batch norm", toy_training),
        Example("a transformer", toy_language),
    )


def _judge(share: float) -> Answer:
    if share > MOST:
        return wrong(
            f"The output for an example moves by {share:.1%} of the deviation of outputs when "
            "the other examples of the batch are exchanged, in eval mode.",
            [
                "view or reshape that mixes the batch with another axis",
                "softmax, mean or norm over axis 0",
                "recurrence or attention over the batch (batch_first)",
                "state that is kept between calls",
            ],
            "Follow the shapes in forward(); use permute, and name the axis of reductions.",
            moved=share,
        )
    return passed(
        f"The output for an example moves by {share:.1e} of the deviation when the "
        "others are exchanged.",
        moved=share,
    )


def _seeded_output(subject: TrainingSubject, training: Any, inputs: Any) -> Any:
    """A model that draws numbers in eval mode (a sampling one) draws the same ones each time."""
    seed_everything(subject.seed)
    return subject.output(training, inputs)


def _taken(value: Any, count: int, places: list[int]) -> Any:
    """The examples at these places, in every part whose first axis is the batch."""
    if hasattr(value, "shape"):
        return value[places] if value.ndim and value.shape[0] == count else value
    if isinstance(value, dict):
        return {key: _taken(part, count, places) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_taken(part, count, places) for part in value)
    return value
