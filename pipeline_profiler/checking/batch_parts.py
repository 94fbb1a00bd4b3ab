"""A batch taken apart: which part the model gets, which part the loss; both as arrays.

A pair is (inputs, targets); of a longer tuple the first two; a dict is split by the names of its
keys. `split(batch)` of the user's goes before all of it. numpy only: tensors of torch and
TensorFlow are turned into arrays by what they offer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.user_calls import UsersError, users_code

Array = NDArray[Any]
TARGET_KEYS = ("labels", "label", "targets", "target", "y", "mask", "masks", "class", "answer")
Split = Callable[[Any], Any]


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


def as_array(value: Any) -> Array | None:
    """An array of a tensor, an array, a number or a list of those; None for anything else."""
    if isinstance(value, Mapping):
        parts = [a for v in value.values() if (a := as_array(v)) is not None]
        return max(parts, key=lambda a: a.ndim) if parts else None
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) in ("torch.bfloat16",) else value
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
        return
    if hasattr(value, "convert") and hasattr(value, "size"):  # a PIL image
        yield np.array(value)
        return
    try:
        array = as_array(value)
    except (TypeError, ValueError, RuntimeError):
        array = None
    if array is not None:
        yield array


def digest_of(value: Any) -> str:
    """A digest of the bytes of every array in a sample."""
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays_in(value):
        digest.update(str((array.dtype, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
