"""Planted faults and healthy twins for `training/loss.py`."""

import copy
import math
from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import functional, nn, torch
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    CLASSES,
    ChangedImages,
    ToyImages,
    ToyRows,
    toy_around,
    toy_language,
    toy_loader,
    toy_net,
    toy_regression,
    toy_training,
)


def single_output(last: Any = None, loss: Any = None) -> Any:
    pictures = ToyImages()
    rows = ToyRows(pictures.pixels, (pictures.labels == 3).astype(np.float32)[:, None])
    model = nn.Sequential(toy_net(classes=1), last or nn.Softmax(1))
    return toy_training(model, loss or nn.BCELoss(), loader=toy_loader(rows))


def _distilled(name: str) -> Any:
    """Targets are the logits of a teacher."""
    teacher, logged = toy_net(), getattr(functional, name)

    def taught(pixels: Any, label: int) -> Any:
        with torch.no_grad():
            return pixels, teacher.eval()(torch.from_numpy(pixels)[None])[0]

    def loss(outputs: Any, targets: Any) -> Any:
        wanted = targets.softmax(1)
        return functional.kl_div(logged(outputs, 1), wanted, reduction="batchmean")

    return toy_training(loss=loss, loader=toy_loader(ChangedImages(taught, 128)))


def _bounded(**options: float) -> Any:
    layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid()
    return lambda: toy_regression(model=copy.deepcopy(nn.Sequential(*layers)), **options)


def _ended(last: Any, loss: Any) -> Any:
    return lambda: toy_training(toy_net(last), loss)


def _fewer_outputs(ignored: int) -> Any:
    loss = nn.CrossEntropyLoss(ignore_index=ignored)
    return toy_training(toy_net(classes=CLASSES - 1), loss)


def _loud(factor: float, **options: Any) -> Any:
    model = toy_net()
    model[-1].weight.data *= factor
    return toy_training(model, nn.CrossEntropyLoss(**options))


def _uneven(shares: list[int], weights: Any, bias: bool = False) -> Any:
    """Of each class a share of 40 of its samples; the loss weighs classes by their counts."""
    dataset: Any = ToyImages(1024)
    keep = np.arange(1024) % 40 < np.array(shares)[dataset.labels]
    dataset.pixels, dataset.labels = dataset.pixels[keep], dataset.labels[keep]
    counts = np.bincount(dataset.labels, minlength=4)
    model, loss = toy_net(), nn.CrossEntropyLoss(torch.tensor(weights(counts)).float())
    if bias:
        model[-1].bias.data = torch.tensor(counts / len(dataset)).float().log()
    return toy_training(model, loss, loader=toy_loader(dataset, batch_size=32))


def _rare_class(power: float) -> Any:
    dataset: Any = ToyImages(1024)
    rare = ToyRows(dataset.pixels, (dataset.labels == 3).astype(np.float32)[:, None])
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor((1 / 3) ** power))
    return toy_training(toy_net(classes=1), loss, loader=toy_loader(rare, batch_size=32))


def _loss(sign: int, shift: int) -> Any:
    return toy_training(loss=lambda o, t: sign * functional.cross_entropy(o, (t + shift) % 4))


def _boxes(corners: bool, wanted: bool) -> Any:
    """A model that gives corners or x, y, width, height, and targets of either form."""

    def forward(net: Any, pixels: Any) -> Any:
        x, y, width, height = net(pixels).sigmoid().unbind(1)
        ends = (x + width, y + height) if corners else (width, height)
        return torch.stack([x, y, *ends], 1)

    dataset: Any = ToyImages()
    boxes = np.random.default_rng(0).uniform(0.1, 0.5, (256, 4)).astype(np.float32)
    boxes[:, 2:] += boxes[:, :2] * wanted
    rows = ToyRows(dataset.pixels, boxes)
    model = toy_around(forward, toy_net(classes=4))
    return toy_training(model, nn.L1Loss(), loader=toy_loader(rows))


def _tagged(padding: int) -> Any:
    """Padded rows of tokens with a class for each; class 0 occurs at the end of each row."""
    rng = np.random.default_rng(0)
    ends = rng.integers(5, 12, 256)[:, None]
    tokens = np.where(np.arange(12) < ends, rng.integers(1, 30, (256, 12)), 0)
    tags = np.where((tokens > 0) & (np.arange(12) < ends - 1), tokens % 3, 0)
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 3))
    rows = ToyRows(tokens, np.where(tokens > 0, tags, padding))

    def loss(outputs: Any, targets: Any) -> Any:
        return functional.cross_entropy(outputs.transpose(1, 2), targets)

    return toy_training(model, loss, loader=toy_loader(rows))


ALIKE, FEW, MIXED = [40, 1, 1, 1], [40, 10, 20, 10], [10, 25, 5, 40]
FLAT = {"flat": True, "loss": lambda o, t: ((o - t) ** 2).mean()}
EXAMPLES: Rows = [
    ("TRAIN001", FAULT, "large last weights", lambda: _loud(60)),
    ("TRAIN001", FAULT, "targets far from zero", lambda: toy_regression(mean=20.0)),
    ("TRAIN001", FAULT, "NaN", lambda: toy_training(loss=lambda o, t: o.sum() * math.nan)),
    ("TRAIN001", FAULT, "one class of a hundred times", lambda: _uneven(ALIKE, np.ones_like)),
    ("TRAIN001", TWIN, "a bias at base rates", lambda: _uneven(ALIKE, np.ones_like, bias=True)),
    ("TRAIN001", TWIN, "weights against counts", lambda: _uneven(ALIKE, lambda n: 9 / n)),
    ("TRAIN001", TWIN, "a sum over the batch", lambda: _loud(4, reduction="sum")),
    ("TRAIN020", FAULT, "probabilities into kl_div", lambda: _distilled("softmax")),
    ("TRAIN020", FAULT, "over the batch", _ended(nn.LogSoftmax(0), nn.NLLLoss())),
    ("TRAIN020", FAULT, "softmax twice", _ended(nn.Softmax(1), nn.CrossEntropyLoss())),
    ("TRAIN020", FAULT, "log-likelihood of logits", _ended(nn.Identity(), nn.NLLLoss())),
    ("TRAIN020", FAULT, "sigmoid of pixels", _bounded(mean=80.0)),
    ("TRAIN020", FAULT, "a softmax over one output", single_output),
    ("TRAIN020", FAULT, "2 x sigmoid", lambda: single_output(nn.Sigmoid(), nn.BCEWithLogitsLoss())),
    ("TRAIN020", TWIN, "a sigmoid, then BCELoss", lambda: single_output(nn.Sigmoid())),
    ("TRAIN020", TWIN, "a student of logits", lambda: _distilled("log_softmax")),
    ("TRAIN020", TWIN, "log-softmax twice", _ended(nn.LogSoftmax(1), nn.CrossEntropyLoss())),
    ("TRAIN020", TWIN, "sigmoid of shares", _bounded(scale=0.1, mean=0.4)),
    ("TRAIN020", FAULT, "(B, 1) minus (B,)", lambda: toy_regression(**FLAT)),
    ("TRAIN020", FAULT, "the sign turned round", lambda: _loss(-1, 0)),
    ("TRAIN020", FAULT, "shifted by one", lambda: _loss(1, 1)),
    ("TRAIN020", FAULT, "an output too few", lambda: _fewer_outputs(-100)),
    ("TRAIN020", TWIN, "a class that the loss ignores", lambda: _fewer_outputs(CLASSES - 1)),
    ("TRAIN020", FAULT, "width and height for corners", lambda: _boxes(True, False)),
    ("TRAIN020", TWIN, "corners", lambda: _boxes(True, True)),
    ("TRAIN020", TWIN, "width and height", lambda: _boxes(False, False)),
    ("TRAIN041", FAULT, "counts", lambda: _uneven(FEW, lambda n: n / n.sum())),
    ("TRAIN041", FAULT, "pos_weight turned round", lambda: _rare_class(1.0)),
    ("TRAIN041", FAULT, "value_counts", lambda: _uneven(MIXED, lambda n: 9 / np.sort(n)[::-1])),
    ("TRAIN041", TWIN, "by class", lambda: _uneven(MIXED, lambda n: 9 / n)),
    ("TRAIN041", TWIN, "costs", lambda: _uneven(MIXED, lambda n: np.array([1.0, 2, 4, 8]))),
    ("TRAIN041", TWIN, "pos_weight", lambda: _rare_class(-1.0)),
    ("TRAIN021", FAULT, "no ignore_index", lambda: toy_language(ignore=False)),
    ("TRAIN021", FAULT, "a class that is padding too", lambda: _tagged(0)),
    ("TRAIN021", TWIN, "padding that the loss ignores", lambda: _tagged(-100)),
]
