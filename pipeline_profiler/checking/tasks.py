"""What a training learns, read from the shapes and types of outputs and targets."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline_profiler.checking.nested_batches import main_tensor


class Task(NamedTuple):
    """What is learned: 'classes', 'binary', 'regression' or 'unknown', read from the tensors."""

    kind: str
    classes: int = 0
    axis: int = 1  # of the outputs, where the classes are


def read_task(outputs: Any, targets: Any) -> Task:
    """What the shapes and types say is learned."""
    import torch

    targets = main_tensor(targets)
    if outputs is None or targets is None or not torch.is_floating_point(outputs):
        return Task("unknown")
    whole = not torch.is_floating_point(targets) and targets.dtype is not torch.bool
    if whole and outputs.ndim == targets.ndim + 1:
        if outputs.shape[:-1] == targets.shape:
            return Task("classes", outputs.shape[-1], outputs.ndim - 1)
        if outputs.shape[0] == targets.shape[0] and outputs.shape[2:] == targets.shape[1:]:
            return Task("classes", outputs.shape[1], 1)
    if outputs.numel() == targets.numel():
        values = set(targets.unique().tolist()[:3])
        if values <= {0.0, 1.0}:
            return Task("binary", 2)
        if not whole:
            return Task("regression")
    return Task("unknown")
