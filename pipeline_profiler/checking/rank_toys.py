"""Loaders and trainings of two ranks, for the examples of checks."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.toys import ToyImages, toy_loader


def ranked_images(rank: int, world_size: int, **options: Any) -> Any:
    """Augmented toy pictures, every `world_size`-th to a rank."""
    from torch.utils.data import DistributedSampler

    dataset: Any = ToyImages(64, augment=True)
    sampler: Any = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    return toy_loader(dataset, sampler=sampler, **options)
