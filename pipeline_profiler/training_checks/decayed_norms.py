"""TRAIN007: weight decay that is too strong, or pulls on norms and biases."""

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
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STRONG = 0.05  # recipes with at least this much exempt norms and biases (ViT, DeiT, ConvNeXt)
COUPLED = 0.03  # L2 in the gradient: recipes have 5e-4 at most 1e-2


class DecayedNorms(Check):
    """Weight decay at a strength that needs exceptions, without them.

    ## What it does
    Reads the decay of each group of the optimizer and which norms and biases it holds; compares
    the pull of the decay with the gradient of the loss at the start.

    ## Why is this bad
    A strong pull takes the scale of norms and the base rates in biases to zero; an L2 term larger
    than the gradient makes weights vanish whatever the data say.

    ## How it decides
    Fails where decoupled decay of 0.05 or more holds norms or biases (published recipes of that
    strength exempt them), or where L2 in the gradient is 0.03 or more. The default of AdamW (0.01
    on everything) and 5e-4 of SGD pass.

    ## What to do
    Two groups: weights of two and more axes with decay, the rest without.

    ## Limits
    A matter of recipes, not of right and wrong: the numbers are those of published ones.
    """

    code = "TRAIN007"
    name = "decay-on-norms"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """Read the groups."""
        optimizer = subject.settings.optimizer
        decoupled = type(optimizer).__name__ in ("AdamW", "NAdamW", "Lion", "Lamb") or any(
            group.get("decoupled_weight_decay") for group in optimizer.param_groups
        )
        strongest = max(
            (g.get("weight_decay", 0.0) or 0.0 for g in optimizer.param_groups), default=0.0
        )
        flat = [
            p
            for g in optimizer.param_groups
            for p in g["params"]
            if p.ndim <= 1 and (g.get("weight_decay") or 0.0) >= STRONG
        ]
        numbers = {"weight_decay": strongest, "decoupled": decoupled, "norms_and_biases": len(flat)}
        if not strongest:
            return passed("There is no weight decay.", **numbers)
        if not decoupled and strongest >= COUPLED:
            return wrong(
                f"L2 of {strongest:g} is part of the gradient: recipes have 0.01 at most.",
                ["a value for AdamW (decoupled) was given to Adam or SGD"],
                "Use AdamW, or 1e-4 to 5e-4.",
                **numbers,
            )
        if flat:
            return wrong(
                f"Weight decay of {strongest:g} pulls on {len(flat)} norms and biases.",
                ["all parameters are in one group"],
                "Put parameters of one axis in a group with weight_decay=0.",
                **numbers,
            )
        if strongest > 0.5:
            return unclear(f"Weight decay of {strongest:g} is strong: is it meant?", "", **numbers)
        return passed(f"Weight decay is {strongest:g}.", **numbers)

    @staticmethod
    def _with(kind: str, decay: float, split: bool = False) -> Any:
        import torch

        def make(model: Any) -> Any:
            weights = [p for p in model.parameters() if p.ndim > 1]
            flat = [p for p in model.parameters() if p.ndim <= 1]
            groups: Any = [{"params": weights}, {"params": flat, "weight_decay": 0.0}]
            chosen = groups if split else model.parameters()
            return getattr(torch.optim, kind)(chosen, lr=1e-3, weight_decay=decay)

        return toy_training(optimizer=make)

    PLANTED = (
        Example("AdamW at 0.1 on all", lambda: DecayedNorms._with("AdamW", 0.1)),
        Example("Adam with 0.1", lambda: DecayedNorms._with("Adam", 0.1)),
    )
    HEALTHY = (
        Example("AdamW as it comes", lambda: DecayedNorms._with("AdamW", 0.01)),
        Example("SGD with 5e-4", lambda: DecayedNorms._with("SGD", 5e-4)),
        Example("0.1 with exceptions", lambda: DecayedNorms._with("AdamW", 0.1, True)),
    )
