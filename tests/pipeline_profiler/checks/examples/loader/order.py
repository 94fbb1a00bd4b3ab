"""Planted faults and healthy twins for `loader/order.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import Examples
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


EXAMPLES = {
    "LOAD002": Examples(
        planted=(
            ("a loop that never tells the epoch", _never_told),
            ("a stream with a buffer of ten", lambda: _buffered_stream(10)),
            ("not shuffled", lambda: toy_loader(ToyImages(), shuffle=False)),
            ("batches shuffled, not samples", _batches_only),
            ("a stream class by class", lambda: _plain_stream(True)),
        ),
        healthy=(
            ("a stream in random order", lambda: _plain_stream(False)),
            ("a stream with a large buffer", lambda: _buffered_stream(200)),
            ("32 samples", lambda: toy_loader(ToyImages(32))),
            ("an epoch that somebody tells", toy_told),
        ),
    ),
    "LOAD003": Examples(
        planted=(
            (
                "a generator that is used up",
                lambda: LoaderSubject(lambda: iter(list(toy_pictures()))),
            ),
            ("a stream read whole by each worker", lambda: _stream(False)),
            ("read whole, with noise on each sample", lambda: _stream(False, True)),
            (
                "an index missing, one twice",
                lambda: toy_loader(ToyImages(), sampler=[*range(255), 7]),
            ),
        ),
        healthy=(
            ("a stream divided among workers", lambda: _stream(True)),
            ("divided, with equal labels", lambda: _stream(True, True)),
            ("drop_last", lambda: toy_loader(ToyImages(250), drop_last=True)),
        ),
    ),
    "LOAD005": Examples(
        planted=(
            ("one sample is left", lambda: toy_loader(ToyImages(257))),
            (
                "an evaluation that drops",
                lambda: LoaderSubject(
                    lambda: toy_loader(ToyImages(250), shuffle=False, drop_last=True),
                    evaluation=True,
                ),
            ),
            (
                "the same dropped each epoch",
                lambda: toy_loader(ToyImages(250), shuffle=False, drop_last=True),
            ),
        ),
        healthy=(("shuffled, then dropped", lambda: toy_loader(ToyImages(250), drop_last=True)),),
    ),
}
