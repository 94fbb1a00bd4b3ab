"""The search for near-duplicates alone, on many signatures: seconds, memory, candidates and recall.

CIFAR-10 pictures (6,000 of 32 px) are grown to `--images` by blending two of them at a random
share, cutting out a random part, mirroring some and changing the light; one in fifty is then a copy
of another, changed in one of the ways of `audit.neighbors.synthetic`. No file is written: pictures
become signatures and hashes at once, which is what a scan hands to the search.

    python benchmarks/search_scale.py [--real ../shared/data] [--images 60000 1000000]

Of each size it prints the candidates for each picture and the share of them that the gate lets
through, because sizes can be compared only where these are alike. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from hard_negatives import Picture, cifar_pictures

from audit.neighbors.search import find_near_duplicates
from audit.neighbors.signatures import SIGNATURE_DTYPE, Signatures, make_signature
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.picture.features import measure_picture
from audit.picture.pixels import Picture as Decoded

BLOCK = 5_000
COPIES = 50  # one picture in so many has a copy
KINDS = [kind for kind in TRANSFORMATIONS if kind != "crop_80"]
Made = tuple[Signatures, npt.NDArray[np.uint64], list[tuple[int, int]]]


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


def measure_search(base: list[Picture], images: int) -> dict[str, float]:
    """Grow, search, count."""
    blocks = [(start, min(BLOCK, images - start)) for start in range(0, images, BLOCK)]
    table, hashes = np.zeros(images, SIGNATURE_DTYPE), np.zeros(images, np.uint64)
    planted = []
    # not forked: a process with the search's threads in it may hold their locks
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        grown = pool.map(partial(_grow, base), blocks)
        for (start, size), (signatures, codes, pairs) in zip(blocks, grown, strict=True):
            table[start : start + size], hashes[start : start + size] = signatures, codes
            planted += pairs
    # in the order of the keys, as a scan has them
    keys = [row.to_bytes(8, "big") for row in range(images)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    wall, cpu = time.perf_counter(), time.process_time()
    found = find_near_duplicates(table, keys, hashes, advance=_said())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    called = set(map(frozenset, found.pairs.pairs.tolist()))
    told = found.completeness
    candidates = told.verified_pairs
    for sentence in told.sentences():
        print(f"  {sentence}")
    return {
        "images": images,
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_gb": round(_peak_kb() / 1e6, 2),
        "candidates a picture": round(candidates / images, 2),
        "let through": round(1 - told.gated_pairs / max(1, candidates), 4),
        "planted": len(planted),
        "found": sum(frozenset(pair) in called for pair in planted),
        "pairs": len(called),
    }


def _grow(base: list[Picture], block: tuple[int, int]) -> Made:
    cv2.setNumThreads(1)
    return grow_block(base, *block)


def _peak_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def _said() -> partial[None]:
    """Say every tenth of the work."""
    begun, last = time.perf_counter(), [0.0]

    def say(share: float) -> None:
        if share >= last[0] + 0.1:
            last[0] = share
            print(f"  {share:.0%} after {time.perf_counter() - begun:,.0f} s", flush=True)

    return partial(say)


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--images", type=int, nargs="+", default=[60_000, 1_000_000])
    arguments = parser.parse_args()
    tar = arguments.real / "cifar10-mini.tar"
    if not tar.exists():
        print(f"No {tar}: give --real, the folder that holds it.")
        return
    base = [picture for _, picture in cifar_pictures(tar)]
    results = [_print(measure_search(base, images)) for images in arguments.images]
    print(json.dumps(results))


def _print(result: dict[str, float]) -> dict[str, float]:
    lines: Iterable[str] = (f"  {key}: {value}" for key, value in result.items())
    print(*lines, sep="\n", flush=True)
    return result


if __name__ == "__main__":
    main()
