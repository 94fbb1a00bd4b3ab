"""What modules of a model show before it is trained: layers that are one, flags without effect."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipeline_profiler.checks.check import Answer, Check, passed
from pipeline_profiler.checks.lazy import nn, torch
from pipeline_profiler.checks.loop_facts import idle_flags
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_training import Training


class LayersRepeated(Check):
    """A stack of layers that repeats one layer.

    ## How it decides
    Fails if a module with parameters occurs twice in a Sequential, ModuleList or ModuleDict, and
    its second call depends on the output of its first. One head for several layers passes. Exact.

    ## Limits
    If weights are shared in a container on purpose, use `--skip TRAIN045`.
    """

    code = "TRAIN045"
    name = "layers-repeated"
    causes = ("[layer] * n, which repeats the reference and not the layer",)
    next_step = "Make each layer anew: [layer() for _ in range(n)]."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        model = training.model
        for name, container in model.named_modules():
            if not isinstance(container, nn.Sequential | nn.ModuleList | nn.ModuleDict):
                continue
            # _modules: children() leaves out what it has named before
            for module, count in Counter(container._modules.values()).items():
                sizes = sum(p.numel() for p in module.parameters())
                if count > 1 and sizes and _feeds_itself(subject, training, module):
                    return self.failed(
                        f"The {count} layers of {name or type(model).__name__} are one "
                        f"{type(module).__name__}: its {sizes:,} weights exist once, and each "
                        "layer changes them for all."
                    )
        return passed("No container repeats a layer on its own output.")


def _feeds_itself(subject: TrainingSubject, training: Training, module: Any) -> bool:
    """Return whether the second call of a module depends on the output of its first call."""
    calls: list[list[Any]] = []

    def note(_: Any, inputs: Any, output: Any) -> None:
        calls.append([t for t in (*inputs, output) if isinstance(t, torch.Tensor)])

    hook = module.register_forward_hook(note)
    try:
        training.model.train()
        subject.forward(training, subject.small[1])
    finally:
        hook.remove()
    if len(calls) < 2 or min(map(len, calls[:2])) < 2:
        return False
    first, second = calls[0][-1], calls[1][0]
    if not first.requires_grad or not second.requires_grad:
        return False
    (found,) = torch.autograd.grad(second.sum(), first, allow_unused=True)
    return found is not None or second is first


class NotFrozen(Check):
    """Frozen parts that change: an attribute without effect, or batch norm in train mode.

    ## How it decides
    Fails if a trainable parameter, or a module with one, has an attribute that is False and
    resembles `requires_grad`, such as `require_grad`. Fails if a step moves a frozen parameter, or
    statistics of a batch norm that no gradient reaches. Norms that start at 0 and 1 pass. Exact.

    ## Limits
    Only attributes that are set before the first step. Statistics that are adapted on purpose fail.
    In a file, only a train_step that calls train() shows moving statistics.
    """

    code = "TRAIN046"
    name = "not-frozen"
    causes = (
        "a misspelled name: require_grad, requires_gradient",
        "requires_grad is set on a module instead of its parameters",
    )
    next_step = "module.requires_grad_(False), before the optimizer is made."

    def run(self, subject: TrainingSubject) -> Answer:
        made = subject.settings
        if self.code in subject.watched:
            return subject.watched[self.code]
        flags = idle_flags(made.model) if made.loop is None else made.loop.idle_flags
        if not flags:
            return passed("No parameter or module has a flag that torch does not read.")
        return self.failed(
            f"{len(flags)} flags that are False freeze nothing ({', '.join(flags[:3])}): the "
            "weights below them are trained."
        )
