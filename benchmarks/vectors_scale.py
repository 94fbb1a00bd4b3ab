"""What the built-in vectors and what is asked of them cost: CPU seconds by part, peak memory.

    python benchmarks/vectors_scale.py [--sizes 6000 20000 60000] [--given 256]

Signatures are drawn: ten smooth pictures, one a class, with noise. Everything that a scan makes of
them is timed in CPU seconds: vectors, principal axes, neighbours by meaning, distances for
outliers, and labels. Nothing is decoded and nothing stored. With --given, vectors of that length
are drawn instead, as those of a user's own model would come. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from audit.embeddings.isolation import distance_scores, find_isolated
from audit.embeddings.judged import judge_vectors
from audit.embeddings.nearest import nearest_rows
from audit.embeddings.patches import describe_patches, scale_columns
from audit.embeddings.ridge import decompose
from audit.neighbors.signatures import COLOUR_SIDE, GREY_SIDE, SIGNATURE_DTYPE, Signatures

CLASSES, STORED_CHANCE = 10, 0.05


def drawn(n: int) -> tuple[Signatures, np.ndarray]:
    """Return signatures (n,) and their classes."""
    rng = np.random.default_rng(n)
    labels = rng.integers(0, CLASSES, n)
    coarse = rng.integers(30, 225, (CLASSES, COLOUR_SIDE, COLOUR_SIDE, 3)).astype(np.uint8)
    grey = np.stack([cv2.resize(c.mean(2), (GREY_SIDE, GREY_SIDE)) for c in coarse])
    table = np.zeros(n, SIGNATURE_DTYPE)
    for row, label in enumerate(labels.tolist()):
        for plane, middle, noise in (("grey", grey, 40), ("colour", coarse, 25)):
            shaken = middle[label] + noise * rng.standard_normal(middle[label].shape)
            table[plane][row] = np.clip(shaken, 0, 255)
    return table, labels


def drawn_vectors(n: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors (n, width) of overlapping classes and their classes."""
    rng = np.random.default_rng(n)
    labels = rng.integers(0, CLASSES, n)
    middles = rng.standard_normal((CLASSES, width), np.float32) / 2
    vectors = rng.standard_normal((n, width), np.float32)
    vectors += middles[labels]
    return vectors, labels


def cost(n: int, width: int | None) -> dict[str, float]:
    """Return CPU seconds by part for n pictures, and the peak memory of the process in MB."""
    own, seconds = np.arange(n), {}

    def timed(part: str, call: Callable[[], Any]) -> Any:
        began = time.process_time()
        made = call()
        seconds[part] = round(time.process_time() - began, 1)
        return made

    if width is None:
        table, labels = drawn(n)
        views = timed("vectors", lambda: describe_patches(table))
    else:
        vectors, labels = drawn_vectors(n, width)
        views = scale_columns(vectors)[None]
    mean = views[0] if len(views) == 1 else views.mean(0)
    parts = timed("axes", lambda: decompose(mean))
    near = timed("neighbours", lambda: nearest_rows(parts, own))
    scores = timed("distances", lambda: distance_scores(parts, own))
    timed("outliers", lambda: find_isolated(scores, labels, own, STORED_CHANCE))
    timed("labels", lambda: judge_vectors(views, near, labels, own, CLASSES, parts))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**seconds, "all": round(sum(seconds.values()), 1), "peak_mb": round(peak)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[6_000, 20_000, 60_000])
    parser.add_argument("--given", type=int, metavar="LENGTH", help="draw vectors of this length")
    arguments, found = parser.parse_args(), {}
    for n in arguments.sizes:
        found[n] = cost(n, arguments.given)
        print(f"{n:9,} pictures: {found[n]}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
