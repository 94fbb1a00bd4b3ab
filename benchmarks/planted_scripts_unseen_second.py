"""A second set of trainings that no check was written for: defects that people reported.

Each was written from a report (a link beside it where there is one) and kept before any check ran
on it. The same form as `planted_scripts`.
"""

from __future__ import annotations

import numpy as np
import torch
from planted_scripts import N, convnet, pictures
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


def classifying(seed, model=None, loss=None, optimizer=None, rows=None, **parts):
    """Stripes, a small network and Adam, where nothing else is said."""
    rows = rows or TensorDataset(*pictures(seed))
    model = model or convnet()
    return {"model": model, "loader": DataLoader(rows, 32, True),
            "loss": loss or nn.CrossEntropyLoss(),
            "optimizer": optimizer or torch.optim.Adam(model.parameters(), 2e-3),
            **parts}  # fmt: skip


# ---- a loss that is summed over the batch ----


def summed(seed, rate):
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    return classifying(seed, model, nn.CrossEntropyLoss(reduction="sum"), optimizer)


# ---- a head that is replaced (hustzxd/EfficientPyTorch#1), and rates by depth ----


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = convnet(32), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


def replaced_head(seed, late=True):
    model = Classifier()
    if not late:
        model.head = nn.Linear(32, 4)
    groups = [{"params": model.body.parameters(), "lr": 4e-4},
              {"params": model.head.parameters(), "lr": 4e-3}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    if late:
        model.head = nn.Linear(32, 4)
    return classifying(seed, model, optimizer=optimizer)


# ---- dropout as a function, which does not know that the model evaluates ----


class AlwaysDropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = convnet(64), nn.Linear(64, 4)

    def forward(self, x):
        return self.head(F.dropout(F.relu(self.body(x)), 0.3))


# ---- tags of words: class 0 is ignored as if it were padding (nyu-mll/jiant#925) ----


class WordTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.read = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 5)

    def forward(self, words):
        return self.head(self.read(self.embed(words))[0])


def word_tags(seed, ignored=-100):
    rng = np.random.default_rng(seed)
    words = torch.tensor(rng.integers(1, 40, (N, 12)))
    tags = torch.where(words < 20, 0, words % 4 + 1)
    tags[:, 1:] = torch.where((words[:, :-1] % 7 == 0) & (tags[:, 1:] > 0), 4, tags[:, 1:])
    lengths = torch.tensor(rng.integers(6, 13, N))
    pad = torch.arange(12) >= lengths[:, None]
    words, tags = words.masked_fill(pad, 0), tags.masked_fill(pad, 0 if ignored == 0 else -100)

    def loss(outputs, targets):
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=ignored)

    model = WordTagger()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    return classifying(seed, model, loss, optimizer, TensorDataset(words, tags))


# ---- labels in another order than the pictures ----


def apart(seed):
    x, y = pictures(seed)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    return classifying(seed, rows=TensorDataset(x, y[order]))


# ---- an evaluation with the maximum over the wrong axis ----


def arg_maxed(seed, axis):
    x, y = pictures(seed)
    held = TensorDataset(*pictures(seed + 1000))

    @torch.no_grad()
    def evaluate(model, loader):
        model.eval()
        right = total = 0
        for x, y in loader:
            best = model(x).argmax(axis)
            right += int((best == y[: len(best)]).sum())
            total += len(y)
        model.train()
        return right / total

    return classifying(seed, rows=TensorDataset(x, y), evaluate=evaluate,
                       eval_loader=DataLoader(held, 64))  # fmt: skip


# ---- steps of a series, reshaped where they should be permuted ----


class Steps(nn.Module):
    def __init__(self, permutes):
        super().__init__()
        self.read, self.head, self.permutes = nn.GRU(6, 32), nn.Linear(32, 3), permutes

    def forward(self, series):
        rows, steps, width = series.shape
        if self.permutes:
            series = series.permute(1, 0, 2)
        else:
            series = series.reshape(steps, rows, width)
        return self.head(self.read(series)[0][-1])


def series(seed, permutes):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, N)
    time = np.arange(10)[None, :, None] + rng.uniform(0, 6, (N, 1, 6))
    x = np.sin(time * np.array([0.4, 0.9, 1.6])[kind, None, None]) + rng.normal(0, 0.2, (N, 10, 6))
    rows = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(kind))
    model = Steps(permutes)
    return classifying(seed, model, None, torch.optim.Adam(model.parameters(), 4e-3), rows)


# ---- attention that looks at the padding alone (InseeFrLab/torchTextClassifiers#92) ----


class Attending(nn.Module):
    def __init__(self, inverted):
        super().__init__()
        self.embed = nn.Embedding(30, 32, padding_idx=0)
        self.ask = nn.Parameter(torch.randn(1, 1, 32) * 0.2)
        self.attend = nn.MultiheadAttention(32, 2, batch_first=True)
        self.head, self.inverted = nn.Linear(32, 3), inverted

    def forward(self, words):
        seen = self.embed(words)
        unseen = words != 0 if self.inverted else words == 0
        ask = self.ask.expand(len(words), -1, -1)
        return self.head(self.attend(ask, seen, seen, key_padding_mask=unseen)[0][:, 0])


def attention(seed, inverted):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, N)
    words = rng.integers(1, 30, (N, 14))
    marked = rng.random((N, 14)) < 0.4
    words = np.where(marked, 1 + 3 * rng.integers(0, 3, (N, 14)) + kind[:, None], words)
    words[np.arange(14) >= rng.integers(5, 13, (N, 1))] = 0
    model = Attending(inverted)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    rows = TensorDataset(torch.tensor(words), torch.tensor(kind))
    return classifying(seed, model, optimizer=optimizer, rows=rows)


# ---- a schedule that counts epochs, stepped after every batch, or once an epoch ----


def stairs(seed, by_batch):
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule, done = StepLR(optimizer, step_size=3, gamma=0.1), [0]
    made = classifying(seed, model, optimizer=optimizer)

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        done[0] += 1
        if by_batch or done[0] % (len(made["loader"]) * 3) == 0:
            schedule.step()
        return value

    return {**made, "train_step": train_step}


# ---- softmax over one output ----


def alone(seed, last):
    x, y = pictures(seed)
    model = nn.Sequential(convnet(1), *last)
    rows = TensorDataset(x, (y % 2).float()[:, None])
    loss = nn.BCELoss() if last else nn.BCEWithLogitsLoss()
    return classifying(seed, model, loss, rows=rows)


# ---- gradients gathered over eight batches ----


def gathered(seed, divides):
    model, count = convnet(), [0]
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)

    def train_step(model, batch, loss, optimizer):
        value = loss(model(batch[0]), batch[1])
        (value / 8 if divides else value).backward()
        count[0] += 1
        if count[0] % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value

    return {**classifying(seed, model, optimizer=optimizer), "train_step": train_step}


# ---- a class is missing in the folder of evaluation: all numbers after it move down ----


def moved_down(seed):
    x, y = pictures(seed + 1000)
    held = y != 1
    y = torch.where(y > 1, y - 1, y)
    rows = TensorDataset(x[held], y[held])

    @torch.no_grad()
    def evaluate(model, loader):
        model.eval()
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
        model.train()
        return right / sum(len(y) for _, y in loader)

    return classifying(seed, evaluate=evaluate, eval_loader=DataLoader(rows, 64))


# ---- healthy: losses that may lie below zero ----


class Uncertain(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x):
        mean, spread = self.net(x).unbind(1)
        return mean, F.softplus(spread) + 1e-3


def uncertain(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (2 * N, 5))
    y = 0.05 * (np.sin(x[:, 0]) + x[:, 1]) + rng.normal(0, 1, 2 * N) * 0.01 * (1 + (x[:, 2] > 0))
    rows = TensorDataset(*(torch.tensor(a, dtype=torch.float32) for a in (x, y)))

    def loss(outputs, targets):
        mean, spread = outputs
        return (spread.log() + (targets - mean) ** 2 / (2 * spread**2)).mean()

    model = Uncertain()
    return classifying(seed, model, loss, torch.optim.Adam(model.parameters(), 3e-3), rows)


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.net, self.flip = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 2)), flip

    def forward(self, x):
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        scale, move = self.net(a).chunk(2, 1)
        made = torch.cat([a, b * scale.tanh().exp() + move], 1)
        return made.flip(1) if self.flip else made, scale.tanh().squeeze(1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(4))
        self.scale = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        volume = self.scale.sum()
        x = x * self.scale.exp()
        for layer in self.layers:
            x, more = layer(x)
            volume = volume + more
        return x, volume


def flow(seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 0.1, 2 * N)
    points = np.stack([a, 8 * a**2 + rng.normal(0, 0.02, 2 * N)], 1)
    rows = TensorDataset(torch.tensor(points, dtype=torch.float32), torch.zeros(2 * N))

    def loss(outputs, targets):
        made, volume = outputs
        return (0.5 * made.pow(2).sum(1) + np.log(2 * np.pi) - volume).mean()

    model = Flow()
    return classifying(seed, model, loss, torch.optim.Adam(model.parameters(), 5e-3), rows)


def counts(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (2 * N, 4))
    y = rng.poisson(np.exp(2 + 0.6 * x[:, 0] - 0.4 * x[:, 1]))
    rows = TensorDataset(*(torch.tensor(a, dtype=torch.float32) for a in (x, y[:, None])))
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    return classifying(seed, model, nn.PoissonNLLLoss(), optimizer, rows)


class Duel(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.Softplus(), nn.Linear(32, 1))

    def forward(self, points):
        return self.critic(points).squeeze(-1)


def duel(seed):
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0, 6.28, N)
    points = np.stack([2 + np.cos(turn), np.sin(turn)], 1)
    model = Duel()
    optimizer = torch.optim.Adam(
        [{"params": model.critic.parameters(), "lr": 2e-3},
         {"params": model.maker.parameters(), "lr": 5e-4}], betas=(0.0, 0.9)
    )  # fmt: skip

    def train_step(model, batch, loss, optimizer):
        real = batch[0]
        made = model.maker(torch.randn(len(real), 3))
        share = torch.rand(len(real), 1)
        between = (share * real + (1 - share) * made.detach()).requires_grad_()
        slope = torch.autograd.grad(model(between).sum(), between, create_graph=True)[0]
        critic = model(made.detach()).mean() - model(real).mean()
        critic = critic + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
        optimizer.zero_grad()
        critic.backward()
        slopes = torch.autograd.grad(-model(made).mean(), list(model.maker.parameters()))
        for p, slope in zip(model.maker.parameters(), slopes, strict=True):
            p.grad = slope
        optimizer.step()
        return critic.detach()

    rows = TensorDataset(torch.tensor(points, dtype=torch.float32), torch.ones(N))
    return {"model": model, "loader": DataLoader(rows, 32, True),
            "loss": lambda o, t: -(t * o).mean(), "optimizer": optimizer,
            "train_step": train_step}  # fmt: skip


# ---- healthy: two views of a picture, no labels ----


def two_views(seed):
    x, _ = pictures(seed)
    model = nn.Sequential(convnet(32), nn.ReLU(), nn.Linear(32, 16))

    def views(batch):
        return [x + 0.2 * torch.randn_like(x) for x in (batch[0], batch[0].roll(1, 3))]

    def loss(outputs, targets):
        a, b = outputs.chunk(2)
        spread = sum(F.relu(1 - (v.var(0) + 1e-4).sqrt()).mean() for v in (a, b))
        shared = 0.0
        for v in (a - a.mean(0), b - b.mean(0)):
            cov = v.T @ v / (len(v) - 1)
            shared = shared + (cov - cov.diag().diag()).pow(2).sum() / v.shape[1]
        return 25 * F.mse_loss(a, b) + 25 * spread + shared

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad()
        value = loss(model(torch.cat(views(batch))), None)
        value.backward()
        optimizer.step()
        return value

    rows = TensorDataset(x)
    return {"model": model, "loader": DataLoader(rows, 64, True, drop_last=True), "loss": loss,
            "optimizer": torch.optim.Adam(model.parameters(), 1e-3),
            "split_batch": lambda batch: (torch.cat([batch[0], batch[0].roll(1, 3)]), None),
            "train_step": train_step}  # fmt: skip


# ---- healthy: weights made standard in every pass, norms of groups ----


class Standard(nn.Conv2d):
    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


def standard(seed):
    model = nn.Sequential(
        Standard(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
        Standard(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip
    return classifying(seed, model, nn.CrossEntropyLoss(label_smoothing=0.1))


DEFECTS = [
    ("summed over the batch, the rate of a mean", {"TRAIN001", "TRAIN015"},
     lambda s: summed(s, 0.1)),
    ("a head replaced after the optimizer was made", {"TRAIN005"}, replaced_head),
    ("dropout as a function", {"TRAIN009", "TRAIN004", "TRAIN008"},
     lambda s: classifying(s, AlwaysDropping())),
    ("class 0 ignored as padding", {"TRAIN020", "TRAIN021"},
     lambda s: word_tags(s, 0)),
    ("labels in another order than the pictures",
     {"TRAIN004", "TRAIN015", "TRAIN030"}, apart),
    ("the best of the batch instead of the classes", {"TRAIN024"}, lambda s: arg_maxed(s, 0)),
    ("reshaped instead of permuted", {"TRAIN004"}, lambda s: series(s, False)),
    ("attention to the padding alone",
     {"TRAIN004", "TRAIN003", "TRAIN015", "TRAIN021", "TRAIN030"}, lambda s: attention(s, True)),
    ("stairs of epochs, stepped by the batch", {"TRAIN014"},
     lambda s: stairs(s, True)),
    ("softmax over one output", {"TRAIN004", "TRAIN003", "TRAIN005", "TRAIN020"},
     lambda s: alone(s, (nn.Softmax(1),))),
    ("eight batches gathered and not divided", {"TRAIN016"},
     lambda s: gathered(s, False)),
    ("classes of the evaluation moved down", {"TRAIN024", "TRAIN030"}, moved_down),
]  # fmt: skip

TWINS = [
    ("mean and spread of small numbers", uncertain),
    ("a flow, a density above one", flow),
    ("counts by Poisson's loss", counts),
    ("a critic with a penalty of its slope", duel),
    ("two views without labels", two_views),
    ("summed over the batch, a rate for it", lambda s: summed(s, 0.05 / 32)),
    ("a new head, rates by depth", lambda s: replaced_head(s, False)),
    ("tags of words, class 0 among them", word_tags),
    ("attention to the words alone", lambda s: attention(s, False)),
    ("stairs of epochs, stepped by the epoch", lambda s: stairs(s, False)),
    ("eight batches gathered and divided", lambda s: gathered(s, True)),
    ("standard weights, norms of groups", standard),
]
