"""What the gate before verification loses, for every way of changing, and what it lets through.

Pictures of the held-out half (odd positions; the other half chose the gate's constants) are changed
in every way of `audit.neighbors.synthetic` and four times by three ways at once. Lost is a pair
that is among the source's candidates, that the full search alone calls the same, and that the gate
refuses. Let through are candidates of the library itself: strangers, nearly all.

    python benchmarks/gate.py [--real ../shared/data] [--photos 100] [--cifar 1000]

Needs the real pictures; says so and stops without them. About 15 minutes on two cores. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from near_duplicates import Pictures, load, planted_queries

from audit.neighbors.calibration import calibrate
from audit.neighbors.candidates import neighbour_pairs
from audit.neighbors.dense import find_nearest, find_nearest_in
from audit.neighbors.descriptor import describe
from audit.neighbors.signatures import make_signature, stack_signatures
from audit.neighbors.verification import NOT_ALIGNED, key_ranks, verify

NEAREST = 12


def measure_gate(
    root: Path, which: str, library: Pictures, count: int, seed: int
) -> dict[str, object]:
    """Return losses by way of changing, and the share of strangers let through."""
    queries, source, kinds = planted_queries(root, which, library, count, seed)
    old = stack_signatures([make_signature(p) for p in library.small])
    new = stack_signatures([make_signature(p) for p in queries.small])
    table, n = np.concatenate([old, new]), len(old)
    descriptors = describe(table)
    ranks = key_ranks([*library.keys, *queries.keys])
    near, asked = (
        find_nearest(descriptors[:n], NEAREST),
        find_nearest_in(descriptors[n:], descriptors[:n], NEAREST),
    )
    background = np.concatenate([near.similarity[:, -1], asked.similarity[:, -1]]).astype(float)
    threshold = calibrate(old, descriptors[:n], ranks[:n], background=background[:n]).threshold
    pairs = np.stack([source, n + np.arange(len(source))], axis=1)
    proposed = (asked.index == source[:, None]).any(axis=1)
    # a query's surroundings are known and its source's are not, as in a search against a library
    around = background.copy()
    around[:n] = np.inf
    full = verify(table, descriptors, pairs, ranks).score >= threshold
    refused = verify(table, descriptors, pairs, ranks, background=around).score == NOT_ALIGNED
    found, lost = full & proposed, full & proposed & refused
    strangers = neighbour_pairs(near)
    started = time.process_time()
    gated = verify(table, descriptors, strangers, ranks, background=background)
    seconds = time.process_time() - started
    started = time.process_time()
    verify(table, descriptors, strangers, ranks)
    return {
        "found": int(found.sum()),
        "lost": int(lost.sum()),
        "lost by way": dict(Counter(_named(kinds, lost))),
        "found by way": dict(Counter(_named(kinds, found))),
        "candidates": len(strangers),
        "let through": round(float((gated.score > NOT_ALIGNED).mean()), 4),
        "us a candidate": round(1e6 * seconds / len(strangers), 1),
        "us without the gate": round(1e6 * (time.process_time() - started) / len(strangers), 1),
    }


def _named(kinds: list[str], chosen: npt.NDArray[np.bool_]) -> list[str]:
    return [kind for kind, one in zip(kinds, chosen, strict=True) if one]


def main() -> None:
    """Measure both libraries and print one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--photos", type=int, default=100)
    parser.add_argument("--cifar", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    arguments = parser.parse_args()
    if not arguments.real.exists():
        print(f"No pictures at {arguments.real}: give --real, the folder with photos/ and others.")
        return
    sets = load(arguments.real)
    result: dict[str, object] = {}
    found = lost = 0
    for which, count in (("photos", arguments.photos), ("cifar10", arguments.cifar)):
        one = measure_gate(arguments.real, which, sets[which], count, arguments.seed)
        print(which, *(f"  {key}: {value}" for key, value in one.items()), sep="\n")
        result[which] = one
        found, lost = found + int(str(one["found"])), lost + int(str(one["lost"]))
    print(f"lost {lost} of {found} pairs that the full search finds: {lost / max(found, 1):.5f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
