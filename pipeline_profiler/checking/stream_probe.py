"""What happens inside the workers of a DataLoader: which sample, by whom, with which generators.

A shallow copy of the loader gets a dataset that returns each sample with a record: index, worker,
digest of the bytes, and the state of every generator in reach before and after the sample was
made. In reach are random, numpy and torch, and generator objects that the dataset or its parts
hold. Equal states mean equal random numbers: no statistics is needed. Of the user's objects
nothing is written.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import arrays_in, digest_of, inputs_and_targets

MOST_OBJECTS, MOST_DEPTH = 400, 5
GLOBAL_STREAMS = ("random", "numpy.random", "torch")


@dataclass(frozen=True)
class SampleRecord:
    """One sample as it was made; `before` and `after` are digests of generator states by name."""

    index: Any
    worker: int
    before: Mapping[str, str]
    after: Mapping[str, str]
    digest: str
    label: Any

    def used(self) -> list[str]:
        """The generators that this sample drew from."""
        return [name for name, state in self.before.items() if self.after.get(name) != state]


@dataclass(frozen=True)
class _Recorded:
    record: SampleRecord
    sample: Any


def held_generators(holder: Any) -> dict[str, Any]:
    """Generator objects held by an object or its parts, by the path of attributes to them."""
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any, int]] = [("dataset", holder, 0)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_OBJECTS:
        name, value, depth = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if _state_of(value) is not None:
            found[name] = value
        elif depth < MOST_DEPTH:
            waiting += [(f"{name}{key}", part, depth + 1) for key, part in _parts(value)]
    return found


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        pairs = [(f"[{key!r}]", part) for key, part in list(value.items())[:50]]
    elif isinstance(value, list | tuple):
        pairs = [(f"[{number}]", part) for number, part in enumerate(value[:50])]
    else:
        pairs = [(f".{key}", part) for key, part in getattr(value, "__dict__", {}).items()]
    plain = (int, float, str, bytes, bool, type(None), np.ndarray)
    return [(key, part) for key, part in pairs if not isinstance(part, plain)]


def _state_of(value: Any) -> Any:
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if type(value).__name__ == "Generator" and type(value).__module__.startswith("torch"):
        return value.get_state().numpy().tobytes()
    return None


def stream_states(dataset: Any) -> dict[str, str]:
    """The digest of the state of every generator in reach of this process, by name."""
    import torch

    states: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": np.random.get_state(),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    states |= {name: _state_of(g) for name, g in held_generators(dataset).items()}
    return {name: _digest(state) for name, state in states.items()}


def _advance() -> None:
    """One draw of each global generator: a sample that seeds it ends where others end, else not."""
    import torch

    random.random()
    np.random.random()
    torch.rand(1)


def _digest(state: Any) -> str:
    return hashlib.blake2b(pickle.dumps(state), digest_size=8).hexdigest()


def _worker_number() -> int:
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return -1 if info is None else int(info.id)


def _record(index: Any, before: dict[str, str], dataset: Any, sample: Any) -> _Recorded:
    label = None
    targets = inputs_and_targets(sample)[1] if sample is not None else None
    arrays = list(arrays_in(targets)) if targets is not None else []
    if len(arrays) == 1 and arrays[0].size == 1:
        label = arrays[0].reshape(-1)[0].item()
    after = stream_states(dataset)
    record = SampleRecord(index, _worker_number(), before, after, digest_of(sample), label)
    return _Recorded(record, sample)


class ProbedDataset:
    """A map-style dataset whose samples come with their record."""

    def __init__(self, dataset: Any) -> None:
        """Probe `dataset`."""
        self.__dict__["_probed"] = dataset

    def __len__(self) -> int:
        """As the dataset says."""
        return len(self._probed)

    def __getitem__(self, index: Any) -> _Recorded:
        """One sample and its record."""
        _advance()
        before = stream_states(self._probed)
        return _record(index, before, self._probed, self._probed[index])

    def __getattr__(self, name: str) -> Any:
        """Everything else is the dataset's; samples come one by one, so that each is seen."""
        if name == "__getitems__" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_probed"], name)


class ProbedStream:
    """An iterable dataset whose samples come with their record."""

    def __init__(self, dataset: Any) -> None:
        """Probe `dataset`."""
        self.__dict__["_probed"] = dataset

    def __iter__(self) -> Iterator[_Recorded]:
        """Samples and their records, in order."""
        before = stream_states(self._probed)
        for number, sample in enumerate(iter(self._probed)):
            yield _record(number, before, self._probed, sample)
            before = stream_states(self._probed)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the dataset's."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_probed"], name)


class RecordCollate:
    """The user's collate function; the records travel beside the batch."""

    def __init__(self, collate: Any) -> None:
        """Wrap `collate`."""
        self.collate = collate

    def __call__(self, samples: Any) -> tuple[list[SampleRecord], Any]:
        """(records, batch)."""
        if isinstance(samples, _Recorded):  # batch_size=None: one sample is the batch
            return [samples.record], self.collate(samples.sample)
        return [s.record for s in samples], self.collate([s.sample for s in samples])


def probed_loader(loader: Any) -> Any:
    """A shallow copy of a DataLoader whose batches are (records, batch)."""
    clone = copy.copy(loader)
    state = clone.__dict__
    streams = loader._dataset_kind != 0
    state["dataset"] = (ProbedStream if streams else ProbedDataset)(loader.dataset)
    state["collate_fn"] = RecordCollate(loader.collate_fn)
    state["_iterator"] = None
    return clone
