"""What modules of a model show before it is trained: layers that are one, flags without effect."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipeline_profiler.checks.check import Answer, Check, passed
from pipeline_profiler.checks.lazy import nn, torch
from pipeline_profiler.checks.loop_facts import idle_flags
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import kept_state
from pipeline_profiler.checks.user_training import Training


class LayersRepeated(Check):
    """A stack of layers that repeats one layer.

    ## What it does
    Finds modules with parameters that occur several times in a Sequential, ModuleList or
    ModuleDict. Follows the gradients to see whether the module's output is its own next input.

    ## Why is this bad
    `[Block()] * 6` is six references to one block. The model has a sixth of the parameters and
    still trains.

    ## How it decides
    Fails if a module occurs twice in one container, and its second call depends on the output of
    its first. One head for several layers (DETR) passes. Exact.

    ## Limits
    If weights are shared in a container on purpose, use `--skip TRAIN045`. A loop in forward() that
    calls one module repeatedly passes.
    """

    code = "TRAIN045"
    name = "layers-repeated"
    causes = ("[layer] * n, which repeats the reference and not the layer",)
    next_step = "Make each layer anew: [layer() for _ in range(n)]."

    def run(self, subject: TrainingSubject) -> Answer:
        training, found = subject.fresh(), []
        model = training.model
        kinds = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
        for name, container in model.named_modules():
            if isinstance(container, kinds):
                # _modules: children() leaves out what it has named before
                counts = Counter(container._modules.values())
                trained = (m for m, n in counts.items() if n > 1 and list(m.parameters()))
                found += [(name or type(model).__name__, m, counts[m]) for m in trained]
        if not found:
            return passed("No container holds one layer in several places.")
        for name, module, places in found:
            if _feeds_itself(subject, training, module):
                sizes = sum(p.numel() for p in module.parameters())
                return self.failed(
                    f"The {places} places of {name} hold one {type(module).__name__}: its "
                    f"{sizes:,} weights are there once, and each place changes them for all.",
                    container=name,
                    places=places,
                    weights=sizes,
                )
        return passed(f"{found[0][0]} holds one module several times, on different inputs.")


def _feeds_itself(subject: TrainingSubject, training: Training, module: Any) -> bool:
    """Whether the second call of a module takes what came of its first one."""
    calls: list[tuple[Any, Any]] = []

    def keep(_: Any, inputs: Any, output: Any) -> None:
        tensors = [t for t in (*inputs, output) if isinstance(t, torch.Tensor)]
        if len(tensors) > 1:
            calls.append((tensors[0], tensors[-1]))

    hook = module.register_forward_hook(keep)
    try:
        with kept_state():
            training.model.train()
            subject.forward(training, subject.small[1])
    finally:
        hook.remove()
    if len(calls) < 2 or not calls[0][1].requires_grad or not calls[1][0].requires_grad:
        return False
    (found,) = torch.autograd.grad(calls[1][0].sum(), calls[0][1], allow_unused=True)
    return found is not None or calls[1][0] is calls[0][1]


class NotFrozen(Check):
    """Frozen parts that change: a misspelled attribute, or batch norm in train mode.

    ## What it does
    Finds attributes of parameters and modules that are False, resemble `requires_grad`, and have no
    effect in torch. Examples are `param.require_grad`, and `requires_grad` of a module. Compares
    running statistics of frozen batch norms over training steps.

    ## Why is this bad
    Python accepts any attribute name. The weights to be frozen train with the learning rate of the
    new head. In train mode, running statistics leave those of the checkpoint.

    ## How it decides
    Fails if a trainable parameter, or a module with one, has such an attribute. Fails if a step of
    your optimizer moves a frozen parameter, or running statistics move in a batch norm that no
    gradient reaches. Norms that start at 0 and 1, or are trained in other steps, pass. Exact.

    ## Limits
    Only attributes that are set before the first step. Statistics that are adapted on purpose fail.
    In a file, only a train_step that calls train() shows moving statistics.
    """

    code = "TRAIN046"
    name = "not-frozen"
    causes = (
        "a slip in the name: require_grad, requires_gradient",
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
        names = ", ".join(flags[:3])
        return self.failed(
            f"{len(flags)} flags that are False freeze nothing ({names}): the weights below them "
            "are trained.",
            flags=len(flags),
        )
