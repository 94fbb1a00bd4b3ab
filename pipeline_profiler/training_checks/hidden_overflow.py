"""TRAIN028: half precision that overflows while the loss looks sound."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.nested_batches import gradient_values
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject

CALLS, LAST = 24, 8  # a scaler that starts at 65,536 has halved itself 16 times by then


class HiddenOverflow(Check):
    """Values in half precision that are no numbers any more, hidden from the loss that is printed.

    ## What it does
    Runs 24 training steps and looks at what each module returns in float16 or bfloat16, and at
    every gradient.

    ## Why is this bad
    An infinite activation that nan_to_num, a clamp or a skipped batch takes out of sight leaves a
    training that learns from some batches only, or from none.

    ## How it decides
    Fails where modules return NaN or +infinity in half precision while the loss of the step is
    finite, in two steps or more; or where gradients of half or more of the last 8 of 24 steps are
    not finite while the loss is: a loss scaler settles within the first 16. Exact. -infinity is
    what masks are made of, and passes.

    ## What to do
    Scale the inputs, keep sums and norms in float32, use bfloat16; take nan_to_num out; let
    the scale of the loss fall where gradients overflow (torch.amp.GradScaler).

    ## Limits
    Operations called as functions are seen by the module around them. A training in float32 passes
    unless its gradients are not finite.
    """

    code = "TRAIN028"
    name = "hidden-overflow"

    def run(self, subject: TrainingSubject) -> Answer:
        """Watch modules and gradients."""
        training = subject.fresh()
        watch = _Watch()
        hooks = [m.register_forward_hook(watch.output) for m in training.model.modules()]
        hooks += [
            p.register_hook(watch.gradient) for p in training.model.parameters() if p.requires_grad
        ]
        steps = []
        for number in range(CALLS):
            watch.clear()
            loss = subject.step(training, subject.batches[number % len(subject.batches)])
            steps.append((math.isfinite(loss), watch.outside, watch.steep))
        for hook in hooks:
            hook.remove()
        return _judge(steps, watch.half)

    @staticmethod
    def _loud(factor: float, hide: bool = True, kind: str = "float16") -> Any:
        import torch

        dataset = ToyImages(64)
        dataset.pixels = dataset.pixels * factor

        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cpu", getattr(torch, kind)):
                outputs = model(batch[0])
            value = loss(outputs.float(), batch[1])
            if hide:
                value = torch.nan_to_num(value)
            value.backward()
            optimizer.step()
            return value

        loader = toy_loader(dataset, batch_size=8)
        return toy_training(toy_net(width=4), loader=loader, train_step=train_step)

    @staticmethod
    def _scaled(scale: float) -> Any:
        import torch

        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(batch[0]), batch[1])
            (value * scale).backward()
            found = [p.grad for p in model.parameters()]
            if all(bool(torch.isfinite(gradient).all()) for gradient in found):
                for gradient in found:
                    gradient /= scale
                optimizer.step()
            return value

        return toy_training(toy_net(width=4), train_step=train_step)

    PLANTED = (
        Example("nan_to_num around the loss", lambda: HiddenOverflow._loud(1e5)),
        Example("a scale that never falls", lambda: HiddenOverflow._scaled(1e41)),
    )
    HEALTHY = (
        Example("float32", toy_training),
        Example("a scale of 1,024", lambda: HiddenOverflow._scaled(1024.0)),
        Example("bfloat16", lambda: HiddenOverflow._loud(1.0, False, "bfloat16")),
    )


@dataclass
class _Watch:
    """What was seen in one step: modules beyond half precision, gradients that are not finite."""

    outside: list[str] = field(default_factory=list)
    steep: int = 0
    half: bool = False

    def clear(self) -> None:
        self.outside, self.steep = [], 0

    def output(self, module: Any, _inputs: Any, output: Any) -> None:
        import torch

        if not isinstance(output, torch.Tensor) or output.dtype not in (
            torch.float16,
            torch.bfloat16,
        ):
            return
        self.half = True
        found = output.detach()
        if bool((found.isnan() | (found == math.inf)).any()):
            self.outside.append(type(module).__name__)

    def gradient(self, gradient: Any) -> None:
        self.steep += not bool(gradient_values(gradient).isfinite().all())


def _judge(steps: list[tuple[bool, list[str], int]], half: bool) -> Answer:
    hidden = [outside for finite, outside, _ in steps if finite and outside]
    steep = [bool(count) for finite, _, count in steps if finite]
    late = sum(steep[-LAST:])
    numbers: dict[str, Any] = {"steps": len(steps), "hidden": len(hidden), "late_gradients": late}
    if len(hidden) >= 2:
        return _failed(
            f"In {len(hidden)} of {len(steps)} steps {hidden[0][0]} returns NaN or infinity in "
            "half precision while the loss of the step is a number.",
            numbers,
        )
    if len(steep) == len(steps) and late >= LAST // 2:
        return _failed(
            f"Gradients are not finite in {late} of the last {LAST} of {len(steps)} steps, while "
            "the loss is.",
            numbers,
        )
    if not all(finite for finite, _, _ in steps):
        return unclear("The loss itself is no number, so nothing is hidden (TRAIN001, TRAIN012).")
    what = "in half precision" if half else "(nothing runs in half precision)"
    return passed(f"Outputs and gradients of {len(steps)} steps are finite {what}.", **numbers)


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [
            "nan_to_num, a clamp or a skipped batch hides an overflow",
            "a scale of the loss that never falls",
            "inputs are not scaled, or a sum runs in float16",
        ],
        "Print the largest output of each module; use bfloat16, or float32 for this part.",
        **numbers,
    )
