"""Planted faults and healthy twins for `loader/ranks.py`."""

from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader, toy_stream


class _Own:
    rank, num_replicas = 0, 2

    def __iter__(self) -> Any:
        return iter(range(256))


def _distributed() -> Any:
    dataset: Any = ToyImages(255)
    sampler: Any = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0)
    return toy_loader(dataset, sampler=sampler)


def _by_rank(split: bool, seeded: bool = True) -> LoaderSubject:
    def make(rank: int = 0, world_size: int = 1) -> Any:
        def order() -> Any:
            rng = np.random.default_rng(5 if seeded else np.random.randint(1 << 30))
            found = rng.permutation(256).tolist()
            return found[rank::world_size] if split else found

        return toy_loader(toy_stream(order), shuffle=None)

    return LoaderSubject(make)


EXAMPLES: Rows = [
    ("LOAD004", FAULT, "each rank reads all", lambda: toy_loader(ToyImages(), sampler=_Own())),
    ("LOAD004", FAULT, "a stream that ignores its rank", lambda: _by_rank(False)),
    ("LOAD004", FAULT, "each rank shuffles for itself", lambda: _by_rank(True, False)),
    ("LOAD004", TWIN, "DistributedSampler with padding", _distributed),
    ("LOAD004", TWIN, "a stream split by rank", lambda: _by_rank(True)),
]
