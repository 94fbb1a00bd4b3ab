"""TRAIN010: a softmax in the model and in the loss, or in neither."""

from __future__ import annotations

import math
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
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

NEAR = 1e-4


class SoftmaxTwice(Check):
    """Probabilities where the loss wants logits, or logits where it wants log-probabilities.

    ## What it does
    Finds out by numbers what the loss does (cross-entropy of logits, log-likelihood, binary
    cross-entropy with or without sigmoid) and what the outputs are (logits, probabilities,
    log-probabilities).

    ## Why is this bad
    Two softmaxes: the loss cannot fall below log(K) - 1 or so, gradients are small, training is
    slow and looks almost right. Log-likelihood of logits: the loss falls without end.

    ## How it decides
    Fails where the loss is cross-entropy of logits and outputs are between 0 and 1 and sum to 1
    (to one part in 10,000, for all examples), where it is binary cross-entropy of logits and the
    model ends in a sigmoid, or where it is log-likelihood and outputs are no log-probabilities.
    A log-softmax before cross-entropy changes nothing and passes.

    ## What to do
    Give the loss logits; apply the softmax where probabilities are shown.

    ## Limits
    Losses that are none of these (by numbers) are "cannot tell".
    """

    code = "TRAIN010"
    name = "softmax-and-loss"

    def run(self, subject: TrainingSubject) -> Answer:
        """Name the loss, then look at the outputs."""
        import torch

        task = subject.task
        if task.kind not in ("classes", "binary") or not subject.takes_tensor:
            return unclear("The task is none of classes.")
        if subject.form == "unit":
            return passed("The loss takes probabilities in 0..1, and that is what outputs are.")
        loss = _name_loss(subject)
        outputs = subject.first_outputs.float()
        numbers: dict[str, Any] = {
            "loss": loss,
            "least": float(outputs.min()),
            "largest": float(outputs.max()),
        }
        between = bool((outputs >= 0).all() and (outputs <= 1).all())
        if task.kind == "binary":
            return _judge_binary(loss, between, outputs, subject, numbers)
        sums = outputs.sum(task.axis)
        probable = between and bool(torch.allclose(sums, torch.ones_like(sums), atol=NEAR))
        logged = bool(
            torch.allclose(outputs.exp().sum(task.axis), torch.ones_like(sums), atol=NEAR)
        )
        if loss == "cross-entropy" and probable:
            return _failed(
                "Outputs are probabilities (between 0 and 1, sum 1), and the loss "
                "applies a softmax to them again.",
                "a softmax at the end of the model",
                numbers,
            )
        if loss == "log-likelihood" and not logged:
            what = "probabilities" if probable else "no log-probabilities"
            return _failed(
                f"The loss is a log-likelihood (NLLLoss), and outputs are {what}.",
                "log_softmax is missing before NLLLoss",
                numbers,
            )
        if loss == "unknown":
            return unclear(
                "The loss is neither cross-entropy nor log-likelihood by its numbers.",
                "",
                **numbers,
            )
        what = "probabilities" if probable else "log-probabilities" if logged else "logits"
        return passed(f"The loss is {loss}, and outputs are {what}.", **numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Name the loss by its numbers, then look at the outputs."""
        kind, outputs = subject.task.kind, subject.first_outputs
        if kind not in ("classes", "binary") or not subject.takes_tensor:
            return unclear("The task is none of classes.")
        between = bool((outputs >= 0).all() and (outputs <= 1).all())
        sums = outputs.sum(axis=subject.task.axis)
        ends = between and (kind == "binary" or np.allclose(sums, 1, atol=NEAR))
        takes = _keras_loss(subject)
        numbers = {"loss": takes, "outputs": "probabilities" if ends else "any numbers"}
        if takes == "logits" and ends:
            return _failed(
                "Outputs are probabilities, and the loss (from_logits=True) makes probabilities of "
                "them again.",
                "a softmax or sigmoid at the end of the model, and from_logits=True",
                numbers,
            )
        if takes == "probabilities" and not ends:
            return _failed(
                f"Outputs run from {outputs.min():.3g} to {outputs.max():.3g}, and the loss takes "
                "them for probabilities (it cuts them off at 0 and 1).",
                "from_logits=True is missing in the loss",
                numbers,
            )
        if takes == "unknown":
            return unclear("The loss is no cross-entropy by its numbers.", "", **numbers)
        return passed(f"The loss takes {takes}, and outputs are {numbers['outputs']}.", **numbers)

    @staticmethod
    def _ending(kind: str) -> Any:
        from torch import nn

        endings: dict[str, list[Any]] = {"softmax": [nn.Softmax(1)], "log": [nn.LogSoftmax(1)]}
        last = endings.get(kind, [])
        return toy_net(*last)

    @staticmethod
    def _likelihood(kind: str) -> Any:
        from torch import nn

        return toy_training(SoftmaxTwice._ending(kind), nn.NLLLoss())

    @staticmethod
    def _smoothed() -> Any:
        from torch import nn

        return toy_training(loss=nn.CrossEntropyLoss(label_smoothing=0.1))

    PLANTED = (
        Example(
            "softmax, then cross-entropy", lambda: toy_training(SoftmaxTwice._ending("softmax"))
        ),
        Example("logits into log-likelihood", lambda: SoftmaxTwice._likelihood("none")),
    )
    HEALTHY = (
        Example("logits", toy_training),
        Example(
            "log-softmax, then cross-entropy", lambda: toy_training(SoftmaxTwice._ending("log"))
        ),
        Example("log-softmax, then log-likelihood", lambda: SoftmaxTwice._likelihood("log")),
        Example("label smoothing", _smoothed),
    )


def _failed(text: str, cause: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [cause],
        "Let the model return logits, and the loss be cross-entropy of logits.",
        **numbers,
    )


def _name_loss(subject: TrainingSubject) -> str:
    """What the loss does, by its values on random outputs."""
    import torch

    shape = subject.first_outputs
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(shape.shape, generator=generator).to(shape.device)
    targets = subject.batches[0][2]
    shift = torch.randn(1, generator=generator).item() * 3 + 5
    if subject.task.kind == "binary":
        return _name_binary(subject, outputs)
    value = float(subject.loss_of(subject.settings, outputs, targets))
    moved = float(subject.loss_of(subject.settings, outputs + shift, targets))
    if abs(moved - value) < NEAR * max(1.0, abs(value)):
        return "cross-entropy"  # a constant on all classes changes nothing: a softmax is inside
    if abs(moved - (value - shift)) < 1e-3 * max(1.0, abs(shift)):
        return "log-likelihood"  # it moves by exactly that constant: outputs are taken as they are
    return "unknown"


def _name_binary(subject: TrainingSubject, outputs: Any) -> str:
    """By three values that only binary cross-entropy of logits has, whatever its weights.

    Outputs of 0 cost c log 2, outputs of 40 on the wrong side 40 c, on the right side nothing.
    """
    targets = main_tensor(subject.batches[0][2]).float().reshape(outputs.shape)
    side = 1 - 2 * targets
    wrong_side, right_side, middle = (
        float(subject.loss_of(subject.settings, part, subject.batches[0][2]))
        for part in (40.0 * side, -40.0 * side, 0.0 * side)
    )
    slope = wrong_side * math.log(2) / (40.0 * middle) if middle > 0 else 0.0
    if abs(slope - 1) < NEAR and abs(right_side) < NEAR * middle:
        return "binary cross-entropy of logits"
    return "unknown"


def _judge_binary(
    loss: str, between: bool, outputs: Any, subject: TrainingSubject, numbers: dict[str, Any]
) -> Answer:
    if loss == "binary cross-entropy of logits" and between and _ends_in_sigmoid(subject, outputs):
        return _failed(
            "Outputs went through a sigmoid, and the loss applies one again.",
            "a sigmoid at the end of the model",
            numbers,
        )
    if loss == "unknown":
        return unclear(
            "The loss is no binary cross-entropy of logits by its numbers.", "", **numbers
        )
    return passed(
        f"The loss is {loss}; outputs run from {numbers['least']:.3g} to {numbers['largest']:.3g}.",
        **numbers,
    )


def _ends_in_sigmoid(subject: TrainingSubject, outputs: Any) -> bool:
    """Outputs stay between 0 and 1 for inputs a thousand times as large: no logits do."""
    import torch

    training = subject.fresh()
    training.model.eval()
    inputs = main_tensor(subject.batches[0][1])
    if (
        inputs is None
        or not torch.is_floating_point(inputs)
        or not isinstance(subject.batches[0][1], torch.Tensor)
    ):
        return bool((outputs > 0).all() and (outputs < 1).all())
    with torch.no_grad():
        loud = torch.cat([subject.output(training, inputs * f).flatten() for f in (1e3, -1e3)])
    return bool((loud >= 0).all() and (loud <= 1).all())


def _keras_loss(subject: KerasSubject) -> str:
    """'logits', 'probabilities' or 'unknown', by the loss of random outputs."""
    alone, binary = subject.loss_alone, subject.task.kind == "binary"
    noise = np.random.default_rng(0).normal(0, 1, subject.first_outputs.shape)
    with np.errstate(over="ignore"):
        share = 1 / (1 + np.exp(-noise))
    if not binary:
        share = np.exp(noise) / np.exp(noise).sum(axis=-1, keepdims=True)
    wanted = subject.targets.astype(np.int64).reshape(share.shape[: subject.targets.ndim])
    if wanted.min() < 0 or wanted.max() >= max(2, subject.task.classes):
        return "unknown"  # labels out of range: TRAIN020
    if binary:
        chosen = np.where(wanted.reshape(share.shape) == 1, share, 1 - share)
    else:
        chosen = np.take_along_axis(share, wanted[..., None], axis=-1)
    expected = float(-np.log(chosen).mean())
    penalty = alone.of(noise) - expected, alone.of(share) - expected
    if abs(penalty[0]) < 1e-3 * expected:
        return "logits"
    return "probabilities" if abs(penalty[1]) < 1e-3 * expected else "unknown"
