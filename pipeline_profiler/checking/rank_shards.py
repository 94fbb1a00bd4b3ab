"""What each rank of a distributed run reads, found in one process.

Three ways to a rank: a factory that takes it as a parameter (`make_loader(rank=0, world_size=1)`),
one that reads the environment of `torchrun` (RANK, WORLD_SIZE), and `shard()` in a tf.data graph.
Samples are known by the digest of their bytes. Nothing is read beyond MOST_READ samples a rank.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import arrays_in, digest_of
from pipeline_profiler.checking.loader_subject import LoaderSubject, set_epoch
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.user_calls import plain_augmentation, users_code

RANK_WORDS = ("rank", "process_index", "host", "host_id", "shard", "shard_index", "shard_id")
WORLD_WORDS = ("world_size", "num_replicas", "num_shards", "num_hosts", "process_count", "hosts")
ENVIRONMENT = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1}
TRIED_RANKS, MOST_READ = 2, 20_000


@dataclass(frozen=True)
class RankShard:
    """The digests of the samples of one rank, in order, and the number of its batches."""

    digests: tuple[str, ...]
    batches: int


def rank_words(factory: Callable[..., Any]) -> tuple[str, str] | None:
    """The names of the factory's parameters for the rank and the number of ranks."""
    try:
        names = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return None
    rank = next((n for n in RANK_WORDS if n in names), None)
    world = next((n for n in WORLD_WORDS if n in names), None)
    return (rank, world) if rank and world else None


def rank_offers(factory: Callable[..., Any], rank: int, ranks: int) -> dict[str, int]:
    """The factory's parameters for its rank; empty where it takes none."""
    words = rank_words(factory)
    return {words[0]: rank, words[1]: ranks} if words else {}


def shard_of(
    subject: LoaderSubject, rank: int, ranks: int, seed: int | None = None, most: int = MOST_READ
) -> RankShard:
    """What `rank` of `ranks` reads in its first epoch.

    Processes start with different states of the generators, so each rank is seeded with its number.
    """
    offers = rank_offers(subject.make_loader, rank, ranks)
    with _environment(rank, ranks):
        seed_everything(subject.seed + (rank if seed is None else seed))
        with users_code("make_loader()"):
            loader = subject.make_loader(**offers | plain_augmentation(subject.make_loader))
        return read_shard(subject, loader, most)


def read_shard(subject: LoaderSubject, loader: Any, most: int = MOST_READ) -> RankShard:
    """The samples of one epoch of a loader, up to `most`."""
    set_epoch(loader, 0)
    digests: list[str] = []
    batches = 0
    for batch in subject.iterate(loader):
        digests += sample_digests(batch)
        batches += 1
        if len(digests) >= most or subject.time_is_short():
            break
    return RankShard(tuple(digests), batches)


def sample_digests(batch: Any) -> list[str]:
    """One digest for each sample of a batch, over all arrays that have it."""
    arrays = [np.asarray(a) for a in arrays_in(batch)]
    counts = [len(a) for a in arrays if a.ndim]
    if not counts:
        return [digest_of(batch)]
    size = max(set(counts), key=counts.count)
    parts = [a for a in arrays if a.ndim and len(a) == size]
    return [digest_of([part[i] for part in parts]) for i in range(size)]


def rank_environment(rank: int, ranks: int) -> dict[str, str]:
    """The environment variables of one rank, as `torchrun` sets them."""
    return {name: str(rank if "RANK" in name else ranks) for name in ENVIRONMENT}


@contextlib.contextmanager
def _environment(rank: int, ranks: int) -> Iterator[None]:
    values = rank_environment(rank, ranks)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
