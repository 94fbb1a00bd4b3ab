"""Classes that were turned by a quarter or by half, or are negatives: found, and where none is?

    python benchmarks/turned.py [--sets 200] [--seed 21] [--data ../shared/data]

Every other set is of real photographs, cut to squares and dealt to 2 to 8 classes (240, 500 or
1,000 in all), the others of 3 to 10 classes of CIFAR-10 with 25 to 120 pictures each. Each is asked
as it is and with one class changed in three ways. A quarter of a minute.
"""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bench import Document, Picture, cifar_pictures, hall, measures, photographs, real_data
from null_pictures import read_picture
from PIL import Image

from audit.embeddings.turns import VERSIONS, describe_versions
from audit.picture.signatures import make_signature, stack_signatures
from audit.statistics.turned import find_turned

app = hall(__doc__)
Described = npt.NDArray[np.float32]  # (versions, pictures, axes)
CHANGES = ("turned to the left", "upside down", "negatives")


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


def _described(pictures: list[Picture]) -> Described:
    return describe_versions(stack_signatures([make_signature(p) for p in pictures]))


def _changed(described: Described, rows: npt.NDArray[np.bool_], change: str) -> Described:
    """Return the versions as they are where the pictures in these rows were changed."""
    made = described.copy()
    if change == "negatives":  # a turned negative is none of the versions: these two alone
        made = made[[0, VERSIONS.index(change)]]
        made[:, rows] = made[::-1, rows]
        return made
    turns = 1 if change == "turned to the left" else 2
    made[:4, rows] = np.roll(described[:4, rows], -turns, 0)
    return made[:4]


@measures(app)
def turned(sets: int = 200, seed: int = 21, data: Path | None = None) -> Document:
    """How often is a changed class told, and one where nothing was changed?"""
    real = real_data(data, "photos-800.tar")
    photos = _described(_photographs(real))
    names, small = zip(*cifar_pictures(real), strict=True)
    classes = np.array([name.split("/")[1] for name in names])
    cifar, rng = _described(list(small)), np.random.default_rng(seed)
    counts: dict[str, Counter[str]] = {}
    for number in range(sets):
        if number % 2:
            chosen = rng.permutation(np.unique(classes))[: int(rng.choice([3, 4, 5, 6, 8, 10]))]
            rows = [rng.choice(np.flatnonzero(classes == one), int(rng.integers(25, 121)), False)
                    for one in chosen]  # fmt: skip
            of = np.repeat(np.arange(len(chosen)), [len(each) for each in rows])
            kind, described = "CIFAR-10", cifar[:, np.concatenate(rows)]
        else:
            n = int(rng.choice([240, 500, 1000]))
            of = rng.integers(0, int(rng.choice([2, 3, 4, 5, 6, 8])), n)
            kind = f"{n} photographs"
            described = photos[:, rng.permutation(photos.shape[1])[:n]]
        told = counts.setdefault(kind, Counter())
        told["sets"] += 1
        told["nothing changed"] += bool(find_turned(described, of, of))
        for change in CHANGES:
            part = int(rng.integers(of.max() + 1))
            found = find_turned(_changed(described, of == part, change), of, of)
            version = 1 if change == "negatives" else VERSIONS.index(change)
            told[change] += any((one.part, one.version) == (part, version) for one in found)
            told["another class"] += any(one.part != part for one in found)
    return {kind: dict(each) for kind, each in sorted(counts.items())}


if __name__ == "__main__":
    app()
