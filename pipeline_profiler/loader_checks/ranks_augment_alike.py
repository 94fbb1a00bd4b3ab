"""LOAD016: ranks whose augmentations draw the same random numbers."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.rank_loaders import read_ranks
from pipeline_profiler.checking.rank_toys import ranked_images
from pipeline_profiler.checking.toys import ToyImages, toy_loader


class RanksAugmentAlike(Check):
    """Ranks of one run that augment with the same random numbers.

    ## What it does
    Starts two ranks as processes, each seeded with a number of its own, and compares the states of
    every generator that their first samples draw from.

    ## Why is this bad
    Each draw is used once a rank: with eight ranks, a batch has an eighth of the augmentations that
    it seems to have.

    ## How it decides
    Fails where a generator is in the same state on both ranks before and after a sample, in the
    same worker. Equal states are equal numbers: no false alarm by chance. Samples that seed
    themselves from their index end in states of their own and do not fail.

    ## What to do
    Seed by rank (`seed + rank`) whatever is no initialisation: the generator that is handed to the
    DataLoader, generators of the dataset, worker_init_fn.

    ## Limits
    DataLoader of torch, in a file that speaks of ranks. A seed that is set outside of the factory
    is not seen. Cannot tell where a library launches and seeds ranks by itself.
    """

    code = "LOAD016"
    name = "ranks-augment-alike"

    def run(self, subject: LoaderSubject) -> Answer:
        """Compare the states of both ranks."""
        if not subject.is_torch:
            return unclear("Only a DataLoader of torch shows the random numbers of its workers.")
        one, two = read_ranks(subject)
        if not one.draws:
            return unclear("No generator is drawn from while samples are made.")
        alike = sorted(
            {
                name
                for (name, worker), draws in one.draws.items()
                if set(draws) & set(two.draws.get((name, worker), ()))
            }
        )
        if not alike:
            return passed("Two ranks draw different random numbers.", streams=len(one.draws))
        return wrong(
            f"{', '.join(alike)}: two ranks draw the same random numbers for their samples.",
            [
                "all ranks are seeded with one number, which also seeds the augmentation",
                "the generator handed to the DataLoader, from which workers are seeded, is alike",
            ],
            "Seed augmentation with seed + rank; only initialisation and the split are alike.",
            streams=alike,
        )

    @staticmethod
    def _generator(by_rank: bool) -> LoaderSubject:
        def make(rank: int = 0, world_size: int = 1) -> Any:
            import torch

            seed = 7 + rank if by_rank else 7
            return ranked_images(
                rank, world_size, num_workers=1, generator=torch.Generator().manual_seed(seed)
            )

        return LoaderSubject(make)

    @staticmethod
    def _seeded() -> LoaderSubject:
        def make(rank: int = 0, world_size: int = 1) -> Any:
            from pipeline_profiler.checking.torch_state import seed_everything

            seed_everything(0)
            return ranked_images(rank, world_size)

        return LoaderSubject(make)

    PLANTED = (
        Example("everything seeded alike", lambda: RanksAugmentAlike._seeded()),
        Example("one generator for the workers", lambda: RanksAugmentAlike._generator(False)),
    )
    HEALTHY = (
        Example("a generator by rank", lambda: RanksAugmentAlike._generator(True)),
        Example("one process", lambda: toy_loader(ToyImages(augment=True))),
    )
