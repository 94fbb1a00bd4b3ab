"""torch.utils.data.DataLoader: worker spans that travel with the batch, and no patched torch.

A shallow copy of the loader gets proxies for dataset, collate function and sampler
(torch_worker.py). A subclass whose `__iter__` ignores them is recorded from outside and reports it.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

from pipeline_profiler.profiling.adapters.iterable import Hooked
from pipeline_profiler.profiling.adapters.torch_worker import (
    CollateProxy,
    DatasetProxy,
    Parcel,
    SamplerProxy,
)
from pipeline_profiler.profiling.record.recorder import Delivery, Source
from pipeline_profiler.profiling.record.session import ProfileError

_MANY_WORKERS = "This DataLoader will create .* worker processes in total"


class TorchSource(Source):
    """A watched DataLoader."""

    def __init__(self, loader: Any, sample_stacks: bool | float = False) -> None:
        """Proxy a copy of `loader`; `sample_stacks` also samples the stacks of its workers."""
        clone = copy.copy(loader)
        # written to __dict__, as DataLoader forbids setting `dataset`
        clone.__dict__.update(proxied(loader, sample_stacks), _iterator=None)
        watched = _Quiet(clone) if loader.num_workers else Hooked(clone, loader.dataset)
        super().__init__(watched, describe(loader))
        self.loader = loader
        self._builds_itself = False

    def unwrap(self, item: Any) -> tuple[Any, Delivery | None]:
        """The user's batch, and how it travelled."""
        batch, delivery = unwrap_parcel(item)
        if delivery is None and not self._builds_itself:
            self._builds_itself = True
            self.notes.append(
                f"{type(self.loader).__qualname__} builds its batches itself: worker spans are "
                "not measured; use `with stage(...)` in the dataset, or a plain DataLoader."
            )
        return batch, delivery


class _Quiet:
    """A loader whose workers carry their own hooks, without torch's warning at each iter()."""

    def __init__(self, clone: Any) -> None:
        self.clone = clone

    def __iter__(self) -> Iterator[Any]:
        with _few_words():
            return iter(self.clone)


@contextmanager
def _few_words() -> Iterator[None]:
    """torch warns about many workers: the user has seen it, and sweeps mean it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _MANY_WORKERS)
        yield


def attach(loader: Any, recorder: Any) -> TorchSource:
    """Watch a DataLoader through a proxied copy."""
    return TorchSource(loader, recorder.sample_stacks)


def proxied(loader: Any, sample_stacks: bool | float) -> dict[str, Any]:
    """What of a loader's state is a proxy while its workers are recorded, by name."""
    state: dict[str, Any] = {}
    # IterDataPipe and MapDataPipe are recognised by type inside torch: leave them in place
    bases = type(loader.dataset).__mro__
    if not any(base.__module__.startswith("torch.utils.data.datapipes") for base in bases):
        state["dataset"] = DatasetProxy(loader.dataset, sample_stacks)
    state["collate_fn"] = CollateProxy(loader.collate_fn, sample_stacks)
    for name in ("batch_sampler", "sampler"):
        if loader.__dict__.get(name) is not None:
            state[name] = SamplerProxy(loader.__dict__[name])
    return state


def unwrap_parcel(item: Any) -> tuple[Any, Delivery | None]:
    """The user's batch, and how it travelled; None where a loader builds its batches itself."""
    if not isinstance(item, Parcel):
        return item, None
    return item.batch, Delivery(item.trace, item.serialise, item.receive)


def describe(loader: Any) -> dict[str, Any]:
    """The settings that decide its speed."""
    try:
        batches: int | None = len(loader)
    except TypeError:
        batches = None
    context = loader.multiprocessing_context
    return {
        "kind": "torch",
        "workers": loader.num_workers,
        "prefetch": loader.prefetch_factor or 0,
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "pin_memory": loader.pin_memory,
        "persistent": loader.persistent_workers,
        "in_order": getattr(loader, "in_order", True),
        "iterable_dataset": loader._dataset_kind != 0,
        "start_method": context.get_start_method() if context else "default",
        "drop_last": loader.drop_last,
        "batches": batches,
        "one_shot": False,
    }


def null_loader(loader: Any, batches: int) -> Any:
    """Return a DataLoader of the same settings over numbers: the hand-over alone."""
    from torch.utils.data import DataLoader

    config = describe(loader)
    size = int(config["batch_size"] or 1)
    keep: dict[str, Any] = {"num_workers": config["workers"]}
    if config["workers"]:
        keep["prefetch_factor"] = config["prefetch"] or 2
        keep["multiprocessing_context"] = loader.multiprocessing_context
    with _few_words():
        return DataLoader(range(batches * size), size, **keep)  # type: ignore[arg-type]


def _as_it_is(batch: Any) -> Any:
    return batch


def kept_loader(loader: Any, batches: list[Any], count: int) -> Any:
    """One worker that hands out whole batches which lie ready; nothing else is done."""
    from torch.utils.data import DataLoader

    return DataLoader(
        list(islice(cycle(batches), count)),  # type: ignore[arg-type]
        batch_size=None,
        collate_fn=_as_it_is,
        num_workers=1,
        multiprocessing_context=loader.multiprocessing_context,
    )


def rebuild(loader: Any, changes: dict[str, Any]) -> Any:
    """A new DataLoader over the same dataset with some settings changed (keys as in `describe`)."""
    config = describe(loader) | changes
    workers = config["workers"]
    keep: dict[str, Any] = {
        "num_workers": workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": config["pin_memory"],
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
        "persistent_workers": bool(config["persistent"] and workers),
        "in_order": config["in_order"],
    }
    if workers:
        keep["prefetch_factor"] = config["prefetch"] or 2
        keep["multiprocessing_context"] = loader.multiprocessing_context
    keep |= _sampling(loader, changes.get("batch_size"))
    from torch.utils.data import DataLoader

    with _few_words():
        return DataLoader(loader.dataset, **keep)


def _sampling(loader: Any, batch_size: int | None) -> dict[str, Any]:
    from torch.utils.data import BatchSampler

    if loader._dataset_kind != 0:
        return {"batch_size": batch_size or loader.batch_size, "drop_last": loader.drop_last}
    if loader.batch_sampler is None:
        return {"batch_size": None, "sampler": loader.sampler}
    if batch_size is None:
        return {"batch_sampler": loader.batch_sampler}
    if type(loader.batch_sampler) is not BatchSampler:
        raise ProfileError(
            "The batch size belongs to your own batch_sampler: sweep it in the code that builds it."
        )
    sampler = loader.batch_sampler.sampler
    return {"batch_size": batch_size, "sampler": sampler, "drop_last": loader.drop_last}


def from_batch(loader: Any, number: int) -> Any | None:
    """Return the loader begun at batch `number`; None if it shuffles or is a stream."""
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

    batches = loader.batch_sampler
    if type(loader) is not DataLoader or type(batches) is not BatchSampler:
        return None
    if type(batches.sampler) is not SequentialSampler or loader.persistent_workers:
        return None
    moved = rebuild(loader, {})
    late = LateStart(batches.sampler, number * batches.batch_size)
    moved.__dict__["batch_sampler"] = BatchSampler(late, batches.batch_size, batches.drop_last)
    return moved


class LateStart:
    """A sampler in order whose first pass leaves out the first samples."""

    def __init__(self, sampler: Any, number: int) -> None:
        self.sampler, self.number = sampler, number

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        first, self.number = self.number, 0
        return iter(range(first, len(self.sampler)))


PATH_ATTRIBUTES = (
    *("samples", "imgs", "paths", "files", "image_paths", "filenames", "img_paths", "file_list"),
    *("image_files", "images"),
)


def path_of(loader: Any, key: int | str) -> str:
    """The file behind a sample's index where the dataset lists its files; else the index."""
    if isinstance(key, str):
        return key
    holder, index = loader.dataset, key
    for _ in range(8):
        for listed in _file_lists(holder):
            if 0 <= index < len(listed) and (path := _path_in(listed[index])):
                return path
        indices = getattr(holder, "indices", None)
        if indices is None or not hasattr(holder, "dataset") or not 0 <= index < len(indices):
            break
        holder, index = holder.dataset, int(indices[index])
    return f"index {key}"


def _file_lists(holder: Any) -> list[Any]:
    listed = [getattr(holder, name, None) for name in PATH_ATTRIBUTES]
    return [value for value in listed if isinstance(value, (list, tuple))]


def _path_in(entry: Any) -> str:
    """The path of an entry, which may be (path, label); '' for anything else."""
    entry = entry[0] if isinstance(entry, (tuple, list)) and entry else entry
    return os.fspath(entry) if isinstance(entry, (str, os.PathLike)) else ""
