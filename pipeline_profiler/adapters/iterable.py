"""Any iterable of batches: a generator, a webdataset pipeline, a DALI or Grain loader.

Nothing is known of its inside, so what counts is what the consumer sees: the wall, thread-CPU and
run-queue time of each next(). Stages come from the hooks on open, PIL and remote reads while they
run in the consumer's thread, from `with stage(...)` in the loader's code, and from stack samples,
which follow the loader's own threads as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pipeline_profiler.record import stage_hooks


class IterableSource:
    """An iterable as it is."""

    def __init__(self, loader: Iterable[Any]) -> None:
        """Put hooks around the iteration of `loader` and read its type and length."""
        self.iterable: Iterable[Any] = Hooked(loader)
        self.config: dict[str, Any] = describe(loader)
        self.notes: list[str] = []

    def unwrap(self, item: Any) -> tuple[Any, None]:
        """The batch, and no trace: nothing travels with it."""
        return item, None

    def depth(self, iterator: Any) -> None:
        """An unknown loader does not tell."""
        return


class Hooked:
    """The iterable with hooks in place only while it is iterated."""

    def __init__(self, loader: Iterable[Any]) -> None:
        """Wrap `loader`; nothing is hooked before iteration."""
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        """Iterate with hooks in place, and take them out again."""
        undo = stage_hooks.install()
        try:
            iterator = iter(self.loader)  # now: its cost is the epoch's start, not the first batch
        except BaseException:
            undo()
            raise
        return _until_end(iterator, undo)


def _until_end(iterator: Iterator[Any], undo: stage_hooks.Undo) -> Iterator[Any]:
    try:
        yield from iterator
    finally:
        undo()


def attach(loader: Iterable[Any], recorder: Any) -> IterableSource:
    """Watch any iterable."""
    return IterableSource(loader)


def describe(loader: Any) -> dict[str, Any]:
    """Type, length where it has one, and whether it can be iterated twice."""
    config: dict[str, Any] = {
        "kind": "iterable",
        "type": f"{type(loader).__module__}.{type(loader).__qualname__}",
        "one_shot": iter_once(loader),
    }
    try:
        config["batches"] = len(loader)
    except TypeError:
        config["batches"] = None
    return config


def iter_once(loader: Any) -> bool:
    """True for an iterator: its batches are gone after one pass."""
    return hasattr(loader, "__next__")


def rebuild(loader: Any, changes: dict[str, Any]) -> Any:
    """No setting of an unknown iterable can be changed from outside; returns None."""
    return None


def files(loader: Any) -> list[str]:
    """An unknown iterable does not list its files."""
    return []
