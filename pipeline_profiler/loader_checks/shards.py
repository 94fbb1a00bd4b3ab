"""LOAD004: shards of ranks that overlap, leave samples out, or differ in length."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.user_calls import users_code

RANKS = ("num_replicas", "world_size", "num_shards")
MOST_RANKS = 64


class Shards(Check):
    """Ranks that train on the same samples, leave some out, or wait for each other.

    ## What it does
    Copies the sampler once for each rank, collects the indices of one epoch, and counts.

    ## Why is this bad
    Overlapping shards make an epoch shorter than it looks; shards of different length hang a
    collective operation at the end of the epoch; evaluation counts padded samples twice.

    ## How it decides
    Fails where ranks share indices beyond the padding (fewer than the number of ranks), where
    indices are missing by more than drop_last explains, or where lengths differ. Exact.

    ## What to do
    DistributedSampler, or `indices[rank::world_size]` cut to one length. Call `set_epoch`.

    ## Limits
    A sampler with `rank` and `num_replicas` (or `world_size`) is needed. Streams split by rank
    are not followed: nothing tells their rank.
    """

    code = "LOAD004"
    name = "shards-overlap"

    def run(self, subject: LoaderSubject) -> Answer:
        """Count over all ranks."""
        sampler = _ranked(subject.loader) if subject.has_indices else None
        if sampler is None:
            return unclear("No sampler with a rank: the loader is one of a single process.")
        name = next(n for n in RANKS if hasattr(sampler, n))
        ranks = int(getattr(sampler, name))
        if ranks < 2:
            return unclear("The sampler has one rank: give it two, to see its shards.")
        shards = [_indices_of(sampler, rank) for rank in range(min(ranks, MOST_RANKS))]
        return _count(shards, len(subject.loader.dataset), ranks)

    @staticmethod
    def _own(step: bool) -> Any:
        class Own:
            rank, num_replicas = 0, 2

            def __iter__(self) -> Any:
                return iter(range(self.rank, 256, 2) if step else range(256))

            def __len__(self) -> int:
                return 128 if step else 256

        return toy_loader(ToyImages(), sampler=Own())

    @staticmethod
    def _distributed() -> Any:
        from torch.utils.data.distributed import DistributedSampler

        dataset: Any = ToyImages(255)
        return toy_loader(dataset, sampler=DistributedSampler(dataset, num_replicas=2, rank=0))

    PLANTED = (Example("each rank reads all", lambda: Shards._own(False)),)
    HEALTHY = (
        Example("DistributedSampler with padding", _distributed),
        Example("every second index", lambda: Shards._own(True)),
        Example("one process", lambda: toy_loader(ToyImages())),
    )


def _ranked(loader: Any) -> Any:
    for sampler in (loader.sampler, loader.batch_sampler):
        if hasattr(sampler, "rank") and any(hasattr(sampler, n) for n in RANKS):
            return sampler
    return None


def _indices_of(sampler: Any, rank: int) -> list[int]:
    shard = copy.copy(sampler)
    shard.rank = rank
    with users_code("The sampler"):
        flat: list[int] = []
        for entry in shard:
            flat += entry if isinstance(entry, list | tuple) else [entry]
    return flat


def _count(shards: list[list[int]], total: int, ranks: int) -> Answer:
    counts = Counter(index for shard in shards for index in shard)
    lengths = sorted({len(shard) for shard in shards})
    twice = sum(counts.values()) - len(counts)
    missing = total - len(counts) if ranks == len(shards) else 0
    numbers = {"ranks": ranks, "lengths": lengths, "twice": twice, "missing": missing}
    problems = []
    if twice >= ranks:
        problems.append(f"{twice} samples come to more than one rank")
    if missing >= ranks:
        problems.append(f"{missing} of {total} samples come to none")
    if len(lengths) > 1:
        problems.append(f"ranks have {lengths[0]} to {lengths[-1]} samples")
    if problems:
        return wrong(
            f"Among {ranks} ranks, {', '.join(problems)}.",
            ["the sampler ignores its rank", "ranks shuffle with different seeds before the split"],
            "Shuffle with one seed on all ranks, then take indices[rank::world_size].",
            **numbers,
        )
    return passed(
        f"{ranks} ranks: disjoint and of equal length; {twice} samples of padding, {missing} left "
        "out.",
        **numbers,
    )
