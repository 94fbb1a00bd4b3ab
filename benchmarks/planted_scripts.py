"""Trainings of the kinds that users write, each healthy and with one planted defect, in torch.

Batches as dicts, targets as lists of dicts, pairs without labels, own collate functions, streams,
averaged weights, two precisions. `DEFECTS` has (name, codes that name it, maker) and `TWINS` has
(name, maker); a maker takes a seed and returns what `make_training()` would.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import DataLoader, Dataset, IterableDataset

N = 256


def pictures(seed, n=N, side=12, classes=4):
    """Stripes of four directions on noise, and which direction it was."""
    rng = np.random.default_rng(seed + 77)
    y = rng.integers(0, classes, n)
    yy, xx = np.mgrid[:side, :side]
    waves = [np.sin(xx * 1.1), np.sin(yy * 1.1), np.sin((xx + yy) * 0.8), np.sin((xx - yy) * 0.8)]
    x = np.stack([waves[k] for k in y])[:, None] + rng.normal(0, 0.5, (n, 3, side, side))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def convnet(out=4, width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, out),
    )  # fmt: skip


class Pairs(Dataset):
    """Rows of several tensors, joined by a function."""

    def __init__(self, join, *columns):
        self.join, self.columns = join, columns

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, i):
        return self.join(*(c[i] for c in self.columns))


# ---- 1. a text classifier with batches and outputs as Hugging Face has them ----


class TextClassifier(nn.Module):
    def __init__(self, cut=False):
        super().__init__()
        self.embeddings = nn.Embedding(60, 32, padding_idx=0)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True), 2,
            enable_nested_tensor=False)  # fmt: skip
        self.classifier = nn.Linear(32, 3)
        self.cut = cut

    def forward(self, input_ids, attention_mask, labels=None):
        hidden = self.encoder(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
        if self.cut:
            with torch.no_grad():
                hidden = self.encoder(
                    self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0
                )
        mask = attention_mask[..., None].float()
        logits = self.classifier((hidden * mask).sum(1) / mask.sum(1))
        loss = F.cross_entropy(logits, labels) if labels is not None else None
        return SimpleNamespace(loss=loss, logits=logits)


def text_batches(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, N)
    lengths = rng.integers(5, 15, N)
    ids = rng.integers(1, 60, (N, 14))
    ids[:, :4] = np.where(rng.random((N, 4)) < 0.7, 10 * (y[:, None] + 1), ids[:, :4])
    mask = (np.arange(14) < lengths[:, None]).astype(int)
    ids = ids * mask
    columns = [torch.tensor(v) for v in (ids, mask, y)]
    return DataLoader(Pairs(lambda i, m, y: {"input_ids": i, "attention_mask": m, "labels": y},
                            *columns), 16, shuffle=True)  # fmt: skip


def text(seed, cut=False):
    model = TextClassifier(cut)
    return {
        "model": model,
        "loader": text_batches(seed),
        "loss": lambda outputs, labels: F.cross_entropy(outputs.logits, labels),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }


def text_own_step(seed, rate=1e-3):
    made = text(seed)
    made["optimizer"] = torch.optim.AdamW(made["model"].parameters(), lr=rate)

    def train_step(model, batch, optimizer):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return made | {"train_step": train_step}


# ---- 2. detection: images of different size, targets as a list of dicts ----


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU())  # fmt: skip
        self.cls, self.box = nn.Conv2d(32, 1, 1), nn.Conv2d(32, 4, 1)

    def forward(self, images):
        features = self.backbone(images)
        return {"score": self.cls(features)[:, 0], "boxes": self.box(features)}


def detection_loss(outputs, targets):
    total = 0
    for i, target in enumerate(targets):
        score, boxes = outputs["score"][i], outputs["boxes"][i]
        wanted = torch.zeros_like(score)
        for box in target["boxes"]:
            cx, cy = int((box[0] + box[2]) / 8), int((box[1] + box[3]) / 8)
            wanted[cy, cx] = 1
            total = total + F.smooth_l1_loss(boxes[:, cy, cx], box / 16)
        total = total + F.binary_cross_entropy_with_logits(score, wanted)
    return total / len(targets)


def collate_detection(samples):
    return torch.stack([s[0] for s in samples]), [s[1] for s in samples]


def detection(seed, late_head=False):
    rng = np.random.default_rng(seed)
    images, targets = [], []
    for _ in range(96):
        image, boxes = rng.normal(0, 0.3, (3, 16, 16)), []
        for _ in range(int(rng.integers(1, 3))):
            x, y = rng.integers(0, 10, 2)
            image[:, y : y + 5, x : x + 5] += 2
            boxes.append([x, y, x + 5, y + 5])
        images.append(torch.tensor(image, dtype=torch.float32))
        targets.append({"boxes": torch.tensor(boxes, dtype=torch.float32),
                        "labels": torch.ones(len(boxes), dtype=torch.long)})  # fmt: skip
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    if late_head:
        model.box = nn.Conv2d(32, 4, 1)
    loader = DataLoader(list(zip(images, targets, strict=True)), 8, shuffle=True,
                        collate_fn=collate_detection)  # fmt: skip
    return model, loader, detection_loss, optimizer


# ---- 3. segmentation with a small U-net, ignored borders ----


class UNet(nn.Module):
    def __init__(self, soft=False):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.low = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.head = nn.Conv2d(32, 3, 1)
        self.soft = soft

    def forward(self, x):
        skip = self.down(x)
        out = self.head(torch.cat([skip, self.up(self.low(skip))], 1))
        return out.softmax(1) if self.soft else out


def segmentation(seed, soft=False, dice=False):
    x, _ = pictures(seed)
    masks = (x.mean(1) > 0.3).long() + (x.mean(1) > 0.9).long()
    masks[:, 0], masks[:, -1] = 255, 255
    model = UNet(soft)

    def loss(outputs, masks):
        value = F.cross_entropy(outputs, masks, ignore_index=255)
        if dice:
            known = masks != 255
            share = outputs.softmax(1)[:, 1] * known
            hit = (masks == 1) & known
            value = value + 1 - (2 * (share * hit).sum() + 1) / (share.sum() + hit.sum() + 1)
        return value

    return {"model": model, "loader": DataLoader(Pairs(lambda a, b: (a, b), x, masks), 8, True),
            "loss": loss, "optimizer": torch.optim.Adam(model.parameters(), lr=2e-3)}  # fmt: skip


# ---- 4. prices: regression with Huber's loss, inputs as a dict ----


class Prices(nn.Module):
    def __init__(self):
        super().__init__()
        self.street = nn.Embedding(20, 8)
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, numbers, street):
        return self.net(torch.cat([numbers, self.street(street)], 1)).squeeze(1)


def prices(seed, thousands=False):
    rng = np.random.default_rng(seed)
    numbers, street = rng.normal(0, 1, (N, 4)), rng.integers(0, 20, N)
    price = numbers[:, 0] + np.abs(numbers[:, 1]) + street / 10 + rng.normal(0, 0.1, N)
    price = (price - price.mean()) / price.std()
    if thousands:
        price = 350_000 + 20_000 * price
    columns = [torch.tensor(numbers, dtype=torch.float32), torch.tensor(street),
               torch.tensor(price, dtype=torch.float32)]  # fmt: skip
    data = Pairs(lambda a, s, p: {"numbers": a, "street": s, "target": p}, *columns)
    model = Prices()
    return {"model": model, "loader": DataLoader(data, 32, True, drop_last=True),
            "loss": nn.HuberLoss(),
            "optimizer": torch.optim.Adam(model.parameters(), lr=5e-3)}  # fmt: skip


# ---- 5. tagging of padded rows by a recurrent network ----


class Tagger(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.rnn = nn.GRU(24, 32, batch_first=batch_first, bidirectional=True)
        self.tag = nn.Linear(64, 5)

    def forward(self, tokens):
        return self.tag(self.rnn(self.embed(tokens))[0])


def collate_rows(rows):
    from torch.nn.utils.rnn import pad_sequence

    tokens = pad_sequence([r[0] for r in rows], True)
    return tokens, pad_sequence([r[1] for r in rows], True)


def tagging(seed, masked=True, batch_first=True):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(N):
        tokens = rng.integers(1, 30, int(rng.integers(4, 20)))
        rows.append((torch.tensor(tokens), torch.tensor(1 + (tokens + np.roll(tokens, 1)) % 4)))
    model = Tagger(batch_first)

    def loss(outputs, tags):
        each = F.cross_entropy(outputs.transpose(1, 2), tags, reduction="none")
        if masked:
            return (each * (tags != 0)).sum() / (tags != 0).sum()
        return each.mean()

    return model, DataLoader(rows, 16, True, collate_fn=collate_rows), loss, torch.optim.Adam(
        model.parameters(), lr=3e-3)  # fmt: skip


# ---- 6. contrastive pairs, no labels ----


class Encoder(nn.Module):
    def __init__(self, axis=1):
        super().__init__()
        self.body, self.project = convnet(32), nn.Sequential(nn.ReLU(), nn.Linear(32, 16))
        self.axis = axis

    def forward(self, one, two):
        return tuple(F.normalize(self.project(self.body(v)), dim=self.axis) for v in (one, two))


def contrastive(seed, axis=1):
    x, _ = pictures(seed)

    def views(picture):
        return [picture + 0.2 * torch.randn_like(picture) for _ in range(2)]

    def loss(outputs, _targets):
        scores = outputs[0] @ outputs[1].T / 0.2
        wanted = torch.arange(len(scores))
        return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2

    model = Encoder(axis)
    return {"model": model, "loader": DataLoader(Pairs(views, x), 32, True, drop_last=True),
            "split_batch": lambda batch: (tuple(batch), batch[0]),
            "loss": loss, "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3)}  # fmt: skip


# ---- 7. several labels a picture ----


def multilabel(seed, sigmoid=False):
    x, y = pictures(seed)
    wanted = torch.stack([y == 0, y % 2 == 1, y > 1], 1).float()
    model = nn.Sequential(convnet(3), nn.Sigmoid()) if sigmoid else convnet(3)
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0, 1.0, 1.0]))
    return model, DataLoader(Pairs(lambda a, b: (a, b), x, wanted), 32, True), loss, (
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True))  # fmt: skip


# ---- 8. imbalanced classes with weights, a step of its own ----


def weighted(seed, clear=True):
    x, y = pictures(seed, 600)
    keep = (y == 0) | (torch.arange(600) % 5 == 0)
    x, y = x[keep], y[keep]
    counts = torch.bincount(y, minlength=4).float()
    loss = nn.CrossEntropyLoss(weight=counts.sum() / (4 * counts))
    model = convnet()

    def train_step(model, batch, loss, optimizer):
        images, labels = batch
        if clear:
            optimizer.zero_grad(set_to_none=True)
        value = loss(model(images), labels)
        value.backward()
        optimizer.step()
        return value.detach()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    return {"model": model, "loader": DataLoader(list(zip(x, y, strict=True)), 32, True),
            "loss": loss, "optimizer": optimizer, "train_step": train_step}  # fmt: skip


# ---- 9. gradients gathered over four batches, one-cycle schedule ----


def gathered(seed, early=False):
    x, y = pictures(seed)
    model = convnet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = OneCycleLR(optimizer, 4e-3, total_steps=400)
    count = {"n": 0}

    def train_step(model, batch, loss, optimizer, scheduler):
        if early:
            optimizer.zero_grad()  # also clears what was gathered so far
        value = loss(model(batch[0]), batch[1]) / 4
        value.backward()
        count["n"] += 1
        if count["n"] % 4 == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return value * 4

    return {"model": model, "loader": DataLoader(list(zip(x, y, strict=True)), 16, True),
            "loss": nn.CrossEntropyLoss(), "optimizer": optimizer, "schedule": schedule,
            "train_step": train_step}  # fmt: skip


# ---- 10. a pretrained body, frozen, and a new head ----


class Finetuned(nn.Module):
    def __init__(self):
        super().__init__()
        state = torch.get_rng_state()
        torch.manual_seed(99)  # stands for a checkpoint: always the same weights
        self.body = convnet(32)
        torch.set_rng_state(state)
        self.body.requires_grad_(False)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 4))

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


def finetuned(seed, wrong_part=False):
    x, y = pictures(seed)
    model = Finetuned()
    part = model.body if wrong_part else model.head
    optimizer = torch.optim.Adam(part.parameters(), lr=1e-2)
    return (
        model,
        DataLoader(list(zip(x, y, strict=True)), 32, True),
        nn.CrossEntropyLoss(),
        optimizer,
    )


# ---- 11. averaged weights (EMA) that are evaluated ----


def averaged(seed, put_back=True):
    x, y = pictures(seed)
    model = convnet()
    ema = copy.deepcopy(model)

    def train_step(model, batch, loss, optimizer):
        model.train()
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(ema.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.05)
        return value

    @torch.no_grad()
    def evaluate(model, loader):
        kept = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            for a, b in zip(ema.parameters(), model.parameters(), strict=True):
                b.copy_(a + 1e-3)
        model.eval()
        right = sum(float((model(x).argmax(1) == y).sum()) for x, y in loader)
        total = sum(len(y) for _, y in loader)
        if put_back:
            model.load_state_dict(kept)
        model.train()
        return {"accuracy": right / total}

    rows = list(zip(x, y, strict=True))
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": nn.CrossEntropyLoss(),
            "eval_loader": DataLoader(rows[:100], 32), "train_step": train_step,
            "evaluate": evaluate,
            "optimizer": torch.optim.Adam(model.parameters(), 2e-3)}  # fmt: skip


# ---- 12. a collate function of one's own that maps names to numbers ----


def named_classes(seed, first=0):
    x, y = pictures(seed)
    names = ["cat", "dog", "owl", "ant"]
    number = {name: first + i for i, name in enumerate(sorted(names))}
    rows = [{"image": a, "name": names[b]} for a, b in zip(x, y.tolist(), strict=True)]

    def collate(samples):
        labels = torch.tensor([number[s["name"]] for s in samples])
        return {"image": torch.stack([s["image"] for s in samples]), "label": labels}

    model = convnet()
    return {"model": model, "loader": DataLoader(rows, 32, True, collate_fn=collate),
            "loss": nn.CrossEntropyLoss(), "optimizer": torch.optim.RMSprop(
                model.parameters(), 1e-3)}  # fmt: skip


# ---- 13. an endless stream, a schedule by steps ----


class Endless(IterableDataset):
    def __init__(self, seed):
        self.x, self.y = pictures(seed)

    def __iter__(self):
        while True:
            i = int(torch.randint(len(self.y), (1,)))
            yield {"pixels": self.x[i], "class": self.y[i]}


def endless(seed, epochs=False):
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    rate = (
        (lambda n: 0.1**n) if epochs else (lambda n: 0.5 * (1 + np.cos(np.pi * min(1, n / 3000))))
    )
    return {"model": model, "loader": DataLoader(Endless(seed), 32), "loss": nn.CrossEntropyLoss(),
            "optimizer": optimizer, "schedule": LambdaLR(optimizer, rate)}  # fmt: skip


# ---- 14. a vision transformer ----


class ViT(nn.Module):
    def __init__(self, registered=True):
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 4, 4)
        place, token = torch.randn(1, 10, 32) * 0.02, torch.zeros(1, 1, 32)
        self.token = nn.Parameter(token)
        self.place = nn.Parameter(place) if registered else place.requires_grad_()
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True),
            2, enable_nested_tensor=False)  # fmt: skip
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.head(self.norm(self.blocks(x)[:, 0]))


def vit(seed, registered=True):
    x, y = pictures(seed)
    model = ViT(registered)
    decay = [p for p in model.parameters() if p.ndim == 2 or p.ndim == 4]
    rest = [p for p in model.parameters() if not (p.ndim == 2 or p.ndim == 4)]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], 1e-3
    )
    warm = LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 100))
    return {"model": model, "loader": DataLoader(list(zip(x, y, strict=True)), 32, True),
            "loss": nn.CrossEntropyLoss(label_smoothing=0.1), "optimizer": optimizer,
            "schedule": warm}  # fmt: skip


# ---- 15. a variational autoencoder ----


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 16))
        self.decode = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 432))

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decode(z).reshape(x.shape), mean, log_variance


def autoencoder(seed, sign=1):
    x, _ = pictures(seed)

    def loss(outputs, x):
        picture, mean, log_variance = outputs
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return ((picture - x) ** 2).sum((1, 2, 3)).mean() + sign * kl

    model = VAE()
    return {"model": model, "loader": DataLoader(x, 32, True), "loss": loss,
            "split_batch": lambda x: (x, x),
            "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}  # fmt: skip


# ---- 16. two precisions ----


def half(seed, loud=False):
    x, y = pictures(seed)
    model = convnet()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    if loud:
        x = x * 1e5  # beyond 65,504

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16 if loud else torch.bfloat16):
            outputs = model(batch[0])
        value = loss(outputs.float(), batch[1])
        if loud:
            value = torch.nan_to_num(value, 0.0, 0.0, 0.0)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        return value

    return {"model": model, "loader": DataLoader(list(zip(x, y, strict=True)), 16, True),
            "loss": nn.CrossEntropyLoss(), "train_step": train_step,
            "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}  # fmt: skip


# ---- 17. a forecast of several steps ----


class Forecast(nn.Module):
    def __init__(self, flat=True):
        super().__init__()
        self.rnn, self.out, self.flat = nn.LSTM(3, 32, batch_first=True), nn.Linear(32, 1), flat

    def forward(self, series):
        last = self.out(self.rnn(series)[0][:, -1])
        return last[:, 0] if self.flat else last


def forecast(seed, flat=True):
    rng = np.random.default_rng(seed)
    series = rng.normal(0, 1, (N, 20, 3)).cumsum(1) / 4
    series -= series.mean((0, 1))
    target = series[:, -1, 0] + 0.5 * np.sin(series[:, -5, 1])
    columns = [torch.tensor(v, dtype=torch.float32) for v in (series, target / target.std())]
    model = Forecast(flat)
    return {"model": model, "loader": DataLoader(Pairs(lambda a, b: [a, b], *columns), 32, True),
            "loss": lambda o, t: (o - t).pow(2).mean(),
            "optimizer": torch.optim.Adam(model.parameters(), 5e-3)}  # fmt: skip


# ---- 18. triplets, and 19. a teacher ----


def triplets(seed):
    x, y = pictures(seed)
    rng = np.random.default_rng(seed)
    by_class = [np.flatnonzero(y.numpy() == k) for k in range(4)]
    rows = []
    for i in range(N):
        near = by_class[int(y[i])][rng.integers(len(by_class[int(y[i])]))]
        other = by_class[(int(y[i]) + 1) % 4]
        rows.append((x[i], x[near], x[other[rng.integers(len(other))]]))

    class Embed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = convnet(16)

        def forward(self, a, p, n):
            return torch.stack([F.normalize(self.net(v), dim=1) for v in (a, p, n)])

    model = Embed()
    return {"model": model, "loader": DataLoader(rows, 32, True), "loss": lambda o, t:
            F.triplet_margin_loss(o[0], o[1], o[2], 0.5),
            "split_batch": lambda batch: (tuple(batch), None),
            "optimizer": torch.optim.Adam(model.parameters(), 1e-3)}  # fmt: skip


def distilled(seed, through=False):
    x, y = pictures(seed)
    teacher, model = convnet(width=24).eval().requires_grad_(False), convnet(width=8)

    def train_step(model, inputs, targets, optimizer):
        model.train()
        outputs = model(inputs)
        if through:
            outputs = outputs.detach().requires_grad_()
        soft = F.kl_div(F.log_softmax(outputs / 2, 1), F.softmax(teacher(inputs) / 2, 1),
                        reduction="batchmean")  # fmt: skip
        value = 0.5 * soft + F.cross_entropy(outputs, targets)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return {"loss": value}

    return {"model": model, "loader": DataLoader(list(zip(x, y, strict=True)), 32, True),
            "loss": nn.CrossEntropyLoss(), "train_step": train_step,
            "optimizer": torch.optim.Adam(model.parameters(), 2e-3)}  # fmt: skip


DEFECTS = [
    ("text: the encoder under no_grad", {"TRAIN005"}, lambda s: text(s, cut=True)),
    ("text: AdamW at 5", {"TRAIN003", "TRAIN015"}, lambda s: text_own_step(s, 5.0)),
    ("detection: the head is newer than the optimizer", {"TRAIN005"},
     lambda s: detection(s, True)),
    ("segmentation: softmax twice", {"TRAIN020"}, lambda s: segmentation(s, soft=True)),
    ("prices in dollars", {"TRAIN001"}, lambda s: prices(s, True)),
    ("tagging: a mean over padding", {"TRAIN021"}, lambda s: tagging(s, masked=False)),
    ("tagging: rows taken for time", {"TRAIN004"},
     lambda s: tagging(s, batch_first=False)),
    ("contrastive: normalised over the batch", {"TRAIN004"},
     lambda s: contrastive(s, axis=0)),
    ("several labels: sigmoid twice", {"TRAIN020"}, lambda s: multilabel(s, True)),
    ("class weights: no zero_grad", {"TRAIN016"}, lambda s: weighted(s, False)),
    ("gathered gradients cleared too early", {"TRAIN016"}, lambda s: gathered(s, True)),
    ("the frozen body in the optimizer, not the head", {"TRAIN005"}, lambda s: finetuned(s, True)),
    ("averaged weights stay in the model", {"TRAIN024"}, lambda s: averaged(s, False)),
    ("names counted from 1", {"TRAIN020"}, lambda s: named_classes(s, 1)),
    ("a stream: the schedule counts steps as epochs", {"TRAIN014"}, lambda s: endless(s, True)),
    ("a transformer's places are no parameter", {"TRAIN005"}, lambda s: vit(s, False)),
    ("an autoencoder rewarded for its divergence",
     {"TRAIN020", "TRAIN015", "TRAIN003"}, lambda s: autoencoder(s, -1)),
    ("overflow in half precision is hidden", {"TRAIN003", "TRAIN015"}, lambda s: half(s, True)),
    ("a forecast (B, 1) minus (B,)", {"TRAIN020"}, lambda s: forecast(s, False)),
    ("a student that is detached", {"TRAIN005"}, lambda s: distilled(s, True)),
]  # fmt: skip

TWINS = [
    ("text", text),
    ("text with its own step", text_own_step),
    ("detection", detection),
    ("segmentation with Dice", lambda s: segmentation(s, dice=True)),
    ("prices", prices),
    ("tagging", tagging),
    ("contrastive", contrastive),
    ("several labels", multilabel),
    ("class weights", weighted),
    ("gathered gradients", gathered),
    ("a frozen body", finetuned),
    ("averaged weights", averaged),
    ("names", named_classes),
    ("an endless stream", endless),
    ("a vision transformer", vit),
    ("a variational autoencoder", autoencoder),
    ("bfloat16", half),
    ("a forecast", forecast),
    ("triplets", triplets),
    ("a teacher", distilled),
]
