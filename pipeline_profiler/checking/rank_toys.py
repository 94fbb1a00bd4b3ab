"""Loaders and trainings of two ranks, for the examples of checks."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.toys import CLASSES, ToyImages, toy_loader


def ranked_images(rank: int, world_size: int, **options: Any) -> Any:
    """Augmented toy pictures, every `world_size`-th to a rank."""
    from torch.utils.data import DistributedSampler

    dataset: Any = ToyImages(64, augment=True)
    sampler: Any = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    return toy_loader(dataset, sampler=sampler, **options)


def ranked_training(
    *layers: Any, wrap: bool = True, synchronised: bool = False, **parts: Any
) -> Any:
    """A small network with batch norm on toy pictures, in DistributedDataParallel."""
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    net: Any = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *layers, nn.Flatten(),
        nn.Linear(512, CLASSES),
    )  # fmt: skip
    if synchronised:
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]
    return toy_training(DistributedDataParallel(net) if wrap else net, **parts)
