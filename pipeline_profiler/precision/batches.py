"""Batches of any framework: their two parts, their size, and what can be wrong with them.

Only `shape` and `dtype` are asked of a tensor, which torch, TensorFlow and numpy all have, so
nothing is imported here. Problems are sentences that name the fix, not exceptions: each of them
becomes a row of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pipeline_profiler.profiling.record.session import ProfileError

Tensor: TypeAlias = Any  # torch.Tensor, tf.Tensor or numpy array: they share no base class
Batch: TypeAlias = "tuple[Tensor, Tensor] | Sequence[Tensor] | dict[str, Tensor]"
Loader: TypeAlias = Iterable[Batch]
MakeLoader: TypeAlias = Callable[[int], Loader]

IGNORED_LABEL = -100  # what cross-entropy leaves out in torch


def split_batch(batch: Batch) -> tuple[Tensor, Tensor]:
    """(inputs, targets) of a batch: a pair, or a mapping with two entries."""
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        raise ProfileError(
            f"The loader gave a batch of type {type(batch).__name__}, not (inputs, labels): "
            "return a pair, or wrap the loader in a function that does."
        )
    return parts[0], parts[1]


def count_samples(batch: Batch) -> int:
    """Samples in the batch: the length of its first tensor, whatever holds it."""
    part: Any = batch
    while not hasattr(part, "shape"):
        inner = part.values() if isinstance(part, Mapping) else part
        if not isinstance(part, Mapping | list | tuple) or not inner:
            raise ProfileError(
                f"The loader gave a batch of type {type(batch).__name__} without a tensor: return "
                "tensors, or a tuple, list or dict of them."
            )
        part = next(iter(inner))
    return int(part.shape[0])


def full_batches(loader: Loader, batch_size: int) -> Iterator[Batch]:
    """Epoch after epoch, partial batches left out.

    A partial batch is another shape: it would compile a second graph and change the samples/s.
    Ends after an epoch without a single full batch, where going on would never yield.
    """
    any_full = True
    while any_full:
        any_full = False
        for batch in loader:
            if count_samples(batch) == batch_size:
                any_full = True
                yield batch


def label_range(targets: Tensor) -> tuple[int, int] | None:
    """(lowest, highest) of class numbers; None where the labels are something else."""
    kind = str(getattr(targets, "dtype", ""))
    if "int" not in kind or len(getattr(targets, "shape", ())) != 1:
        return None
    values = targets if hasattr(targets, "min") else targets.numpy()  # TensorFlow has no min
    return int(values.min()), int(values.max())


def label_problem(lowest: int, highest: int, outputs: int) -> str:
    """A sentence where labels lie outside the model's outputs; '' where they fit."""
    if (lowest >= 0 or lowest == IGNORED_LABEL) and highest < outputs:
        return ""
    wrong = highest if highest >= outputs else lowest
    return (
        f"label {wrong} lies outside [0, {outputs}): the model has {outputs} outputs; give it "
        f"{max(highest + 1, outputs)}, or fix the labels so that they count from 0."
    )


def shape_problem(shape: tuple[int, ...], batch_size: int) -> str:
    """A sentence where the model's output is not (batch, classes); '' where it is."""
    if len(shape) == 2 and shape[0] == batch_size:
        return ""
    return (
        f"the model returned shape {tuple(shape)} for {batch_size} samples, not ({batch_size}, "
        "classes): return logits, one row per sample, or give (model, loss) with a loss of your "
        "own."
    )
