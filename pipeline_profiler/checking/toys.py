"""Small made datasets for the examples of checks: learnable, seeded, a few milliseconds.

`ToyImages` has one bright square a class at a place of its own, on smooth noise: any classifier
learns it in some steps, and nothing learns it without looking.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES, SIDE = 4, 8


def toy_pixels(count: int, classes: int = CLASSES, side: int = SIDE, seed: int = 0) -> Any:
    """((count, 3, side, side) floats of mean about 0 and deviation about 1, labels)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    coarse = rng.normal(0, 0.5, (count, 3, side // 2, side // 2))
    pixels = coarse.repeat(2, axis=2).repeat(2, axis=3) + rng.normal(0, 0.2, (count, 3, side, side))
    half = side // 2
    for number, label in enumerate(labels):
        top, left = half * (label // 2 % 2), half * (label % 2)
        pixels[number, label % 3, top : top + half, left : left + half] += 2.0
    pixels = (pixels - pixels.mean()) / pixels.std()
    return pixels.astype(np.float32), labels.astype(np.int64)


class ToyImages:
    """A map-style dataset of such pictures; `augment` adds noise from numpy's global generator."""

    def __init__(
        self, count: int = 256, augment: bool = False, ordered: bool = False, seed: int = 0
    ) -> None:
        """`ordered`: stored class by class."""
        self.pixels, self.labels = toy_pixels(count, seed=seed)
        if ordered:
            order = np.argsort(self.labels, kind="stable")
            self.pixels, self.labels = self.pixels[order], self.labels[order]
        self.augment = augment

    def __len__(self) -> int:
        """Pictures."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        """(3, side, side) pixels and the label."""
        pixels = self.pixels[index]
        if self.augment:
            pixels = pixels + np.random.normal(0, 0.05, pixels.shape).astype(np.float32)
        return pixels, int(self.labels[index])


def toy_loader(dataset: Any, **options: Any) -> Any:
    """A DataLoader: batches of 16, shuffled, without workers, unless `options` say otherwise."""
    from torch.utils.data import DataLoader

    options = {"batch_size": 16, "shuffle": True} | options
    if "sampler" in options or "batch_sampler" in options:
        options.pop("shuffle")
    if "batch_sampler" in options:
        options.pop("batch_size")
    return DataLoader(dataset, **options)
