"""The order of a loader and its random numbers."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    toy_loader,
    toy_pictures,
    toy_stream,
    toy_told,
)


def _batches_only() -> Any:
    class Blocks:
        def __iter__(self) -> Any:
            blocks = [list(range(at, at + 16)) for at in range(0, 256, 16)]
            return iter([blocks[i] for i in np.random.permutation(16)])

        def __len__(self) -> int:
            return 16

    return toy_loader(ToyImages(), batch_sampler=Blocks())


def _buffered_stream(buffer: int) -> Any:
    def order() -> Iterator[int]:
        waiting = list(range(256))
        while waiting:
            yield waiting.pop(int(np.random.randint(min(buffer, len(waiting)))))

    return toy_loader(toy_stream(order), shuffle=None)


def _plain_stream(ordered: bool) -> Any:
    return toy_loader(toy_stream(lambda: range(256), ToyImages(ordered=ordered)), shuffle=None)


def _never_told() -> Any:
    loader = toy_told()

    def train() -> None:
        for epoch in range(2):
            assert len(list(loader)) > epoch

    loader.train = train
    return loader


def _stream(split: bool, noise: bool = False) -> Any:
    def order() -> range:
        info = torch.utils.data.get_worker_info()
        return range(info.id, 256, info.num_workers) if info and split else range(256)

    class Pairs(ToyImages):
        """Neighbours of one class, each sample with noise."""

        def __getitem__(self, index: int) -> Any:
            pixels, _ = super().__getitem__(index)
            return pixels + np.random.normal(0, 0.1, pixels.shape), index // 2 % 10

    return toy_loader(
        toy_stream(order, Pairs() if noise else ToyImages()), shuffle=None, num_workers=2
    )


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


EXAMPLES: Rows = [
    ("LOAD002", FAULT, "a loop that never tells the epoch", _never_told),
    ("LOAD002", FAULT, "a stream with a buffer of ten", lambda: _buffered_stream(10)),
    ("LOAD002", FAULT, "not shuffled", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD002", FAULT, "batches shuffled, not samples", _batches_only),
    ("LOAD002", FAULT, "a stream class by class", lambda: _plain_stream(True)),
    ("LOAD002", TWIN, "a stream in random order", lambda: _plain_stream(False)),
    ("LOAD002", TWIN, "a stream with a large buffer", lambda: _buffered_stream(200)),
    ("LOAD002", TWIN, "32 samples", lambda: toy_loader(ToyImages(32))),
    ("LOAD002", TWIN, "an epoch that somebody tells", toy_told),
    (
        "LOAD003",
        FAULT,
        "a used-up generator",
        lambda: LoaderSubject(lambda: iter(list(toy_pictures()))),
    ),
    ("LOAD003", FAULT, "a stream read whole by each worker", lambda: _stream(False)),
    ("LOAD003", FAULT, "read whole, with noise on each sample", lambda: _stream(False, True)),
    (
        "LOAD003",
        FAULT,
        "one index twice",
        lambda: toy_loader(ToyImages(), sampler=[*range(255), 7]),
    ),
    ("LOAD003", TWIN, "a stream divided among workers", lambda: _stream(True)),
    ("LOAD003", TWIN, "divided, with equal labels", lambda: _stream(True, True)),
    ("LOAD003", TWIN, "drop_last", lambda: toy_loader(ToyImages(250), drop_last=True)),
    ("LOAD005", FAULT, "one sample is left", lambda: toy_loader(ToyImages(257))),
    (
        "LOAD005",
        FAULT,
        "an evaluation that drops",
        lambda: LoaderSubject(
            lambda: toy_loader(ToyImages(250), shuffle=False, drop_last=True),
            evaluation=True,
        ),
    ),
    (
        "LOAD005",
        FAULT,
        "the same dropped",
        lambda: toy_loader(ToyImages(250), shuffle=False, drop_last=True),
    ),
    ("LOAD005", TWIN, "shuffled, then dropped", lambda: toy_loader(ToyImages(250), drop_last=True)),
    (
        "LOAD001",
        FAULT,
        "workers seeded alike",
        lambda: _augmented(worker_init_fn=lambda worker: np.random.seed(0)),
    ),
    ("LOAD001", FAULT, "a generator held by the dataset", lambda: _held()),
    ("LOAD001", FAULT, "a seed in each sample", lambda: _reseeded(False)),
    ("LOAD001", TWIN, "torch seeds its workers", lambda: _augmented()),
    ("LOAD001", TWIN, "seeded from the index", lambda: _reseeded(True)),
    (
        "LOAD006",
        FAULT,
        "seeded by the system",
        lambda: toy_loader(ToyImages(), sampler=np.random.default_rng().permutation(256).tolist()),
    ),
    ("LOAD006", TWIN, "shuffled, augmented, workers", _augmented),
    ("LOAD006", TWIN, "in order", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD006", TWIN, "noise in a parallel map", lambda: _parallel_map()),
]
