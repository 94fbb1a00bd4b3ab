"""Whether a user's own training step minimises the loss of the model's outputs, or something else.

A critic's step trains a generator too, a denoiser draws inputs and targets of its own: that
loss(model(inputs), targets) does not fall is no defect there. Costs five steps.
"""

from __future__ import annotations

import math
from typing import Any

from pipeline_profiler.checking.torch_state import seed_everything

UNLIKE = 0.05  # of the ratio of two losses over three batches


def find_other_objective(subject: Any) -> str:
    """What the step of a TrainingSubject does beside that loss, to follow "Your train_step"."""
    beside = _trained_beside(subject)
    if beside:
        return f"also trains what this loss does not reach ({', '.join(beside[:3])})"
    pair = _own_loss(subject)
    if pair is None:
        return ""
    return f"reports {pair[0]:.4g} where loss(model(inputs), targets) is {pair[1]:.4g}"


def _trained_beside(subject: Any) -> list[str]:
    """Parameters that the step trains, and that the loss of the outputs does not reach."""
    training, batch = subject.fresh(), subject.batches[0]
    named = dict(training.model.named_parameters())
    loss = subject.objective(training, batch)
    if loss.requires_grad:
        loss.backward()
    reached = {name for name, p in named.items() if p.grad is not None}
    training, had = subject.fresh(), set[str]()
    named = dict(training.model.named_parameters())

    def collect(*_: Any) -> None:
        had.update(name for name, p in named.items() if p.grad is not None)

    training.optimizer.register_step_pre_hook(collect)
    subject.step(training, batch)
    return sorted(had - reached)


def _own_loss(subject: Any) -> tuple[float, float] | None:
    """(loss of the step, that of the outputs) where they are unlike.

    A constant factor between them, as of gradients that are gathered, is no difference.
    """
    training, pairs = subject.fresh(), []
    for batch in subject.batches[:3]:
        seed_everything(subject.seed)
        plain = subject.measured(training, batch, mode=True)
        seed_everything(subject.seed)
        pairs.append((subject.step(training, batch), plain))
    ratios = [own / plain for own, plain in pairs if plain and math.isfinite(own / plain)]
    alike = len(ratios) < 2 or max(ratios) - min(ratios) <= UNLIKE * abs(max(ratios))
    return None if alike else pairs[0]
