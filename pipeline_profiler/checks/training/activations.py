"""What modules give in a pass: units that are dead."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import Array
from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear
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
        return self._judge([(*head, *_shares(values)) for *head, values in found])

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


def _shares(values: list[Array]) -> tuple[float, float, int]:
    """(share of constant units, share of values at the ends of -1..1 or 0..1, examples)."""
    if len({v.shape[1:] for v in values}) != 1:
        return 0.0, 0.0, 0
    stacked = np.concatenate(values)
    # channels are the units: every place of every example counts
    units = np.moveaxis(stacked, 1, 0).reshape(stacked.shape[1], -1)
    constant = (units.max(1) - units.min(1)) < 1e-8
    ends = (np.abs(units) > 0.99) | ((units > 0) & (units < 0.01))
    return float(constant.mean()), float(ends.mean()), len(stacked)
