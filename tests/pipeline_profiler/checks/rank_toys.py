"""Loaders and trainings of two ranks, for the examples of checks.

Apart from the other toys: a check reads whether the file of a factory speaks of ranks.
"""

from typing import Any

from pipeline_profiler.checks.lazy import nn, torch
from tests.pipeline_profiler.checks.toys import CLASSES, ToyImages, toy_loader, toy_training


def ranked_images(rank: int, world_size: int, **options: Any) -> Any:
    """Augmented toy pictures, every `world_size`-th to a rank."""
    dataset: Any = ToyImages(64, augment=True)
    sampler: Any = torch.utils.data.DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    return toy_loader(dataset, sampler=sampler, **options)


def ranked_training(
    *layers: Any, wrap: bool = True, synchronised: bool = False, **parts: Any
) -> Any:
    """A small network with batch norm on toy pictures, in DistributedDataParallel."""
    net: Any = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *layers, nn.Flatten(),
        nn.Linear(512, CLASSES),
    )  # fmt: skip
    if synchronised:
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]
    return toy_training(nn.parallel.DistributedDataParallel(net) if wrap else net, **parts)
