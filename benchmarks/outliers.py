"""How often pictures are called outliers where none is, and which planted ones are found.

    python benchmarks/outliers.py [--data FOLDER ...] [--rounds 200]

Vectors without outliers (normal, heavy-tailed, skewed, clustered) of 60 to 1,000 rows; for each
folder of pictures, draws of 230 of them with the built-in vectors, as they are and with six put in:
pages of text, drawings of few flat colours, pictures mixed 60 % with noise. Per set: the share of
datasets with any finding (goal: at most 1 % where nothing is planted), and of the planted pictures
the share found. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cv2
import numpy as np

from audit.embeddings.isolation import distance_scores, find_isolated
from audit.embeddings.patches import describe_patches
from audit.embeddings.ridge import decompose
from audit.neighbors.signatures import is_comparable, make_signature, stack_signatures

RATE, PLANTED, DRAWN = 0.01, 6, 230
WIDTH = 64


def found_in(vectors: np.ndarray) -> set[int]:
    """Return the rows that IMG009 would report at its default."""
    n = len(vectors)
    parts = decompose((vectors - vectors.mean(0)).astype(np.float32))
    scores = distance_scores(parts, np.arange(n))
    return {one.row for one in find_isolated(scores, np.full(n, -1), np.arange(n), RATE)}


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    k = max(2, min(8, n // 30))
    centres, widths = 4 * rng.normal(size=(k, WIDTH)), np.exp(0.7 * rng.normal(size=k))
    own = rng.permutation(np.arange(n) % k)
    return centres[own] + widths[own, None] * rng.normal(size=(n, WIDTH))


NULLS = {
    "normal": lambda rng, n: rng.normal(size=(n, WIDTH)),
    "Student t, 3 df": lambda rng, n: (
        rng.normal(size=(n, WIDTH)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3)
    ),
    "Cauchy": lambda rng, n: rng.normal(size=(n, WIDTH)) / np.sqrt(rng.chisquare(1, (n, 1))),
    "Student t by column": lambda rng, n: rng.standard_t(3, size=(n, WIDTH)),
    "lognormal": lambda rng, n: np.exp(rng.normal(size=(n, WIDTH))),
    "clustered": clustered,
}


def page(rng: np.random.Generator) -> np.ndarray:
    """Return a page of text: dark lines of words on white."""
    pixels = np.full((320, 240, 3), 250, np.uint8)
    for top in range(int(rng.integers(10, 30)), 300, int(rng.integers(10, 16))):
        left = 16
        while left < 216:
            width = int(rng.integers(6, 30))
            cv2.rectangle(pixels, (left, top), (min(left + width, 224), top + 4), (20, 20, 20), -1)
            left += width + 5
    return pixels


def drawing(rng: np.random.Generator) -> np.ndarray:
    """Return a checked drawing of two flat colours."""
    side = int(rng.integers(18, 34))
    y, x = np.mgrid[:256, :256] // side
    colours = rng.integers(0, 255, (2, 3))
    return colours[(x + y) % 2].astype(np.uint8)


def mixed(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.uniform(0, 255, pixels.shape)
    return np.clip(0.4 * pixels + 0.6 * noise, 0, 255).astype(np.uint8)


PLANTS = {
    "pages of text": lambda rng, _: page(rng),
    "flat drawings": lambda rng, _: drawing(rng),
    "60 % noise": lambda rng, pixels: mixed(pixels, rng),
}


def null_shares(rounds: int) -> dict[str, float]:
    shares = {}
    for name, make in NULLS.items():
        for n, times in ((60, rounds), (250, rounds), (1000, max(rounds // 5, 1))):
            hits = [bool(found_in(make(np.random.default_rng([i, n]), n))) for i in range(times)]
            shares[f"{name}, {n:,}"] = float(np.mean(hits))
            print(f"{name:>20} {n:6,}: {np.mean(hits):.3f} of {times}", flush=True)
    return shares


def real_shares(folder: Path, draws: int) -> dict[str, float]:
    ends = (".jpg", ".jpeg", ".png")
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in ends)
    rng = np.random.default_rng(0)
    paths = [paths[i] for i in rng.permutation(len(paths))[:1000]]
    pictures = [np.ascontiguousarray(cv2.imread(str(p))[:, :, ::-1]) for p in paths]
    known = [make_signature(pixels) for pixels in pictures]
    shares = {}
    for name in ("nothing", *PLANTS):
        any_found, parts, false = [], [], []
        for draw in range(draws):
            rng = np.random.default_rng(draw)
            some = rng.permutation(len(known))[:DRAWN]
            signatures = [known[i] for i in some]
            if name != "nothing":
                for place in range(PLANTED):
                    made = PLANTS[name](rng, pictures[some[place]])
                    signatures[place] = make_signature(np.ascontiguousarray(made))
            table = stack_signatures(signatures)
            views = describe_patches(table[is_comparable(table)])
            found = found_in(views.mean(0))
            any_found.append(bool(found))
            parts.append(len(found & set(range(PLANTED))) / PLANTED)
            false.append(len(found - set(range(PLANTED))))
        key = "any finding" if name == "nothing" else f"found of {name}"
        shares[key] = float(np.mean(any_found if name == "nothing" else parts))
        print(
            f"{folder.name:>20} {key}: {shares[key]:.3f}, others {np.mean(false):.2f}", flush=True
        )
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    document = {"nulls": null_shares(options.rounds)}
    document["pictures"] = {
        folder.name: real_shares(folder, options.draws) for folder in options.data
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
