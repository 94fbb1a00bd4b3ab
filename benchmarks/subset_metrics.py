"""Does the interval of every metric hold, and that of a difference in it? Every cell printed.

Each repetition draws a subset of four classes by the given n_h, gives two models answers that are
right with chances that differ by class, and asks the functions that `audit subset score` uses. The
truth is that of the population: F1 and precision from its table of labels and answers, AUROC from
two normal scores. Passing: no cell below 94 % less three Monte-Carlo standard errors, and fewer
than 5 % of intervals called rough. Row by row, so with fewer repetitions than
`benchmarks/subset_coverage.py`. Run it from the project's root:

    python benchmarks/subset_metrics.py            # 1,000 repetitions
    python benchmarks/subset_metrics.py --quick    # 60, to see that it runs
"""

from __future__ import annotations

import argparse
import json
import math
import sys

import numpy as np
import polars as pl
from scipy.stats import norm

from audit.subset import linearised
from audit.subset.design import Design
from audit.subset.intervals import difference_interval
from audit.subset.outcome import estimate_linear

CLASSES, TILT = 4, np.array([-0.6, -0.2, 0.2, 0.6])
SHAPES = {
    "equal classes": (np.full(CLASSES, 5000), np.full(CLASSES, 25)),
    "unequal weights": (np.array([12_000, 6_000, 1_500, 500]), np.full(CLASSES, 75)),
    "classes of two rows": (np.array([9_000, 9_000, 300, 300]), np.array([60, 60, 2, 2])),
    "proportional, n = 1,000": (np.array([5000, 3000, 1500, 500]), np.array([500, 300, 150, 50])),
}  # fmt: skip
ACCURACIES = (0.5, 0.9, 0.98, 0.995)
Array = np.ndarray


def shares(accuracy: float) -> Array:
    """Return the chance of a right answer of each class, around `accuracy`."""
    odds = math.log(accuracy / (1 - accuracy))
    return np.asarray(1 / (1 + np.exp(-(odds + TILT))))


def subset(N: Array, n_h: Array) -> Design:
    """Return a drawn subset of single files, class by class."""
    label = np.repeat(np.arange(CLASSES), n_h)
    units, ones = np.arange(label.size), np.ones(label.size)
    return Design(pl.DataFrame(), units, label, N.astype(float), ones, (N / n_h)[label])


def answers(label: Array, right: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return (right, answered class); a wrong answer is any other class."""
    hit = (rng.uniform(size=label.size) < right[label]).astype(float)
    other = (label + rng.integers(1, CLASSES, label.size)) % CLASSES
    return hit, np.where(hit > 0, label, other)


def truths(N: Array, right: Array) -> dict[str, float]:
    """Return each metric of the population."""
    wrong = (N * (1 - right)).sum() - N * (1 - right)
    called = N * right + wrong / (CLASSES - 1)
    return {
        "macro-recall": float(right.mean()),
        "macro-f1": float((2 * N * right / (N + called)).mean()),
        "precision": float(N[0] * right[0] / called[0]),
    }


def metrics(design: Design, hit: Array, said: Array) -> dict[str, linearised.Linearised]:
    label, weight = design.stratum, design.weight
    own, of_first = (said == 0).astype(float), (label == 0).astype(float)
    return {
        "macro-recall": linearised.macro_recall(label, hit, weight, CLASSES),
        "macro-f1": linearised.macro_f1(label, said, hit, weight, CLASSES),
        "precision": linearised.share_of(of_first, own, weight),
    }


def cells(name: str, accuracy: float, reps: int, rng: np.random.Generator) -> list[dict]:
    """Return coverage of each metric and of its difference between two models."""
    N, n_h = SHAPES[name]
    design, first, second = subset(N, n_h), shares(accuracy), shares(accuracy)[::-1]
    true, other = truths(N, first), truths(N, second)
    gap = math.sqrt(2) * float(norm.ppf(accuracy))  # of two normal scores with this AUROC
    held: dict[str, list[tuple[bool, bool]]] = {}
    for _ in range(reps):
        (hit, said), (hit2, said2) = (answers(design.stratum, s, rng) for s in (first, second))
        old, new = metrics(design, hit, said), metrics(design, hit2, said2)
        changed = (said != said2).astype(float)
        for metric, linear in old.items():
            found = estimate_linear(design, linear, 0.95)["generalisation"]
            inside = found.low <= true[metric] <= found.high
            held.setdefault(metric, []).append((inside, bool(found.caution)))
            both = linearised.difference_of(linear, new[metric], changed)
            held.setdefault(f"difference in {metric}", []).append(
                (covers(design, both, other[metric] - true[metric]), False)
            )
        positive = design.stratum == 0
        score = rng.normal(size=hit.size) + gap * positive
        area = linearised.auroc(positive, score, design.weight)
        found = estimate_linear(design, area, 0.95)["generalisation"]
        inside = found.low <= accuracy <= found.high
        held.setdefault("auroc", []).append((inside, bool(found.caution)))
    return [
        {"shape": name, "accuracy": accuracy, "metric": metric,
         "coverage": float(np.mean([h for h, _ in found])),
         "warned": float(np.mean([w for _, w in found]))}
        for metric, found in held.items()
    ]  # fmt: skip


def covers(design: Design, both: linearised.Linearised, true: float) -> bool:
    """Say whether the interval of a difference holds the true one."""
    pair = both.ratio(design), both.told_apart(design)
    low, high, _ = difference_interval(*pair, "generalisation", 0.95)
    return bool(low <= true <= high)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 repetitions")
    quick = parser.parse_args().quick
    reps, rng = (60 if quick else 1000), np.random.default_rng(20240607)
    found = [c for name in SHAPES for a in ACCURACIES for c in cells(name, a, reps, rng)]
    least = 0.94 - 3 * math.sqrt(0.94 * 0.06 / reps)
    for c in found:
        mark = "" if c["coverage"] >= least else "  below 94"
        print(f"{c['shape']:24s} {c['accuracy']:.3f} {c['metric']:26s} {100 * c['coverage']:5.1f} "
              f"warned {100 * c['warned']:3.0f}{mark}")  # fmt: skip
    failures = sum(c["coverage"] < least for c in found)
    failures += bool(np.mean([c["warned"] for c in found]) > 0.05)
    summary = {
        "benchmark": "subset_metrics", "repetitions": reps, "cells": len(found),
        "cell_low": min(c["coverage"] for c in found), "failures": failures,
    }  # fmt: skip
    print(json.dumps(summary))
    return 1 if failures and not quick else 0


if __name__ == "__main__":
    sys.exit(main())
