"""Soft frames: copies that share only the middle of a picture, beside strangers in the same frame.

Held-out sources (odd positions) are changed by an oval vignette, a feathered frame and a replaced
background. All of these copies lie in one data set with all the pictures, twice: each copy with a
frame of its own, and all copies of a way in one frame, where every two of them are hard negatives.
Found is a pair with the source that the search alone calls the same; pairs of others are false,
judged copies aside. Copies of a plain middle are asked for too.

    python benchmarks/soft_frames.py [--real ../shared/data] [--photos 80] [--cifar 150]

Needs the real pictures; says so and stops without them. About 3 minutes of one core. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from near_duplicates import Pictures, families, full_size, load

from audit.neighbors.search import SearchOptions, find_near_duplicates
from audit.neighbors.signatures import make_signature, stack_signatures
from audit.neighbors.synthetic import FRAMES, make_duplicate


def measure_frames(
    root: Path, which: str, library: Pictures, count: int, one_frame: bool
) -> dict[str, list[float]]:
    """Return recall and precision of each way of framing."""
    n = len(library.names)
    chosen = np.random.default_rng(2026).permutation(np.arange(1, n, 2))[:count]
    sources = full_size(root, which, [library.names[k] for k in chosen])
    family, unsure = families(library)
    result = {}
    for way, kind in enumerate(FRAMES):
        every = Pictures(*(list(column) for column in vars(library).values()))
        for row in chosen:
            rng = np.random.default_rng([way] if one_frame else [way, int(row)])
            name = library.names[row]
            every.add(f"{name}:{kind}", make_duplicate(sources[name], kind, rng))
        owner = np.concatenate([family, family[chosen]])
        relation = find_near_duplicates(
            stack_signatures([make_signature(picture) for picture in every.small]),
            every.keys,
            every.hashes("phash"),
            options=SearchOptions(synthetic_sources=0),
            open_picture=every.small.__getitem__,
        )
        pairs = np.sort(relation.pairs.pairs, axis=1)
        pairs = pairs[pairs[:, 1] >= n]
        same = owner[pairs[:, 0]] == owner[pairs[:, 1]]
        doubtful = [frozenset(map(int, owner[pair])) in unsure for pair in pairs]
        wrong = int((~same & ~np.array(doubtful, bool)).sum())
        found = len(set(pairs[same & (pairs[:, 0] < n), 1].tolist()))
        precision = found / max(found + wrong, 1)
        result[kind] = [round(found / len(chosen), 3), round(precision, 3)]
    return result


def main() -> None:
    """Measure both libraries and print one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--photos", type=int, default=80)
    parser.add_argument("--cifar", type=int, default=150)
    arguments = parser.parse_args()
    if not arguments.real.exists():
        print(f"No pictures at {arguments.real}: give --real, the folder with photos/ and others.")
        return
    sets, result = load(arguments.real), {}
    for which, count in (("photos", arguments.photos), ("cifar10", arguments.cifar)):
        for one_frame in (False, True):
            name = f"{which}, {'one frame' if one_frame else 'any frame'}"
            result[name] = measure_frames(arguments.real, which, sets[which], count, one_frame)
            print(f"{name}: recall, precision {result[name]}", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
