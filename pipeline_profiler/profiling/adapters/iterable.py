"""Any iterable of batches: a generator, a webdataset pipeline, a DALI or Grain loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from pipeline_profiler.profiling.record import stage_hooks
from pipeline_profiler.profiling.record.recorder import Source


class Hooked:
    """The iterable with hooks in place only while it is iterated, in its dataset's steps too."""

    def __init__(self, loader: Iterable[Any], dataset: Any = None) -> None:
        self.loader, self.dataset = loader, dataset

    def __iter__(self) -> Iterator[Any]:
        epoch = self._epoch()
        next(epoch)  # now: the cost of iter() is the epoch's start, not the first batch
        return epoch

    def _epoch(self) -> Iterator[Any]:
        with ExitStack() as hooks:
            hooks.callback(stage_hooks.install())
            hooks.callback(stage_hooks.hook_dataset(self.dataset))
            iterator = iter(self.loader)
            yield None
            yield from iterator


def attach(loader: Iterable[Any], recorder: Any) -> Source:
    """Watch any iterable: nothing travels with its batches, and it tells of no queue."""
    return Source(Hooked(loader), describe(loader))


def describe(loader: Any) -> dict[str, Any]:
    """Type, length where it has one, and whether it can be iterated twice."""
    config: dict[str, Any] = {
        "kind": "iterable",
        "type": f"{type(loader).__module__}.{type(loader).__qualname__}",
        "one_shot": hasattr(loader, "__next__"),  # its batches are gone after one pass
    }
    try:
        config["batches"] = len(loader)
    except TypeError:
        config["batches"] = None
    return config


def rebuild(loader: Any, changes: dict[str, Any]) -> Any:
    """No setting of an unknown iterable can be changed from outside; returns None."""
    return None
