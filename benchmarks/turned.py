"""Classes that were turned by a quarter or by half, or are negatives: found, and where none is?

    python benchmarks/turned.py [--sets 60] [--seed 21] [--data ../shared/data]

Every other set is of real photographs, cut to squares and dealt to 2 to 8 classes (240, 500 or
1,000 in all), the others of 3 to 10 classes of CIFAR-10 with 25 to 120 pictures each. Each is asked
as it is and with one class changed in three ways. Two minutes.
"""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
from bench import (
    Document,
    Picture,
    cifar_pictures,
    hall,
    measures,
    photographs,
    read_picture,
    real_data,
)
from PIL import Image

from audit.embeddings.turns import VERSIONS, changed, describe, find_changed
from audit.picture.signatures import Signatures, make_signature, stack_signatures

app = hall(__doc__)
CHANGES = ("turned to the left", "upside down", "negatives")
OPPOSITE = {"turned to the left": "turned to the right"}  # what turns back turns the other way


def _square(picture: Picture) -> Picture:
    side = min(picture.shape[:2])
    y, x = ((length - side) // 2 for length in picture.shape[:2])
    return np.ascontiguousarray(picture[y : y + side, x : x + side])


def _photographs(real: Path) -> list[Picture]:
    with tarfile.open(real / "photos-800.tar") as archive:
        files = [m for m in archive.getmembers() if m.name.lower().endswith((".jpg", ".jpeg"))]
        read = [archive.extractfile(file).read() for file in files]  # type: ignore[union-attr]
    more = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.uint8) for data in read]
    return [_square(p) for p in (*map(read_picture, photographs(real)), *more)]


def _signed(pictures: list[Picture]) -> Signatures:
    return stack_signatures([make_signature(p) for p in pictures])


@measures(app)
def turned(sets: int = 60, seed: int = 21, data: Path | None = None) -> Document:
    """How often is a changed class told, and one where nothing was changed?"""
    real = real_data(data, "photos-800.tar")
    photos = _signed(_photographs(real))
    names, small = zip(*cifar_pictures(real), strict=True)
    classes = np.array([name.split("/")[1] for name in names])
    cifar, rng = _signed(list(small)), np.random.default_rng(seed)
    counts: dict[str, Counter[str]] = {}
    for number in range(sets):
        if number % 2:
            chosen = rng.permutation(np.unique(classes))[: int(rng.choice([3, 4, 5, 6, 8, 10]))]
            rows = [rng.choice(np.flatnonzero(classes == one), int(rng.integers(25, 121)), False)
                    for one in chosen]  # fmt: skip
            of = np.repeat(np.arange(len(chosen)), [len(each) for each in rows])
            kind, table = "CIFAR-10", cifar[np.concatenate(rows)]
        else:
            n = int(rng.choice([240, 500, 1000]))
            of = rng.integers(0, int(rng.choice([2, 3, 4, 5, 6, 8])), n)
            kind = f"{n} photographs"
            table = photos[rng.permutation(len(photos))[:n]]
        told = counts.setdefault(kind, Counter())
        told["sets"] += 1
        told["nothing changed"] += bool(find_changed(table, describe(table), of, of))
        for change in CHANGES:
            part = int(rng.integers(of.max() + 1))
            made = table.copy()
            made[of == part] = changed(table[of == part], OPPOSITE.get(change, change))
            found = {
                (one.part, VERSIONS[one.version])
                for one in find_changed(made, describe(made), of, of)
            }
            told[change] += (part, change) in found
            told["another class"] += any(other != part for other, _ in found)
    return {kind: dict(each) for kind, each in sorted(counts.items())}


if __name__ == "__main__":
    app()
