"""More trainings of users' kinds, written after the checks and run once before anything was mended.

Keypoints, characters with dropout functions, low-rank adapters, pairs of pictures, tied weights, a
warm-up from zero. The same form as `planted_scripts`.
"""

from __future__ import annotations

import numpy as np
import torch
from planted_scripts import N, Pairs, convnet, pictures
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def keypoints(seed, squashed=False):
    rng = np.random.default_rng(seed)
    points = rng.uniform(4, 28, (N, 2, 2))
    x = rng.normal(0, 0.2, (N, 1, 32, 32)).astype(np.float32)
    for picture, pair in zip(x, points, strict=True):
        for col, row in pair.astype(int):
            picture[0, row - 2 : row + 2, col - 2 : col + 2] += 2
    seen = torch.tensor(rng.random((N, 2)) < 0.8)
    target = torch.tensor(points, dtype=torch.float32)
    target = target if squashed else (target - 16) / 7
    last = [nn.Sigmoid()] if squashed else []
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 4), *last, nn.Unflatten(1, (2, 2)),
    )  # fmt: skip

    def loss(outputs, given):
        each = F.smooth_l1_loss(outputs, given["points"], reduction="none").sum(-1)
        return (each * given["seen"]).sum() / given["seen"].sum().clamp(min=1)

    rows = Pairs(
        lambda a, p, s: (a, {"points": p, "seen": s.float()}), torch.tensor(x), target, seen
    )
    return {"model": model, "loader": DataLoader(rows, 16, True), "loss": loss,
            "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}  # fmt: skip


class Characters(nn.Module):
    def __init__(self, always=False, causal=True):
        super().__init__()
        self.embed = nn.Embedding(20, 32)
        nn.init.normal_(self.embed.weight, std=0.05)  # it is the last layer as well
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.norm, self.always, self.causal = nn.LayerNorm(32), always, causal

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        h = F.dropout(self.embed(tokens), 0.1, training=True if self.always else self.training)
        h = self.norm(self.layer(h, src_mask=mask if self.causal else None))
        return h @ self.embed.weight.T


def characters(seed, **options):
    rng = np.random.default_rng(seed)
    rows = torch.tensor((rng.integers(0, 20, (N, 1)) + 3 * np.arange(13)) % 20)
    model = Characters(**options)
    data = TensorDataset(rows[:, :-1], rows[:, 1:])
    return {"model": model, "loader": DataLoader(data, 32, True),
            "loss": lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten()),
            "optimizer": torch.optim.AdamW(model.parameters(), 1e-3)}  # fmt: skip


class Adapted(nn.Module):
    def __init__(self, zeros=False):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)  # stands for a checkpoint
            self.base = convnet(32)
        self.base.requires_grad_(False)
        self.down = nn.Linear(432, 4, bias=False)
        self.up, self.head = nn.Linear(4, 32, bias=False), nn.Linear(32, 4)
        nn.init.zeros_(self.up.weight)
        if zeros:
            nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return self.head(self.base(x) + self.up(self.down(x.flatten(1))))


def adapted(seed, zeros=False):
    model = Adapted(zeros)
    trained = [p for p in model.parameters() if p.requires_grad]
    return {"model": model, "loader": DataLoader(TensorDataset(*pictures(seed)), 32, True),
            "loss": nn.CrossEntropyLoss(),
            "optimizer": torch.optim.AdamW(trained, 3e-3)}  # fmt: skip


class Siamese(nn.Module):
    def __init__(self, sigmoid=False):
        super().__init__()
        self.body, self.head, self.sigmoid = convnet(16), nn.Linear(16, 1), sigmoid

    def forward(self, one, two):
        score = self.head((self.body(one) - self.body(two)).abs()).squeeze(-1)
        return score.sigmoid() if self.sigmoid else score


def siamese(seed, sigmoid=False):
    x, y = pictures(seed)
    other = torch.roll(torch.arange(N), 1)
    same = (y == y[other]).float()
    rows = Pairs(lambda a, b, s: ((a, b), s), x, x[other], same)
    model = Siamese(sigmoid)
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": nn.BCEWithLogitsLoss(),
            "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}  # fmt: skip


def warm(seed, drops=False):
    x, y = pictures(seed)
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True),
            "eval_loader": DataLoader(TensorDataset(x[:90], y[:90]), 64, drop_last=drops),
            "loss": nn.CrossEntropyLoss(label_smoothing=0.05), "optimizer": optimizer,
            "schedule": LambdaLR(optimizer, lambda n: min(1.0, n / 50))}  # fmt: skip


DEFECTS = [
    ("keypoints in pixels behind a sigmoid", {"TRAIN003", "TRAIN001"},
     lambda s: keypoints(s, True)),
    ("characters: dropout that is always on", {"TRAIN009"}, lambda s: characters(s, always=True)),
    ("characters: no causal mask", {"TRAIN004"}, lambda s: characters(s, causal=False)),
    ("adapters: both factors are zero", {"TRAIN005"}, lambda s: adapted(s, True)),
    ("pairs: sigmoid twice", {"TRAIN020"}, lambda s: siamese(s, True)),
    ("an evaluation that drops", {"TRAIN024"}, lambda s: warm(s, True)),
]  # fmt: skip

TWINS = [
    ("keypoints, some unseen", keypoints),
    ("characters, tied weights", characters),
    ("adapters", adapted),
    ("pairs of pictures", siamese),
    ("a warm-up from zero", warm),
]
