"""Hard negatives: how often does the near-duplicate search call two different pictures the same?

2,000 pairs that are *not* duplicates but look alike: the nearest neighbours by descriptor among
raccoon photographs, ImageNet photographs and CIFAR-10 pictures of one class, rendered pages of one
layout with different words, simple logos, handwritten-looking digits of one value, flat and
near-flat pictures. Every source is counted by itself, because an average would hide that digits
are far harder than photographs. Nearest by descriptor means: these are the pairs that candidate
generation really hands to verification.

    python benchmarks/hard_negatives.py [--real ../shared/data] [--pairs 2000]

Pictures drawn here are seeded; real ones are skipped with a note where the folder is absent.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from judged_pairs import SAME_CIFAR, SAME_RACCOON, UNSURE_CIFAR, UNSURE_RACCOON
from PIL import Image, ImageDraw, ImageFont

from audit.neighbors.calibration import calibrate
from audit.neighbors.dense import find_nearest
from audit.neighbors.descriptor import describe
from audit.neighbors.rechecks import recheck_pair
from audit.neighbors.search import SearchOptions
from audit.neighbors.signatures import make_signature, stack_signatures
from audit.neighbors.verification import VerifiedPairs, verify

Picture = npt.NDArray[np.uint8]

SHARES = {
    "raccoon": 0.15,
    "photos": 0.15,
    "cifar10 same class": 0.25,
    "pages": 0.15,
    "logos": 0.1,
    "digits": 0.1,
    "flat": 0.1,
}
WORDS = """data image label train test split class model loss epoch batch pixel frame camera
scene weight layer noise error value score total amount invoice street number date city
account""".split()  # noqa: SIM905


def page(rng: np.random.Generator) -> Picture:
    """Draw a page of one fixed layout (title, two paragraphs, a table) with random words."""
    sheet = Image.new("RGB", (620, 877), "white")
    pen = ImageDraw.Draw(sheet)
    title, text = ImageFont.load_default(30), ImageFont.load_default(15)
    pen.text((60, 50), " ".join(rng.choice(WORDS, 4)).title(), "black", title)
    for line in range(22):
        words = " ".join(rng.choice(WORDS, 20))[
            : 68 if line % 11 < 10 else int(rng.integers(15, 60))
        ]
        pen.text((60, 120 + 22 * line + (20 if line > 10 else 0)), words, "black", text)
    for row in range(7):
        y = 650 + 26 * row
        pen.line((60, y, 560, y), "black")
        for column in range(4):
            pen.text((66 + 125 * column, y + 4), str(rng.integers(1, 10**5)), "black", text)
    return np.asarray(sheet, np.uint8)


def logo(rng: np.random.Generator) -> Picture:
    """Draw one to three simple shapes in one or two colours on white, and two letters."""
    board = np.full((200, 200, 3), 255, np.uint8)
    palette = rng.integers(0, 200, (2, 3))
    for _ in range(int(rng.integers(1, 4))):
        colour = tuple(int(c) for c in palette[int(rng.integers(2))])
        x, y = (int(v) for v in rng.integers(50, 150, 2))
        r = int(rng.integers(20, 60))
        kind = int(rng.integers(4))
        if kind == 0:
            cv2.circle(board, (x, y), r, colour, -1, cv2.LINE_AA)
        elif kind == 1:
            cv2.circle(board, (x, y), r, colour, 10, cv2.LINE_AA)
        elif kind == 2:
            cv2.rectangle(board, (x - r, y - r), (x + r, y + r), colour, -1)
        else:
            turn = np.linspace(0, 2 * np.pi, int(rng.integers(3, 7)), endpoint=False) + rng.random()
            corner = np.stack([x + r * np.cos(turn), y + r * np.sin(turn)], 1)
            cv2.fillPoly(board, [corner.astype(np.int32)], colour, cv2.LINE_AA)
    letters = "".join(chr(65 + int(c)) for c in rng.integers(0, 26, 2))
    cv2.putText(
        board, letters, (30, 185), cv2.FONT_HERSHEY_DUPLEX, 1.6, (20, 20, 20), 3, cv2.LINE_AA
    )
    return board


_STROKES = {
    0: [(0.5, 0.1), (0.2, 0.3), (0.2, 0.7), (0.5, 0.9), (0.8, 0.7), (0.8, 0.3), (0.5, 0.1)],
    1: [(0.35, 0.25), (0.55, 0.1), (0.55, 0.9)],
    2: [(0.2, 0.3), (0.4, 0.1), (0.75, 0.2), (0.7, 0.45), (0.2, 0.9), (0.8, 0.9)],
    3: [(0.2, 0.15), (0.7, 0.15), (0.5, 0.45), (0.8, 0.65), (0.6, 0.9), (0.2, 0.85)],
    4: [(0.65, 0.9), (0.65, 0.1), (0.2, 0.6), (0.85, 0.6)],
    5: [(0.75, 0.1), (0.3, 0.1), (0.25, 0.45), (0.7, 0.5), (0.7, 0.85), (0.2, 0.88)],
    6: [(0.7, 0.1), (0.3, 0.4), (0.25, 0.75), (0.5, 0.9), (0.75, 0.7), (0.5, 0.5), (0.28, 0.65)],
    7: [(0.2, 0.12), (0.8, 0.12), (0.4, 0.9)],
    8: [
        (0.5, 0.5),
        (0.25, 0.3),
        (0.5, 0.1),
        (0.75, 0.3),
        (0.5, 0.5),
        (0.22, 0.7),
        (0.5, 0.9),
        (0.78, 0.7),
        (0.5, 0.5),
    ],
    9: [(0.75, 0.35), (0.5, 0.5), (0.3, 0.3), (0.5, 0.1), (0.75, 0.3), (0.65, 0.9)],
}


def digit(rng: np.random.Generator, value: int) -> Picture:
    """Draw a digit of 28 px with a wandering pen, as another hand would write it each time."""
    points = np.array(_STROKES[value]) + rng.normal(0, 0.035, (len(_STROKES[value]), 2))
    slant = rng.normal(0, 0.15)
    points[:, 0] += slant * (0.5 - points[:, 1])
    fine = np.concatenate(
        [np.linspace(a, b, 8, endpoint=False) for a, b in pairwise(points)] + [points[-1:]]
    )
    smooth = cv2.GaussianBlur(fine.astype(np.float32), (1, 9), 0, sigmaY=2.0)
    board = np.zeros((112, 112), np.uint8)
    path = (smooth * 80 + 16).astype(np.int32).reshape(-1, 1, 2)
    cv2.polylines(board, [path], False, 255, int(rng.integers(7, 13)), cv2.LINE_AA)
    small = cv2.resize(board, (28, 28), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_GRAY2RGB), np.uint8)


def flat(rng: np.random.Generator) -> Picture:
    """Make a flat, nearly flat, noisy flat or faintly graded picture."""
    level = rng.integers(0, 256, 3).astype(np.float64)
    board = np.zeros((128, 128, 3)) + level
    kind = int(rng.integers(4))
    if kind == 1:
        board += rng.normal(0, 3, board.shape)
    if kind == 2:
        board += np.linspace(0, float(rng.uniform(1, 6)), 128)[:, None, None]
    if kind == 3:
        board[int(rng.integers(128)), int(rng.integers(128))] = 255 - level
    return np.clip(np.rint(board), 0, 255).astype(np.uint8)


def read(path: Path) -> Picture:
    """Read one picture as RGB."""
    return np.asarray(Image.open(path).convert("RGB"), np.uint8)


def cifar_pictures(archive: Path) -> Iterator[tuple[str, Picture]]:
    """Yield (path inside the archive, picture) of the small CIFAR-10."""
    with tarfile.open(archive) as tar:
        for member in tar:
            handle = tar.extractfile(member) if member.name.endswith(".jpg") else None
            if handle is not None:
                coded = np.frombuffer(handle.read(), np.uint8)
                decoded = cv2.imdecode(coded, cv2.IMREAD_COLOR)
                assert decoded is not None
                yield member.name, np.ascontiguousarray(decoded[..., ::-1], np.uint8)


def pools(real: Path, seed: int) -> dict[str, list[tuple[str, Picture]]]:
    """Return source -> (class, picture) lists to pick look-alikes from."""
    rng = np.random.default_rng(seed)
    out: dict[str, list[tuple[str, Picture]]] = {
        "pages": [("page", page(rng)) for _ in range(200)],
        "logos": [("logo", logo(rng)) for _ in range(300)],
        "digits": [(str(k % 10), digit(rng, k % 10)) for k in range(600)],
        "flat": [("flat", flat(rng)) for _ in range(120)],
    }
    if not real.exists():
        print(f"No pictures at {real}: only drawn ones are compared.")
        return out
    out["raccoon"] = [("raccoon", read(p)) for p in sorted((real / "raccoon/images").iterdir())]
    out["photos"] = [("photo", read(p)) for p in sorted((real / "photos").iterdir())]
    out["cifar10 same class"] = [
        (name.split("/")[2], picture)
        for name, picture in sorted(cifar_pictures(real / "cifar10-mini.tar"))
    ]
    return out


def real_copies(real: Path) -> dict[str, set[frozenset[int]]]:
    """Row pairs judged to be one picture, or judged unsure: those are no negatives."""
    if not real.exists():
        return {}
    raccoons = sorted(p.stem for p in (real / "raccoon/images").iterdir())
    row = {name: k for k, name in enumerate(raccoons)}
    cifar = {n.split("/", 1)[1][:-4]: k for k, (n, _) in enumerate(_cifar_names(real))}
    return {
        "raccoon": {
            frozenset((row[f"raccoon-{a}"], row[f"raccoon-{b}"]))
            for a, b in (*SAME_RACCOON, *UNSURE_RACCOON)
        },
        "cifar10 same class": _closure(
            [(cifar[a], cifar[b]) for a, b in (*SAME_CIFAR, *UNSURE_CIFAR)]
        ),
    }


def _cifar_names(real: Path) -> list[tuple[str, None]]:
    with tarfile.open(real / "cifar10-mini.tar") as tar:
        return sorted((m.name, None) for m in tar if m.name.endswith(".jpg"))


def _closure(pairs: list[tuple[int, int]]) -> set[frozenset[int]]:
    """All pairs within the families that the judged pairs chain together."""
    family: dict[int, set[int]] = {}
    for a, b in pairs:
        joined = family.get(a, {a}) | family.get(b, {b})
        for member in joined:
            family[member] = joined
    return {frozenset((a, b)) for f in family.values() for a in f for b in f if a != b}


def look_alikes(
    classes: list[str],
    descriptors: npt.NDArray[np.float32],
    copies: set[frozenset[int]],
    count: int,
) -> npt.NDArray[np.int64]:
    """Pick the pairs of one class with the most similar descriptors that are not copies."""
    near = find_nearest(descriptors, 10)
    row = np.repeat(np.arange(len(classes)), 10)
    pairs = np.sort(np.stack([row, near.index.ravel()], axis=1), axis=1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    order = np.argsort(-near.similarity.ravel()[first], kind="stable")
    kept = [
        (int(a), int(b))
        for a, b in pairs[order]
        if a >= 0 and classes[a] == classes[b] and frozenset((int(a), int(b))) not in copies
    ]
    return np.array(kept[:count], np.int64).reshape(-1, 2)


def called_same(
    pictures: list[Picture], pairs: npt.NDArray[np.int64], threshold: float, verified: VerifiedPairs
) -> npt.NDArray[np.bool_]:
    """Decide as a scan does: score against threshold, full-resolution checks near it."""
    same = verified.score >= threshold
    band = np.abs(verified.score - threshold) <= SearchOptions().uncertainty_band
    for k in np.flatnonzero(band):
        word = recheck_pair(verified, int(k), lambda row: pictures[row])
        if word:
            same[k] = word > 0
    return same


def main() -> None:
    """Assemble the pairs, judge them, print per source and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    copies = real_copies(arguments.real)
    groups = pools(arguments.real, arguments.seed)
    tables, total, wrong = {}, 0, {"own": 0, "mixed": 0}
    result: dict[str, object] = {}
    pictures = {name: [shrunk(p) for _, p in pool] for name, pool in groups.items()}
    for name in groups:
        tables[name] = stack_signatures([make_signature(p) for p in pictures[name]])
    everything = np.concatenate(list(tables.values()))
    mixed = calibrate(everything, describe(everything), np.arange(len(everything))).threshold
    print(f"threshold of all sources as one data set: {mixed:+.2f}")
    for name, pool in groups.items():
        table, ranks = tables[name], np.arange(len(pool))
        descriptors = describe(table)
        count = round(arguments.pairs * SHARES[name])
        pairs = look_alikes([c for c, _ in pool], descriptors, copies.get(name, set()), count)
        verified = verify(table, descriptors, pairs, ranks)
        own = calibrate(table, descriptors, ranks).threshold
        line = {"pairs": len(pairs), "threshold": round(own, 2)}
        for kind, threshold in (("own", own), ("mixed", mixed)):
            same = called_same(pictures[name], pairs, threshold, verified)
            line[f"called same, {kind} threshold"] = int(same.sum())
            wrong[kind] += int(same.sum())
            if kind == "own":
                print(*(f"    {name} {tuple(p)}" for p in pairs[same][:6].tolist()), sep="\n")
        total += len(pairs)
        result[name] = line
        print(f"{name:20s} {line}")
    result["pairs"] = total
    result["share called same"] = {kind: round(n / total, 4) for kind, n in wrong.items()}
    print(json.dumps(result))


def shrunk(picture: Picture) -> Picture:
    """Scale to 256 px on the longer side, as a scan does."""
    height, width = picture.shape[:2]
    scale = 256 / max(height, width)
    if scale >= 1:
        return picture
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


if __name__ == "__main__":
    main()
