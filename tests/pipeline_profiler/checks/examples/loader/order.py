"""The order of a loader, its random numbers, its ranks, and the files that workers share."""

import copy
import os
import random
import tempfile
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

Order = Callable[[], Iterable[int]]


def _stream(order: Order = lambda: range(256), dataset: Any = None, **options: Any) -> Any:
    return toy_loader(toy_stream(order, dataset), shuffle=None, **options)


def _buffered(buffer: int) -> Any:
    def order() -> Iterator[int]:
        waiting = list(range(256))
        while waiting:
            yield waiting.pop(int(np.random.randint(min(buffer, len(waiting)))))

    return _stream(order)


def _numbers(change: Callable[[Any], Any]) -> Any:
    targets = change(np.random.default_rng(0).random(256))
    return _stream(dataset=ToyRows(np.zeros((256, 3), np.float32), targets))


def _never_told() -> Any:
    loader = toy_told()

    def train() -> None:
        for epoch in range(2):
            assert len(list(loader)) > epoch

    loader.train = train
    return loader


class _Pairs(ToyImages):
    """Neighbours of one class, each sample with noise."""

    def __getitem__(self, index: int) -> Any:
        pixels, _ = super().__getitem__(index)
        return pixels + np.random.normal(0, 0.1, pixels.shape), index // 2 % 10


def _by_workers(split: bool, dataset: Any = None) -> Any:
    def order() -> range:
        info = torch.utils.data.get_worker_info()
        return range(info.id, 256, info.num_workers) if info and split else range(256)

    return _stream(order, dataset, num_workers=2)


def _augmented(**options: Any) -> Any:
    return toy_loader(ToyImages(augment=True), num_workers=2, **options)


def _own_generator() -> Any:
    """A dataset with a generator, which two workers copy."""
    dataset: Any = ChangedImages(lambda x, y: (x + dataset.noise.normal(), y))
    dataset.noise = np.random.default_rng(3)
    return dataset


def _reseeded(pixels: Any, label: int) -> Any:
    random.seed(42)
    return pixels * random.uniform(0.9, 1.1), label


def _drawn_anew(pixels: Any, label: int) -> Any:
    return pixels + np.random.normal(), np.random.normal()


def _parallel_map() -> Any:
    import tensorflow as tf

    pictures = tf.data.Dataset.from_tensor_slices(
        (np.zeros((256, 4, 4, 3), np.float32), np.arange(256) % 10)
    )
    noisy = pictures.map(lambda x, y: (x + tf.random.uniform(tf.shape(x)), y), num_parallel_calls=4)
    return noisy.batch(16)


def _drawn(draw: Order, length: int = 256, **methods: Any) -> Any:
    """A sampler of one's own, with more methods."""
    methods |= {"__iter__": lambda self: iter(draw()), "__len__": lambda self: length}
    return toy_loader(ToyImages(), sampler=type("Drawn", (), methods)())


def _weighted(weights: Callable[[Any], Any], count: int = 256, each: bool = True) -> Any:
    """Samples drawn by `weights` of the counts of classes; `each`: of the class of each sample."""
    dataset: Any = ToyImages()
    dataset.labels = np.where(np.arange(256) % 4, 0, dataset.labels)
    chosen = weights(np.bincount(dataset.labels))
    chosen = chosen[dataset.labels] if each else chosen
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


def _cut_at(starts: Iterable[int]) -> Any:
    return _blocks(lambda order: [order[at : at + 16] for at in starts])


def _curriculum() -> Any:
    epochs = [0]
    methods = {"set_epoch": lambda self, epoch: epochs.append(epoch)}
    return _drawn(lambda: _permuted(128 if epochs[-1] < 5 else 256), 128, **methods)


def _made_once(dataset: Any = None, **options: Any) -> LoaderSubject:
    """A script's loader, the same for each pass."""
    loader = toy_loader(dataset or ToyImages(), **options)
    return LoaderSubject(lambda: copy.copy(loader))


class _Reshuffled(list[int]):
    def __iter__(self) -> Iterator[int]:
        random.shuffle(self)
        return super().__iter__()


def _permuted(size: int) -> Any:
    return np.random.permutation(size).tolist()


def _batches(size: int) -> LoaderSubject:
    """Batches of 16 from a list, of one epoch."""
    x, y = ToyImages(size).pixels, ToyImages(size).labels
    return LoaderSubject(lambda: [(x[i : i + 16], y[i : i + 16]) for i in range(0, size, 16)])


ROW = 40_000


class _Rows:
    """Rows of a file that is opened now, or at the first access."""

    def __init__(self, now: bool) -> None:
        self.path = f"{tempfile.mkdtemp()}/rows"
        np.arange(64, dtype=np.float32).repeat(ROW // 4).tofile(self.path)
        self.file: Any = os.fdopen(os.open(self.path, 0), "rb", closefd=False) if now else None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        self.file = self.file or open(self.path, "rb")  # noqa: SIM115
        self.file.seek(ROW * index)
        return np.frombuffer(self.file.read(ROW), np.float32)[:: ROW // 16].copy(), index % 4


class _Whole:
    rank, num_replicas = 0, 2

    def __iter__(self) -> Any:
        return iter(range(256))


def _distributed() -> Any:
    dataset: Any = ToyImages(255)
    sampler: Any = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0)
    return toy_loader(dataset, sampler=sampler)


def _by_rank(split: bool, seeded: bool = True) -> LoaderSubject:
    def make(rank: int = 0, world_size: int = 1) -> Any:
        def order() -> Any:
            rng = np.random.default_rng(5 if seeded else np.random.randint(1 << 30))
            found = rng.permutation(256).tolist()
            return found[rank::world_size] if split else found

        return _stream(order)

    return LoaderSubject(make)


def _dropping() -> Any:
    return toy_loader(ToyImages(250), shuffle=False, drop_last=True)


def _seed_alike(worker: int) -> None:
    np.random.seed(0)


EXAMPLES: Rows = [
    ("LOAD001", FAULT, "workers seeded alike", lambda: _augmented(worker_init_fn=_seed_alike)),
    ("LOAD001", FAULT, "a generator of the dataset",
     lambda: toy_loader(_own_generator(), num_workers=2)),
    ("LOAD001", FAULT, "a seed in each sample", lambda: toy_loader(ChangedImages(_reseeded))),
    ("LOAD001", TWIN, "torch seeds its workers", _augmented),
    ("LOAD002", FAULT, "not shuffled", lambda: toy_loader(ToyImages(), shuffle=False)),
    ("LOAD002", FAULT, "one order for all epochs",
     lambda: toy_loader(ToyImages(), sampler=_permuted(256))),
    ("LOAD002", FAULT, "batches shuffled, not samples",
     lambda: _blocks(lambda order: [list(range(16 * n, 16 * n + 16)) for n in order if n < 16])),
    ("LOAD002", FAULT, "a loop that never tells the epoch", _never_told),
    ("LOAD002", FAULT, "a stream with a buffer of ten", lambda: _buffered(10)),
    ("LOAD002", FAULT, "a stream class by class", lambda: _stream(dataset=ToyImages(ordered=True))),
    ("LOAD002", FAULT, "a stream of rising numbers", lambda: _numbers(np.sort)),
    ("LOAD002", TWIN, "samples drawn anew", lambda: toy_loader(
        ChangedImages(_drawn_anew), shuffle=False)),
    ("LOAD002", TWIN, "a stream of numbers", lambda: _numbers(lambda y: y)),
    ("LOAD002", TWIN, "a stream in random order", _stream),
    ("LOAD002", TWIN, "a stream with a large buffer", lambda: _buffered(200)),
    ("LOAD002", TWIN, "an epoch that somebody tells", toy_told),
    ("LOAD003", FAULT, "class weights for samples", lambda: _weighted(lambda c: 1 / c, each=False)),
    ("LOAD003", FAULT, "an epoch of the number of classes", lambda: _weighted(lambda c: 1 / c, 4)),
    ("LOAD003", FAULT, "half of the samples", lambda: _drawn(lambda: _permuted(128), 128)),
    ("LOAD003", FAULT, "batches that overlap", lambda: _cut_at(range(0, 256, 8))),
    ("LOAD003", FAULT, "a sampler that is used up", lambda: _drawn(iter(range(256)).__iter__)),
    ("LOAD003", FAULT, "a used-up generator", lambda: LoaderSubject(lambda: iter(toy_pictures()))),
    ("LOAD003", FAULT, "a stream read whole by each worker", lambda: _by_workers(False)),
    ("LOAD003", FAULT, "read whole, with noise on each sample",
     lambda: _by_workers(False, _Pairs())),
    ("LOAD003", FAULT, "one index twice", lambda: _drawn(lambda: [*range(255), 7])),
    ("LOAD003", TWIN, "balanced with replacement", lambda: _weighted(lambda c: 1 / c)),
    ("LOAD003", TWIN, "a class without weight", lambda: _weighted(lambda c: np.arange(4) > 0)),
    ("LOAD003", TWIN, "a fold", lambda: toy_loader(
        ToyImages(), sampler=torch.utils.data.SubsetRandomSampler(range(200)))),
    ("LOAD003", TWIN, "samples drawn by a coin",
     lambda: _drawn(lambda: np.flatnonzero(np.random.rand(256) < 0.8).tolist())),
    ("LOAD003", TWIN, "an endless sampler",
     lambda: _drawn(lambda: (i for _ in count() for i in _permuted(256)))),
    ("LOAD003", TWIN, "a curriculum by epoch", _curriculum),
    ("LOAD003", TWIN, "a curriculum by a method",
     lambda: _drawn(lambda: _permuted(128), 128, set_pool=print)),
    ("LOAD003", TWIN, "buckets that drop batches", lambda: _cut_at((0, 40, 80, 120, 200, 240))),
    ("LOAD003", TWIN, "a stream divided among workers", lambda: _by_workers(True)),
    ("LOAD003", TWIN, "divided, with equal labels", lambda: _by_workers(True, _Pairs())),
    ("LOAD003", TWIN, "drop_last", lambda: toy_loader(ToyImages(250), drop_last=True)),
    ("LOAD004", FAULT, "each rank reads all", lambda: toy_loader(ToyImages(), sampler=_Whole())),
    ("LOAD004", FAULT, "a stream that ignores its rank", lambda: _by_rank(False)),
    ("LOAD004", FAULT, "each rank shuffles for itself", lambda: _by_rank(True, False)),
    ("LOAD004", TWIN, "DistributedSampler with padding", _distributed),
    ("LOAD004", TWIN, "a stream split by rank", lambda: _by_rank(True)),
    ("LOAD005", FAULT, "one sample is left", lambda: toy_loader(ToyImages(257))),
    ("LOAD005", FAULT, "one sample is left in a list of batches", lambda: _batches(257)),
    ("LOAD005", FAULT, "an evaluation drops", lambda: LoaderSubject(_dropping, evaluation=True)),
    ("LOAD005", FAULT, "the same dropped", _dropping),
    ("LOAD005", TWIN, "shuffled, then dropped", lambda: toy_loader(ToyImages(250), drop_last=True)),
    ("LOAD005", TWIN, "a list of batches", lambda: _batches(256)),
    ("LOAD006", FAULT, "an order of the system",
     lambda: _drawn(lambda: np.random.default_rng().permutation(256).tolist())),
    ("LOAD006", FAULT, "noise of the system",
     lambda: toy_loader(ChangedImages(lambda x, y: (x + np.random.default_rng().normal(), y)))),
    ("LOAD006", TWIN, "shuffled, augmented, workers", _augmented),
    ("LOAD006", TWIN, "a list shuffled in place",
     lambda: _made_once(sampler=_Reshuffled(range(256)))),
    ("LOAD006", TWIN, "a generator of the dataset", lambda: _made_once(_own_generator())),
    ("LOAD006", TWIN, "noise in a parallel map", _parallel_map),
    ("LOAD028", FAULT, "opened before the fork", lambda: toy_loader(_Rows(True), num_workers=2)),
    ("LOAD028", TWIN, "opened at first access", lambda: toy_loader(_Rows(False), num_workers=2)),
    ("LOAD028", TWIN, "augmented in memory", _augmented),
]  # fmt: skip
