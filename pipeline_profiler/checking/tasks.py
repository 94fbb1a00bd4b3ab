"""What a training learns, read from the shapes and types of outputs and targets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checking.batch_parts import as_array
from pipeline_profiler.checking.nested_batches import main_tensor


class Task(NamedTuple):
    """What is learned: 'classes', 'binary', 'regression' or 'unknown', read from the tensors."""

    kind: str
    classes: int = 0
    axis: int = 1  # of the outputs, where the classes are


def read_task(outputs: Any, targets: Any) -> Task:
    """What the shapes and types say is learned; tensors of any framework."""
    found = [main_tensor(value) for value in (outputs, targets)]
    given, wanted = (None if value is None else as_array(value) for value in found)
    if given is None or wanted is None or given.dtype.kind != "f":
        return Task("unknown")
    whole = wanted.dtype.kind in "iu"
    if whole and given.ndim == wanted.ndim + 1:
        if given.shape[:-1] == wanted.shape:
            return Task("classes", given.shape[-1], given.ndim - 1)
        if given.shape[0] == wanted.shape[0] and given.shape[2:] == wanted.shape[1:]:
            return Task("classes", given.shape[1], 1)
    if given.size == wanted.size:
        if set(np.unique(wanted).tolist()[:3]) <= {0.0, 1.0}:
            return Task("binary", 2)
        if not whole:
            return Task("regression")
    return Task("unknown")
