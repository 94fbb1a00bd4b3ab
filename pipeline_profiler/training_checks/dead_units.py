"""TRAIN023: units that say the same for every example."""

from __future__ import annotations

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
from pipeline_profiler.checking.toy_trainings import toy_net, toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

ACTIVE = (
    "ReLU",
    "LeakyReLU",
    "ReLU6",
    "GELU",
    "SiLU",
    "Tanh",
    "Sigmoid",
    "Hardtanh",
    "ELU",
    "Hardswish",
    "Softplus",
)
MOST_DEAD, MOST_SATURATED, LEAST = 0.9, 0.9, 16


class DeadUnits(Check):
    """Layers whose units are dead or saturated at the start.

    ## What it does
    Watches the activation modules (ReLU, tanh, sigmoid and so on) on the first batches at the
    start, and counts units that never change, and values of tanh or sigmoid at their ends.

    ## Why is this bad
    A dead unit gets no gradient, a saturated one almost none: the layer does not learn.

    ## How it decides
    Fails where 90 % of the units of a layer are constant over at least 64 examples, or 90 % of the
    values of a tanh or sigmoid lie within 1 % of their ends. A sound start has half of the values
    of a ReLU at zero, and few of its units dead.

    ## What to do
    Scale the inputs, use the default initialisation for the activation, lower a negative bias.

    ## Limits
    Activations called as functions (torch.relu) are not seen.
    """

    code = "TRAIN023"
    name = "dead-units"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """Watch the activations."""
        import torch

        training = subject.fresh()
        seen: dict[str, list[Any]] = {}
        hooks = [
            m.register_forward_hook(_keep(seen, name))
            for name, m in training.model.named_modules()
            if type(m).__name__ in ACTIVE
        ]
        if not hooks:
            return unclear("The model has no activation modules to watch.")
        training.model.train()
        with torch.no_grad():
            for batch in subject.batches:
                subject.forward(training, batch[1])
        for hook in hooks:
            hook.remove()
        kinds = {n: type(m).__name__ for n, m in training.model.named_modules()}
        rows = [(n, kinds[n], *_shares(values)) for n, values in seen.items() if values]
        if not rows or rows[0][4] < LEAST:
            return unclear("Too few examples to judge the activations.")
        return _judge(rows)

    @staticmethod
    def _biased() -> Any:
        model: Any = toy_net()
        model[1].bias.data.fill_(-20.0)
        return toy_training(model)

    @staticmethod
    def _loud() -> Any:
        from torch import nn

        model: Any = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Tanh(), nn.Linear(32, 4))
        model[1].weight.data *= 500
        return toy_training(model)

    PLANTED = (
        Example("a bias of -20", _biased),
        Example("saturated", _loud),
    )
    HEALTHY = (Example("a small network", toy_training), Example("numbers", toy_regression))


def _keep(seen: dict[str, list[Any]], name: str) -> Any:
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        if hasattr(output, "detach") and output.ndim > 1:
            seen.setdefault(name, []).append(output.detach().float())

    return hook


def _shares(values: list[Any]) -> tuple[float, float, int]:
    """(share of constant units, share of values at the ends of -1..1 or 0..1, examples)."""
    import torch

    if len({v.shape[1:] for v in values}) != 1:
        return 0.0, 0.0, 0
    stacked = torch.cat(values)
    if stacked.ndim > 2:  # channels are the units: every place of every example counts
        units = stacked.transpose(0, 1).reshape(stacked.shape[1], -1)
    else:
        units = stacked.transpose(0, 1)
    constant = (units.amax(1) - units.amin(1)) < 1e-8
    ends = (units.abs() > 0.99) | ((units > 0) & (units < 0.01))
    return float(constant.float().mean()), float(ends.float().mean()), len(stacked)


def _judge(rows: list[tuple[str, str, float, float, int]]) -> Answer:
    dead = [(name, share) for name, _, share, _, _ in rows if share >= MOST_DEAD]
    full = [
        (name, share)
        for name, kind, _, share, _ in rows
        if kind in ("Tanh", "Sigmoid") and share >= MOST_SATURATED
    ]
    numbers = {"layers": {name: {"constant": c, "at_ends": e} for name, _, c, e, _ in rows[:40]}}
    for found, what in (
        (dead, "units are constant over all examples"),
        (full, "values are at the ends"),
    ):
        if found:
            name, share = found[0]
            return wrong(
                f"In {name}, {share:.0%} of the {what}"
                f"{f', and in {len(found) - 1} more layers' if len(found) > 1 else ''}.",
                [
                    "inputs are not scaled (check-loader, LOAD008)",
                    "weights or biases of the layer before are too large",
                    "a bias far below zero",
                ],
                "Print mean and deviation before this layer; use the default initialisation.",
                **numbers,
            )
    worst = max(share for _, _, share, _, _ in rows)
    return passed(
        f"At most {worst:.0%} of the units of {len(rows)} activation layers are constant.",
        **numbers,
    )
