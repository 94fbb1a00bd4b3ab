"""Preloaded batches: real ones, stored as the loader gave them, equal at each use.

A step may remove fields of a batch or work in place, so each use is a new container around the
stored tensors. Parts that the step changes, found on copies and by torch's version counters, are
copied for each use; `copying_ns` is subtracted.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from pipeline_profiler.profiling.record.stages import READINGS, Clock

Path = tuple[Any, ...]  # keys and positions that lead to a part of a batch
Change = Callable[[Path, Any], Any]
LOOKS, DEAR_NS = 2, 1_000_000


class Preloaded(list[Any]):
    """Batches as the loader gave them; `in_place`: paths of the parts that the step changes."""

    def __init__(self, batches: Any = (), in_place: set[Path] | None = None) -> None:
        super().__init__(batches)
        self.in_place: set[Path] = set() if in_place is None else in_place

    def moved(self, move: Callable[[Any], Any]) -> Preloaded:
        """The same batches with `move` of every tensor."""
        changed = [mapped(b, lambda _, part: move(part) if is_tensor(part) else part) for b in self]
        return Preloaded(changed, self.in_place)

    def hand_out(self, index: int) -> Any:
        """The batch in new containers; parts that the step changes in place are copied."""
        return mapped(self[index], lambda at, part: copied(part) if at in self.in_place else part)

    def versions(self, index: int) -> dict[Path, int]:
        """Version counters of the kept tensors that are handed out uncopied."""
        return _versions({at: p for at, p in parts_of(self[index]) if at not in self.in_place})

    def note_changes(self, index: int, before: dict[Path, int]) -> bool:
        """Whether the step has changed a kept tensor since `before`, noted from now on."""
        after = self.versions(index)
        changed = {at for at, version in before.items() if after.get(at) != version}
        self.in_place |= changed
        return bool(changed)


class Cycle:
    """The kept batches for ever: resident and host batches."""

    def __init__(self, kept: Preloaded, clock: Clock) -> None:
        self.kept, self.clock = kept, clock
        self.copying_ns = 0  # all that handing out takes, which no loader does
        self.looking_ns = deque([0], READINGS)  # what the last turns with a look took

    def __iter__(self) -> Iterator[Any]:
        """Endless, in order; a batch that a step has changed unseen is left out if it can be."""
        indices = list(range(len(self.kept)))
        for turn in itertools.count():
            index = indices[turn % len(indices)]
            begin = self.clock()
            batch = self.kept.hand_out(index)
            # a batch of very many objects takes longer to look at than to train on: a few looks do
            looked = turn < LOOKS * len(indices) or statistics.median(self.looking_ns) < DEAR_NS
            before = self.kept.versions(index) if looked else {}
            taken = self.clock() - begin
            self.copying_ns += taken
            if looked:
                self.looking_ns.append(taken)
            yield batch
            del batch
            begin = self.clock()
            if looked and self.kept.note_changes(index, before) and len(indices) > 1:
                indices.remove(index)
            self.copying_ns += self.clock() - begin


def try_step(kept: Preloaded, step: Callable[[Any], Any]) -> set[str]:
    """Run the step on copies of two batches; return the fields it removes, note changed parts."""
    taken: set[str] = set()
    for batch in kept[:2]:
        handed = as_given(batch)
        parts, fields = dict(parts_of(handed)), _fields(handed)
        versions = _versions(parts)
        step(handed)
        taken |= fields - _fields(handed)
        kept.in_place |= {at for at, version in _versions(parts).items() if versions[at] != version}
        arrays = {at: part for at, part in parts_of(batch) if hasattr(part, "tobytes")}
        kept.in_place |= {at for at, a in arrays.items() if a.tobytes() != parts[at].tobytes()}
    return taken


def changes_sentence(in_place: set[Path], taken: set[str]) -> str:
    """What the step does to its batch, '' where it leaves it as it is."""
    where = ", ".join(sorted({"/".join(map(str, at)) or "the batch" for at in in_place}))
    deeds = [f"takes {', '.join(sorted(taken))} out of its batch"] if taken else []
    deeds += [f"works in place on {where}"] if where else []
    if not deeds:
        return ""
    copies = ", and what it changes is copied before each step, outside all figures"
    return (
        f"The step {' and '.join(deeds)}: preloaded batches are given to it in new containers"
        f"{copies if where else ''}."
    )


def as_given(batch: Any) -> Any:
    """A copy to keep: containers, tensors and arrays."""
    return mapped(batch, lambda _, part: copied(part))


def is_tensor(part: Any) -> bool:
    """A torch tensor."""
    return hasattr(part, "is_cuda")


def _versions(parts: Mapping[Path, Any]) -> dict[Path, int]:
    """Version counters of the tensors among the parts; inference tensors have none."""
    tensors = {at: part for at, part in parts.items() if is_tensor(part)}
    return {at: part._version for at, part in tensors.items() if not part.is_inference()}


def copied(part: Any) -> Any:
    """A tensor or array with its own memory, pinned where it was; anything else is shared."""
    if is_tensor(part):
        own = part.detach().clone()
        return own.pin_memory() if part.is_pinned() else own
    return part.copy() if type(part).__module__ == "numpy" and hasattr(part, "copy") else part


def parts_of(batch: Any) -> Iterator[tuple[Path, Any]]:
    """Every part that is no container, with the way to it."""
    found: list[tuple[Path, Any]] = []
    mapped(batch, lambda at, part: found.append((at, part)))
    return iter(found)


def _fields(batch: Any) -> set[str]:
    return {str(key) for key in batch} if isinstance(batch, MutableMapping) else set()


def mapped(value: Any, change: Change, at: Path = ()) -> Any:
    """New containers of the same kinds around `change(path, part)` of every part."""
    if isinstance(value, MutableMapping):
        fresh = copy.copy(value)  # keeps the kind: a batch encoding, a default dictionary
        for key, part in value.items():
            fresh[key] = mapped(part, change, (*at, key))
        return fresh
    if isinstance(value, (list, tuple)):
        parts = [mapped(part, change, (*at, i)) for i, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            part = mapped(getattr(value, field.name), change, (*at, field.name))
            object.__setattr__(twin, field.name, part)  # frozen ones too
        return twin
    return change(at, value)
