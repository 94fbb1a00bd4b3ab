"""What ranks read: shards that overlap, ranks that read alike."""

from __future__ import annotations

import copy
import inspect
import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    graph_of,
    own_sampler,
    sample_digests,
    set_epoch,
)
from pipeline_profiler.checks.ranks import SPEAKS_OF_RANKS, reads_unsplit, script_text
from pipeline_profiler.checks.user_code import (
    UsersError,
    batches_of,
    call_with,
    plain_augmentation,
    seed_everything,
    users_code,
)
from pipeline_profiler.profiling.adapters.tf_graph import name_of, rebuilt

RANKS = ("num_replicas", "world_size", "num_shards")
RANK_WORDS = ("rank", "process_index", "host", "host_id", "shard", "shard_index", "shard_id")
WORLD_WORDS = ("world_size", "num_replicas", "num_shards", "num_hosts", "process_count", "hosts")
ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
MAX_RANKS, MAX_GRAPH_RANKS, TRIED_RANKS = 64, 8, 2
MAX_SAMPLES, FEW_SAMPLES = 20_000, 128


class Shard(NamedTuple):
    """An epoch of one rank: its samples, by index or digest, and how many samples or batches."""

    samples: list[Any]
    length: int


class Shards(Check):
    """Ranks that train on the same samples, omit samples, or wait for each other.

    ## How it decides
    Copies the sampler for each rank and counts the indices of one epoch. Fails if lengths differ,
    or as many indices as ranks are repeated or missing. Exact. Fails if tf.data shuffles without a
    seed before `shard()`, or a script wraps its model for ranks, and nothing splits its data.

    ## Limits
    Without such a sampler: `make_loader(rank, world_size)`, RANK in the environment, or `shard()`.
    """

    code = "LOAD004"
    name = "shards-overlap"
    causes = (
        "the sampler ignores its rank, or there is none",
        "ranks shuffle with different seeds before the split",
        "the dataset is no multiple of the ranks, or shards have different sizes",
    )
    next_step = (
        "Use DistributedSampler; or shuffle with one seed, drop the remainder, and take "
        "indices[rank::world_size]."
    )

    def run(self, subject: LoaderSubject) -> Answer:
        loader = subject.loader
        if subject.has_indices and own_sampler(loader) is None and reads_unsplit(script_text()):
            return self.failed(f"Each rank reads all {len(loader.dataset)} samples, unsplit.")
        if any(name_of(op) == "Shard" for op in graph_of(loader)):
            return _graph_shards(subject)
        made = (loader.sampler, loader.batch_sampler) if subject.has_indices else ()
        ranked = [(s, n) for s in made for n in RANKS if hasattr(s, n) and hasattr(s, "rank")]
        if not ranked:
            return _factory_shards(subject)
        sampler, ranks = ranked[0][0], int(getattr(*ranked[0]))
        if ranks < 2:
            return skipped("The sampler has one rank.", "Give it two ranks, to see its shards.")
        shards = [_indices_of(sampler, rank) for rank in range(min(ranks, MAX_RANKS))]
        return _judge_shards(shards, range(len(loader.dataset)), ranks, "samples")


def _judge_shards(shards: list[Shard], whole: Collection[Any], ranks: int, unit: str) -> Answer:
    drawn, wanted = Counter(sample for s in shards for sample in s.samples), Counter(whole)
    twice, missing = (drawn - wanted).total(), (wanted - drawn).total()
    lengths = sorted({shard.length for shard in shards})
    problems = []
    if twice >= ranks:
        problems.append(f"{twice} samples come to more than one rank")
    if missing >= ranks == len(shards):
        problems.append(f"{missing} of {len(whole)} samples come to none")
    if len(lengths) > 1:
        problems.append(
            f"ranks have {lengths[0]} to {lengths[-1]} {unit}, and wait for each other for ever"
        )
    if problems:
        return Shards.failed(f"Among {ranks} ranks, {', '.join(problems)}.")
    return passed(
        f"{ranks} ranks: disjoint and of equal length; {twice} samples of padding, {missing} left "
        "out."
    )


def _indices_of(sampler: Any, rank: int) -> Shard:
    shard = copy.copy(sampler)
    shard.rank = rank
    with users_code("The sampler"):
        entries = [e if isinstance(e, list | tuple) else [e] for e in shard]
    indices = [index for entry in entries for index in entry]
    return Shard(indices, len(indices))


def _judge_digests(
    subject: LoaderSubject, shards: list[Shard], whole: Shard, ranks: int = TRIED_RANKS
) -> Answer:
    """Judge shards by the bytes of samples, which must be the same whenever they are read."""
    known = {*whole.samples}
    made = {sample for shard in shards for sample in shard.samples}
    cut = len(whole.samples) >= MAX_SAMPLES or subject.time_is_short()
    if cut or len(made - known) > 0.1 * len(made):
        return unclear(
            f"More than {MAX_SAMPLES} samples, or samples that differ from epoch to epoch "
            "(augmentation), are not compared.",
            "Give the factory a parameter: make_loader(..., augment=True).",
        )
    return _judge_shards(shards, whole.samples, ranks, "batches")


def _graph_shards(subject: LoaderSubject) -> Answer:
    """Judge the shards of a tf.data graph."""
    import tensorflow as tf

    tf.random.set_seed(None)  # without ours, only the user's own seeds show in the graph
    loader = call_with(subject.make_loader, {}, "make_loader()")
    chain = graph_of(loader)
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

    def read(rank: int | None) -> Shard:
        def exchange(op: Any, before: Any) -> Any:
            if op is not chain[at]:
                return None
            return before if rank is None else before.shard(ranks, rank)

        return _read(subject, rebuilt(loader, exchange), MAX_SAMPLES)

    return _judge_digests(
        subject, [read(rank) for rank in range(min(ranks, MAX_GRAPH_RANKS))], read(None), ranks
    )


def _factory_shards(subject: LoaderSubject) -> Answer:
    """Judge the shards of two ranks, by parameters of the factory or by the environment."""
    if not _rank_arguments(subject.make_loader, 0, 1) and not _differs_by_rank(subject):
        return absent("Nothing in the loader depends on a rank: it is one of a single process.")
    whole = _read_as(subject, 0, 1)
    shards = [_read_as(subject, rank, TRIED_RANKS, seed=rank) for rank in range(TRIED_RANKS)]
    return _judge_digests(subject, shards, whole)


def _differs_by_rank(subject: LoaderSubject) -> bool:
    """Whether RANK in the environment changes what is read; the same seed for both."""
    if not SPEAKS_OF_RANKS.search(script_text()):
        return False
    try:
        one, again, two = (_read_as(subject, r, TRIED_RANKS, FEW_SAMPLES) for r in (0, 0, 1))
    except UsersError:  # such a script wants the other ranks: it cannot be tried alone
        return False
    return one == again != two


def _rank_arguments(factory: Callable[..., Any], rank: int, ranks: int) -> dict[str, int]:
    """The factory's parameters for its rank; empty where it takes none."""
    try:
        names = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
    found = [next((n for n in w if n in names), "") for w in (RANK_WORDS, WORLD_WORDS)]
    return dict(zip(found, (rank, ranks), strict=True)) if all(found) else {}


def _read_as(
    subject: LoaderSubject, rank: int, ranks: int, max_samples: int = MAX_SAMPLES, seed: int = 0
) -> Shard:
    """Return what `rank` of `ranks` reads in its first epoch, by parameters and environment."""
    arguments, before = _rank_arguments(subject.make_loader, rank, ranks), dict(os.environ)
    os.environ |= {name: str(rank if "RANK" in name else ranks) for name in ENVIRONMENT}
    try:
        seed_everything(subject.seed + seed)
        with users_code("make_loader()"):
            loader = subject.make_loader(**arguments | plain_augmentation(subject.make_loader))
        return _read(subject, loader, max_samples)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _read(subject: LoaderSubject, loader: Any, max_samples: int) -> Shard:
    """The samples of one epoch of a loader, by their bytes, and the number of batches."""
    set_epoch(loader, 0)
    digests, batches = list[str](), 0
    for batch in batches_of(loader):
        digests += sample_digests(batch)
        batches += 1
        if len(digests) >= max_samples or subject.time_is_short():
            break
    return Shard(digests, batches)
