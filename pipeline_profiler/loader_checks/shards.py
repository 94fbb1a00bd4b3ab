"""LOAD004: shards of ranks that overlap, leave samples out, or differ in length."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np

from pipeline_profiler.adapters import kind_of
from pipeline_profiler.adapters.tf_graph import name_of, prefixes, rebuilt
from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.rank_shards import (
    MOST_READ,
    TRIED_RANKS,
    RankShard,
    rank_words,
    read_shard,
    shard_of,
)
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.user_calls import UsersError, call_with, users_code

RANKS = ("num_replicas", "world_size", "num_shards")
MOST_RANKS = 64
FEW_SAMPLES = 128


class Shards(Check):
    """Ranks that train on the same samples, leave some out, or wait for each other.

    ## What it does
    Copies the sampler once for each rank, collects the indices of one epoch, and counts.

    ## Why is this bad
    Overlapping shards make an epoch shorter than it looks; shards of different length hang a
    collective operation at the end of the epoch; evaluation counts padded samples twice.

    ## How it decides
    Fails where tf.data is shuffled without a seed before it is sharded, where ranks share indices
    beyond the padding (fewer than the number of ranks), where
    indices are missing by more than drop_last explains, or where lengths differ. Exact.

    ## What to do
    DistributedSampler, or `indices[rank::world_size]` cut to one length. Call `set_epoch`.

    ## Limits
    A sampler with `rank` and `num_replicas` is needed, or `make_loader(rank=0, world_size=1)`, or
    one that reads RANK and WORLD_SIZE of the environment, or `shard()` in a tf.data graph. The
    latter are read with two ranks (tf.data: with all, up to 8) and known by their bytes, so
    augmentation must be off: `augment=False` is passed where the factory takes it.
    """

    code = "LOAD004"
    name = "shards-overlap"

    def run(self, subject: LoaderSubject) -> Answer:
        """Count over all ranks."""
        sampler = _ranked(subject.loader) if subject.has_indices else None
        if kind_of(subject.loader) == "tf" and (found := _graph_shards(subject)) is not None:
            return found
        if sampler is None:
            return _factory_shards(subject)
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

    @staticmethod
    def _by_rank(split: bool, seeded: bool = True) -> LoaderSubject:
        from torch.utils.data import IterableDataset

        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __init__(self, rank: int, ranks: int) -> None:
                self.rank, self.ranks = rank, ranks

            def __iter__(self) -> Any:
                dataset = ToyImages()
                rng = np.random.default_rng(5 if seeded else np.random.randint(1 << 30))
                order = rng.permutation(256)
                chosen = order[self.rank :: self.ranks] if split else order
                return (dataset[int(i)] for i in chosen)

        def make(rank: int = 0, world_size: int = 1) -> Any:
            return toy_loader(Stream(rank, world_size), shuffle=None)

        return LoaderSubject(make)

    PLANTED = (
        Example("each rank reads all", lambda: Shards._own(False)),
        Example("a stream that ignores its rank", lambda: Shards._by_rank(False)),
        Example("each rank shuffles for itself", lambda: Shards._by_rank(True, False)),
    )
    HEALTHY = (
        Example("DistributedSampler with padding", _distributed),
        Example("every second index", lambda: Shards._own(True)),
        Example("one process", lambda: toy_loader(ToyImages())),
        Example("a stream split by rank", lambda: Shards._by_rank(True)),
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


def _graph_shards(subject: LoaderSubject) -> Answer | None:
    """The shards of a tf.data graph; None without shard()."""
    if not any(name_of(op) == "Shard" for op in prefixes(subject.loader)):
        return None
    loader = _unseeded(subject)
    chain = prefixes(loader)
    at = next(i for i, op in enumerate(chain) if name_of(op) == "Shard")
    ranks = int(chain[at]._num_shards)
    shuffles = [op for op in chain[:at] if name_of(op).startswith("Shuffle")]
    if any(not int(op._seed) and not int(op._seed2) for op in shuffles):
        return wrong(
            f"The dataset is shuffled without a seed before shard(): each of {ranks} hosts has an "
            "order of its own, so shards overlap and leave samples out.",
            ["shuffle() stands before shard()"],
            "Put shard() first, on the list of files if there is one, or give shuffle() a seed.",
            ranks=ranks,
        )
    if shuffles or ranks < 2:
        return unclear(
            f"shard() of {ranks}, after a shuffle() with a seed: disjoint as long as all hosts "
            "are in the same epoch.",
            "Put shard() before shuffle().",
            ranks=ranks,
        )

    def shard(rank: int | None) -> RankShard:
        def exchange(op: Any, before: Any) -> Any:
            if op is chain[at]:
                return before if rank is None else before.shard(ranks, rank)
            return None

        return read_shard(subject, rebuilt(loader, exchange))

    return _by_digest([shard(rank) for rank in range(min(ranks, 8))], shard(None), ranks)


def _unseeded(subject: LoaderSubject) -> Any:
    """The dataset without a global seed of ours: only the user's own seeds show in its graph."""
    import tensorflow as tf

    tf.random.set_seed(None)
    return call_with(subject.make_loader, {}, "make_loader()")


def _factory_shards(subject: LoaderSubject) -> Answer:
    """The shards of two ranks, by parameters of the factory or by the environment."""
    named = rank_words(subject.make_loader)
    if not named and not _differs_by_rank(subject):
        return unclear("Nothing in the loader depends on a rank: it is one of a single process.")
    whole = shard_of(subject, 0, 1)
    again = shard_of(subject, 0, 1, seed=1)
    if len(whole.digests) >= MOST_READ:
        return unclear(f"More than {MOST_READ} samples an epoch: ranks are not compared.")
    if set(whole.digests) != set(again.digests):
        return unclear(
            "Samples differ from epoch to epoch (augmentation), so ranks cannot be compared.",
            "Give the factory a parameter: make_loader(..., augment=True).",
        )
    return _by_digest(
        [shard_of(subject, rank, TRIED_RANKS) for rank in range(TRIED_RANKS)], whole, TRIED_RANKS
    )


def _differs_by_rank(subject: LoaderSubject) -> bool:
    """Whether RANK in the environment changes what is read; the same seed for both."""
    most = FEW_SAMPLES
    try:
        one, again, two = (
            shard_of(subject, rank, TRIED_RANKS, seed=0, most=most) for rank in (0, 0, 1)
        )
    except UsersError:  # such a script wants the other ranks: it cannot be tried alone
        return False
    return one == again != two


def _by_digest(shards: list[RankShard], whole: RankShard, ranks: int) -> Answer:
    places = {digest: number for number, digest in enumerate(dict.fromkeys(whole.digests))}
    if len(places) < 0.9 * len(whole.digests):
        return unclear("Samples with equal bytes are frequent, so ranks cannot be compared.")
    numbered = [[places.get(digest, -1) for digest in shard.digests] for shard in shards]
    batches = sorted({shard.batches for shard in shards})
    if len(batches) > 1:
        return wrong(
            f"Among {ranks} ranks, epochs have {batches[0]} to {batches[-1]} batches: the rank "
            "that has one more waits for the others for ever.",
            ["the dataset is no multiple of the ranks, or shards have different sizes"],
            "Drop or repeat samples so that all ranks have the same number of batches.",
            batches=batches,
        )
    same = [numbers[: min(map(len, numbered))] for numbers in numbered]
    return _count(same, len(places), ranks)
