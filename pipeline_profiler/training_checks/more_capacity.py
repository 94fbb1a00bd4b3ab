"""TRAIN036: more capacity that changes nothing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
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
from pipeline_profiler.checking.patience import Patience
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_training import Training, checked, made_from

SIZES = (
    *("width", "hidden", "hidden_size", "hidden_dim", "dim", "d_model", "n_embd", "embed_dim"),
    *("channels", "base_channels", "filters", "units"),
)
STEPS, LEAST_STEPS, SECONDS = 80, 30, 12.0
MORE = 1.2  # times the parameters, at least, to count as more capacity
SAME = 1e-4  # of the loss: closer than any two trainings of different networks come
NEAR = 0.02  # of the first loss: what is left is too little to gain
T_999 = 3.7  # two-sided 99.9 % with some 20 batches


class MoreCapacity(Check):
    """A network of twice the size, trained beside yours on the same batches.

    ## What it does
    Where `make_model` (or `make_training`) has a parameter of a size with a number as its default
    (`width`, `hidden`, `hidden_size`, `dim`, `d_model`, `channels`, `filters`, `units`, ...), it is
    called with twice that number as well. Both networks make the same 80 steps by turns; their
    training losses on these batches are compared.

    ## Why is this bad
    Capacity that changes nothing is not in the way from the input to the loss: added units get no
    gradient, or something after them lets nothing through.

    ## How it decides
    Fails where the larger network ends with the same loss as yours to 1 in 10,000, although
    at least 2 % of the first loss could still be gained: no two different networks do that by
    chance. Passes where the loss falls further at 99.9 % (a paired comparison over batches), or
    where yours is near zero already. Cannot tell where the larger one is not better: its learning
    rate may not suit it, or capacity is not what is missing.

    ## What to do
    Follow the added units forward: are their outputs used, and do their weights get a gradient?
    Then, as training falls further with more capacity, grow until it overfits.

    ## Limits
    One seed, your learning rate, and few steps. Without a parameter of a size it cannot tell: write
    `def make_model(width=64)`. Unused layers that are made before the used ones draw other random
    numbers for these: the losses differ, and TRAIN005 names them instead.
    """

    code = "TRAIN036"
    name = "capacity-unused"
    nearness = Nearness.SYMPTOM

    def run(self, subject: TrainingSubject) -> Answer:
        """Both by turns."""
        found = _larger(subject)
        if found is None:
            return unclear(
                "Neither make_model nor make_training has a parameter of a size, such as width=64.",
                "Give make_model() a parameter such as width=64, and run this check again.",
            )
        word, make = found
        seed_everything(subject.seed)
        own, larger = subject.fresh(), checked(make())
        times = _weights(larger) / max(1, _weights(own))
        said = f"With {word} the network has {times:.1f} times the parameters"
        if times < MORE:
            return unclear(f"{said}: that is no larger one.", "")
        return subject.weighed(_trained(subject, own, larger, said))

    @staticmethod
    def _unused(width: int = 12) -> Any:
        """Layers that the outputs do not depend on."""
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used = toy_net(width=8)
                self.beside = toy_net(width=width)

            def forward(self, x: Any) -> Any:
                return self.used(x) + 0 * self.beside(x).detach().sum()

        return toy_training(Net())

    @staticmethod
    def _sized(width: int = 2) -> Any:
        return toy_training(toy_net(width=width))

    @staticmethod
    def _wide(width: int = 48) -> Any:
        return toy_training(toy_net(width=width))

    PLANTED = (Example("layers beside the way", _unused),)
    HEALTHY = (
        Example("few units", _sized),
        Example("many units", _wide),
        Example("no size to change", toy_training),
    )


def _larger(subject: TrainingSubject) -> tuple[str, Callable[[], Any]] | None:
    """The changed parameter in words, and what makes the larger training."""
    functions = dict(subject.functions)
    for name in ("make_training", "make_model"):
        if name in functions and (size := _size_of(functions[name])):
            functions[name] = partial(functions[name], **{size[0]: size[1]})
            return f"{size[0]}={size[1]}", made_from(functions)
    if not functions and (size := _size_of(subject.make)):
        return f"{size[0]}={size[1]}", partial(subject.make, **{size[0]: size[1]})
    return None


def _size_of(function: Callable[..., Any]) -> tuple[str, int] | None:
    """The parameter of a size, and twice its default."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    for name in SIZES:
        default = parameters[name].default if name in parameters else None
        if type(default) is int and default > 0:
            return name, 2 * default
    return None


def _weights(training: Training) -> int:
    return sum(p.numel() for p in training.model.parameters())


def _trained(subject: TrainingSubject, own: Training, larger: Training, said: str) -> Answer:
    batches = subject.batches
    first = _mean([subject.measured(own, b, mode=True) for b in batches])
    patience = Patience(SECONDS, max(2.0, subject.time_left() / 5))
    number = 0
    for number in range(1, STEPS + 1):
        for training in (own, larger):
            subject.step(training, batches[number % len(batches)])
        if patience.over:
            break
    ends = [[subject.measured(t, b, True) for b in batches] for t in (own, larger)]
    mine, other = map(_mean, ends)
    numbers: dict[str, Any] = {"steps": number, "first": first, "own": mine, "larger": other}
    said = f"{said}; after {number} steps the loss is {other:.4g}, and {mine:.4g} with yours"
    if number < LEAST_STEPS or not all(map(math.isfinite, (first, mine, other))):
        return unclear(f"{said}.", "", **numbers)
    if mine <= NEAR * abs(first):
        return passed(f"{said}: there is next to nothing left to gain.", **numbers)
    if abs(other - mine) <= SAME * abs(mine):
        return wrong(
            f"{said}: the added parameters change nothing.",
            [
                "the added units are not on the way from the input to the loss",
                "they get no gradient: detached, frozen or overwritten",
            ],
            "Print the gradient of the added weights after one step, and follow their outputs.",
            **numbers,
        )
    gains = [a - b for a, b in zip(*ends, strict=True)]
    if _mean(gains) > T_999 * _error(gains):
        return passed(f"{said}: it falls further with more capacity.", **numbers)
    return unclear(
        f"{said}: no lower beyond chance. Capacity may not be what is missing, or the learning "
        "rate does not suit the larger network.",
        "",
        **numbers,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _error(values: list[float]) -> float:
    """The standard error of the mean; infinite of one value."""
    if len(values) < 2:
        return math.inf
    middle = _mean(values)
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1) / len(values))
