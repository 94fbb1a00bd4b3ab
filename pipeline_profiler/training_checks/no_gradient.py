"""TRAIN005: parameters that no gradient reaches."""

from __future__ import annotations

import math
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
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STEPS = 6


class NoGradient(Check):
    """Parameters that are to be trained and get no gradient.

    ## What it does
    Trains for six steps and collects, for each parameter with requires_grad, whether its gradient
    was ever there and ever different from zero.

    ## Why is this bad
    These weights stay at their random start. The rest of the model learns around them, so the loss
    falls and the result is only worse.

    ## How it decides
    Fails where a parameter never had a gradient, or a weight had one that was exactly zero in all
    of six steps (a branch that starts at zero, as in ReZero or zero-initialised norms, has
    gradients from the second step on). Exact.

    ## What to do
    Look for detach(), no_grad(), .data, .item(), numpy or argmax between this parameter and the
    loss, and for modules that forward() does not call.

    ## Limits
    Parameters with requires_grad=False are TRAIN006's. Rows of an embedding that no token used are
    not looked at one by one; a bias whose gradient is zero is not counted.
    """

    code = "TRAIN005"
    name = "no-gradient"

    def run(self, subject: TrainingSubject) -> Answer:
        """Six steps, gradients collected."""
        training = subject.fresh()
        had: dict[str, float] = {}
        for number in range(STEPS):
            collect = _collector(training.model, had)
            remove = [training.optimizer.register_step_pre_hook(collect)]
            try:
                subject.step(training, subject.batches[number % len(subject.batches)])
                collect()
            finally:
                for hook in remove:
                    hook.remove()
        named = {n: p for n, p in training.model.named_parameters() if p.requires_grad}
        missing = [n for n in named if n not in had]
        zero = [n for n, p in named.items() if n in had and had[n] == 0 and p.ndim > 1]
        numbers = {"parameters": len(named), "without": missing[:20], "zero": zero[:20]}
        if missing or zero:
            return _failed(missing, zero, len(named), numbers)
        return passed(f"All {len(named)} parameters to be trained got gradients.", **numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Gradients of six steps."""
        training = subject.fresh()
        had: dict[str, float] = {}
        for number in range(STEPS):
            batch = subject.batches[number % len(subject.batches)]
            for name, size in subject.gradients(training, batch).items():
                if size is not None:
                    had[name] = max(had.get(name, 0.0), size)
            subject.step(training, batch)
        weights = subject.weights(training)
        if not weights:
            return unclear("The model has no weights to be trained.")
        missing = [name for name in weights if name not in had]
        zero = [n for n, w in weights.items() if n in had and had[n] == 0 and w.ndim > 1]
        if missing or zero:
            numbers = {"parameters": len(weights), "without": missing[:20], "zero": zero[:20]}
            return _failed(missing, zero, len(weights), numbers)
        return passed(f"All {len(weights)} weights to be trained got gradients.")

    @staticmethod
    def _net(cut: bool) -> Any:
        from torch import nn

        class Cut(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = toy_net(classes=16)
                self.head = nn.Linear(16, 4)
                self.scale = nn.Parameter(self.head.weight.new_zeros(1))

            def forward(self, pixels: Any) -> Any:
                features = self.body(pixels)
                features = features.detach() if cut else features
                return self.head(features) + self.scale * self.head(features.tanh())

        return toy_training(Cut())

    PLANTED = (Example("detach in forward", lambda: NoGradient._net(True)),)
    HEALTHY = (
        Example("all", toy_training),
        Example("a branch that starts at zero", lambda: NoGradient._net(False)),
    )


def _collector(model: Any, had: dict[str, float]) -> Any:
    def collect(*_: Any) -> None:
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                size = float(parameter.grad.detach().float().abs().sum())
                had[name] = max(had.get(name, 0.0), math.inf if math.isnan(size) else size)

    return collect


def _failed(missing: list[str], zero: list[str], total: int, numbers: dict[str, Any]) -> Answer:
    names = ", ".join((missing or zero)[:4]) + (", ..." if len(missing or zero) > 4 else "")
    kind = "no gradient at all" if missing else "gradients that are exactly zero"
    none = len(missing) == total
    causes = [
        "the loss does not depend on the model: detach(), .item() or no_grad() around it",
        "zero_grad() comes between backward() and optimizer.step()",
    ]
    some = [
        "detach(), no_grad(), .data or numpy in forward()",
        "a module that forward() does not call, or whose output is not used",
        "units that are all dead",
    ]
    return wrong(
        f"{len(missing or zero)} of {total} parameters have {kind}: {names}.",
        causes if none else some,
        "Follow the path from these parameters to the loss.",
        **numbers,
    )
