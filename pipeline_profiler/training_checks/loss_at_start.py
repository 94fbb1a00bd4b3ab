"""TRAIN001: a loss at the start that is far from what knowing nothing costs."""

from __future__ import annotations

import math
from typing import Any

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
from pipeline_profiler.checking.toy_trainings import toy_net, toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

SEEDS = 3
MOST_NATS, MOST_FACTOR, LEAST_FACTOR = 1.0, 10.0, 0.3


class LossAtStart(Check):
    """A first loss that is not the one of a model that knows nothing.

    ## What it does
    Compares the loss of freshly made models (three seeds) with that of outputs that are all zero
    (for K classes log K, for two 0.69), of the best constant output (the entropy of the labels,
    or the variance of the targets) and of the best outputs there are, all by your own loss.

    ## Why is this bad
    A start far above costs the first thousand steps to undo; one far below means that the loss
    leaves out most of what it should count, or that the input holds the answer.

    ## How it decides
    Fails where the loss is no number, for classes where it lies more than 1 nat and half of log K
    above that of zero outputs (outputs of deviation 1 cost 0.5; a sum counts each nat as often as
    it adds one), for numbers where it is more than 10 times that of the best constant, or where all
    seeds lie below 0.3 times the best constant. Both are counted from the least loss there is. A
    likelihood (of counts, say) has it far from 0: there outputs of zero may be the reference too.
    Where these are no numbers, or there is no least, it cannot tell.
    Weights that do not depend on the seed are pretrained: then only NaN fails.

    ## What to do
    Set the bias of the last layer to the base rates (or mean), shrink its weights, standardise
    the targets.

    ## Limits
    Losses with other terms (penalties) shift all three numbers.
    """

    code = "TRAIN001"
    name = "loss-at-start"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """Three seeds against two references."""
        losses = [self._first(subject, seed) for seed in range(SEEDS)]
        mean, task = sum(losses) / SEEDS, subject.task
        numbers: dict[str, Any] = {"losses": [round(v, 5) for v in losses], "task": task.kind}
        if not all(map(math.isfinite, losses)):
            return wrong(
                f"The first loss is {mean}: no number.",
                [
                    "inputs or targets hold NaN (check-loader, LOAD007)",
                    "a logarithm of zero or a division by zero in model or loss",
                    "weights that overflow",
                ],
                "Find the first module that gives NaN: torch.autograd.set_detect_anomaly(True).",
                **numbers,
            )
        if not subject.takes_tensor:
            return unclear(
                f"The first loss is {mean:.4g}; its expectation is not known, because "
                "the loss does not take one tensor.",
                **numbers,
            )
        uniform, constant = subject.uniform_loss, subject.constant_loss
        least = subject.best_outputs[0]
        numbers |= {"zero_outputs": uniform, "best_constant": constant, "least": least}
        known = all(map(math.isfinite, (uniform, constant, least)))
        if not known or (task.kind in ("regression", "unknown") and subject.bottomless):
            why = "falls without end" if known else "of outputs that know nothing is no number"
            return unclear(
                f"The first loss is {mean:.4g}; its expectation is not known, because the loss "
                f"{why}.",
                "",
                **numbers,
            )
        return _judge(
            task.kind,
            task.classes,
            mean,
            max(losses),
            uniform,
            constant,
            least,
            subject.is_likelihood,
            len(set(losses)) == 1,
            numbers,
        )

    def run_keras(self, subject: KerasSubject) -> Answer:
        """The same: the subject measures."""
        return self.run(subject)  # type: ignore[arg-type]

    @staticmethod
    def _first(subject: TrainingSubject, seed: int) -> float:
        return subject.measured(subject.fresh(seed), subject.batches[0], mode=True)

    @staticmethod
    def _loud() -> Any:
        model = toy_net()
        model[-1].weight.data *= 60
        return toy_training(model)

    PLANTED = (
        Example("large last weights", _loud),
        Example("targets far from zero", lambda: toy_regression(mean=20.0)),
        Example(
            "NaN",
            lambda: toy_training(
                loss=lambda o, t: (o.sum() * 0).log() * 0 + (o.sum() * 0) / (o.sum() * 0)
            ),
        ),
    )
    HEALTHY = (
        Example("classes", toy_training),
        Example("numbers", toy_regression),
        Example("counts that start at their mean", lambda: _counts()),
        Example("a sum over the batch", lambda: toy_training(_wide(), _summed())),
    )


def _summed() -> Any:
    from torch import nn

    return nn.CrossEntropyLoss(reduction="sum")


def _counts() -> Any:
    """Numbers about 28 by Poisson's loss, with the logarithm of their mean as the last bias."""
    from torch import nn

    last = nn.Linear(32, 1)
    nn.init.constant_(last.bias, 3.3)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), last)
    return toy_regression(mean=20.0, scale=2.0, model=model, loss=nn.PoissonNLLLoss())


def _wide() -> Any:
    model = toy_net()
    model[-1].weight.data *= 4
    return model


def _judge(
    kind: str,
    classes: int,
    mean: float,
    most: float,
    uniform: float,
    constant: float,
    least: float,
    likelihood: bool,
    fixed: bool,
    numbers: dict[str, Any],
) -> Answer:
    said = (
        f"The first loss is {mean:.4g}; outputs of zero have {uniform:.4g}, the best constant "
        f"has {constant:.4g}"
    )
    if fixed:
        return passed(
            f"{said}; three seeds give the same weights, so they are pretrained.", **numbers
        )
    if kind in ("classes", "binary"):
        knowing = math.log(max(2, classes))
        summed = max(1.0, uniform / knowing)  # a loss that is a sum counts each nat so many times
        high = mean - uniform > summed * max(MOST_NATS, 0.5 * knowing)
    else:
        # a likelihood has its least far from 0: beside it, outputs of zero are no bad start
        nothing = max(constant, uniform) if likelihood else constant
        high = mean - least > MOST_FACTOR * (nothing - least) > 0
    if high:
        return wrong(
            f"{said}: the start is far above.",
            [
                "targets are not standardised"
                if kind == "regression"
                else "the weights of the last layer are too large",
                "inputs are not scaled",
                "labels or outputs of another order",
            ],
            "Initialise the last layer small, with the base rates (mean) as bias; standardise "
            "targets.",
            **numbers,
        )
    if most - least < LEAST_FACTOR * (constant - least) and kind != "unknown":
        return wrong(
            f"{said}: a model that knows nothing cannot be so good.",
            [
                "the loss averages over places that do not count",
                "the loss is divided twice",
                "the input holds the target",
            ],
            "Compute the loss of one example by hand, and compare.",
            **numbers,
        )
    return passed(f"{said}.", **numbers)
