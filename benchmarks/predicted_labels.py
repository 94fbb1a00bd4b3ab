"""Wrong labels that predictions show: of pictures with several labels, and of masks.

    python benchmarks/predicted_labels.py several [--pictures 2000] [--seeds 1]
    python benchmarks/predicted_labels.py masks [--pictures 800] [--seeds 1] [--kept FOLDER]

Five in a hundred pictures (several) or objects (masks) are damaged, in five ways. Of each way: the
average precision of pictures with such damage among those with none, by the product, and by
cleanlab where it can be imported (`pip install --target FOLDER cleanlab`, PYTHONPATH=FOLDER); what
is reported, how much of it is damaged, what the product expected of it, and what it reports of the
same set undamaged.

`several`: made probabilities of classes of unlike difficulty. `masks`: a U-Net of eight channels,
trained here in under a minute on 400 other pictures with the same damage; drawn pictures of 128 px
with one to four shapes of six classes, each with colours of its own. It is kept in --kept for
further runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bench import Document, hall, measures, timed, told

app = hall(__doc__)
Array = np.ndarray
Things = list[tuple[int, Array]]  # of one picture: class from 1, mask
SIDE, KINDS, RATE = 128, 6, 0.05


def average_precision(bad: Array, wrong: Array) -> float:
    """Return the average precision of a ranking: `bad` is high for what is to be looked at."""
    hit = wrong[np.argsort(-bad, kind="stable")].astype(float)
    return float((np.cumsum(hit) / np.arange(1, hit.size + 1) * hit).sum() / max(hit.sum(), 1))


def beside(scores: dict[str, Array], way: Array, ways: Sequence[str]) -> Document:
    """Return the average precision by way and score; `way` is 0 for what is undamaged."""
    return {
        name: {k: round(average_precision(v[of], way[of] > 0), 3) for k, v in scores.items()}
        for number, name in enumerate(ways, 1)
        for of in [(way == 0) | (way == number)]
    }


# ---- several labels ----

LABEL_WAYS = ("missing", "added", "swapped", "one class", "another's labels")


def damage_labels(labels: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return labels (n, K) of which some rows are damaged, and the way of each."""
    given, way = labels.copy(), np.zeros(len(labels), np.int64)
    for row in np.flatnonzero(rng.random(len(labels)) < RATE).tolist():
        held, free = np.flatnonzero(labels[row]), np.flatnonzero(~labels[row])
        kind = int(rng.integers(5))
        if kind != 4 and (not held.size or not free.size):
            continue
        if kind == 4:
            given[row] = labels[rng.integers(len(labels))]
        elif kind == 3:  # one class is forgotten, the same everywhere
            given[row, 0] = not labels[row, 0]
        if kind in (0, 2):
            given[row, rng.choice(held)] = False
        if kind in (1, 2):
            given[row, rng.choice(free)] = True
        way[row] = (kind + 1) * int((given[row] != labels[row]).any())
    return given, way


@measures(app)
def several(pictures: int = 2000, seeds: int = 1, classes: int = 8) -> Document:
    """Several labels a picture: what is found, beside cleanlab and the plain probability."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        often = rng.uniform(0.1, 0.5, classes)
        labels = rng.random((pictures, classes)) < often
        seen = np.where(labels, 1, -1) * rng.uniform(1.5, 3, classes)
        logit = seen + rng.normal(0, 1.4, seen.shape) + np.log(often / (1 - often))
        p = 1 / (1 + np.exp(-logit))
        given, way = damage_labels(labels, rng)
        ours, chance = judge_labels(p, given)
        own = np.where(given, p, 1 - p)
        scores = {"ours": ours, "plain": (1 - own).max(1)}
        try:
            from cleanlab.multilabel_classification.rank import get_label_quality_scores

            held = [np.flatnonzero(row).tolist() for row in given]
            scores["cleanlab"] = 1 - get_label_quality_scores(held, p)
        except ImportError:
            pass
        said = chance.max(1) >= 0.65
        found.append(beside(scores, way, LABEL_WAYS) | reported(said, way > 0, chance.max(1)) | {
            "clean": int((judge_labels(p, labels)[1] >= 0.65).any(1).sum())})  # fmt: skip
        print(told(found[-1]), flush=True)
    return {"sets": found}


def judge_labels(p: Array, given: Array) -> tuple[Array, Array]:
    """Return how bad each picture looks, and the chance (n, K) that a label is wrong, as LABEL008
    judges it."""
    from audit.embeddings.judged import judge_probabilities

    quality, chance = np.ones(p.shape), np.zeros(p.shape)
    for k in range(p.shape[1]):
        both = np.stack([1 - p[:, k], p[:, k]], 1)
        judged = judge_probabilities(both, given[:, k].astype(np.int64))
        quality[:, k] = judged.quality
        chance[:, k] = judged.error_chance * (judged.gain >= 4)
    return 1 - quality.min(1), chance


def reported(said: Array, wrong: Array, chance: Array) -> Document:
    """Return how many are reported, how many of them rightly, and how many were expected."""
    right = int((said & wrong).sum())
    expected = round(float(chance[said].sum()), 1)
    return {"reported": int(said.sum()), "right": right, "expected": expected,
            "damaged": int(wrong.sum())}  # fmt: skip


# ---- masks ----

MASK_WAYS = ("wrong pixels", "wrong class", "shifted", "swapped", "missing")


def draw_pictures(count: int, rng: np.random.Generator) -> tuple[Array, list[Things]]:
    """Return pictures (n, 3, 128, 128), and the class and mask of what each shows."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] + 0.5
    pictures = np.empty((count, 3, SIDE, SIDE), np.float32)
    things = list[Things]()
    for picture in pictures:
        blocks = np.kron(rng.normal(0, 0.15, (3, 8, 8)), np.ones((1, 16, 16)))
        picture[:] = rng.uniform(0.2, 0.8, (3, 1, 1)) + blocks
        own: Things = []
        for _ in range(rng.integers(1, 5)):
            kind, (w, h), turn = (
                int(rng.integers(KINDS)),
                rng.uniform(18, 56, 2),
                rng.normal(0, 0.2),
            )
            dx, dy = x - rng.uniform(12, SIDE - 12), y - rng.uniform(12, SIDE - 12)
            u = (np.cos(turn) * dx + np.sin(turn) * dy) / w * 2
            v = (np.cos(turn) * dy - np.sin(turn) * dx) / h * 2
            r, inside = np.hypot(u, v), (abs(u) < 1) & (abs(v) < 1)
            mask = (
                inside, r < 1, inside & (abs(u) < (v + 1) / 2),
                inside & ((abs(u) < 0.35) | (abs(v) < 0.35)), (r < 1) & (r > 0.45),
                abs(u) + abs(v) < 1,
            )[kind]  # fmt: skip
            if mask.sum() < 60 or any((mask & m).sum() > 0.25 * min(mask.sum(), m.sum())
                                      for _, m in own):  # fmt: skip
                continue
            hue = np.cos(2 * np.pi * (kind / KINDS + np.arange(3) / 3)) + rng.normal(0, 0.4, 3)
            shade = rng.uniform(0.2, 0.5) * hue
            picture[:, mask] += shade[:, None]
            own = [(c, m & ~mask) for c, m in own] + [(kind + 1, mask)]
        picture += rng.normal(0, 0.08, picture.shape)
        things.append([(c, m) for c, m in own if m.any()])
    return pictures, things


def moved(mask: Array, far: float, turn: float) -> Array:
    """Return a mask moved by `far` px; what leaves the picture is lost."""
    down, right = round(far * np.sin(turn)), round(far * np.cos(turn))
    padded = np.pad(mask, SIDE)[SIDE - down : 2 * SIDE - down, SIDE - right : 2 * SIDE - right]
    return np.ascontiguousarray(padded)


def damage_masks(
    things: list[Things], rng: np.random.Generator, rate: float = RATE
) -> tuple[list[Things], Array]:
    """Return the objects with some damaged, and the way of each picture (-1: several)."""
    given, way = copy.copy(things), np.zeros(len(things), np.int64)
    for i, own in enumerate(things):
        new: list[tuple[int, Array] | None] = list(own)
        for j in range(len(own)):
            if rng.random() >= rate:
                continue
            kind = int(rng.integers(5))
            c, mask = own[j]
            if kind == 0:  # 15 to 40 % of the pixels: cut off one side, or added along it
                rows, columns = np.nonzero(mask)
                turn = rng.uniform(0, 2 * np.pi)
                along = np.cos(turn) * columns + np.sin(turn) * rows
                share, part = rng.uniform(0.15, 0.4), np.zeros_like(mask)
                cut = along > np.quantile(along, 1 - share)
                part[rows[cut], columns[cut]] = True
                if rng.random() < 0.5:
                    new[j] = c, mask & ~part
                else:
                    depth = np.ptp(along[cut]) + 1
                    new[j] = c, mask | moved(part, depth, turn)
            elif kind == 1:
                new[j] = int((c + rng.integers(1, KINDS) - 1) % KINDS) + 1, mask
            elif kind == 2:
                size, turn = np.sqrt(mask.sum()) * rng.uniform(0.25, 0.6), rng.uniform(0, 2 * np.pi)
                new[j] = c, moved(mask, size, turn)
            elif kind == 3:
                others = [k for k in range(len(own)) if own[k][0] != c]
                if not others:
                    continue
                k = int(rng.choice(others))
                new[j], new[k] = (own[k][0], mask), (c, own[k][1])
            else:
                new[j] = None
            way[i] = kind + 1 if way[i] in (0, kind + 1) else -1
        given[i] = [one for one in new if one is not None]
    return given, way


def class_map(own: Things) -> Array:
    """Return the class of each pixel, 0 for background."""
    found = np.zeros((SIDE, SIDE), np.uint8)
    for c, mask in own:
        found[mask] = c
    return found


def make_network() -> Any:
    """Return the untrained U-Net: (n, 3, side, side) to (n, classes + 1, side, side)."""
    import torch
    from torch import nn
    from torch.nn import functional

    def block(taken: int, given: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for n in (taken, given):
            layers += [nn.Conv2d(n, given, 3, 1, 1), nn.BatchNorm2d(given), nn.ReLU()]
        return nn.Sequential(*layers)

    class Net(nn.Module):
        def __init__(self, c: int = 8) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, c, 5, 2, 2)
            self.down = nn.ModuleList([block(c, c), block(c, 2 * c), block(2 * c, 4 * c),
                                       block(4 * c, 4 * c)])  # fmt: skip
            self.up = nn.ModuleList([block(8 * c, 2 * c), block(4 * c, c), block(2 * c, c)])
            self.last = nn.Conv2d(c, KINDS + 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def twice(y: torch.Tensor) -> torch.Tensor:
                return functional.interpolate(y, scale_factor=2, mode="bilinear")

            seen = [self.down[0](self.first(x))]
            for layer in list(self.down)[1:]:
                seen.append(layer(functional.max_pool2d(seen[-1], 2)))
            y = seen.pop()
            for layer in self.up:
                y = layer(torch.cat([twice(y), seen.pop()], 1))
            return twice(self.last(y))

    return Net()


def train(pictures: Array, masks: Array, rounds: int, each: Callable[[int, Any], None]) -> Any:
    """Return the network after `rounds` over the pictures; `each` is told the round and it."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = make_network()
    x, y = torch.from_numpy(pictures) - 0.5, torch.from_numpy(masks.astype(np.int64))
    steps = torch.optim.Adam(net.parameters(), 5e-3)
    slower = torch.optim.lr_scheduler.OneCycleLR(steps, 8e-3, rounds * (len(x) // 8))
    for number in range(rounds):
        for batch in torch.randperm(len(x))[: len(x) // 8 * 8].split(8):
            loss = torch.nn.functional.cross_entropy(net(x[batch]), y[batch])
            steps.zero_grad()
            loss.backward()
            steps.step()
            slower.step()
        each(number + 1, net.eval())
        net.train()
    return net.eval()


def predict(net: Any, pictures: Array) -> Array:
    """Return the probabilities of classes (n, classes + 1, side, side), half precision."""
    import torch

    with torch.no_grad():
        parts = [
            torch.softmax(net(torch.from_numpy(pictures[i : i + 32]) - 0.5), 1).numpy()
            for i in range(0, len(pictures), 32)
        ]
    return np.concatenate(parts).astype(np.float16)


def instances(p: Array) -> tuple[Array, Array]:
    """Return the class of each pixel (n, side, side), and the score of its connected region: the
    median probability of its pixels."""
    from scipy.ndimage import label, median

    said = p.argmax(1).astype(np.int64)
    best = p.max(1).astype(float)
    sure = np.ones(said.shape)
    for picture, chance, score in zip(said, best, sure, strict=True):
        for c in np.unique(picture[picture > 0]).tolist():
            parts, count = label(picture == c)
            found = np.append(1.0, median(chance, parts, np.arange(1, count + 1)))
            score[parts > 0] = found[parts[parts > 0]]
    return said, sure


def judge_masks(given: list[Things], said: Array, sure: Array) -> pl.DataFrame:
    """Return what the product says of each object, without a scan."""
    from audit.annotations.mask_overlaps import compare_maps
    from audit.embeddings.mask_errors import judge_things

    found = []
    for own, picture, chance in zip(given, said, sure, strict=True):
        numbers = np.zeros((SIDE, SIDE), np.int64)
        for i, (_, mask) in enumerate(own, 1):
            numbers[mask] = i
        kinds = np.array([c - 1 for c, _ in own], np.int64)
        found.append(compare_maps(numbers, kinds, picture, chance, KINDS))
    return judge_things(found, KINDS)


def by_picture(found: pl.DataFrame, count: int) -> tuple[Array, Array]:
    """Return the doubt about each picture, and the chance of what is reported of it, else 0."""
    told = pl.when((pl.col("chance") >= 0.65) & (pl.col("gain") >= 4)).then(pl.col("chance"))
    rows = found.group_by("picture").agg(pl.col("doubt").max(), told.max().fill_null(0))
    doubt, chance = np.zeros(count), np.zeros(count)
    doubt[rows["picture"]], chance[rows["picture"]] = rows["doubt"], rows["chance"]
    return doubt, chance


def trained(kept: Path | None) -> Any:
    """Return the network, from `kept` where it is there."""
    import torch

    path = kept / "masks.pt" if kept else None
    if path is not None and path.is_file():
        net = make_network()
        net.load_state_dict(torch.load(path, weights_only=True))
        return net.eval()
    rng = np.random.default_rng(100)
    pictures, things = draw_pictures(400, rng)
    given, _ = damage_masks(things, rng)
    with timed() as cost:
        net = train(pictures, np.stack([class_map(own) for own in given]), 7, lambda *_: None)
    print(f"trained in {cost['cpu_s']:.0f} CPU s", flush=True)
    if path is not None:
        torch.save(net.state_dict(), path)
    return net


@measures(app)
def masks(pictures: int = 800, seeds: int = 1, kept: Path | None = None) -> Document:
    """Masks: what is found by the masks of a trained network, beside cleanlab."""
    net, found = trained(kept), []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        images, things = draw_pictures(pictures, rng)
        p = predict(net, images)
        given, way = damage_masks(things, rng)
        said, sure = instances(p)
        truth, maps = (np.stack([class_map(own) for own in o]) for o in (things, given))
        facts: Document = {"pixels_right": round(float((said == truth).mean()), 4)}
        doubt, chance = by_picture(judge_masks(given, said, sure), pictures)
        plain, png = by_picture(judge_masks(given, said, np.ones_like(sure)), pictures)
        scores = {"ours": doubt, "ours, PNG": plain, "pixels": (maps != said).mean((1, 2))}
        try:
            from cleanlab.segmentation.rank import get_label_quality_scores

            kind = {"method": "softmin", "verbose": False}
            scores["cleanlab"] = 1 - get_label_quality_scores(maps, p.astype(np.float32), **kind)[0]
        except ImportError:
            pass
        one = way >= 0
        facts |= beside({k: v[one] for k, v in scores.items()}, way[one], MASK_WAYS)
        facts |= reported(chance > 0, way != 0, chance)
        facts["reported_png"] = reported(png > 0, way != 0, png)
        clean = [by_picture(judge_masks(things, said, s), pictures)[1] for s in (sure, sure > 0)]
        facts["clean"] = [int((c > 0).sum()) for c in clean]
        found.append(facts)
        print(told(facts), flush=True)
    return {"sets": found}


if __name__ == "__main__":
    app()
