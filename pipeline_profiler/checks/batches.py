"""Batches of any nesting: taken apart for model and loss, cut, moved, as arrays or tensors.

The first part of a tuple is for the model, the second for the loss; a dict is split by the names of
its keys. The user's `split(batch)` takes precedence.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.user_code import UsersError, users_code

Array = NDArray[Any]
TARGET_KEYS = ("labels", "label", "targets", "target", "y", "mask", "masks", "class", "answer")
Split = Callable[[Any], Any]
MIN_PADDED_ROWS, MIN_PADDED = 4, 0.25  # rows that end in padding, share of all rows


def inputs_and_targets(batch: Any, split: Split | None = None) -> tuple[Any, Any]:
    """(what the model gets, what the loss compares with); targets None where there are none."""
    if split is not None:
        with users_code("split_batch()"):
            batch = split(batch)
    if isinstance(batch, Mapping):
        key = next((k for k in TARGET_KEYS if k in batch), None)
        rest = {k: v for k, v in batch.items() if k != key}
        inputs = next(iter(rest.values())) if len(rest) == 1 else rest
        return inputs, batch[key] if key else None
    if isinstance(batch, tuple | list):
        if not batch:
            raise UsersError("The loader gives empty batches: its collate function returns ().")
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def entering(args: Any, named: Any) -> Any:
    """What a module is called with, as inputs: one tensor, or its arguments."""
    return named or (args if len(args) > 1 else args[0] if args else None)


def as_array(value: Any) -> Array | None:
    """An array of a tensor, an array, a number or a list of those; None for anything else."""
    if isinstance(value, Mapping):
        parts = [a for v in value.values() if (a := as_array(v)) is not None]
        return max(parts, key=lambda a: a.ndim) if parts else None
    if str(getattr(value, "layout", "torch.strided")) != "torch.strided":
        return None  # a sparse tensor
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if hasattr(value, "numpy") and callable(value.numpy):
        value = value.numpy()
    if isinstance(value, list | tuple) and value and not np.isscalar(value[0]):
        rows = [a for v in value if (a := as_array(v)) is not None]
        same = len(rows) == len(value) and len({row.shape for row in rows}) == 1
        return np.stack(rows) if same else None
    array = np.asarray(value)
    return array if array.dtype.kind in "biufSU" else None


def arrays_in(value: Any, depth: int = 4) -> Iterator[Array]:
    """Every array of a nested sample, in its own order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple) and depth:
        for part in value:
            yield from arrays_in(part, depth - 1)
    elif hasattr(value, "convert") and hasattr(value, "size"):  # a PIL image
        yield np.array(value)
    else:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            yield from (a for a in [as_array(value)] if a is not None)


def digest_of(value: Any) -> str:
    """A digest of the bytes of every array in a sample."""
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays_in(value):
        digest.update(str((array.dtype, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def same_bytes(one: Any, two: Any) -> bool:
    """Whether two samples hold equal arrays."""
    return digest_of(one) == digest_of(two)


class FewBatches(list[Any]):
    """Some batches as a loader: iterable, with a length and a dataset that has one."""

    @property
    def dataset(self) -> range:
        """As long as the examples are many."""
        return range(sum(map(batch_size, self)))


def as_tensors(value: Any) -> Any:
    """Arrays of numpy as tensors, in the same nesting."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(value))
    return map_nested(value, as_tensors)


def moved(value: Any, device: Any) -> Any:
    """Tensors on a device, in the same nesting."""
    if hasattr(value, "to") and hasattr(value, "dtype"):
        return value.to(device)
    return map_nested(value, lambda part: moved(part, device))


def cut_batch(value: Any, size: int, places: slice | list[int]) -> Any:
    """The examples at these places, in every part whose first axis is the batch.

    States of recurrences (layers, batch, units) have it second.
    """
    if hasattr(value, "shape"):
        if value.ndim == 3 and value.shape[0] != size == value.shape[1]:
            return value[:, places]
        return value[places] if value.ndim and value.shape[0] == size else value
    if isinstance(value, list) and len(value) == size and not hasattr(value[0], "shape"):
        return value[places] if isinstance(places, slice) else [value[i] for i in places]
    return map_nested(value, lambda part: cut_batch(part, size, places))


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


def links_examples(inputs: Any) -> bool:
    """Whether a part is a graph over the examples: numbers (N, N), or pairs of their places."""
    listed = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    parts = [p for p in listed if getattr(p, "ndim", 0)] if isinstance(listed, list | tuple) else []
    for part in (p for p in parts if p.ndim == 2 and 0 not in p.shape):
        sizes = {int(p.shape[0]) for p in parts if p is not part}
        if "float" in str(part.dtype):
            linked = part.shape[0] == part.shape[1] and part.shape[0] in sizes
        else:
            linked = 2 in part.shape and max(sizes - {*part.shape}, default=0) > part.max()
        if linked:
            return True
    return False


def padding_of(rows: Any) -> tuple[int, Any] | None:
    """(value, places) of what fills the ends of rows and is nowhere else."""
    for value in rows[:, -1].unique().tolist():
        places = rows == value
        trailing = places.flip(1).cumprod(1).flip(1).bool()
        many = int((trailing.sum(1) > 1).sum()) >= max(MIN_PADDED_ROWS, MIN_PADDED * len(rows))
        if many and torch.equal(places, trailing) and not bool(places.all()):
            return int(value), places
    return None
