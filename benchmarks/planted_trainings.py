"""Small training scripts with one planted defect each, and healthy twins, in torch.

`DEFECTS` has (name, codes that name it, maker) and `TWINS` has (name, maker); a maker takes a seed
and returns what `make_training()` would. Four kinds: a CNN on pictures of shapes, a transformer for
the next token, a regression, a segmentation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

K, SIDE, COUNT = 5, 16, 320


# ---- data ----


def shapes(seed: int, count: int = COUNT) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures (count, 3, 16, 16), classes, and masks of a bar whose direction is the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, count)
    pixels = rng.normal(0, 0.6, (count, 3, SIDE, SIDE))
    masks = np.zeros((count, SIDE, SIDE), np.int64)
    yy, xx = np.mgrid[:SIDE, :SIDE] - SIDE / 2 + 0.5
    for i, label in enumerate(labels):
        angle = np.pi * label / K + rng.normal(0, 0.05)
        distance = np.abs(xx * np.sin(angle) - yy * np.cos(angle) + rng.normal(0, 1))
        masks[i] = distance < 2
        pixels[i] += 1.5 * masks[i]
    return (
        torch.tensor(pixels, dtype=torch.float32),
        torch.tensor(labels),
        torch.tensor(masks),
    )


def loader(*tensors, batch=32, **options):
    options = {"shuffle": "sampler" not in options} | options
    return DataLoader(TensorDataset(*tensors), batch, **options)


def pictures(seed, **options):
    x, y, _ = shapes(seed)
    return loader(x, y, **options)


def cnn(*last, classes=K, norm=True):
    def block(a, b):
        return [nn.Conv2d(a, b, 3, padding=1), *([nn.BatchNorm2d(b)] if norm else []), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16),
        nn.MaxPool2d(2),
        *block(16, 32),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, classes),
        *last,
    )


def adam(model, lr=2e-3, **options):
    return torch.optim.Adam(model.parameters(), lr=lr, **options)


def sgd(model, lr=0.05, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, **options)


def training(seed, model=None, loss=None, optimizer=None, data=None, **parts):
    model = cnn() if model is None else model
    optimizer = adam(model) if optimizer is None else optimizer
    made = {"model": model, "loss": loss or nn.CrossEntropyLoss(), "optimizer": optimizer}
    # `data or` would ask a stream for its length
    return made | {"loader": pictures(seed) if data is None else data} | parts


def stepping(order):
    """A train_step that does what `order` lists: z(ero), f(orward), b(ackward), s(tep)."""

    def train_step(model, batch, loss, optimizer):
        value = None
        for action in order:
            if action == "z":
                optimizer.zero_grad()
            elif action == "e":
                model.eval()
            elif action == "f":
                value = loss(model(batch[0]), batch[1])
            elif action == "b":
                value.backward()
            elif action == "c":
                nn.utils.clip_grad_norm_(model.parameters(), 1e-10)
            elif action == "s":
                optimizer.step()
        return value

    return train_step


def evaluating(eval_mode=True, whole=True, steps=False):
    def evaluate(model, loader):
        if eval_mode:
            model.eval()
        right, count, means = 0, 0, []
        for x, y in loader:
            if steps:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                hits = (model(x).argmax(1) == y).float()
            right, count = right + float(hits.sum()), count + len(y)
            means.append(float(hits.mean()))
        return right / count if whole else sum(means) / len(means)

    return evaluate


class Wrapped(nn.Module):
    """A module whose forward is a given function of its parts."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._do = forward

    def forward(self, x):
        return self._do(self, x)


# ---- CNN defects ----


def two_optimizers(seed):
    model = cnn()
    return training(seed, model, optimizer=adam(cnn()))


def missing_head(seed):
    model = cnn()
    return training(seed, model, optimizer=adam(model[:7]))


def plain_list(seed):
    model = Wrapped(
        lambda self, x: self.head(self.layers[1](self.layers[0](x).relu()).relu().mean((2, 3))),
        layers=[nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3)],
        head=nn.Linear(32, K),
    )
    return training(seed, model)


def detached(seed):
    model = Wrapped(
        lambda self, x: self.head(self.body(x).detach()),
        body=cnn(classes=32),
        head=nn.Linear(32, K),
    )
    return training(seed, model)


def through_numpy(seed):
    def forward(self, x):
        return self.head(torch.from_numpy(self.body(x).data.numpy()))

    return training(seed, Wrapped(forward, body=cnn(classes=32), head=nn.Linear(32, K)))


def unused(seed):
    model = Wrapped(
        lambda self, x: self.head(self.body(x)),
        body=cnn(classes=32),
        middle=nn.Linear(32, 32),
        head=nn.Linear(32, K),
    )
    return training(seed, model)


def frozen(seed, part=None):
    model = cnn()
    for parameter in (model if part is None else model[part]).parameters():
        parameter.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    chosen = trained or list(model.parameters())
    return training(seed, model, optimizer=torch.optim.Adam(chosen, lr=2e-3))


def mixing_view(seed):
    def forward(self, x):
        features = self.body(x)  # (B, 32, 4, 4): channels and batch change places
        mixed = features.permute(1, 0, 2, 3).reshape(x.shape[0], -1)
        return self.head(mixed)

    body = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    return training(seed, Wrapped(forward, body=body, head=nn.Linear(512, K)))


def over_batch(seed):
    model = Wrapped(
        lambda self, x: self.head(self.body(x).softmax(0) * 10),
        body=cnn(classes=32),
        head=nn.Linear(32, K),
    )
    return training(seed, model)


def squeezed(seed):
    return training(seed, Wrapped(lambda self, x: self.net(x).squeeze(), net=cnn()))


def overwritten(seed):
    model = Wrapped(lambda self, x: self.net(torch.zeros_like(x)), net=cnn())
    return training(seed, model)


def dead(seed):
    model = cnn(norm=False)
    model[0].bias.data.fill_(-30.0)
    return training(seed, model)


def loud_head(seed):
    model = cnn()
    nn.init.normal_(model[-1].weight, std=3.0)
    return training(seed, model)


def system_seed(seed):
    model = cnn()
    rng = np.random.default_rng()
    with torch.no_grad():
        model[-1].weight.copy_(torch.from_numpy(rng.normal(0, 0.05, model[-1].weight.shape)))
    return training(seed, model)


def shifted_labels(seed):
    x, y, _ = shapes(seed)
    return training(seed, cnn(), data=loader(x, y + 1))


def momentum(seed):
    model = cnn()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.99
    return training(seed, model)


def scheduled(seed, function):
    model = cnn()
    optimizer = adam(model)
    return training(seed, model, optimizer=optimizer, schedule=LambdaLR(optimizer, function))


def with_sgd(seed, **options):
    model = cnn()
    return training(seed, model, optimizer=sgd(model, **options))


def binary(seed, last=()):
    x, y, _ = shapes(seed)
    model = cnn(*last, classes=1)
    target = (y < 2).float()[:, None]
    return training(seed, model, nn.BCEWithLogitsLoss(), data=loader(x, target))


def minus(outputs, targets):
    return -F.cross_entropy(outputs, targets)


def evaluated(seed, **options):
    x, y, _ = shapes(seed, 90)
    return training(seed, eval_loader=loader(x, y, shuffle=False), evaluate=evaluating(**options))


# ---- regression ----


def numbers(seed, flat=False, mean=0.0, scale=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (COUNT, 6)).astype(np.float32)
    y = x[:, 0] - 2 * x[:, 1] * (x[:, 2] > 0) + rng.normal(0, 0.1, COUNT)
    y = torch.tensor(y * scale + mean, dtype=torch.float32)
    return loader(torch.tensor(x), y if flat else y[:, None])


def mlp(*last):
    return nn.Sequential(
        nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), *last
    )


def squared(outputs, targets):
    return ((outputs - targets) ** 2).mean()


def regression(seed, model=None, loss=squared, **options):
    model = model or mlp()
    return training(seed, model, loss, data=numbers(seed, **options))


# ---- segmentation ----


def segmenting(seed, loss=None, ignore=False):
    x, _, mask = shapes(seed)
    if ignore:
        mask = mask.clone()
        mask[:, :2] = 255
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 2, 1),
    )
    loss = loss or nn.CrossEntropyLoss(ignore_index=255)
    return training(seed, model, loss, data=loader(x, mask, batch=16))


def wrong_axis(outputs, targets):
    return F.cross_entropy(outputs.reshape(-1, outputs.shape[1]), targets.reshape(-1))


# ---- next token ----


class Language(nn.Module):
    def __init__(self, causal=True, batch_first=True, transposed=False):
        super().__init__()
        self.token, self.place = nn.Embedding(12, 32), nn.Embedding(16, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=batch_first)
        self.head = nn.Linear(32, 12)
        self.causal, self.transposed, self.batch_first = causal, transposed, batch_first

    def forward(self, tokens):
        length = tokens.shape[1] if self.batch_first else tokens.shape[0]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        if self.transposed:
            mask = mask.T
        places = self.place(torch.arange(tokens.shape[1]))
        return self.head(self.layer(self.token(tokens) + places, src_mask=mask))


def sentences(seed, pad=True):
    rng = np.random.default_rng(seed)
    rows = (rng.integers(0, 11, (COUNT, 1)) + np.arange(17) * rng.integers(1, 4, (COUNT, 1))) % 11
    rows = rows + 1
    if pad:
        rows[np.arange(17) >= rng.integers(6, 18, (COUNT, 1))] = 0
    rows = torch.tensor(rows)
    return loader(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def by_token(ignore=0):
    def loss(outputs, targets):
        return F.cross_entropy(outputs.reshape(-1, 12), targets.reshape(-1), ignore_index=ignore)

    return loss


def language(seed, ignore=0, pad=True, **options):
    return training(seed, Language(**options), by_token(ignore), data=sentences(seed, pad))


DEFECTS = [
    ("softmax before cross-entropy", {"TRAIN020"}, lambda s: training(s, cnn(nn.Softmax(1)))),
    ("NLLLoss of logits", {"TRAIN020"}, lambda s: training(s, loss=nn.NLLLoss())),
    ("NLLLoss of probabilities", {"TRAIN020"},
     lambda s: training(s, cnn(nn.Softmax(1)), nn.NLLLoss())),
    ("sigmoid twice", {"TRAIN020"}, lambda s: binary(s, [nn.Sigmoid()])),
    ("no zero_grad", {"TRAIN016"}, lambda s: training(s, train_step=stepping("fbs"))),
    ("no optimizer.step", {"TRAIN003"}, lambda s: training(s, train_step=stepping("zfb"))),
    ("no backward", {"TRAIN005"}, lambda s: training(s, train_step=stepping("zfs"))),
    ("zero_grad after backward", {"TRAIN003"}, lambda s: training(s, train_step=stepping("fbzs"))),
    ("clipped to nothing", {"TRAIN003", "TRAIN015"}, lambda s: training(
        s, (m := cnn()), optimizer=sgd(m), train_step=stepping("zfbcs"))),
    ("the optimizer of another model", {"TRAIN005"}, two_optimizers),
    ("the head is not in the optimizer", {"TRAIN005"}, missing_head),
    ("layers in a plain list", {"TRAIN005"}, plain_list),
    ("detach in forward", {"TRAIN005"}, detached),
    ("through numpy", {"TRAIN005"}, through_numpy),
    ("a layer that is not used", {"TRAIN005"}, unused),
    ("everything frozen", {"TRAIN005"}, frozen),
    ("the head frozen", {"TRAIN005"}, lambda s: frozen(s, -1)),
    ("trained in eval mode", {"TRAIN009"}, lambda s: training(s, train_step=stepping("ezfbs"))),
    ("evaluated in train mode", {"TRAIN009"}, lambda s: evaluated(s, eval_mode=False)),
    ("a mean over batches", {"TRAIN024"}, lambda s: evaluated(s, whole=False)),
    ("trained while evaluated", {"TRAIN024"}, lambda s: evaluated(s, steps=True)),
    ("a view that mixes the batch", {"TRAIN004"}, mixing_view),
    ("softmax over the batch", {"TRAIN004"}, over_batch),
    ("squeeze without an axis", {"TRAIN004"}, squeezed),
    ("the input is overwritten", {"TRAIN004"}, overwritten),
    ("dead units", {"TRAIN004"}, dead),
    ("large last weights", {"TRAIN001"}, loud_head),
    ("a seed of the system", {"TRAIN008"}, system_seed),
    ("labels from 1 to K", {"TRAIN020"}, shifted_labels),
    ("the sign of the loss", {"TRAIN020"}, lambda s: training(s, loss=minus)),
    ("a loss shifted by one class", {"TRAIN020"},
     lambda s: training(s, loss=lambda o, t: F.cross_entropy(o, (t + 1) % K))),
    ("batch norm momentum of 0.99", {"TRAIN025"}, momentum),
    ("batches of two with batch norm", {"TRAIN025"},
     lambda s: training(s, data=pictures(s, batch=2))),
    ("learning rate 100", {"TRAIN003", "TRAIN015"}, lambda s: with_sgd(s, lr=100.0)),
    ("learning rate 1e-8", {"TRAIN003", "TRAIN015"}, lambda s: with_sgd(s, lr=1e-8)),
    ("learning rate 0", {"TRAIN014"}, lambda s: with_sgd(s, lr=0.0)),
    ("a schedule at zero", {"TRAIN014"},
     lambda s: scheduled(s, lambda n: 0.0 if n < 1000 else 1.0)),
    ("a schedule that vanishes", {"TRAIN014"}, lambda s: scheduled(s, lambda n: 0.7**n)),
    ("(B, 1) minus (B,)", {"TRAIN020"}, lambda s: regression(s, flat=True)),
    ("targets not standardised", {"TRAIN001"}, lambda s: regression(s, mean=500.0)),
    ("ReLU after the last layer", {"TRAIN003", "TRAIN005", "TRAIN004"},
     lambda s: regression(s, mlp(nn.ReLU()))),
    ("sigmoid after the last layer", {"TRAIN003"}, lambda s: regression(s, mlp(nn.Sigmoid()))),
    ("the loss does not use the targets", {"TRAIN020"},
     lambda s: regression(s, loss=lambda o, t: (o**2).mean())),
    ("the wrong axis is the class", {"TRAIN020"}, lambda s: segmenting(s, wrong_axis)),
    ("no causal mask", {"TRAIN004"}, lambda s: language(s, causal=False)),
    ("the causal mask transposed", {"TRAIN004"}, lambda s: language(s, transposed=True)),
    ("padding counts", {"TRAIN021"}, lambda s: language(s, ignore=-100)),
    ("attention over the batch", {"TRAIN004"},
     lambda s: language(s, batch_first=False, causal=False)),
]  # fmt: skip


# ---- healthy twins ----


def mixup(seed):
    def train_step(model, batch, loss, optimizer):
        x, y = batch
        share, order = float(np.random.beta(0.4, 0.4)), torch.randperm(len(x))
        optimizer.zero_grad()
        outputs = model(share * x + (1 - share) * x[order])
        value = share * loss(outputs, y) + (1 - share) * loss(outputs, y[order])
        value.backward()
        optimizer.step()
        return value

    return training(seed, train_step=train_step)


def accumulating(seed):
    state = {"n": 0}

    def train_step(model, batch, loss, optimizer):
        value = loss(model(batch[0]), batch[1])
        (value / 4).backward()
        state["n"] += 1
        if state["n"] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value

    return training(seed, train_step=train_step)


class Stream(IterableDataset):
    def __init__(self, seed):
        self.x, self.y, _ = shapes(seed)

    def __iter__(self):
        return iter(zip(self.x, self.y, strict=True))


def weighted(seed):
    x, y, _ = shapes(seed)
    weights = (1.0 + 4.0 * (y == 0)).tolist()
    return training(seed, data=loader(x, y, sampler=WeightedRandomSampler(weights, COUNT)))


def focal(outputs, targets):
    logp = F.log_softmax(outputs, 1).gather(1, targets[:, None])[:, 0]
    return (-((1 - logp.exp()) ** 2) * logp).mean()


def zero_head(seed):
    model = cnn()
    nn.init.zeros_(model[-1].weight)
    return training(seed, model)


def rezero(seed):
    model = Wrapped(
        lambda self, x: self.head((h := self.body(x)) + self.scale * self.inner(h)),
        body=cnn(classes=32), inner=nn.Sequential(nn.Linear(32, 32), nn.ReLU()),
        scale=nn.Parameter(torch.zeros(1)), head=nn.Linear(32, K),
    )  # fmt: skip
    return training(seed, model)


def warm(seed):
    model = cnn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 20))
    return training(seed, model, optimizer=optimizer, schedule=schedule)


def cosine(seed):
    model = cnn()
    optimizer = sgd(model, weight_decay=5e-4)
    return training(seed, model, optimizer=optimizer, schedule=CosineAnnealingLR(optimizer, 500))


def autoencoder(seed):
    x, _, _ = shapes(seed)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))
    return training(seed, model, nn.MSELoss(), data=loader(x, x))


def many_labels(seed):
    x, y, _ = shapes(seed)
    targets = torch.stack([y == 0, y < 2, y > 2, y % 2 == 1], 1).float()
    return training(seed, cnn(classes=4), nn.BCEWithLogitsLoss(), data=loader(x, targets))


def imbalanced(seed):
    x, y, _ = shapes(seed, 1200)
    keep = (y == 0) | (torch.arange(len(y)) % 12 == 0)
    return training(seed, data=loader(x[keep], y[keep]))


def frozen_norm(seed):
    def train_step(model, batch, loss, optimizer):
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        return value

    return training(seed, train_step=train_step)


def groups(seed):
    model = cnn()
    flat = [p for p in model.parameters() if p.ndim == 1]
    rest = [p for p in model.parameters() if p.ndim > 1]
    parts = [{"params": rest, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}]
    return training(seed, model, optimizer=torch.optim.AdamW(parts, lr=2e-3))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(48, 64, batch_first=True), nn.Linear(64, K)

    def forward(self, x):
        rows = x.permute(0, 2, 1, 3).reshape(x.shape[0], SIDE, -1)
        return self.head(self.rnn(rows)[0].mean(1))


def grouped(seed):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, K),
    )
    return training(seed, model, data=pictures(seed, batch=4))


TWINS = [
    ("a CNN", training),
    ("a weighted sampler", weighted),
    ("mixup", mixup),
    ("label smoothing", lambda s: training(s, loss=nn.CrossEntropyLoss(label_smoothing=0.1))),
    ("a frozen backbone on purpose", lambda s: frozen(s, slice(0, 4))),
    ("gradient accumulation", accumulating),
    ("a stream", lambda s: training(s, data=DataLoader(Stream(s), 32))),
    ("log-softmax and NLLLoss", lambda s: training(s, cnn(nn.LogSoftmax(1)), nn.NLLLoss())),
    ("focal loss", lambda s: training(s, loss=focal)),
    ("weights of classes", lambda s: training(
        s, loss=nn.CrossEntropyLoss(torch.tensor([5.0, 1, 1, 1, 1])))),
    ("a last layer of zeros", zero_head),
    ("a branch that starts at zero", rezero),
    ("a warm-up", warm),
    ("SGD, decay, cosine", cosine),
    ("an autoencoder", autoencoder),
    ("many labels", many_labels),
    ("binary", binary),
    ("sigmoid and BCELoss", lambda s: binary(s, [nn.Sigmoid()]) | {"loss": nn.BCELoss()}),
    ("softmax and its own logarithm", lambda s: training(
        s, cnn(nn.Softmax(1)), lambda o, t: F.nll_loss(o.clamp_min(1e-9).log(), t))),
    ("imbalanced classes", imbalanced),
    ("a frozen batch norm", frozen_norm),
    ("AdamW with exceptions", groups),
    ("a regression", regression),
    ("Huber loss", lambda s: regression(s, loss=nn.HuberLoss())),
    ("a segmentation with ignored places", lambda s: segmenting(s, ignore=True)),
    ("a transformer with padding", language),
    ("a transformer without padding", lambda s: language(s, pad=False)),
    ("a recurrent network", lambda s: training(s, Recurrent())),
    ("group norm in small batches", grouped),
    ("dropout of 0.5", lambda s: training(s, nn.Sequential(cnn(classes=64), nn.ReLU(),
                                                           nn.Dropout(0.5), nn.Linear(64, K)))),
    ("its own step and evaluation", lambda s: evaluated(s) | {"train_step": stepping("zfbs")}),
    ("L1 loss", lambda s: regression(s, loss=nn.L1Loss())),
]  # fmt: skip
