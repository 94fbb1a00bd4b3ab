"""TRAIN020: a loss that is least at another answer than the targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipeline_profiler.checking.chance import FAR
from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    Judgement,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.compared_examples import couples_outputs, couples_targets
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.toy_trainings import toy_language, toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_training import learned_by_loss

AGREE = 0.9
LEAST_USED = 3


class LossWants(Check):
    """What the loss asks for, found without the model.

    ## What it does
    Optimises free outputs by your loss alone, and compares what comes out with the targets: the
    largest class, or the number itself.

    ## Why is this bad
    With a sign turned round, arguments exchanged or labels shifted, training does what the loss
    says and not what is wanted.

    ## How it decides
    Fails where fewer than 90 % of the outputs that the loss likes best have the target's class
    (of those not ignored), or where neither the numbers nor their ranks correlate with the targets
    by 0.9. Weighted, smoothed and focal losses have the target as their best answer too.

    ## What to do
    Call the loss as loss(outputs, targets), minimise it, and count classes from 0.

    ## Limits
    Losses on several tensors, that compare examples with each other (ranking, survival, contrast)
    or ask for rates, and targets that are mixtures, are "cannot tell". Robust losses on targets of
    very different sizes may not be at their least within the steps.
    """

    code = "TRAIN020"
    name = "loss-wants-other"

    def run(self, subject: TrainingSubject) -> Answer:
        """Optimise outputs alone."""
        task = subject.task
        if task.kind == "unknown" or not subject.takes_tensor:
            return unclear("What the targets ask for is not known by their shape.")
        if learned_by_loss(subject.settings):
            return unclear("The loss has parameters of its own, so what it asks for is learned.")
        outside = _outside(subject)
        if outside:
            return outside
        least, best = subject.best_outputs
        zero = subject.uniform_loss
        if not math.isfinite(least):
            return unclear("The loss has no gradient with respect to its first argument.")
        answer = _judge(_agreement(subject, best), least, zero)
        if answer.judgement is Judgement.PASS or task.kind != "regression":
            return answer
        if _compares(subject, best):
            return unclear(f"{answer.sentence[:-1]}, and it compares examples with each other.")
        if subject.form == "positive" and _agreement(subject, -best) >= AGREE:
            return unclear("The outputs that the loss likes best fall with the targets, as rates.")
        return answer

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Optimise outputs alone."""
        task, labels = subject.task, subject.targets
        if task.kind == "unknown" or not subject.takes_tensor:
            return unclear("What the targets ask for is not known by their shape.")
        if task.kind == "classes" and not 0 <= labels.min() <= labels.max() < task.classes:
            return _beyond(int(labels.min()), int(labels.max()), task.classes)
        least, best = subject.best_outputs
        if not math.isfinite(least):
            return unclear("The loss has no gradient with respect to the outputs.")
        return _judge(_equal_share(task.kind, best, labels), least, subject.uniform_loss)

    @staticmethod
    def _loss(kind: str) -> Any:
        from torch.nn import functional

        def loss(outputs: Any, targets: Any) -> Any:
            value = functional.cross_entropy(outputs, targets, label_smoothing=0.1)
            shifted = functional.cross_entropy(outputs, (targets + 1) % 4)
            return {"sign": -value, "shift": shifted, "right": value}[kind]

        return toy_training(loss=loss)

    @staticmethod
    def _masked() -> Any:
        def loss(outputs: Any, targets: Any) -> Any:
            counted = (targets * 7).floor() % 2 == 0  # half of the targets are not seen
            return ((outputs - targets) ** 2 * counted).sum() / counted.sum().clamp(min=1)

        return toy_regression(loss=loss)

    @staticmethod
    def _counts() -> Any:
        from torch.nn import functional

        def loss(outputs: Any, targets: Any) -> Any:
            return functional.poisson_nll_loss(outputs, targets.clamp(min=0))

        return toy_regression(mean=1.0, loss=loss)

    PLANTED = (
        Example("the sign turned round", lambda: LossWants._loss("sign")),
        Example("shifted by one", lambda: LossWants._loss("shift")),
    )
    HEALTHY = (
        Example("label smoothing", lambda: LossWants._loss("right")),
        Example("numbers", toy_regression),
        Example("numbers, half of which do not count", _masked),
        Example("counts, of which the loss takes logarithms", lambda: LossWants._counts()),
        Example("sequences with padding", toy_language),
        Example("times of survival", lambda: toy_regression(loss=_survival)),
        Example("rates of times", lambda: _rates()),
        Example("labels that only say which examples are alike", lambda: toy_training(loss=_alike)),
    )


def _compares(subject: TrainingSubject, best: Any) -> bool:
    """Whether ranking, survival or contrast explains that the best outputs are no targets."""

    def loss(outputs: Any, targets: Any) -> Any:
        return subject.loss_of(subject.settings, subject.formed(outputs), targets)

    targets = subject.batches[0][2]
    if couples_outputs(loss, best, targets):
        return True
    beyond = _agreement(subject, best) * math.sqrt(best.numel() - 1) > FAR
    return beyond and couples_targets(loss, best, targets)  # else they are exchanged


def _survival(outputs: Any, targets: Any) -> Any:
    """Cox's partial likelihood: a higher output is an earlier end."""
    risk = outputs[:, 0][targets[:, 0].argsort(descending=True)]
    return (risk.logcumsumexp(0) - risk).mean()


def _rates() -> Any:
    """Waiting times by the exponential's likelihood of their rate."""
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Softplus())
    return toy_regression(model=model, loss=lambda o, t: (o * t.exp() - o.log()).mean())


def _alike(outputs: Any, targets: Any) -> Any:
    """Contrast in the batch: examples of one label are to be nearer to each other than others."""
    same = targets[:, None] == targets[None, :]
    apart = (outputs[:, None] - outputs[None, :]).pow(2).sum(-1)
    return (apart * same).mean() + ((2 - apart).clamp(min=0) * ~same).mean()


def _outside(subject: TrainingSubject) -> Answer | None:
    """Labels from K on, where K is the number of outputs."""
    task = subject.task
    if task.kind != "classes":
        return None
    labels = main_tensor(subject.batches[0][2])
    low, high = int(labels.min()), int(labels.max())
    if high < task.classes or high == 255:
        return None
    return _beyond(low, high, task.classes)


def _beyond(low: int, high: int, classes: int) -> Answer:
    return wrong(
        f"Labels run from {low} to {high}, and the model has {classes} outputs.",
        ["labels are counted from 1", "the last layer has too few outputs"],
        f"Give the last layer {high + 1} outputs, or map the labels to 0..{classes - 1}.",
        largest=high,
        outputs=classes,
    )


def _agreement(subject: TrainingSubject, best: Any) -> float:

    task, targets = subject.task, main_tensor(subject.batches[0][2])
    if task.kind == "classes":
        # an output that the loss leaves out stays alike in all classes
        used = best.amax(task.axis) > best.amin(task.axis)
        equal = (best.argmax(task.axis) == targets)[used]
        return float(equal.float().mean()) if equal.numel() else 0.0
    flat, wanted = best.float().flatten(), targets.float().flatten()
    if task.kind == "binary":
        middle = (flat.max() + flat.min()) / 2 if wanted.unique().numel() > 1 else 0.0
        return float(((flat > middle) == (wanted > 0.5)).float().mean())
    return _follows(flat.cpu().numpy(), wanted.cpu().numpy())


def _equal_share(kind: str, best: Any, wanted: Any) -> float:
    if kind == "classes":
        used = best.max(axis=-1) > best.min(axis=-1)
        equal = (best.argmax(axis=-1) == wanted)[used]
        return float(equal.mean()) if equal.size else 0.0
    flat, wanted = best.reshape(-1), wanted.reshape(-1)
    if kind == "binary":
        middle = (flat.max() + flat.min()) / 2 if len(np.unique(wanted)) > 1 else 0.0
        return float(((flat > middle) == (wanted > 0.5)).mean())
    return _follows(flat, wanted)


def _follows(outputs: Any, wanted: Any) -> float:
    """The larger of correlation and rank correlation: a loss may want the logarithm, say."""
    used = outputs != 0  # an output that the loss leaves out stays where it started
    if used.sum() < LEAST_USED:
        return 0.0
    both = outputs[used], wanted[used]
    pairs = (both, tuple(_ranks(values) for values in both))
    with np.errstate(invalid="ignore", divide="ignore"):  # all alike: no correlation
        return max(float(np.nan_to_num(np.corrcoef(*pair)[0, 1])) for pair in pairs)


def _ranks(values: Any) -> Any:
    """Ranks, equal values sharing their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _judge(share: float, least: float, zero: float) -> Answer:
    numbers: dict[str, Any] = {"agreement": share, "least": least, "zero_outputs": zero}
    if share < AGREE:
        return wrong(
            f"The outputs that the loss likes best agree with the targets in {share:.0%} "
            f"(loss {least:.4g}; outputs of zero have {zero:.4g}).",
            [
                "the sign of the loss is turned round",
                "arguments of the loss are exchanged",
                "labels are shifted, or the loss uses another axis",
                "the loss leaves most examples out",
            ],
            "Compute the loss of a perfect and of a wrong answer by hand.",
            **numbers,
        )
    return passed(
        f"The outputs that the loss likes best agree with the targets in {share:.0%}.",
        **numbers,
    )
