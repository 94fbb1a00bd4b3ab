"""Any iterable of batches: a generator, a webdataset pipeline, a DALI or Grain loader.

Nothing is known of its inside, so what counts is what the consumer sees: the wall and thread-CPU
time of each next(). Wall without CPU is time blocked (I/O, or a wait for the loader's own
threads); stages come from `with stage(...)` in the loader's code and from stack samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class IterableSource:
    """An iterable as it is."""

    def __init__(self, loader: Iterable[Any]) -> None:
        """Keep what is wrapped or measured."""
        self.iterable = loader
        self.config: dict[str, Any] = describe(loader)
        self.notes: list[str] = []

    def unwrap(self, item: Any) -> tuple[Any, None]:
        """The batch, and no trace: nothing travels with it."""
        return item, None

    def depth(self, iterator: Any) -> None:
        """An unknown loader does not tell."""
        return


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
