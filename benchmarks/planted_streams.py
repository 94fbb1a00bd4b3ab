"""Streams with one planted defect each, and healthy twins: tar shards, tf.data, ranks, plain ones.

`DEFECTS` has (name, codes that name it, maker) and `TWINS` has (name, maker); a maker takes a seed
and returns (make_loader, options of the subject). Tar shards are read with the standard library,
as WebDataset lays them out: `000123.npy` and `000123.cls` are one sample.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from functools import cache
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

COUNT, K, SHARDS = 480, 4, 6


@cache
def samples(seed, ordered=False):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, COUNT)
    y = np.sort(y) if ordered else y
    x = rng.normal(0, 1, (COUNT, 3, 8, 8)) + y[:, None, None, None] / 4
    return x.astype(np.float32), y


@cache
def tar_shards(seed, ordered=False):
    """Paths of six tar files in a folder that ends with the process."""
    folder = tempfile.TemporaryDirectory()
    x, y = samples(seed, ordered)
    paths = []
    for number, rows in enumerate(np.array_split(np.arange(COUNT), SHARDS)):
        paths.append(Path(folder.name) / f"shard-{number:04}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for row in rows:
                for ending, blob in (("npy", x[row].tobytes()), ("cls", str(y[row]).encode())):
                    info = tarfile.TarInfo(f"{row:06}.{ending}")
                    info.size = len(blob)
                    tar.addfile(info, io.BytesIO(blob))
    return folder, paths


class TarStream(IterableDataset):
    """Shards divided among ranks and workers, a buffer, samples of neighbouring members."""

    def __init__(self, paths, by_worker=True, buffer=200, rank=0, ranks=1, mix=True):
        self.paths = paths[rank::ranks]
        self.by_worker, self.buffer, self.mix = by_worker, buffer, mix

    def members(self, paths):
        for path in paths:
            with tarfile.open(path) as tar:
                parts = iter(tar)
                for member in parts:
                    pixels = np.frombuffer(tar.extractfile(member).read(), np.float32)
                    label = int(tar.extractfile(next(parts)).read())
                    yield torch.tensor(pixels.reshape(3, 8, 8)), label

    def __iter__(self):
        info = get_worker_info()
        paths = self.paths[info.id :: info.num_workers] if info and self.by_worker else self.paths
        if self.mix:
            paths = [paths[i] for i in torch.randperm(len(paths)).tolist()]
        held = []
        for sample in self.members(paths):
            held.append(sample)
            if len(held) >= self.buffer:
                yield held.pop(int(torch.randint(len(held), (1,))))
        while held:
            yield held.pop(int(torch.randint(len(held), (1,))))


def tar(ordered=False, workers=2, **options):
    def make(seed):
        folder, paths = tar_shards(seed, ordered)
        return (lambda: DataLoader(TarStream(paths, **options), 16, num_workers=workers)), {
            "_folder": folder
        }

    return drop_private(make)


def drop_private(make):
    kept = []

    def maker(seed):
        factory, options = make(seed)
        kept.append(options.pop("_folder", None))
        return factory, options

    return maker


def tar_by_rank(split):
    def maker(seed):
        _, paths = tar_shards(seed)

        def make_loader(rank=0, world_size=1):
            stream = TarStream(paths, rank=rank if split else 0, ranks=world_size if split else 1)
            return DataLoader(stream, 16)

        return make_loader, {}

    return maker


def by_environment(split, local=False):
    """A stream that finds its rank where torchrun puts it."""

    class Stream(IterableDataset):
        def __init__(self, seed):
            self.x, self.y = samples(seed)

        def __iter__(self):
            rank, ranks = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("WORLD_SIZE", 1)))
            order = np.random.default_rng(0).permutation(COUNT)
            start = rank * (COUNT // ranks // (1 if split else 2))
            for i in order[start : start + COUNT // ranks]:
                yield self.x[i], int(self.y[i])

    return lambda seed: ((lambda: DataLoader(Stream(seed), 16)), {})


def graph(build, **options):
    def maker(seed):
        import tensorflow as tf

        def make_loader():
            return build(tf.data.Dataset.from_tensor_slices(samples(seed)))

        return make_loader, options

    return maker


def ordered_graph(build):
    def maker(seed):
        import tensorflow as tf

        return (lambda: build(tf.data.Dataset.from_tensor_slices(samples(seed, True)))), {}

    return maker


def generator(seed):
    x, y = samples(seed)

    def rows():
        for i in range(0, COUNT, 16):
            yield x[i : i + 16], y[i : i + 16]

    return rows, {}


class Again:
    """Batches of numpy arrays in a new order each time."""

    def __init__(self, seed, shrink=False):
        self.x, self.y = samples(seed)
        self.left, self.shrink = COUNT, shrink

    def __iter__(self):
        order = np.random.permutation(self.left)
        self.left -= 16 * self.shrink
        return ((self.x[p], self.y[p]) for p in np.array_split(order, 30))


DEFECTS = [
    ("tar: each worker reads all shards", {"LOAD003"}, tar(by_worker=False)),
    ("tar: class by class, a buffer of 20", {"LOAD002", "LOAD011"},
     tar(True, 0, buffer=20, mix=False)),
    ("tar: a buffer of 8, shards in order", {"LOAD002"}, tar(workers=0, buffer=8, mix=False)),
    ("tar: each rank reads all shards", {"LOAD004"}, tar_by_rank(False)),
    ("ranks of the environment overlap", {"LOAD004"}, by_environment(False)),
    ("tf.data: a buffer of 10, class by class", {"LOAD002", "LOAD011"},
     ordered_graph(lambda d: d.shuffle(10).batch(16))),
    ("tf.data: a buffer of 10", {"LOAD002"}, graph(lambda d: d.shuffle(10).batch(16))),
    ("tf.data: shuffled once for all epochs", {"LOAD002"}, graph(
        lambda d: d.shuffle(COUNT, reshuffle_each_iteration=False).batch(16))),
    ("tf.data: shuffled, then sharded", {"LOAD004"}, graph(
        lambda d: d.shuffle(COUNT).shard(4, 0).batch(16))),
    ("tf.data: hosts with more batches than others", {"LOAD004"}, graph(
        lambda d: d.take(466).shard(4, 0).shuffle(COUNT).batch(2))),
    ("tf.data: an evaluation that drops the remainder", {"LOAD005"}, graph(
        lambda d: d.batch(64, drop_remainder=True), evaluation=True)),
    ("a generator that is used up", {"LOAD003"}, lambda s: (
        (lambda: generator(s)[0]()), {})),
    ("epochs that shrink", {"LOAD003"}, lambda s: ((lambda: Again(s, True)), {})),
]  # fmt: skip

TWINS = [
    ("tar: shards divided, a buffer", tar()),
    ("tar: ranks divided", tar_by_rank(True)),
    ("ranks of the environment", by_environment(True)),
    ("tf.data: shuffled whole", graph(lambda d: d.shuffle(COUNT).batch(16))),
    ("tf.data: sharded, then shuffled", graph(
        lambda d: d.shard(4, 0).shuffle(COUNT).batch(16))),
    ("tf.data: shuffled with a seed, then sharded", graph(
        lambda d: d.shuffle(COUNT, seed=1).shard(4, 0).batch(16))),
    ("tf.data: an evaluation", graph(lambda d: d.batch(64), evaluation=True)),
    ("tf.data: endless", graph(lambda d: d.shuffle(COUNT).repeat().batch(16))),
    ("tf.data: drop_remainder in training", graph(
        lambda d: d.shuffle(COUNT).batch(64, drop_remainder=True))),
    ("arrays in a new order each time", lambda s: ((lambda: Again(s)), {})),
]  # fmt: skip
