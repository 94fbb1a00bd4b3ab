"""Signatures of pictures that never were: CIFAR-10 grown to any number of pictures, for benchmarks.

Each picture is two of 6,000 blended at a random share, a random part cut out, some mirrored, the
light changed; one in fifty is a copy of another, changed in one of the ways of
`audit.neighbors.synthetic`. No file is written: pictures become signatures and hashes at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from hard_negatives import Picture

from audit.neighbors.signatures import SIGNATURE_DTYPE, Signatures, make_signature
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.picture.features import measure_picture
from audit.picture.pixels import Picture as Decoded

BLOCK = 5_000
COPIES = 50  # one picture in so many has a copy
KINDS = [kind for kind in TRANSFORMATIONS if kind != "crop_80"]
Made = tuple[Signatures, npt.NDArray[np.uint64], list[tuple[int, int]]]
GROWN = np.dtype([("signature", SIGNATURE_DTYPE), ("hash", np.uint64)])


def grow(base: list[Picture], images: int) -> Iterator[Made]:
    """Yield what `grow_block` returns, block by block in order, made by all cores."""
    blocks = [(start, min(BLOCK, images - start)) for start in range(0, images, BLOCK)]
    # not forked: a process with the search's threads in it may hold their locks
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield from pool.map(partial(_grow, base), blocks)


def write_grown(base: list[Picture], images: int, path: Path) -> None:
    """Write so many records of `GROWN`, whole blocks, one after the other."""
    with path.open("wb") as file:
        for signatures, codes, _ in grow(base, images):
            records = np.empty(len(codes), GROWN)
            records["signature"], records["hash"] = signatures, codes
            file.write(records.tobytes())


def read_grown(path: Path, first: int, n: int) -> npt.NDArray[np.void]:
    """Return `n` records from number `first` on, begun again at the end of the file."""
    held = path.stat().st_size // GROWN.itemsize
    at = first % held
    part = np.fromfile(path, GROWN, min(n, held - at), offset=at * GROWN.itemsize)
    return part if len(part) == n else np.concatenate([part, read_grown(path, 0, n - len(part))])


def _grow(base: list[Picture], block: tuple[int, int]) -> Made:
    cv2.setNumThreads(1)
    return grow_block(base, *block)


def grow_block(base: list[Picture], start: int, size: int) -> Made:
    """Return signatures (size,), hashes (size,) and the rows (copy, original) of one block."""
    rng = np.random.default_rng([start, 1])
    copies = size // COPIES
    pictures = [_grown(base, rng) for _ in range(size - copies)]
    planted = []
    for number in range(copies):
        original = number * COPIES
        kind = KINDS[(start // COPIES + number) % len(KINDS)]
        pictures.append(make_duplicate(pictures[original], kind, rng))
        planted.append((start + size - copies + number, start + original))
    measured = [measure_picture(Decoded(picture, None)) for picture in pictures]
    hashes = np.array([features["phash"] for features, _ in measured], np.uint64)
    return np.stack([make_signature(small) for _, small in measured]), hashes, planted


def _grown(base: list[Picture], rng: np.random.Generator) -> Picture:
    """Return a picture that is new: two blended, a part cut out, other light."""
    one, two = base[rng.integers(len(base))], base[rng.integers(len(base))]
    share = float(rng.uniform(0.3, 0.7))
    mixed = cv2.addWeighted(one, share, two, 1 - share, 0.0)
    side = mixed.shape[0]
    kept = int(rng.integers(int(0.75 * side), side + 1))
    top, left = rng.integers(0, side - kept + 1, 2)
    cut = cv2.resize(mixed[top : top + kept, left : left + kept], (side, side))
    lit = cv2.convertScaleAbs(
        cut, alpha=float(rng.uniform(0.7, 1.3)), beta=float(rng.uniform(-20, 20))
    )
    return np.ascontiguousarray(lit[:, ::-1] if rng.random() < 0.5 else lit).astype(np.uint8)
