"""Planted faults and healthy twins for `training/baselines.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    descent,
    toy_around,
    toy_loader,
    toy_net,
    toy_training,
)


def _mixed() -> Any:
    """Labels as shares of classes, slowly learned: logits that are far from them."""
    dataset = ToyImages()
    dataset.labels = np.eye(4, dtype=np.float32)[dataset.labels] * 0.8 + 0.05

    class Rows(ToyImages):
        def __getitem__(self, index: int) -> Any:
            return dataset.pixels[index], dataset.labels[index]

    loud = toy_around(lambda net, pixels: 3 * net(pixels) + 4)
    rows: Any = Rows()
    return toy_training(loud, loader=toy_loader(rows), optimizer=descent("SGD", 1e-7))


EXAMPLES = {
    "TRAIN030": Examples(
        planted=(
            (
                "trained upwards",
                lambda: toy_training(optimizer=descent("SGD", 0.02, maximize=True)),
            ),
        ),
        healthy=(
            ("mixed labels", lambda: _mixed()),
            (
                "a network that is slow",
                lambda: toy_training(toy_net(width=64), optimizer=descent("SGD", 1e-4)),
            ),
        ),
    ),
}
