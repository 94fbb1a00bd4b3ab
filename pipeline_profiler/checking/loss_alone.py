"""The user's loss without the model: what it asks for, found on outputs that are free numbers.

Reference values for a training that knows nothing (all outputs zero, one output for all examples)
and the least loss that any outputs can have. Costs some hundred evaluations of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.tasks import Task
from pipeline_profiler.checking.user_calls import UsersError


@dataclass
class LossAlone:
    """`loss` of outputs for one batch of `targets`; `outputs` as the model gives them at first."""

    loss: Callable[[Any], Any]
    outputs: Any
    targets: Any
    task: Task

    @cached_property
    def form(self) -> str:
        """What the loss takes: '' for any numbers, 'log', 'sum' or 'unit' for probabilities.

        'log': log-probabilities; 'sum': probabilities that sum to 1; 'unit': numbers in 0..1, which
        a loss insists on.
        """
        import torch

        outputs, task = self.outputs.float(), self.task
        if task.kind == "classes":
            ones = torch.ones_like(outputs.sum(task.axis))
            if torch.allclose(outputs.exp().sum(task.axis), ones, atol=1e-4):
                return "log"
            if bool((outputs >= 0).all()) and torch.allclose(
                outputs.sum(task.axis), ones, atol=1e-4
            ):
                return "sum"
        if task.kind == "unknown" and outputs.ndim > 1 and outputs.shape[-1] > 1:
            sums = outputs.exp().sum(-1)  # of a loss over sequences, such as CTC
            return "log" if torch.allclose(sums, torch.ones_like(sums), atol=1e-4) else ""
        if task.kind == "binary" and bool(((outputs >= 0) & (outputs <= 1)).all()):
            try:
                beyond = self.loss(outputs - 2)
            except UsersError:
                return "unit"
            return "" if bool(torch.isfinite(beyond)) else "unit"
        return ""

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        if self.form == "log":
            return free.log_softmax(-1 if self.task.kind == "unknown" else self.task.axis)
        if self.form == "sum":
            return free.softmax(self.task.axis)
        return free.sigmoid() if self.form == "unit" else free

    @cached_property
    def uniform(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""
        import torch

        with torch.no_grad():
            zeros = self.formed(torch.zeros_like(self.outputs))
            return float(self.loss(zeros))

    @cached_property
    def constant(self) -> float:
        """The least loss of an output that is the same for all examples of the first batch."""
        return self.best_outputs(shared=True)[0]

    def best_outputs(self, shared: bool = False, steps: int = 200) -> tuple[float, Any]:
        """(least loss, outputs) over free outputs for the first batch, by Adam on the outputs.

        shared: one output for all examples. No model is involved, so this shows what the loss
        itself asks for.
        """
        import torch

        shape = self.outputs
        start = (
            shape.detach().float().mean(0, keepdim=True)
            if shared
            else torch.zeros_like(shape, dtype=torch.float32)
        )
        free = (start * 0).requires_grad_()
        scale = self._target_scale()
        best, kept = math.inf, free.detach().clone()
        with torch.enable_grad():
            optimizer = torch.optim.Adam([free], lr=0.1 * scale)
            for number in range(steps):
                for group in optimizer.param_groups:
                    group["lr"] = 0.3 * scale * (1 - number / steps) + 1e-4 * scale
                outputs = self.formed(free.expand_as(shape) if shared else free * 1.0)
                loss = self.loss(outputs)
                if not loss.requires_grad or not torch.isfinite(loss):
                    break
                if float(loss.detach()) < best:
                    best, kept = float(loss.detach()), outputs.detach().clone()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return best, kept

    def _target_scale(self) -> float:
        import torch

        targets = main_tensor(self.targets)
        if targets is None or not torch.is_floating_point(targets):
            return 1.0
        return max(1.0, float(targets.abs().mean()))
