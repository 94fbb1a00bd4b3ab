"""Small loaders with one planted defect each, and healthy twins, in torch.

`DEFECTS` has (name, codes that name it, maker) and `TWINS` has (name, maker); a maker takes a seed
and returns (make_loader, options of the subject).
"""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

COUNT, K, SIDE = 400, 4, 20


class Photos:
    """Smooth coloured pictures, CHW, normalised; augmented on request."""

    def __init__(self, seed, order="mixed", augment="", scale="normal"):
        rng = np.random.default_rng(seed)
        coarse = rng.uniform(0, 1, (COUNT, 3, 5, 5)).repeat(4, 2).repeat(4, 3)
        fine = np.linspace(-0.2, 0.2, SIDE) * rng.normal(0, 1, (COUNT, 1, SIDE, 1))
        self.x = (coarse + fine + rng.normal(0, 0.02, coarse.shape)).clip(0, 1).astype(np.float32)
        self.y = rng.integers(0, K, COUNT)
        if order == "classes":
            self.y = np.sort(self.y)
        self.augment, self.scale, self.rng = augment, scale, np.random.default_rng(1)

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        x, y = self.x[i], int(self.y[i])
        if self.augment == "global":
            x = x + np.random.normal(0, 0.01)
        elif self.augment == "held":
            x = x + self.rng.normal(0, 0.01)
        elif self.augment == "torch" and torch.rand(1) < 0.5:
            x = x[:, :, ::-1]
        x = {
            "normal": (x - 0.45) / 0.225,
            "unit": x,
            "raw": x * 255,
            "twice": ((x - 0.45) / 0.225 - 0.45) / 0.225,
            "tiny": x / 255,
        }[self.scale]
        return torch.tensor(np.ascontiguousarray(x), dtype=torch.float32), y


class Layout(Photos):
    def __init__(self, seed, kind):
        super().__init__(seed)
        self.kind = kind

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        x = x.permute(1, 2, 0).contiguous()
        return (x if self.kind == "hwc" else x.view(3, SIDE, SIDE)), y


class Masks(Photos):
    def __init__(self, seed, follow):
        super().__init__(seed)
        self.follow = follow

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        mask = torch.zeros(SIDE, SIDE, dtype=torch.long)
        mask[y : y + 6, 2 : 8 + y] = 1
        if torch.rand(1) < 0.5:
            x, mask = x.flip(-1), mask.flip(-1) if self.follow else mask
        return x, mask


class Stream(IterableDataset):
    def __init__(self, seed, split, order="mixed", buffer=0):
        self.photos, self.split, self.buffer = Photos(seed, order), split, buffer

    def __iter__(self):
        info = get_worker_info()
        start, step = (info.id, info.num_workers) if info and self.split else (0, 1)
        waiting = list(range(start, COUNT, step))
        while waiting:
            reach = min(len(waiting), max(1, self.buffer))
            yield self.photos[waiting.pop(int(torch.randint(reach, (1,))))]


def loader(dataset, **options):
    base = {"batch_size": 16}
    if not {"sampler", "batch_sampler", "shuffle"} & options.keys():
        base["shuffle"] = not isinstance(dataset, IterableDataset)
    if "batch_sampler" in options:
        base.pop("batch_size")
    return DataLoader(dataset, **base | options)


def simple(make, **options):
    return lambda seed: (lambda: make(seed), options)


def changed(change, **options):
    def make(seed):
        photos = Photos(seed)
        change(photos)
        return loader(photos)

    return simple(make, **options)


def alike(worker):
    np.random.seed(123)


def by_worker(worker):
    np.random.seed(worker)


def from_torch(worker):
    np.random.seed(torch.initial_seed() % 2**32)


class Ranked:
    rank, num_replicas = 0, 4

    def __iter__(self):
        return iter(torch.randperm(COUNT).tolist()[: COUNT // 4])

    def __len__(self):
        return COUNT // 4


class Uneven(Ranked):
    """The last rank takes what is left."""

    def __iter__(self):
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(5)).tolist()
        return iter(order[self.rank * 90 :] if self.rank == 3 else order[self.rank * 90 :][:90])

    def __len__(self):
        return 130 if self.rank == 3 else 90


class Blocks:
    def __iter__(self):
        return iter([list(range(16 * b, 16 * b + 16)) for b in torch.randperm(25).tolist()])

    def __len__(self):
        return 25


class SameSeed:
    def __iter__(self):
        return iter(np.random.default_rng(0).permutation(COUNT).tolist())

    def __len__(self):
        return COUNT


def with_eval(scale):
    def make(seed):
        return (lambda: loader(Photos(seed))), {
            "make_eval": lambda: loader(Photos(seed + 1, scale=scale), shuffle=False)
        }

    return make


def nan_somewhere(photos):
    photos.x[37, 0, 3, 3] = np.nan


def black(photos):
    photos.x[::3] = 0


def one_picture(photos):
    photos.x[:] = photos.x[5]


DEFECTS = [
    ("workers seeded alike", {"LOAD001"}, simple(lambda s: loader(
        Photos(s, augment="global"), num_workers=2, worker_init_fn=alike))),
    ("workers seeded by number", {"LOAD001"}, simple(lambda s: loader(
        Photos(s, augment="global"), num_workers=2, worker_init_fn=by_worker))),
    ("a generator held by the dataset", {"LOAD001"}, simple(lambda s: loader(
        Photos(s, augment="held"), num_workers=2))),
    ("not shuffled", {"LOAD002"}, simple(lambda s: loader(Photos(s), shuffle=False))),
    ("class by class", {"LOAD002", "LOAD011"},
     simple(lambda s: loader(Photos(s, "classes"), shuffle=False))),
    ("a small buffer", {"LOAD002", "LOAD011"},
     simple(lambda s: loader(Stream(s, True, "classes", 20)))),
    ("batches shuffled only", {"LOAD002"},
     simple(lambda s: loader(Photos(s), batch_sampler=Blocks()))),
    ("one order for all epochs", {"LOAD002"},
     simple(lambda s: loader(Photos(s), sampler=SameSeed()))),
    ("each worker reads all", {"LOAD003"},
     simple(lambda s: loader(Stream(s, False), num_workers=2))),
    ("the second half is missing", {"LOAD003"}, simple(lambda s: loader(
        Photos(s), sampler=torch.randperm(COUNT // 2).tolist()))),
    ("ranks overlap", {"LOAD004"}, simple(lambda s: loader(Photos(s), sampler=Ranked()))),
    ("ranks of different length", {"LOAD004"},
     simple(lambda s: loader(Photos(s), sampler=Uneven()))),
    ("an evaluation that drops", {"LOAD005"}, simple(lambda s: loader(
        Photos(s), shuffle=False, batch_size=32, drop_last=True), evaluation=True)),
    ("a last batch of one", {"LOAD005"}, simple(lambda s: loader(Photos(s), batch_size=21))),
    ("a seed of the system", {"LOAD006"}, simple(lambda s: loader(
        Photos(s), sampler=np.random.default_rng().permutation(COUNT).tolist()))),
    ("a NaN", {"LOAD008"}, changed(nan_somewhere)),
    ("0 to 255", {"LOAD008"}, simple(lambda s: loader(Photos(s, scale="raw")))),
    ("normalised twice", {"LOAD008"}, simple(lambda s: loader(Photos(s, scale="twice")))),
    ("divided twice", {"LOAD008"}, simple(lambda s: loader(Photos(s, scale="tiny")))),
    ("channels last", {"LOAD008"}, simple(lambda s: loader(Layout(s, "hwc")))),
    ("view instead of permute", {"LOAD008"}, simple(lambda s: loader(Layout(s, "view")))),
    ("a third is black", {"LOAD008"}, changed(black)),
    ("one picture for all", {"LOAD008"}, changed(one_picture)),
    ("labels from 1", {"LOAD011"}, changed(lambda p: setattr(p, "y", p.y + 1), classes=K)),
    ("one label", {"LOAD011"}, changed(lambda p: setattr(p, "y", p.y * 0))),
    ("evaluation not normalised", {"LOAD013"}, with_eval("unit")),
    ("another mean declared", {"LOAD008"}, simple(
        lambda s: loader(Photos(s)), mean=(0.9,) * 3, deviation=(0.5,) * 3)),
    ("masks not flipped", {"LOAD015"}, simple(lambda s: loader(Masks(s, False)))),
]  # fmt: skip

TWINS = [
    ("shuffled", simple(lambda s: loader(Photos(s, "classes")))),
    ("augmented with torch", simple(lambda s: loader(Photos(s, augment="torch"), num_workers=2))),
    ("augmented with numpy", simple(lambda s: loader(
        Photos(s, augment="global"), num_workers=2, worker_init_fn=from_torch))),
    ("a held generator, no workers", simple(lambda s: loader(Photos(s, augment="held")))),
    ("persistent workers", simple(lambda s: loader(
        Photos(s, augment="torch"), num_workers=2, persistent_workers=True))),
    ("a weighted sampler", simple(lambda s: loader(Photos(s), sampler=WeightedRandomSampler(
        (1 + 5 * (Photos(s).y == 0)).tolist(), COUNT)))),
    ("a stream in random order", simple(lambda s: loader(Stream(s, True), num_workers=2))),
    ("a large buffer", simple(lambda s: loader(Stream(s, True, "classes", 400)))),
    ("DistributedSampler", simple(lambda s: loader((p := Photos(s)), sampler=DistributedSampler(
        p, num_replicas=3, rank=0)))),
    ("a subset", simple(lambda s: loader(Subset(Photos(s), range(100, 300))))),
    ("two datasets", simple(lambda s: loader(ConcatDataset([Photos(s), Photos(s + 1)])))),
    ("an evaluation in order", simple(
        lambda s: loader(Photos(s, "classes"), shuffle=False), evaluation=True)),
    ("0 to 1", simple(lambda s: loader(Photos(s, scale="unit")))),
    ("evaluation alike", with_eval("normal")),
    ("masks flipped", simple(lambda s: loader(Masks(s, True)))),
    ("drop_last", simple(lambda s: loader(Photos(s), batch_size=64, drop_last=True))),
]  # fmt: skip
