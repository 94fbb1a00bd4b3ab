"""Boxes judged by what they show (BOX031, BOX032): what is found of planted faults, and of nothing.

    python benchmarks/box_looks.py planted | nulls | raccoon [--sets N] [--data DIR]

Worlds are those of `box_worlds.py`. Their boxes are cut as a scan cuts them, and judged as it does,
at the thresholds of the checks; no file is written. `planted`: 2 to 20 % of the boxes get another
class, 2 to 10 % are laid on background. `nulls`: sets in which nothing is wrong, or classes are
dealt at random. `raccoon`: the 200 real annotated pictures, as they are and with boxes laid on
background.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from bench import Document, hall, measures, real_data
from box_worlds import NULLS, Box, Picture, Plan, moved, null_world, raccoons, renamed, world
from threadpoolctl import threadpool_limits

from audit.checks.box_look import BackgroundBox, OtherClass
from audit.embeddings.box_looks import judge_looks, main_axes
from audit.embeddings.label_tables import LEAST_CLASS
from audit.embeddings.patches import VIEWS, code_view, load_coder
from audit.picture.crops import BOX, BoxesOf, clip_corners, cut_crops
from audit.picture.features import feature_picture

app = hall(__doc__)
FAULTS = {
    "nothing": lambda pictures, seed: pictures,
    **{
        f"{share} % of another class": lambda p, s, share=share: renamed(p, share / 100, s)
        for share in (2, 5, 10, 20)
    },
    **{
        f"{share} % on background": lambda p, s, share=share: moved(p, share / 100, s)
        for share in (2, 5, 10)
    },
}
PLANS = {
    f"{objects}, {pictures} pictures": Plan(objects=objects, pictures=pictures, classes=classes)
    for objects, pictures, classes in (
        ("cifar", 64, 6), ("drawn", 64, 6), ("cifar", 200, 8), ("drawn", 200, 12),
        ("cifar", 600, 10), ("drawn", 600, 12),
    )
} | {
    "drawn, 200 on textures": Plan("drawn", "texture", 200),
    "drawn, 200, half annotated": Plan("drawn", annotated=0.5, pictures=200),
    "cifar, 200, half annotated": Plan("cifar", annotated=0.5, pictures=200, each=(4, 9)),
}  # fmt: skip


def cut(picture: Picture) -> tuple[list[Box | None], np.ndarray]:
    """Return the boxes of a picture that are cut, and None for background; and their signatures."""
    high, wide = picture.rgb.shape[:2]
    rows = [(b.left, b.top, b.right - b.left, b.bottom - b.top, 0.0) for b in picture.boxes]
    digest = hashlib.md5(repr(rows).encode()).hexdigest()[:16]
    content = hashlib.md5(picture.rgb[::5].tobytes()).hexdigest()
    names, signatures = cut_crops(
        picture.rgb, feature_picture(picture.rgb), BoxesOf(digest, rows), content
    )
    by_corners = {
        clip_corners(x, y, x + w, y + h, wide, high): box
        for box, (x, y, w, h, _) in zip(picture.boxes, rows, strict=True)
    }
    kinds = [name.split("/")[2:] for name in names]
    there = [at for at, (kind, _) in enumerate(kinds) if kind != "none"]
    found = [
        by_corners[tuple(map(int, kinds[at][1].split(",")))] if kinds[at][0] == BOX else None
        for at in there
    ]
    return found, signatures[there]


def judged(pictures: list[Picture]) -> dict[str, list[Box]]:
    """Return the boxes that each of the two checks would report."""
    parts = [cut(picture) for picture in pictures]
    boxes = [box for found, _ in parts for box in found]
    place = [p.name.split("/")[0] for p in pictures]  # a film is a folder
    owner = [place[at] for at, (found, _) in enumerate(parts) for _ in found]
    names, counts = np.unique([b.label for b in boxes if b], return_counts=True)
    number = {n: at for at, n in enumerate(names[counts >= LEAST_CLASS].tolist())}
    kept = [at for at, b in enumerate(boxes) if b is None or b.label in number]
    labels = np.array([number[b.label] if (b := boxes[at]) else -1 for at in kept], np.int64)
    groups = np.unique(np.array(owner)[kept], return_inverse=True)[1].astype(np.int64)
    codes = code_view(np.concatenate([s for _, s in parts])[kept], load_coder(), VIEWS[0])
    told = {}
    with threadpool_limits(1, "blas"):
        for question in judge_looks(main_axes(codes), labels, groups, len(number)):
            limits = {"class": OtherClass.Params, "background": BackgroundBox.Params}
            limit = limits[question.kind]()
            doubt = np.array(
                [(question.chance[labels == at] > 0.5).mean() for at in range(len(number))] + [0]
            )
            listed = (question.chance >= limit.min_chance) & (question.gain >= limit.min_gain)
            listed &= doubt[labels] <= limit.max_class_doubt
            told[question.kind] = [b for at in np.flatnonzero(listed) if (b := boxes[kept[at]])]
    return told


def counted(pictures: list[Picture], row: dict[str, int]) -> None:
    """Add what is wrong with boxes and what is found of it."""
    for kind, found in judged(pictures).items():
        for name, n in (
            ("wrong", sum(b.fault.startswith(kind) for p in pictures for b in p.boxes)),
            ("reported", len(found)),
            ("true", sum(box.fault.startswith(kind) for box in found)),
            ("otherwise wrong", sum(bool(b.fault) and not b.fault.startswith(kind) for b in found)),
        ):
            row[f"{kind} {name}"] = row.get(f"{kind} {name}", 0) + n


@measures(app)
def planted(sets: int = 2, first: int = 0, only: str = "", data: Path | None = None) -> Document:
    """Count boxes planted, reported and truly so in `sets` sets of each plan; `first`: a seed."""
    place, document = real_data(data), {}
    for name, plan in PLANS.items():
        for seed in range(first, first + sets) if only in name else ():
            pictures = world(plan, seed, place)
            for fault, damage in FAULTS.items():
                row = document.setdefault(f"{name}: {fault}", {})
                counted(damage(pictures, seed), row)
        for key, row in document.items():
            if key.startswith(f"{name}:"):
                print(key, row, flush=True)
    return document


@measures(app)
def nulls(sets: int = 8, first: int = 0, only: str = "", data: Path | None = None) -> Document:
    """Count sets in which a box is reported, of `sets` of each of the kinds of null."""
    place, said, n = real_data(data), [], 0
    for kind in NULLS:
        for seed in range(first, first + sets) if only in kind else ():
            found = judged(null_world(kind, seed, place))
            n += 1
            if any(found.values()):
                said.append(f"{kind} {seed}: { {k: len(v) for k, v in found.items()} }")
    return {"sets": n, "with_findings": len(said), "findings": said}


@measures(app)
def raccoon(sets: int = 3, data: Path | None = None) -> Document:
    """Count what is reported of the real pictures, and of boxes laid on background."""
    pictures, document = raccoons(real_data(data, "raccoon")), {}
    for fault, damage in FAULTS.items():
        if "class" not in fault:
            row = document.setdefault(fault, {})
            for seed in range(sets):
                counted(damage(pictures, seed), row)
    return document


if __name__ == "__main__":
    app()
