"""TRAIN006: parameters the optimizer does not have, has twice, or has of another model."""

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
from pipeline_profiler.checking.user_training import learned_by_loss


class OptimizerParameters(Check):
    """What the optimizer holds against what the model wants trained.

    ## What it does
    Compares the optimizer's parameters with the model's by identity, and looks at requires_grad.

    ## Why is this bad
    A parameter outside the optimizer is never moved; one of another model moves where nobody
    looks; one that is there twice moves twice as far.

    ## How it decides
    Fails where a parameter with requires_grad is not in the optimizer, one is there twice, the
    optimizer holds none of the model's, nothing is to be trained, or the last layer is frozen.
    Layers before the last one that are frozen are right if they are pretrained: "cannot tell" where
    their weights change with the seed, else pass. Exact.

    ## What to do
    Make the optimizer after the model is complete and on its device:
    `optimizer(model.parameters())`.

    ## Limits
    Two optimizers (a GAN's) are seen as one: skip this check there.
    """

    code = "TRAIN006"
    name = "optimizer-parameters"

    def run(self, subject: TrainingSubject) -> Answer:
        """Compare identities."""
        training = subject.settings
        of_loss = learned_by_loss(training)
        named = dict(training.model.named_parameters())
        held = [p for group in training.optimizer.param_groups for p in group["params"]]
        ids = [id(p) for p in held]
        own = {id(p) for p in (*named.values(), *of_loss.values())}
        wanted = [name for name, p in named.items() if p.requires_grad]
        missing = [name for name in wanted if id(named[name]) not in set(ids)]
        foreign = [p for p in held if id(p) not in own]
        numbers: dict[str, Any] = {
            "parameters": len(named),
            "in_optimizer": len(held),
            "missing": missing[:20],
            "foreign": len(foreign),
        }
        if not named:
            return unclear("The model has no parameters.")
        hidden = _hidden_modules(training.model)
        if hidden:
            return wrong(
                f"The model does not know {len(hidden)} of its modules ({', '.join(hidden[:3])}): "
                "they are in a plain list or dict, so parameters() leaves them out.",
                ["a Python list instead of nn.ModuleList, a dict instead of nn.ModuleDict"],
                "Put them in nn.ModuleList or nn.ModuleDict.",
                hidden=hidden[:20],
            )
        loose = _loose_tensors(training.model, ids)
        if loose:
            return wrong(
                f"The model holds {', '.join(loose[:3])} with requires_grad, which parameters() "
                "leaves out: it is never trained, moved to a device or saved.",
                ["a plain tensor instead of nn.Parameter"],
                "Make it nn.Parameter, or register_buffer where it is not to be trained.",
                loose=loose[:20],
            )
        idle = [name for name, p in of_loss.items() if id(p) not in set(ids)]
        if idle and (drawn := _changing(subject, idle)):
            return wrong(
                f"The loss has parameters of its own ({', '.join(sorted(drawn)[:3])}), which start "
                "at random and are not in the optimizer: they are never trained.",
                ["the optimizer was made from the model's parameters alone"],
                "Give it [*model.parameters(), *loss.parameters()].",
                idle=idle[:20],
            )
        problem = _problem(len(named), wanted, missing, len(foreign), len(ids) - len(set(ids)))
        if problem:
            return wrong(
                problem,
                _causes(bool(foreign), bool(wanted)),
                "Make the optimizer from the parameters of the finished model.",
                **numbers,
            )
        return _judge_frozen(subject, named, numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """What is frozen, and whether it is at random values."""
        model = subject.settings.model
        kernels = [w.path for w in model.weights if w.path.endswith(("kernel", "embeddings"))]
        trained = {w.path for w in model.trainable_variables}
        if not kernels:
            return unclear("The model has no kernels.")
        frozen = [path for path in kernels if path not in trained]
        if not trained:
            return wrong(
                f"None of the model's {len(kernels)} kernels is trainable: nothing is trained.",
                ["trainable = False on the whole model"],
                "Set trainable = True on what is to be trained, then compile again.",
            )
        if not frozen:
            return passed(f"All {len(kernels)} kernels are trainable.", kernels=len(kernels))
        one, two = (list(subject.state(subject.fresh(seed)).values()) for seed in (11, 12))
        paths = [w.path for w in model.weights]
        random = {p for p, a, b in zip(paths, one, two, strict=True) if not np.array_equal(a, b)}
        return _judge_keras(frozen, kernels, [path for path in frozen if path in random])

    @staticmethod
    def _planted(kind: str) -> Any:
        import torch

        model, other = toy_net(), toy_net()
        if kind == "frozen":
            for parameter in model[-1].parameters():
                parameter.requires_grad_(False)
        chosen = {"part": model[:3], "other": other}.get(kind, model)
        return toy_training(model, optimizer=lambda m: torch.optim.SGD(chosen.parameters(), lr=0.1))

    @staticmethod
    def _loose() -> Any:
        import torch
        from torch import nn

        class Loose(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = toy_net()
                self.shift = torch.zeros(4).requires_grad_()

            def forward(self, pixels: Any) -> Any:
                return self.net(pixels) + self.shift

        return toy_training(Loose())

    @staticmethod
    def _frozen_body() -> Any:
        import torch

        model = toy_net()
        for parameter in model[:3].parameters():
            parameter.requires_grad_(False)
        return toy_training(model, optimizer=lambda m: torch.optim.SGD(m[-1].parameters(), lr=0.1))

    PLANTED = (
        Example("the head is missing", lambda: OptimizerParameters._planted("part")),
        Example("another model", lambda: OptimizerParameters._planted("other")),
        Example("a plain tensor", _loose),
        Example("a frozen head", lambda: OptimizerParameters._planted("frozen")),
    )
    HEALTHY = (
        Example("all of them", toy_training),
        Example("a frozen body on purpose", _frozen_body),
    )


def _hidden_modules(model: Any) -> list[str]:
    """Modules with parameters in plain lists or dicts, unknown to parameters()."""
    from torch import nn

    known = {id(m) for m in model.modules()}
    found = []
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key.startswith("_") and key in ("_modules", "_parameters", "_buffers"):
                continue
            parts = list(value.values()) if isinstance(value, dict) else value
            for number, part in enumerate(parts if isinstance(parts, list | tuple) else []):
                if (
                    isinstance(part, nn.Module)
                    and id(part) not in known
                    and any(p.requires_grad for p in part.parameters())
                ):
                    found.append(f"{name + '.' if name else ''}{key}[{number}]")
    return found


def _loose_tensors(model: Any, held: list[int]) -> list[str]:
    """Tensors with requires_grad in plain attributes, unknown to parameters() and optimizer."""
    import torch

    return [
        f"{name + '.' if name else ''}{key}"
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, torch.Tensor)
        and value.requires_grad
        and value.is_leaf
        and id(value) not in held
    ]


def _problem(total: int, wanted: list[str], missing: list[str], foreign: int, twice: int) -> str:
    if not wanted:
        return f"None of the model's {total} parameters has requires_grad: nothing is trained."
    if foreign:
        tail = f", and {len(missing)} of the model's are not in it" if missing else ""
        return f"{foreign} parameters of the optimizer are not the model's{tail}."
    if missing:
        names = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        return (
            f"{len(missing)} of {len(wanted)} parameters to be trained are not in the "
            f"optimizer: {names}."
        )
    return f"{twice} parameters are in the optimizer twice." if twice else ""


def _causes(foreign: bool, wanted: bool) -> list[str]:
    if not wanted:
        return ["requires_grad_(False) on the whole model"]
    if foreign:
        return [
            "the optimizer was made for another model, or before this one was replaced or copied"
        ]
    return [
        "only some modules were given to the optimizer",
        "layers kept in a plain list or made later",
        "layers were replaced after the optimizer was made",
    ]


def _judge_frozen(
    subject: TrainingSubject, named: dict[str, Any], numbers: dict[str, Any]
) -> Answer:
    frozen = [name for name, p in named.items() if not p.requires_grad]
    numbers = numbers | {"frozen": frozen[:20]}
    if not frozen:
        return passed(f"All {len(named)} parameters are in the optimizer, once.", **numbers)
    last = [name for name, p in named.items() if p.ndim > 1][-1:]
    fresh = _changing(subject, frozen)
    if last and last[0] in frozen and last[0] in fresh:
        return wrong(
            f"The last layer ({last[0]}) is frozen at random weights.",
            ["requires_grad_(False) was set on too much"],
            "Freeze the body before the new head is put on.",
            **numbers,
        )
    if fresh:
        return unclear(
            f"{len(frozen)} of {len(named)} parameters are frozen, and {len(fresh)} of them change "
            "with the seed: right for a fixed random body, wrong if a checkpoint should be loaded.",
            "Check that the pretrained weights are loaded.",
            **numbers,
        )
    return passed(
        f"{len(frozen)} of {len(named)} parameters are frozen at fixed weights, the rest "
        "is in the optimizer.",
        **numbers,
    )


def _changing(subject: TrainingSubject, names: list[str]) -> set[str]:
    """Parameters of model and loss that differ between seeds: not pretrained."""
    import torch

    made = [subject.fresh(seed) for seed in (11, 12)]
    one, two = (dict(t.model.named_parameters()) | learned_by_loss(t) for t in made)
    return {n for n in names if n in one and n in two and not torch.equal(one[n], two[n])}


def _judge_keras(frozen: list[str], kernels: list[str], random: list[str]) -> Answer:
    numbers = {"frozen": frozen[:20], "kernels": len(kernels)}
    if kernels[-1] in random:
        return wrong(
            f"The last layer ({kernels[-1]}) is frozen at random weights.",
            ["trainable = False was set on too much"],
            "Freeze the body before the new head is put on.",
            **numbers,
        )
    if random:
        return unclear(
            f"{len(frozen)} of {len(kernels)} kernels are frozen, and {len(random)} of them change "
            "with the seed: right for a fixed random body, wrong if a checkpoint should be loaded.",
            "Check that the pretrained weights are loaded.",
            **numbers,
        )
    return passed(f"{len(frozen)} of {len(kernels)} kernels are frozen at fixed weights.")
