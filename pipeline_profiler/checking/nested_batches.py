"""Batches of any nesting: cut, moved to a device, turned into tensors; the main tensor of one.

A batch is a tensor, or a tuple, list, dict or named tuple of batches. torch is imported inside
functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class FewBatches:
    """Some batches as a loader: iterable, with a length and a dataset that has one."""

    def __init__(self, batches: Sequence[Any]) -> None:
        """Hold the batches."""
        self.batches = list(batches)
        self.dataset = range(sum(batch_size(b) for b in self.batches))

    def __iter__(self) -> Iterator[Any]:
        """The batches in order."""
        return iter(self.batches)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.batches)


def gradient_values(gradient: Any) -> Any:
    """The numbers of a gradient; of a sparse one those of the rows that are in it."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


# ---- nested batches ----


def as_tensors(value: Any) -> Any:
    """Arrays of numpy as tensors, in the same nesting."""
    import numpy as np
    import torch

    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(value))
    return map_nested(value, as_tensors)


def moved(value: Any, device: Any) -> Any:
    """Tensors on a device, in the same nesting."""
    if hasattr(value, "to") and hasattr(value, "dtype"):
        return value.to(device)
    return map_nested(value, lambda part: moved(part, device))


def cut_batch(value: Any, size: int, start: int, end: int) -> Any:
    """Examples start to end of every part whose first axis is the batch."""
    if hasattr(value, "shape"):
        return value[start:end] if value.ndim and value.shape[0] == size else value
    if isinstance(value, list) and len(value) == size and not hasattr(value[0], "shape"):
        return value[start:end]
    return map_nested(value, lambda part: cut_batch(part, size, start, end))


def map_nested(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with `change` of every part of the outermost level."""
    if isinstance(value, Mapping):
        return {key: change(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(part) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(change(part) for part in value)
    return value


def main_tensor(value: Any) -> Any:
    """The first tensor of a nested output: `logits` of an object, else in order; None without."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value
    if hasattr(value, "logits"):
        return value.logits
    if isinstance(value, Mapping):
        value = [value["logits"]] if "logits" in value else list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            found = main_tensor(part)
            if found is not None:
                return found
    return None


def batch_size(inputs: Any) -> int:
    """Examples in a batch."""
    tensor = main_tensor(inputs)
    return int(tensor.shape[0]) if tensor is not None and tensor.ndim else 1
