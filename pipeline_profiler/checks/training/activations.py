"""What modules give in a pass: units that are dead, values beyond half precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import Array
from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear
from pipeline_profiler.checks.keras_subject import KerasSubject
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject

ACTIVE = (
    *("ReLU", "LeakyReLU", "ReLU6", "GELU", "SiLU", "Tanh", "Sigmoid", "Hardtanh", "ELU"),
    *("Hardswish", "Softplus"),
)
MOST_DEAD, MOST_SATURATED, LEAST = 0.9, 0.9, 16


class DeadUnits(Check):
    """Layers with dead or saturated units at the start.

    ## What it does
    Reads the activation modules (ReLU, tanh, sigmoid, ...) on the first batches. Counts constant
    units, and tanh or sigmoid values near their ends.

    ## Why is this bad
    A dead unit gets no gradient, and a saturated unit almost none, so the layer does not learn.

    ## How it decides
    Fails if 90% of the units of a layer are constant over at least 16 samples. Fails if 90% of tanh
    or sigmoid values lie within 1% of their ends.

    ## Limits
    Activations called as functions (torch.relu) are not seen.
    """

    code = "TRAIN023"
    name = "dead-units"
    nearness = Nearness.EFFECT
    causes = (
        "inputs are not scaled (check, LOAD008)",
        "weights or biases of the layer before are too large",
        "a bias far below zero",
    )
    next_step = "Print mean and deviation before this layer; use the default initialisation."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        named = training.model.named_modules()
        watched = {m: name for name, m in named if type(m).__name__ in ACTIVE}
        seen: dict[Any, list[Any]] = {}

        def keep(module: Any, _inputs: Any, output: Any) -> None:
            if hasattr(output, "detach") and output.ndim > 1:
                seen.setdefault(module, []).append(output.detach().float().cpu().numpy())

        if not watched:
            return unclear("The model has no activation modules to watch.")
        hooks = [module.register_forward_hook(keep) for module in watched]
        training.model.train()
        with torch.no_grad():
            for batch in subject.batches:
                subject.forward(training, batch[1])
        for hook in hooks:
            hook.remove()
        found = [(watched[m], type(m).__name__, values) for m, values in seen.items()]
        return self._judge([(*head, *_shares(values, 1)) for *head, values in found])

    def run_keras(self, subject: KerasSubject) -> Answer:
        import keras

        model = subject.fresh().model
        hidden = [(x, kind) for x in model._flatten_layers() if (kind := _activation(x))]
        hidden = [(x, kind) for x, kind in hidden if x is not model.layers[-1]]
        if not hidden:
            return unclear("The model has no hidden layers whose activation is known.")
        try:
            body = keras.Model(model.inputs, [x.output for x, _ in hidden])
        except (AttributeError, ValueError):
            return unclear("Layers of a model that is no graph are not watched.")
        given = [body(batch[1], training=True) for batch in subject.batches]
        rows = [part if isinstance(part, list | tuple) else [part] for part in given]
        values = [[np.asarray(part) for part in parts] for parts in zip(*rows, strict=True)]
        return self._judge(
            [(x.name, kind, *_shares(v, -1)) for (x, kind), v in zip(hidden, values, strict=True)]
        )

    def _judge(self, rows: list[tuple[str, str, float, float, int]]) -> Answer:
        """Judge (name, kind, share of constant units, of values at the ends, examples)."""
        if not rows or rows[0][4] < LEAST:
            return unclear("Too few examples to judge the activations.")
        dead = [(name, share) for name, _, share, _, _ in rows if share >= MOST_DEAD]
        full = [
            (name, share)
            for name, kind, _, share, _ in rows
            if kind in ("Tanh", "Sigmoid") and share >= MOST_SATURATED
        ]
        numbers = {
            "layers": {name: {"constant": c, "at_ends": e} for name, _, c, e, _ in rows[:40]}
        }
        for found, what in (
            (dead, "units are constant over all examples"),
            (full, "values are at the ends"),
        ):
            if found:
                name, share = found[0]
                return self.failed(
                    f"In {name}, {share:.0%} of the {what}"
                    f"{f', and in {len(found) - 1} more layers' if len(found) > 1 else ''}.",
                    **numbers,
                )
        worst = max(share for _, _, share, _, _ in rows)
        return passed(
            f"At most {worst:.0%} of the units of {len(rows)} activation layers are constant.",
            **numbers,
        )


def _activation(layer: Any) -> str:
    """The name that torch has for the activation of a layer of Keras; '' without one."""
    own = getattr(getattr(layer, "activation", None), "__name__", "") or type(layer).__name__
    return next((kind for kind in ACTIVE if kind.lower() == own.replace("_", "").lower()), "")


def _shares(values: list[Array], axis: int) -> tuple[float, float, int]:
    """(share of constant units, share of values at the ends of -1..1 or 0..1, examples)."""
    if len({v.shape[1:] for v in values}) != 1:
        return 0.0, 0.0, 0
    stacked = np.concatenate(values)
    # channels are the units: every place of every example counts
    units = np.moveaxis(stacked, axis, 0).reshape(stacked.shape[axis], -1)
    constant = (units.max(1) - units.min(1)) < 1e-8
    ends = (np.abs(units) > 0.99) | ((units > 0) & (units < 0.01))
    return float(constant.mean()), float(ends.mean()), len(stacked)


CALLS, LAST = 24, 8  # a scaler that starts at 65,536 has halved itself 16 times by then


class HiddenOverflow(Check):
    """NaN or infinity in half precision that the printed loss hides.

    ## What it does
    Runs 24 training steps, and reads the float16 or bfloat16 outputs of each module and every
    gradient.

    ## Why is this bad
    If nan_to_num, a clamp or a skipped batch hides infinite activations, the training learns from
    few batches or none.

    ## How it decides
    Fails if modules return NaN or +infinity in half precision while the loss is finite, in two
    steps or more. Fails if gradients of half of the last 8 steps are not finite while the loss is.
    -infinity (masks) passes. Exact.

    ## What to do
    Scale the inputs, keep sums and norms in float32, and use bfloat16. Remove nan_to_num. Let the
    loss scale fall when gradients overflow (torch.amp.GradScaler).

    ## Limits
    Functions are seen only through the module around them. A float32 training passes unless its
    gradients are not finite.
    """

    code = "TRAIN028"
    name = "hidden-overflow"
    causes = (
        "nan_to_num, a clamp or a skipped batch hides an overflow",
        "a scale of the loss that never falls",
        "inputs are not scaled, or a sum runs in float16",
    )
    next_step = "Print the largest output of each module; use bfloat16, or float32 for this part."

    def run(self, subject: TrainingSubject) -> Answer:
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
        return _judge_overflow(steps, watch.half)


@dataclass
class _Watch:
    """What was seen in one step: modules beyond half precision, gradients that are not finite."""

    outside: list[str] = field(default_factory=list)
    steep: int = 0
    half: bool = False

    def clear(self) -> None:
        self.outside, self.steep = [], 0

    def output(self, module: Any, _inputs: Any, output: Any) -> None:
        half = torch.float16, torch.bfloat16
        if not isinstance(output, torch.Tensor) or output.dtype not in half:
            return
        self.half = True
        found = output.detach()
        if bool((found.isnan() | (found == math.inf)).any()):
            self.outside.append(type(module).__name__)

    def gradient(self, gradient: Any) -> None:
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        self.steep += not bool(values.isfinite().all())


def _judge_overflow(steps: list[tuple[bool, list[str], int]], half: bool) -> Answer:
    hidden = [outside for finite, outside, _ in steps if finite and outside]
    steep = [bool(count) for finite, _, count in steps if finite]
    late = sum(steep[-LAST:])
    numbers: dict[str, Any] = {"steps": len(steps), "hidden": len(hidden), "late_gradients": late}
    if len(hidden) >= 2:
        return HiddenOverflow.failed(
            f"In {len(hidden)} of {len(steps)} steps {hidden[0][0]} returns NaN or infinity in "
            "half precision while the loss of the step is a number.",
            **numbers,
        )
    if len(steep) == len(steps) and late >= LAST // 2:
        return HiddenOverflow.failed(
            f"Gradients are not finite in {late} of the last {LAST} of {len(steps)} steps, while "
            "the loss is.",
            **numbers,
        )
    if not all(finite for finite, _, _ in steps):
        return unclear("The loss itself is no number, so nothing is hidden (TRAIN001, TRAIN012).")
    what = "in half precision" if half else "(nothing runs in half precision)"
    return passed(f"Outputs and gradients of {len(steps)} steps are finite {what}.", **numbers)
