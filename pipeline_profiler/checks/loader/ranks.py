"""What ranks read: shards that overlap, ranks that read alike."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.loader_subject import LoaderSubject, own_sampler
from pipeline_profiler.checks.ranks import (
    MOST_READ,
    TRIED_RANKS,
    RankShard,
    has_ranks,
    rank_words,
    read_shard,
    reads_unsplit,
    script_text,
    shard_of,
)
from pipeline_profiler.checks.user_code import UsersError, call_with, users_code
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of, prefixes, rebuilt

RANKS = ("num_replicas", "world_size", "num_shards")
MAX_RANKS, MAX_GRAPH_RANKS = 64, 8
FEW_SAMPLES = 128


class Shards(Check):
    """Ranks that train on the same samples, omit samples, or wait for each other.

    ## How it decides
    Copies the sampler for each rank and counts the indices of one epoch. Fails if lengths differ,
    or as many indices as ranks are repeated or missing. Exact. Fails if tf.data shuffles without a
    seed before `shard()`, or a script wraps its model for ranks, and nothing splits its data.

    ## Limits
    Needs a sampler with `rank` and `num_replicas`, `make_loader(rank=0, world_size=1)`, a factory
    that reads RANK and WORLD_SIZE, or tf.data with `shard()`. Factories are read as two ranks, and
    compared by bytes, without augmentation if they take `augment=False`.
    """

    code = "LOAD004"
    name = "shards-overlap"
    causes = (
        "the sampler ignores its rank, or there is none",
        "ranks shuffle with different seeds before the split",
    )
    next_step = (
        "Use DistributedSampler, or shuffle with one seed and take indices[rank::world_size]."
    )

    def run(self, subject: LoaderSubject) -> Answer:
        loader = subject.loader
        plain = subject.has_indices and own_sampler(loader) is None
        if plain and not has_ranks([subject.make_loader]) and reads_unsplit(script_text()):
            return self.failed(f"Each rank reads all {len(loader.dataset)} samples, unsplit.")
        if kind_of(loader) == "tf" and any(name_of(op) == "Shard" for op in prefixes(loader)):
            return _graph_shards(subject)
        made = (loader.sampler, loader.batch_sampler) if subject.has_indices else ()
        ranked = [(s, n) for s in made for n in RANKS if hasattr(s, n) and hasattr(s, "rank")]
        if not ranked:
            return _factory_shards(subject)
        sampler, ranks = ranked[0][0], int(getattr(*ranked[0]))
        if ranks < 2:
            return skipped("The sampler has one rank.", "Give it two ranks, to see its shards.")
        shards = [_indices_of(sampler, rank) for rank in range(min(ranks, MAX_RANKS))]
        return _judge_shards(shards, len(loader.dataset), ranks)


def _indices_of(sampler: Any, rank: int) -> list[int]:
    shard = copy.copy(sampler)
    shard.rank = rank
    with users_code("The sampler"):
        entries = [e if isinstance(e, list | tuple) else [e] for e in shard]
    return [index for entry in entries for index in entry]


def _judge_shards(shards: list[list[int]], total: int, ranks: int) -> Answer:
    counts = Counter(index for shard in shards for index in shard)
    lengths = sorted({len(shard) for shard in shards})
    twice = sum(counts.values()) - len(counts)
    missing = total - len(counts) if ranks == len(shards) else 0
    problems = []
    if twice >= ranks:
        problems.append(f"{twice} samples come to more than one rank")
    if missing >= ranks:
        problems.append(f"{missing} of {total} samples come to none")
    if len(lengths) > 1:
        problems.append(f"ranks have {lengths[0]} to {lengths[-1]} samples")
    if problems:
        return Shards.failed(f"Among {ranks} ranks, {', '.join(problems)}.")
    return passed(
        f"{ranks} ranks: disjoint and of equal length; {twice} samples of padding, {missing} left "
        "out."
    )


def _graph_shards(subject: LoaderSubject) -> Answer:
    """Judge the shards of a tf.data graph."""
    import tensorflow as tf

    tf.random.set_seed(None)  # without ours, only the user's own seeds show in the graph
    loader = call_with(subject.make_loader, {}, "make_loader()")
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
        )
    if shuffles or ranks < 2:
        return unclear(
            f"shard() of {ranks}, after a shuffle() with a seed: disjoint as long as all hosts "
            "are in the same epoch.",
            "Put shard() before shuffle().",
        )

    def shard(rank: int | None) -> RankShard:
        def exchange(op: Any, before: Any) -> Any:
            if op is chain[at]:
                return before if rank is None else before.shard(ranks, rank)
            return None

        return read_shard(subject, rebuilt(loader, exchange))

    return _by_digest(list(map(shard, range(min(ranks, MAX_GRAPH_RANKS)))), shard(None), ranks)


def _factory_shards(subject: LoaderSubject) -> Answer:
    """Judge the shards of two ranks, by parameters of the factory or by the environment."""
    if not rank_words(subject.make_loader) and not _differs_by_rank(subject):
        return absent("Nothing in the loader depends on a rank: it is one of a single process.")
    whole, again = (shard_of(subject, 0, 1, seed) for seed in (0, 1))
    if len(whole.digests) >= MOST_READ or {*whole.digests} != {*again.digests}:
        return unclear(
            f"More than {MOST_READ} samples, or samples that differ from epoch to epoch "
            "(augmentation), are not compared.",
            "Give the factory a parameter: make_loader(..., augment=True).",
        )
    shards = [shard_of(subject, rank, TRIED_RANKS) for rank in range(TRIED_RANKS)]
    return _by_digest(shards, whole, TRIED_RANKS)


def _differs_by_rank(subject: LoaderSubject) -> bool:
    """Whether RANK in the environment changes what is read; the same seed for both."""
    try:
        one, again, two = (
            shard_of(subject, rank, TRIED_RANKS, 0, FEW_SAMPLES) for rank in (0, 0, 1)
        )
    except UsersError:  # such a script wants the other ranks: it cannot be tried alone
        return False
    return one == again != two


def _by_digest(shards: list[RankShard], whole: RankShard, ranks: int) -> Answer:
    places = {digest: number for number, digest in enumerate(dict.fromkeys(whole.digests))}
    if len(places) < 0.9 * len(whole.digests):
        return unclear("Samples with equal bytes are frequent, so ranks cannot be compared.")
    batches = sorted({shard.batches for shard in shards})
    if len(batches) > 1:
        return wrong(
            f"Among {ranks} ranks, epochs have {batches[0]} to {batches[-1]} batches: the rank "
            "that has one more waits for the others for ever.",
            ["the dataset is no multiple of the ranks, or shards have different sizes"],
            "Drop or repeat samples so that all ranks have the same number of batches.",
        )
    shortest = min(len(shard.digests) for shard in shards)
    numbered = [[places.get(d, -1) for d in shard.digests[:shortest]] for shard in shards]
    return _judge_shards(numbered, len(places), ranks)
