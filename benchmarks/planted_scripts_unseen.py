"""Trainings of kinds that no check was written for: run once before anything was mended.

A small language model, sparse embeddings, CTC, a generator against a critic, sharpness-aware steps,
several heads, focal loss, noisy labels, proxies, pooling, a teacher, a denoiser, experts. The same
form as `planted_scripts`.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from planted_scripts import N, Pairs, convnet, pictures
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import DataLoader, TensorDataset

# ---- a small language model: RMS norm, rotary places, gated units, tied weights ----


class RootNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotated(x):
    half, length = x.shape[-1] // 2, x.shape[-2]
    rate = 100.0 ** (-torch.arange(half) / half)
    angle = torch.arange(length)[:, None] * rate
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Block(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.norm1, self.norm2, self.causal = RootNorm(width), RootNorm(width), causal
        self.qkv, self.out = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False)
        self.gate, self.up = (nn.Linear(width, 2 * width, False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            p.view(b, t, 2, c // 2).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class TinyLM(nn.Module):
    def __init__(self, causal=True, width=32, words=24):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.blocks, self.norm = (
            nn.ModuleList(Block(width, causal) for _ in range(2)),
            RootNorm(width),
        )
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def small_lm(seed, causal=True):
    rng = np.random.default_rng(seed)
    steps = rng.choice([1, 2, 5], p=[0.7, 0.2, 0.1], size=(N, 17)).cumsum(1)
    rows = torch.tensor((rng.integers(0, 24, (N, 1)) + steps) % 24)
    model = TinyLM(causal)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
         {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0}], 3e-3
    )  # fmt: skip
    schedule = CosineAnnealingWarmRestarts(optimizer, 40)

    def loss(outputs, targets):
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad(set_to_none=True)
        value = loss(model(batch[0]), batch[1])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return value

    pairs = TensorDataset(rows[:, :-1], rows[:, 1:])
    return {"model": model, "loader": DataLoader(pairs, 32, True),
            "loss": loss, "optimizer": optimizer, "schedule": schedule,
            "train_step": train_step}  # fmt: skip


# ---- a recommender: ratings of users and things ----


class Recommender(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.user, self.thing = (
            nn.Embedding(40, 8, sparse=sparse),
            nn.Embedding(30, 8, sparse=sparse),
        )
        self.bias_u, self.bias_t = (
            nn.Embedding(40, 1, sparse=sparse),
            nn.Embedding(30, 1, sparse=sparse),
        )

    def forward(self, user, thing):
        score = (self.user(user) * self.thing(thing)).sum(-1, keepdim=True)
        return score + self.bias_u(user) + self.bias_t(thing)


def ratings(seed, flat=False, sparse=True):
    rng = np.random.default_rng(seed)
    u, t = rng.integers(0, 40, 4 * N), rng.integers(0, 30, 4 * N)
    taste, kind = rng.normal(0, 1, (40, 3)), rng.normal(0, 1, (30, 3))
    y = torch.tensor((taste[u] * kind[t]).sum(1) + rng.normal(0, 0.3, 4 * N), dtype=torch.float32)
    rows = Pairs(
        lambda a, b, c: ((a, b), c), torch.tensor(u), torch.tensor(t), y if flat else y[:, None]
    )
    model = Recommender(sparse)
    kind = torch.optim.SparseAdam if sparse else torch.optim.Adam
    return {"model": model, "loader": DataLoader(rows, 64, True), "loss": nn.MSELoss(),
            "optimizer": kind(list(model.parameters()), 0.02)}  # fmt: skip


# ---- a line of letters, read by CTC ----


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(6, 48, 3, padding=1), nn.ReLU(), nn.Conv1d(48, 6, 3, padding=1)
        )

    def forward(self, strip):
        return self.net(strip).permute(2, 0, 1).log_softmax(-1)  # (T, B, letters)


def reading(seed):
    rng = np.random.default_rng(seed)
    letters = rng.integers(1, 6, (N, 4))
    strip = np.zeros((N, 6, 16), np.float32)
    for place in range(4):
        strip[np.arange(N), letters[:, place], 4 * place + 1] = 2
        strip[np.arange(N), letters[:, place], 4 * place + 2] = 2
    strip += rng.normal(0, 0.3, strip.shape)
    model = Reader()

    def loss(outputs, targets):
        time, count, _ = outputs.shape
        return F.ctc_loss(outputs, targets, torch.full((count,), time), torch.full((count,), 4))

    rows = TensorDataset(torch.tensor(strip, dtype=torch.float32), torch.tensor(letters))
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": loss,
            "optimizer": torch.optim.Adam(model.parameters(), 3e-3)}  # fmt: skip


# ---- a generator against a critic ----


class Game(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, points):
        return self.critic(points).squeeze(-1)


def game(seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 6.28, N)
    points = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1), dtype=torch.float32)
    model = Game()
    optimizer = torch.optim.Adam(
        [{"params": model.maker.parameters(), "lr": 1e-3},
         {"params": model.critic.parameters(), "lr": 4e-3}],
        betas=(0.5, 0.9),
    )  # fmt: skip

    def train_step(model, batch, loss, optimizer):
        real = batch[0]
        made = model.maker(torch.randn(len(real), 4))
        optimizer.zero_grad()
        critic = F.relu(1 - model(real)).mean() + F.relu(1 + model(made.detach())).mean()
        critic.backward()
        for p in model.critic.parameters():
            p.requires_grad_(False)
        maker = -model(made).mean()
        maker.backward()
        for p in model.critic.parameters():
            p.requires_grad_(True)
        optimizer.step()
        return {"loss": critic.detach(), "maker": maker.detach()}

    return {"model": model, "loader": DataLoader(TensorDataset(points, torch.ones(N)), 32, True),
            "loss": lambda o, t: F.relu(1 - t * o).mean(), "optimizer": optimizer,
            "train_step": train_step}  # fmt: skip


# ---- sharpness-aware steps: two passes a step ----


def sharp(seed, climbs_back=True):
    x, y = pictures(seed)
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def train_step(model, batch, loss, optimizer):
        x, y = batch
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
            moves = [0.05 * p.grad / norm for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        if not climbs_back:
            optimizer.zero_grad()
        optimizer.step()
        return value

    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True),
            "loss": nn.CrossEntropyLoss(), "optimizer": optimizer,
            "train_step": train_step}  # fmt: skip


# ---- two heads: which class, and how large ----


class TwoHeads(nn.Module):
    def __init__(self, detached=False):
        super().__init__()
        self.body, self.kind, self.size = convnet(32), nn.Linear(32, 4), nn.Linear(32, 1)
        self.detached = detached

    def forward(self, x):
        h = F.relu(self.body(x))
        return {"kind": self.kind(h), "size": self.size(h).squeeze(-1)}


def two_heads(seed, forgets=False):
    x, y = pictures(seed)
    size = torch.rand(N)
    x = x * (0.5 + size[:, None, None, None])
    rows = Pairs(lambda a, b, c: (a, {"kind": b, "size": c}), x, y, size)

    def loss(outputs, targets):
        kind = F.cross_entropy(outputs["kind"], targets["kind"])
        size = F.smooth_l1_loss(outputs["size"], targets["size"])
        return kind if forgets else kind + 2 * size

    model = TwoHeads()
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": loss,
            "optimizer": torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0)}  # fmt: skip


# ---- focal loss with weights of classes ----


def focal(seed, softmaxed=False):
    x, y = pictures(seed)
    weights = torch.tensor([0.5, 1.0, 1.0, 1.5])

    def loss(outputs, targets):
        rows = F.log_softmax(outputs, 1).gather(1, targets[:, None]).squeeze(1)
        return (-weights[targets] * (1 - rows.exp()) ** 2 * rows).sum() / weights[targets].sum()

    model = nn.Sequential(convnet(), nn.Softmax(1)) if softmaxed else convnet()
    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True), "loss": loss,
            "optimizer": torch.optim.Adam(model.parameters(), 2e-3)}  # fmt: skip


# ---- labels of which a third is wrong, clipped gradients, restarts ----


def noisy(seed, stands=False):
    x, y = pictures(seed)
    rng = np.random.default_rng(seed)
    y = torch.where(torch.tensor(rng.random(N) < 0.3), torch.tensor(rng.integers(0, 4, N)), y)
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    schedule = CosineAnnealingWarmRestarts(optimizer, 10, T_mult=2)

    class Standing:
        base_lrs = (0.05,)

        def step(self):
            schedule.step(0)

        def state_dict(self):
            return {}

        def get_last_lr(self):
            return schedule.get_last_lr()

    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True),
            "loss": nn.CrossEntropyLoss(), "optimizer": optimizer,
            "schedule": Standing() if stands else schedule}  # fmt: skip


# ---- weights averaged beside the training, used by the evaluation alone ----


def shadowed(seed, still_training=False):
    x, y = pictures(seed)
    model = convnet()
    shadow = copy.deepcopy(model).requires_grad_(False)

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(shadow.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.1)
            for a, b in zip(shadow.buffers(), model.buffers(), strict=True):
                a.copy_(b)
        return value

    @torch.no_grad()
    def evaluate(model, loader):
        chosen = model if still_training else shadow.eval()
        right, total = 0, 0
        for x, y in loader:
            right, total = right + int((chosen(x).argmax(1) == y).sum()), total + len(y)
        return right / total

    rows = TensorDataset(x, y)
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": nn.CrossEntropyLoss(),
            "eval_loader": DataLoader(rows, 64), "evaluate": evaluate, "train_step": train_step,
            "optimizer": torch.optim.Adam(model.parameters(), 2e-3)}  # fmt: skip


# ---- proxies of classes, learned by the loss ----


class Proxies(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(4, 16))

    def forward(self, outputs, targets):
        near = F.normalize(outputs, dim=1) @ F.normalize(self.places, dim=1).T
        return F.cross_entropy(8 * near, targets)


def proxies(seed, learned=True):
    x, y = pictures(seed)
    model, loss = convnet(16), Proxies()
    parameters = [*model.parameters(), *(loss.parameters() if learned else ())]
    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True), "loss": loss,
            "optimizer": torch.optim.Adam(parameters, 2e-3)}  # fmt: skip


# ---- several labels, an evaluation of its own ----


def tags(seed, forgets_eval=False, most=1.0):
    x, y = pictures(seed)
    many = F.one_hot(y, 4).float()
    many[:, 3] = (x.mean((1, 2, 3)) > 0).float()
    model = nn.Sequential(convnet(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 4))

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), most)
        optimizer.step()
        return value

    @torch.no_grad()
    def evaluate(model, loader):
        if not forgets_eval:
            model.eval()
        right, total = 0, 0
        for x, y in loader:
            right, total = right + int(((model(x) > 0) == (y > 0)).sum()), total + y.numel()
        model.train()
        return right / total

    rows = TensorDataset(x, many)
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": nn.BCEWithLogitsLoss(),
            "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
            "train_step": train_step, "evaluate": evaluate,
            "eval_loader": DataLoader(rows, 64)}  # fmt: skip


# ---- rows of numbers pooled by attention ----


class Pooled(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.net, self.score = nn.Sequential(nn.Linear(5, 32), nn.ReLU()), nn.Linear(32, 1)
        self.head, self.axis = nn.Linear(32, 3), axis

    def forward(self, rows):
        h = self.net(rows)
        return self.head((h * self.score(h).softmax(self.axis)).sum(1))


def pooled(seed, axis=1):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, N)
    x = rng.normal(0, 1, (N, 9, 5))
    x[np.arange(N), rng.integers(0, 9, N), y] += 4
    rows = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    model = Pooled(axis)
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": nn.CrossEntropyLoss(),
            "optimizer": torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0)}  # fmt: skip


# ---- amounts whose logarithm is learned ----


def amounts(seed, raw=False):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(0, 1, (N, 6)), dtype=torch.float32)
    y = (x[:, :1] + 0.3 * x[:, 1:2]).exp()
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 1))

    def loss(outputs, targets):
        guess = outputs.log() if raw else outputs
        return ((guess - targets.log1p()) ** 2).mean().sqrt()

    return {"model": model, "loader": DataLoader(TensorDataset(x, 4 * y), 32, True), "loss": loss,
            "optimizer": torch.optim.Adam(model.parameters(), 3e-3)}  # fmt: skip


# ---- a teacher inside the model ----


class Taught(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.body, self.head = convnet(width=24), convnet(24, 8), nn.Linear(24, 4)
        self.teacher.requires_grad_(False).eval()

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            soft = self.teacher(x)
        return self.head(F.relu(self.body(x))), soft


def taught(seed, body_alone=False):
    x, y = pictures(seed)
    model = Taught()

    def loss(outputs, targets):
        own, soft = outputs
        near = F.kl_div((own / 2).log_softmax(1), (soft / 2).softmax(1), reduction="batchmean")
        return F.cross_entropy(own, targets) + 0.5 * 4 * near

    trained = [*model.body.parameters(), *([] if body_alone else model.head.parameters())]
    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True), "loss": loss,
            "optimizer": torch.optim.Adam(trained, 2e-3)}  # fmt: skip


# ---- a denoiser of points: noise and time are drawn in the step ----


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)
        )

    def forward(self, points, time=None):
        time = torch.full((len(points), 1), 0.5) if time is None else time
        return self.net(torch.cat([points, time], 1))


def denoising(seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 6.28, N)
    points = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1), dtype=torch.float32)
    model = Denoiser()

    def train_step(model, batch, loss, optimizer):
        time, noise = torch.rand(len(batch[0]), 1), torch.randn_like(batch[0])
        mixed = (1 - time) * batch[0] + time * noise
        optimizer.zero_grad()
        value = F.mse_loss(model(mixed, time), noise - batch[0])
        value.backward()
        optimizer.step()
        return value

    return {"model": model, "loader": DataLoader(TensorDataset(points, points), 32, True),
            "loss": nn.MSELoss(), "optimizer": torch.optim.Adam(model.parameters(), 1e-3),
            "train_step": train_step}  # fmt: skip


# ---- experts, one a row ----


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3)) for _ in range(4)
        )

    def forward(self, x):
        share = self.gate(x).softmax(1)
        best, which = share.max(1)
        out = x.new_zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            mine = which == number
            if mine.any():
                out[mine] = best[mine, None] * expert(x[mine])
        self.uneven = 4 * (share.mean(0) ** 2).sum()
        return out


def experts(seed):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(0, 1, (N, 8)), dtype=torch.float32)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()
    model = Experts()
    return {"model": model, "loader": DataLoader(TensorDataset(x, y), 32, True),
            "loss": lambda o, t: F.cross_entropy(o, t) + 0.01 * model.uneven,
            "optimizer": torch.optim.Adam(model.parameters(), 3e-3)}  # fmt: skip


DEFECTS = [
    ("small language model: not causal", {"TRAIN004"}, lambda s: small_lm(s, False)),
    ("ratings (B, 1) minus (B,)", {"TRAIN020"}, lambda s: ratings(s, flat=True)),
    ("sharpness-aware: cleared before the step", {"TRAIN016", "TRAIN005"},
     lambda s: sharp(s, False)),
    ("a head that the loss forgets", {"TRAIN005"}, lambda s: two_heads(s, True)),
    ("focal loss on probabilities", {"TRAIN020"}, lambda s: focal(s, True)),
    ("restarts that stand still", {"TRAIN014"}, lambda s: noisy(s, True)),
    ("proxies that nobody trains", {"TRAIN005"}, lambda s: proxies(s, False)),
    ("tags: evaluated in train mode", {"TRAIN009", "TRAIN024"}, lambda s: tags(s, True)),
    ("tags: gradients clipped away", {"TRAIN003", "TRAIN015"},
     lambda s: tags(s, most=1e-9)),
    ("pooled over the batch", {"TRAIN004"}, lambda s: pooled(s, 0)),
    ("the logarithm of a negative output", {"TRAIN001"},
     lambda s: amounts(s, True)),
    ("a taught head outside the optimizer", {"TRAIN005"}, lambda s: taught(s, True)),
]  # fmt: skip

TWINS = [
    ("small language model, tied weights, clipped, restarts", small_lm),
    ("letters by CTC", reading),
    ("a generator against a critic", game),
    ("sharpness-aware steps", sharp),
    ("noisy labels, restarts", noisy),
    ("averaged weights that only evaluate", shadowed),
    ("ratings on sparse embeddings", ratings),
    ("focal loss with class weights", focal),
    ("two heads", two_heads),
    ("a denoiser", denoising),
    ("a mixture of experts", experts),
    ("learned proxies", proxies),
]
