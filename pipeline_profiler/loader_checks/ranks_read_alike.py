"""LOAD017: ranks that read the same samples in the same order."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.rank_loaders import FEWEST, read_ranks
from pipeline_profiler.checking.rank_toys import ranked_images
from pipeline_profiler.checking.toys import ToyImages, toy_loader


class RanksReadAlike(Check):
    """Ranks of one run that train on the same batches.

    ## What it does
    Starts two ranks as processes, each seeded with a number of its own, and compares which samples
    they read first: indices, or digests where there are none.

    ## Why is this bad
    The mean of equal gradients is the gradient of one rank: all ranks but one work for nothing,
    and the effective batch is smaller than the learning rate was chosen for.

    ## How it decides
    Fails where both ranks read the same samples in the same order, at least 16 of them. Exact.

    ## What to do
    A DistributedSampler, or a seed of the shuffling that differs by rank where each rank draws
    from all samples.

    ## Limits
    Needs a file that speaks of ranks. Ranks that share one model in parts (tensor or pipeline
    parallel) must read alike: skip the check there (`--skip LOAD017`). Cannot tell where a library
    launches ranks and shards by itself.
    """

    code = "LOAD017"
    name = "ranks-read-alike"

    def run(self, subject: LoaderSubject) -> Answer:
        """Compare the samples of both ranks."""
        one, two = (reading.samples for reading in read_ranks(subject))
        count = min(len(one), len(two))
        if count < FEWEST:
            return unclear(f"A rank reads {count} samples: too few to compare their order.")
        if len(set(one)) == 1:
            return unclear("All samples have the same bytes.")
        if one[:count] == two[:count]:
            return wrong(
                f"Two ranks read the same {count} samples in the same order.",
                ["there is no DistributedSampler", "all ranks shuffle with one fixed seed"],
                "Give each rank its share: DistributedSampler, or indices[rank::world_size].",
                samples=count,
            )
        share = len(set(one) & set(two)) / len(set(one))
        return passed(
            f"Of the first {count} samples of two ranks, {share:.0%} come to both, in another "
            "order.",
            shared=share,
        )

    @staticmethod
    def _fixed(by_rank: bool) -> LoaderSubject:
        def make(rank: int = 0, world_size: int = 1) -> Any:
            import torch

            seed = rank if by_rank else 0
            return toy_loader(ToyImages(64), generator=torch.Generator().manual_seed(seed))

        return LoaderSubject(make)

    @staticmethod
    def _sharded() -> LoaderSubject:
        return LoaderSubject(lambda rank=0, world_size=1: ranked_images(rank, world_size))

    PLANTED = (Example("one seed of the shuffling", lambda: RanksReadAlike._fixed(False)),)
    HEALTHY = (
        Example("DistributedSampler", lambda: RanksReadAlike._sharded()),
        Example("each rank shuffles all for itself", lambda: RanksReadAlike._fixed(True)),
        Example("one process", lambda: toy_loader(ToyImages())),
    )
