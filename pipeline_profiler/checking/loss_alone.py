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

from pipeline_profiler.checking.free_outputs import FreeOutputs
from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.tasks import Task
from pipeline_profiler.checking.user_calls import UsersError

STEPS = 200


@dataclass
class LossAlone(FreeOutputs):
    """`loss` of outputs for one batch of `targets`; `outputs` as the model gives them at first."""

    loss: Callable[[Any], Any]
    outputs: Any
    targets: Any
    task: Task

    @cached_property
    def form(self) -> str:
        """What the loss takes: '' for any numbers, 'log', 'sum', 'unit' or 'positive' else.

        'log': log-probabilities; 'sum': probabilities that sum to 1; 'unit', 'positive': numbers in
        0..1, or above 0, which a loss insists on.
        """
        outputs, kind = self.outputs.float(), self.task.kind
        least = float(outputs.min()) if outputs.numel() else -1.0
        insists = least >= 0 and kind in ("binary", "regression")
        insists = insists and not self._bears(outputs - float(outputs.max()) - 1)
        if insists and bool((outputs <= 1).all()) and not self._bears(outputs + 2):
            by_itself = kind == "binary" or self._axis is None
            return "unit" if by_itself else "sum"
        if self._axis is not None:
            return "sum" if least >= 0 else "log"
        return "positive" if insists else ""

    def _bears(self, outputs: Any) -> bool:
        """Whether the loss of these outputs is a number."""
        import torch

        try:
            return bool(torch.isfinite(self.loss(outputs)))
        except UsersError:
            return False

    @cached_property
    def _axis(self) -> int | None:
        """The axis over which outputs are probabilities, or logarithms of them."""
        import torch

        outputs, task = self.outputs.float(), self.task
        axes = {"classes": (task.axis,), "unknown": (-1,)}.get(task.kind, (-1, 1))
        for axis in axes if outputs.ndim > 1 else ():
            ones = torch.ones_like(outputs.sum(axis))
            logs = torch.allclose(outputs.exp().sum(axis), ones, atol=1e-4)
            shares = torch.allclose(outputs.sum(axis), ones, atol=1e-4)
            shares = shares and bool((outputs >= 0).all())
            if outputs.shape[axis] > 1 and (logs or (shares and task.kind != "unknown")):
                return axis
        return None

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        from torch.nn import functional

        if self.form == "log":
            return free.log_softmax(self._axis)
        if self.form == "sum":
            return free.softmax(self._axis)
        if self.form == "positive":
            return functional.softplus(free)
        return free.sigmoid() if self.form == "unit" else free

    @cached_property
    def uniform(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""
        import torch

        with torch.no_grad():
            zeros = self.formed(torch.zeros_like(self.outputs))
            return float(self.loss(zeros))

    def _descended(self, shared: bool, scale: float) -> tuple[float, Any]:
        import torch

        shape = self.outputs
        start = shape.detach().float()
        free = torch.zeros_like(start.mean(0, keepdim=True) if shared else start)
        free.requires_grad_()
        best, kept = math.inf, free.detach().clone()
        with torch.enable_grad():
            optimizer = torch.optim.Adam([free], lr=0.1 * scale)
            for number in range(STEPS):
                for group in optimizer.param_groups:
                    group["lr"] = 0.3 * scale * (1 - number / STEPS) + 1e-4 * scale
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
