"""A tiny training on the images of this folder, for `pipeline-profiler check --quick`.

What is checked is the loop, not the accuracy::

    pipeline-profiler check sample_data/training.py:make_loader --quick
    pipeline-profiler check sample_data/training.py --quick

Needs torch (`pip install 'dataset-preflight[torch]'`). Pictures are reduced to 32 x 32 and kept in
memory: loading all of them takes about a second.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from loader import ROOT, decode, image_files
from PIL import Image

SIDE, BATCH = 32, 16
MEAN, DEVIATION = 0.5, 0.25


@cache
def pictures() -> tuple[Any, Any]:
    """((count, 3, 32, 32) floats of about unit size, labels) of the train split."""
    names = image_files()
    classes = sorted({Path(name).parent.name for name in names})
    pixels = [decode(ROOT / n).resize((SIDE, SIDE), Image.Resampling.BOX) for n in names]
    stacked = np.stack([np.array(p) for p in pixels]).transpose(0, 3, 1, 2) / 255.0
    labels = [classes.index(Path(name).parent.name) for name in names]
    return ((stacked - MEAN) / DEVIATION).astype(np.float32), np.array(labels)


class SmallPhotos:
    """The pictures and their labels, one by one."""

    def __len__(self) -> int:
        """Pictures."""
        return len(pictures()[1])

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """(3, 32, 32) floats and the number of the class."""
        pixels, labels = pictures()
        return pixels[index], int(labels[index])


def make_loader() -> Any:
    """Batches of 16, shuffled; the last partial one is dropped."""
    from torch.utils.data import DataLoader

    return DataLoader(SmallPhotos(), BATCH, shuffle=True, drop_last=True)  # type: ignore[arg-type]


def make_model() -> Any:
    """Two convolutions and a linear layer."""
    from torch import nn

    classes = int(pictures()[1].max()) + 1
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


def make_loss() -> Any:
    """Cross-entropy of logits."""
    from torch import nn

    return nn.CrossEntropyLoss()


def make_optimizer(model: Any) -> Any:
    """Adam at 0.002."""
    import torch

    return torch.optim.Adam(model.parameters(), lr=2e-3)
