"""Planted faults and healthy twins for `loader/random_numbers.py`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader


def _augmented(**options: Any) -> Any:
    return toy_loader(ToyImages(augment=True), num_workers=2, **options)


def _held() -> Any:
    class Held(ToyImages):
        def __init__(self) -> None:
            super().__init__()
            self.noise = np.random.default_rng(3)

        def __getitem__(self, index: int) -> Any:
            pixels, label = super().__getitem__(index)
            return pixels + self.noise.normal(), label

    return toy_loader(Held(), num_workers=2)


def _reseeded(by_index: bool) -> Any:
    class Reseeded(ToyImages):
        def __getitem__(self, index: int) -> Any:
            random.seed(index if by_index else 42)
            pixels, label = super().__getitem__(index)
            return pixels * random.uniform(0.9, 1.1), label

    return toy_loader(Reseeded())


def _parallel_map() -> Any:
    import tensorflow as tf

    pictures = tf.data.Dataset.from_tensor_slices(
        (np.zeros((256, 4, 4, 3), np.float32), np.arange(256) % 10)
    )
    noisy = pictures.map(lambda x, y: (x + tf.random.uniform(tf.shape(x)), y), num_parallel_calls=4)
    return noisy.batch(16)


EXAMPLES = {
    "LOAD001": Examples(
        planted=(
            (
                "workers seeded alike",
                lambda: _augmented(worker_init_fn=lambda worker: np.random.seed(0)),
            ),
            ("a generator held by the dataset", lambda: _held()),
            ("a seed in each sample", lambda: _reseeded(False)),
        ),
        healthy=(
            ("torch seeds its workers", lambda: _augmented()),
            ("seeded from the index", lambda: _reseeded(True)),
        ),
    ),
    "LOAD006": Examples(
        planted=(
            (
                "seeded by the system",
                lambda: toy_loader(
                    ToyImages(), sampler=np.random.default_rng().permutation(256).tolist()
                ),
            ),
        ),
        healthy=(
            ("shuffled, augmented, workers", _augmented),
            ("in order", lambda: toy_loader(ToyImages(), shuffle=False)),
            ("noise in a parallel map", lambda: _parallel_map()),
        ),
    ),
}
