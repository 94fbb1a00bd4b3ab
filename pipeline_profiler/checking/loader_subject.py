"""The loader under examination: made by the user's factory, watched, its batches kept.

What several checks need is taken once: two epochs' beginnings with a record for every sample, and
the order of indices over whole epochs, which costs no decoding. Any iterable of batches will do;
orders and records exist for torch's DataLoader only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pipeline_profiler.adapters import kind_of
from pipeline_profiler.checking.batch_parts import Array, Split, as_array, inputs_and_targets
from pipeline_profiler.checking.declared_numbers import DeclaredNumbers, declaration_of
from pipeline_profiler.checking.stream_probe import SampleRecord, probed_loader
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.user_calls import UsersError, call_with, users_code

ENOUGH_SAMPLES, MOST_BATCHES = 512, 64
MOST_INDICES = 2_000_000


@dataclass(frozen=True)
class SeenBatch:
    """One batch: as it came, its parts as arrays, and the records of its samples if there are."""

    raw: Any
    inputs: Array | None
    targets: Array | None
    records: tuple[SampleRecord, ...] = ()

    @property
    def size(self) -> int:
        """Examples in it."""
        part = self.inputs if self.inputs is not None else self.targets
        return len(part) if part is not None and part.ndim else len(self.records)


@dataclass
class LoaderSubject:
    """What the checks on a loader examine.

    make_loader, make_eval: the user's factories. evaluation: the loader is one for evaluation, so
    its order is not judged. classes: number of classes. split: batch -> (inputs, targets). mean,
    deviation: per channel, as the checkpoint declares them; else make_model returns the model, its
    weights or its processor, which may declare them. deadline: of time.monotonic().
    """

    make_loader: Callable[..., Any]
    make_eval: Callable[..., Any] | None = None
    evaluation: bool = False
    classes: int | None = None
    split: Split | None = None
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    make_model: Callable[..., Any] | None = None
    seed: int = 0
    deadline: float = field(default=float("inf"))

    def fresh(self, seed: int | None = None) -> Any:
        """A new loader, made after seeding everything."""
        seed_everything(self.seed if seed is None else seed)
        loader = call_with(self.make_loader, {}, "make_loader()")
        if loader is None:
            raise UsersError("make_loader() returned None: it must return the loader.")
        kind_of(loader)  # raises a sentence for what cannot be iterated
        return loader

    @cached_property
    def loader(self) -> Any:
        """The loader that is looked at."""
        return self.fresh()

    @cached_property
    def declared(self) -> DeclaredNumbers | None:
        """The mean and deviation that inputs should be normalised with; None where unknown."""
        if self.mean and self.deviation:
            return DeclaredNumbers(self.mean, self.deviation, "--mean and --std")
        return declaration_of(self.make_model)

    @cached_property
    def is_torch(self) -> bool:
        """Whether it is torch's DataLoader."""
        return kind_of(self.loader) == "torch"

    @cached_property
    def has_indices(self) -> bool:
        """Whether samples have indices: a DataLoader over a map-style dataset."""
        return self.is_torch and self.loader._dataset_kind == 0

    @property
    def workers(self) -> int:
        """Worker processes; 0: the samples are made in this process."""
        return int(self.loader.num_workers) if self.is_torch else 0

    def time_is_short(self) -> bool:
        """Whether the budget is over."""
        return time.monotonic() > self.deadline

    # ---- batches ----

    @cached_property
    def epochs(self) -> list[list[SeenBatch]]:
        """The beginnings of two epochs of one fresh loader, seen batch by batch."""
        loader = self.fresh()
        watched = probed_loader(loader) if self.is_torch else loader
        return [self._beginning(watched, epoch) for epoch in range(2)]

    def _beginning(self, loader: Any, epoch: int) -> list[SeenBatch]:
        set_epoch(loader, epoch)
        seen: list[SeenBatch] = []
        samples = 0
        for batch in self.iterate(loader):
            records, raw = batch if self.is_torch else ((), batch)
            seen.append(self.seen(raw, tuple(records)))
            samples += max(1, seen[-1].size)
            enough = samples >= ENOUGH_SAMPLES and len(seen) >= 2 * max(1, self.workers)
            if enough or len(seen) >= MOST_BATCHES or self.time_is_short():
                break
        if not seen and not epoch:  # a second epoch without batches is LOAD003's
            raise UsersError(
                "The loader gives no batch: is the dataset empty, or smaller than a "
                "batch with drop_last=True?"
            )
        return seen

    def iterate(self, loader: Any) -> Iterator[Any]:
        """The batches; what the loader raises becomes a sentence."""
        with users_code("The loader"):
            iterator = iter(loader)
        while True:
            with users_code("The loader"):
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
            yield batch

    def seen(self, raw: Any, records: tuple[SampleRecord, ...] = ()) -> SeenBatch:
        """A batch taken apart."""
        inputs, targets = inputs_and_targets(raw, self.split)
        return SeenBatch(
            raw, as_array(inputs), None if targets is None else as_array(targets), records
        )

    @property
    def batches(self) -> list[SeenBatch]:
        """The beginning of the first epoch."""
        return self.epochs[0]

    @cached_property
    def eval_batches(self) -> list[SeenBatch]:
        """The beginning of an epoch of the evaluation loader; empty where there is none."""
        if self.make_eval is None:
            return []
        count = len(self.batches)
        return [self.seen(raw) for raw in itertools.islice(self.iterate(self.eval_loader), count)]

    @cached_property
    def eval_loader(self) -> Any:
        """The loader for evaluation; None where there is none."""
        if self.make_eval is None:
            return None
        seed_everything(self.seed)
        loader = call_with(self.make_eval, {}, "make_eval_loader()")
        kind_of(loader)
        return loader

    @cached_property
    def inputs(self) -> Array | None:
        """The inputs of the first batches in one array of floats; None where they do not stack."""
        parts = [b.inputs for b in self.batches if b.inputs is not None]
        if not parts or any(p.dtype.kind not in "biuf" or p.ndim < 1 for p in parts):
            return None
        if len({p.shape[1:] for p in parts}) != 1:
            return None
        return np.concatenate(parts)

    @cached_property
    def labels(self) -> Array | None:
        """One label a sample in the order of delivery; None where targets are not of that kind."""
        parts = [b.targets for b in self.batches if b.targets is not None]
        flat = [p.reshape(len(p)) for p in parts if p.ndim and p.size == len(p)]
        return np.concatenate(flat) if flat and len(flat) == len(parts) else None

    # ---- order ----

    def index_order(self, epochs: int = 2, seed: int | None = None) -> list[list[list[Any]]]:
        """Batches of indices for some epochs of a fresh loader; nothing is decoded."""
        loader = self.fresh(seed)
        return [self._one_order(loader, epoch) for epoch in range(epochs)]

    def _one_order(self, loader: Any, epoch: int) -> list[list[Any]]:
        set_epoch(loader, epoch)
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        order: list[list[Any]] = []
        count = 0
        with users_code("The sampler"):
            for entry in sampler:
                order.append(list(entry) if isinstance(entry, list | tuple) else [entry])
                count += len(order[-1])
                if count >= MOST_INDICES:
                    break
        return order


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell sampler and dataset the epoch, as a loop for several processes does."""
    for name in ("sampler", "batch_sampler", "dataset"):
        setter = getattr(getattr(loader, name, None), "set_epoch", None)
        if callable(setter):
            setter(epoch)
