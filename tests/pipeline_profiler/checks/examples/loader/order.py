"""The order of a loader and its random numbers."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    ChangedImages,
    ToyImages,
    ToyRows,
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


def _numbers_stream(change: Callable[[Any], Any]) -> Any:
    rows = ToyRows(np.zeros((256, 3), np.float32), change(np.random.default_rng(0).random(256)))
    return toy_loader(toy_stream(lambda: range(256), rows), shuffle=None)


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


def _drawn(draw: Callable[[], list[int]], count: int = 256, steers: bool = False) -> Any:
    """A sampler of one's own; `steers`: a method of it changes what it draws."""

    class Drawn:
        def __iter__(self) -> Iterator[int]:
            return iter(draw())

        def __len__(self) -> int:
            return count

    if steers:
        Drawn.set_pool = lambda self, pool: None  # type: ignore[attr-defined]
    return toy_loader(ToyImages(), sampler=Drawn())


def _uneven() -> Any:
    """Pictures of which the first class has three in four, and the count of each class."""
    dataset: Any = ToyImages()
    dataset.labels = np.where(np.arange(256) % 4, 0, dataset.labels)
    return dataset, np.bincount(dataset.labels)


def _weighted(weights: Callable[[Any], Any], count: int = 256, each: bool = True) -> Any:
    """Samples drawn by `weights` of the counts of classes; `each`: of the class of each sample."""
    dataset, counts = _uneven()
    chosen = weights(counts)[dataset.labels] if each else weights(counts)
    sampler: Any = torch.utils.data.WeightedRandomSampler(chosen.tolist(), count)
    return toy_loader(dataset, sampler=sampler)


def _blocks(make: Callable[[list[int]], list[list[int]]]) -> Any:
    """A batch sampler of one's own: what it makes of a random order."""

    class Blocks:
        def __iter__(self) -> Iterator[list[int]]:
            return iter(make(np.random.permutation(256).tolist()))

        def __len__(self) -> int:
            return len(make(list(range(256))))

    return toy_loader(ToyImages(), batch_sampler=Blocks())


def _dealt() -> Any:
    data = ToyImages()
    groups = [np.flatnonzero(data.labels == label) for label in np.unique(data.labels)]

    class Dealt:
        def __iter__(self) -> Iterator[list[int]]:
            for _ in range(16):
                chosen = random.sample(groups, 2)
                yield [int(i) for group in chosen for i in np.random.choice(group, 8, False)]

        def __len__(self) -> int:
            return 16

    return toy_loader(data, batch_sampler=Dealt())


def _lengths(consumed: bool) -> Any:
    """A sampler of one's own with epochs of 256, 0, ... samples, or of those that a coin draws."""
    order = iter(range(256))
    return _drawn(
        lambda: list(order) if consumed else np.flatnonzero(np.random.rand(256) < 0.8).tolist()
    )


def _lengthened() -> Any:
    order = list(range(256))

    def draw() -> list[int]:
        order.extend(order[:8])
        return order

    return _drawn(draw)


def _again(sampler: bool = False, generator: bool = False) -> LoaderSubject:
    """A script's loader, the same for each pass; its sampler or dataset goes on where it was."""
    order, kept = list(range(256)), np.random.default_rng(0)

    class Reshuffled:
        def __iter__(self) -> Iterator[int]:
            random.shuffle(order)
            return iter(order)

        def __len__(self) -> int:
            return 256

    def noisy(pixels: Any, label: int) -> Any:
        rng = dataset.kept if generator else np.random.default_rng()
        return pixels if sampler else pixels + rng.normal(0, 0.1, pixels.shape), label

    dataset: Any = ChangedImages(noisy)
    dataset.kept = kept
    loader = toy_loader(dataset, **({"sampler": Reshuffled()} if sampler else {}))
    return LoaderSubject(lambda: copy.copy(loader))


def _endless() -> Any:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            rng = np.random.default_rng(0)
            while True:
                yield from rng.permutation(256).tolist()

        def __len__(self) -> int:
            return 256

    return toy_loader(ToyImages(), sampler=Endless())


def _growing() -> Any:
    class Growing:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            return iter(np.random.permutation(128 if self.epoch < 5 else 256).tolist())

        def __len__(self) -> int:
            return 128 if self.epoch < 5 else 256

    return toy_loader(ToyImages(), sampler=Growing())


def _random(**options: Any) -> Any:
    dataset: Any = ToyImages()
    return toy_loader(dataset, sampler=torch.utils.data.RandomSampler(dataset, **options))


class _Drawn:
    """Windows of a series at random places: the index has no meaning."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        start = np.random.randint(10_000)
        return np.arange(start, start + 8, dtype=np.float32), np.float32(start + 8)


EXAMPLES: Rows = [
    ("LOAD002", FAULT, "a sampler that sorts", lambda: _drawn(lambda: list(range(256)))),
    ("LOAD003", FAULT, "class weights for samples", lambda: _weighted(lambda c: 1 / c, each=False)),
    ("LOAD003", FAULT, "weights of a part", lambda: _weighted(lambda c: np.ones(200), each=False)),
    ("LOAD003", FAULT, "an epoch of the number of classes", lambda: _weighted(lambda c: 1 / c, 4)),
    (
        "LOAD003",
        FAULT,
        "class weights in a sampler of one's own",
        lambda: _drawn(lambda: np.random.randint(0, 4, 256).tolist()),
    ),
    (
        "LOAD003",
        FAULT,
        "half of the samples",
        lambda: _drawn(lambda: np.random.permutation(128).tolist(), 128),
    ),
    (
        "LOAD003",
        FAULT,
        "batches that overlap",
        lambda: _blocks(lambda order: [order[at : at + 16] for at in range(0, 256, 8)]),
    ),
    (
        "LOAD003",
        FAULT,
        "each batch twice",
        lambda: _blocks(
            lambda order: [order[at : at + 16] for at in range(0, 256, 16) for _ in "ab"]
        ),
    ),
    ("LOAD003", TWIN, "balanced with replacement", lambda: _weighted(lambda c: 1 / c)),
    (
        "LOAD003",
        TWIN,
        "a class without weight, on purpose",
        lambda: _weighted(lambda c: np.array([0.0, 1.0, 1.0, 1.0])),
    ),
    ("LOAD003", TWIN, "a long epoch", lambda: _random(num_samples=2000)),
    ("LOAD003", TWIN, "a short epoch", lambda: _random(num_samples=64)),
    (
        "LOAD003",
        TWIN,
        "a fold",
        lambda: toy_loader(ToyImages(), sampler=torch.utils.data.SubsetRandomSampler(range(200))),
    ),
    ("LOAD003", FAULT, "a sampler that is used up", lambda: _lengths(True)),
    ("LOAD003", FAULT, "a sampler that grows", lambda: _lengthened()),
    ("LOAD003", TWIN, "samples drawn by a coin", lambda: _lengths(False)),
    ("LOAD003", TWIN, "an endless sampler", _endless),
    ("LOAD002", TWIN, "samples drawn anew", lambda: toy_loader(_Drawn(), shuffle=False)),
    ("LOAD002", TWIN, "an endless sampler", _endless),
    ("LOAD003", TWIN, "a curriculum by epoch", _growing),
    (
        "LOAD003",
        TWIN,
        "a curriculum by a method",
        lambda: _drawn(lambda: np.random.permutation(128).tolist(), 128, steers=True),
    ),
    (
        "LOAD003",
        TWIN,
        "buckets that drop their last batch",
        lambda: _blocks(lambda order: [order[at : at + 16] for at in (0, 40, 80, 120, 200, 240)]),
    ),
    (
        "LOAD003",
        TWIN,
        "balanced by a sampler of one's own",
        lambda: _drawn(lambda: np.random.permutation(256)[:100].repeat(3).tolist(), 300),
    ),
    ("LOAD002", FAULT, "a loop that never tells the epoch", _never_told),
    ("LOAD002", FAULT, "a stream with a buffer of ten", lambda: _buffered_stream(10)),
    ("LOAD002", FAULT, "not shuffled", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD002", FAULT, "batches shuffled, not samples", _batches_only),
    ("LOAD002", FAULT, "a stream class by class", lambda: _plain_stream(True)),
    ("LOAD002", FAULT, "a stream of rising numbers", lambda: _numbers_stream(np.sort)),
    ("LOAD002", TWIN, "a stream of numbers", lambda: _numbers_stream(lambda y: y)),
    ("LOAD002", TWIN, "a stream in random order", lambda: _plain_stream(False)),
    ("LOAD002", TWIN, "a stream with a large buffer", lambda: _buffered_stream(200)),
    ("LOAD002", TWIN, "eight samples of two classes in a batch", _dealt),
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
    ("LOAD006", FAULT, "noise seeded by the system", _again),
    ("LOAD006", TWIN, "a list shuffled in place", lambda: _again(sampler=True)),
    ("LOAD006", TWIN, "a generator of the dataset", lambda: _again(generator=True)),
    ("LOAD006", TWIN, "in order", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD006", TWIN, "noise in a parallel map", lambda: _parallel_map()),
]
