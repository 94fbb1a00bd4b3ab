"""Loaders of two ranks, for the examples of checks.

Apart from the other toys: a check reads whether the file of a factory speaks of ranks.
"""

from typing import Any

from pipeline_profiler.checks.lazy import torch
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader


def ranked_images(rank: int, world_size: int, **options: Any) -> Any:
    """Augmented toy pictures, every `world_size`-th to a rank."""
    dataset: Any = ToyImages(64, augment=True)
    sampler: Any = torch.utils.data.DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    return toy_loader(dataset, sampler=sampler, **options)
