"""The order of a loader and its random numbers."""

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import count
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


def _shuffled_blocks(order: list[int]) -> list[list[int]]:
    return [list(range(16 * block, 16 * block + 16)) for block in order if block < 16]


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
    dataset: Any = ChangedImages(lambda x, y: (x + dataset.noise.normal(), y))
    dataset.noise = np.random.default_rng(3)
    return toy_loader(dataset, num_workers=2)


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


def _drawn(draw: Callable[[], Iterable[int]], length: int = 256, steers: bool = False) -> Any:
    """A sampler of one's own; `steers`: a method of it changes what it draws."""

    class Drawn:
        def __iter__(self) -> Iterator[int]:
            return iter(draw())

        def __len__(self) -> int:
            return length

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


def _dealt(order: list[int]) -> list[list[int]]:
    """Batches of eight samples of two classes."""
    labels = ToyImages().labels[order]
    groups = [np.array(order)[labels == label] for label in np.unique(labels)]
    draws = [random.sample(groups, 2) for _ in range(16)]
    return [[int(i) for g in two for i in np.random.choice(g, 8, False)] for two in draws]


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
    return _drawn(lambda: (int(i) for _ in count() for i in np.random.permutation(256)))


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


def _sampled(sampler: Any) -> Any:
    return toy_loader(ToyImages(), sampler=sampler)


def _of_the_system() -> list[int]:
    return np.random.default_rng().permutation(256).tolist()


def _four_of_256() -> list[int]:
    return np.random.randint(0, 4, 256).tolist()


def _repeated() -> list[int]:
    return np.random.permutation(256)[:100].repeat(3).tolist()


def _half(steers: bool = False) -> Any:
    return _drawn(lambda: np.random.permutation(128).tolist(), 128, steers)


def _cut_at(starts: Iterable[int]) -> Any:
    return _blocks(lambda order: [order[at : at + 16] for at in starts])


def _iterator() -> Any:
    return iter(list(toy_pictures()))


def _dropping() -> Any:
    return toy_loader(ToyImages(250), shuffle=False, drop_last=True)


def _seed_alike(worker: int) -> None:
    np.random.seed(0)


EXAMPLES: Rows = [
    ("LOAD002", FAULT, "a sampler that sorts", lambda: _drawn(lambda: list(range(256)))),
    ("LOAD003", FAULT, "class weights for samples", lambda: _weighted(lambda c: 1 / c, each=False)),
    ("LOAD003", FAULT, "weights of a part", lambda: _weighted(lambda c: np.ones(200), each=False)),
    ("LOAD003", FAULT, "an epoch of the number of classes", lambda: _weighted(lambda c: 1 / c, 4)),
    ("LOAD003", FAULT, "weights in an own sampler", lambda: _drawn(_four_of_256)),
    ("LOAD003", FAULT, "half of the samples", lambda: _half()),
    ("LOAD003", FAULT, "batches that overlap", lambda: _cut_at(range(0, 256, 8))),
    ("LOAD003", FAULT, "each batch twice", lambda: _cut_at([n // 2 * 16 for n in range(32)])),
    ("LOAD003", TWIN, "balanced with replacement", lambda: _weighted(lambda c: 1 / c)),
    ("LOAD003", TWIN, "a class without weight", lambda: _weighted(lambda c: np.arange(4) > 0)),
    ("LOAD003", TWIN, "a long epoch", lambda: _random(num_samples=2000)),
    ("LOAD003", TWIN, "a short epoch", lambda: _random(num_samples=64)),
    ("LOAD003", TWIN, "a fold", lambda: _sampled(torch.utils.data.SubsetRandomSampler(range(200)))),
    ("LOAD003", FAULT, "a sampler that is used up", lambda: _lengths(True)),
    ("LOAD003", FAULT, "a sampler that grows", lambda: _lengthened()),
    ("LOAD003", TWIN, "samples drawn by a coin", lambda: _lengths(False)),
    ("LOAD003", TWIN, "an endless sampler", _endless),
    ("LOAD002", TWIN, "samples drawn anew", lambda: toy_loader(_Drawn(), shuffle=False)),
    ("LOAD002", TWIN, "an endless sampler", _endless),
    ("LOAD003", TWIN, "a curriculum by epoch", _growing),
    ("LOAD003", TWIN, "a curriculum by a method", lambda: _half(steers=True)),
    ("LOAD003", TWIN, "buckets that drop batches", lambda: _cut_at((0, 40, 80, 120, 200, 240))),
    ("LOAD003", TWIN, "balanced by an own sampler", lambda: _drawn(_repeated, 300)),
    ("LOAD002", FAULT, "a loop that never tells the epoch", _never_told),
    ("LOAD002", FAULT, "a stream with a buffer of ten", lambda: _buffered_stream(10)),
    ("LOAD002", FAULT, "not shuffled", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD002", FAULT, "batches shuffled, not samples", lambda: _blocks(_shuffled_blocks)),
    ("LOAD002", FAULT, "a stream class by class", lambda: _plain_stream(True)),
    ("LOAD002", FAULT, "a stream of rising numbers", lambda: _numbers_stream(np.sort)),
    ("LOAD002", TWIN, "a stream of numbers", lambda: _numbers_stream(lambda y: y)),
    ("LOAD002", TWIN, "a stream in random order", lambda: _plain_stream(False)),
    ("LOAD002", TWIN, "a stream with a large buffer", lambda: _buffered_stream(200)),
    ("LOAD002", TWIN, "eight samples of two classes in a batch", lambda: _blocks(_dealt)),
    ("LOAD002", TWIN, "32 samples", lambda: toy_loader(ToyImages(32))),
    ("LOAD002", TWIN, "an epoch that somebody tells", toy_told),
    ("LOAD003", FAULT, "a used-up generator", lambda: LoaderSubject(_iterator)),
    ("LOAD003", FAULT, "a stream read whole by each worker", lambda: _stream(False)),
    ("LOAD003", FAULT, "read whole, with noise on each sample", lambda: _stream(False, True)),
    ("LOAD003", FAULT, "one index twice", lambda: _sampled([*range(255), 7])),
    ("LOAD003", TWIN, "a stream divided among workers", lambda: _stream(True)),
    ("LOAD003", TWIN, "divided, with equal labels", lambda: _stream(True, True)),
    ("LOAD003", TWIN, "drop_last", lambda: toy_loader(ToyImages(250), drop_last=True)),
    ("LOAD005", FAULT, "one sample is left", lambda: toy_loader(ToyImages(257))),
    ("LOAD005", FAULT, "an evaluation drops", lambda: LoaderSubject(_dropping, evaluation=True)),
    ("LOAD005", FAULT, "the same dropped", _dropping),
    ("LOAD005", TWIN, "shuffled, then dropped", lambda: toy_loader(ToyImages(250), drop_last=True)),
    ("LOAD001", FAULT, "workers seeded alike", lambda: _augmented(worker_init_fn=_seed_alike)),
    ("LOAD001", FAULT, "a generator held by the dataset", lambda: _held()),
    ("LOAD001", FAULT, "a seed in each sample", lambda: _reseeded(False)),
    ("LOAD001", TWIN, "torch seeds its workers", lambda: _augmented()),
    ("LOAD001", TWIN, "seeded from the index", lambda: _reseeded(True)),
    ("LOAD006", FAULT, "seeded by the system", lambda: _sampled(_of_the_system())),
    ("LOAD006", TWIN, "shuffled, augmented, workers", _augmented),
    ("LOAD006", FAULT, "noise seeded by the system", _again),
    ("LOAD006", TWIN, "a list shuffled in place", lambda: _again(sampler=True)),
    ("LOAD006", TWIN, "a generator of the dataset", lambda: _again(generator=True)),
    ("LOAD006", TWIN, "in order", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD006", TWIN, "noise in a parallel map", lambda: _parallel_map()),
]
