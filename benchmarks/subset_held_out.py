"""Do the intervals hold on real predictions? Every cell printed; nothing was set on these.

Sets whose full score is known: digits of scikit-learn (1,797 pictures of ten classes, thinned to
unequal classes as well) with models of about 92 and 99 %, cross-validated; and pairs of classes of
CIFAR-10, told apart by the vectors of `subset_stratify.py`. Of each set a few hundred subsets are
drawn, in proportion and with equal shares of the classes, and scored by `score_subset`. A
full-set interval holds where it contains the score of the whole set. CIFAR-10 is left out where its
tar is not there.

    python benchmarks/subset_held_out.py --draws 200
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from blake3 import blake3

from audit.subset import Goal, census, draw_subset, make_plan, score_subset

sys.path.insert(0, str(Path(__file__).parent))
from subset_stratify import find_data, gradient_histograms, read_pictures

METRICS = ["macro-f1", "accuracy", "macro-recall", "auroc"]  # models are compared on the first
SIZES = (100, 300)
Named = tuple[str, pl.DataFrame, list[pl.DataFrame]]


def frame_of(labels: np.ndarray) -> pl.DataFrame:
    names = [f"{i:05d}" for i in range(labels.size)]
    hashes = [blake3(name.encode()).hexdigest() for name in names]
    return pl.DataFrame(
        {"sample_id": names, "path": names, "label": labels.astype(str), "content_hash": hashes}
    )


def table_of(labels: np.ndarray, chances: np.ndarray) -> pl.DataFrame:
    """Return predictions with their probabilities; columns are the sorted classes."""
    classes = np.unique(labels.astype(str))
    said = classes[chances.argmax(1)]
    columns = {f"prob_{name}": chances[:, k] for k, name in enumerate(classes)}
    return pl.DataFrame({"sample_id": frame_of(labels)["sample_id"], "prediction": said} | columns)


def digit_sets() -> Iterator[Named]:
    """Yield digits with a model of about 93 % and two of about 99 %."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    x, y = load_digits(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    rng = np.random.default_rng(3)
    keep = rng.uniform(size=y.size) < np.where(y < 3, 1.0, np.where(y < 7, 0.3, 0.12))
    strong = [SVC(gamma=0.001, probability=True, random_state=0), KNeighborsClassifier(5)]
    weak = [LogisticRegression(C=0.0003, max_iter=300), GaussianNB(var_smoothing=0.02)]
    for name, pair in (("strong", strong), ("weak", weak)):
        chances = [cross_val_predict(m, x, y, cv=folds, method="predict_proba") for m in pair]
        for part, rows in (("", np.ones(y.size, bool)), (", unequal classes", keep)):
            tables = [table_of(y[rows], c[rows]) for c in chances]
            yield f"digits, {name}{part}", frame_of(y[rows]), tables


def cifar_sets() -> Iterator[Named]:
    """Yield pairs of classes of CIFAR-10's test pictures."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.svm import SVC

    path = find_data()
    if path is None:
        return
    pictures, _, labels, _ = read_pictures(path)
    known = np.array(labels)
    for pair in (("automobile", "frog"), ("cat", "ship")):
        rows = np.isin(known, pair)
        small = pictures[rows].astype(np.float32)
        colours = small.reshape(len(small), 8, 4, 8, 4, 3).mean((2, 4)).reshape(len(small), -1)
        x = np.hstack([gradient_histograms(small).reshape(len(small), -1), colours / 255])
        models = (SVC(C=5, probability=True, random_state=0), LogisticRegression(C=0.05))
        chances = [cross_val_predict(m, x, known[rows], cv=4, method="predict_proba")
                   for m in models]  # fmt: skip
        tables = [table_of(known[rows], c) for c in chances]
        yield f"CIFAR-10, {' and '.join(pair)}", frame_of(known[rows]), tables


def figures(
    rows: pl.DataFrame, tables: list[pl.DataFrame]
) -> dict[str, tuple[float, float, float]]:
    """Return (value, low, high) of each full-set figure of the first model and the difference."""
    score = score_subset(rows, tables, metrics=METRICS)
    found = {m.metric: m.estimands["full-set"] for m in score.models[0].metrics}
    numbers = {name: (e.value, e.low, e.high) for name, e in found.items()}
    assert score.comparison is not None
    apart = score.comparison.estimands["full-set"]
    name = f"difference in {score.comparison.metric}"
    return numbers | {name: (apart.value, apart.low, apart.high)}


def cells(named: Named, draws: int) -> Iterator[dict]:
    """Yield the coverage of each figure, by size and allocation."""
    name, frame, tables = named
    true = figures(census(frame).rows, tables)
    for n in SIZES:
        for allocation in ("proportional", "equal"):
            recipe = make_plan(frame, Goal(n=n), allocation=allocation, merge_strata=True).recipe
            scored = [
                figures(draw_subset(frame, recipe, seed).rows, tables) for seed in range(draws)
            ]
            for metric, (value, _, _) in true.items():
                held = [s[metric][1] - 1e-9 <= value <= s[metric][2] + 1e-9 for s in scored]
                width = float(np.mean([s[metric][2] - s[metric][1] for s in scored]))
                yield {"set": name, "accuracy": true["accuracy"][0], "files": len(frame), "n": n,
                       "allocation": allocation, "metric": metric, "width": width,
                       "coverage": float(np.mean(held))}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200, help="subsets of each kind")
    draws = parser.parse_args().draws
    found = []
    for named in (*digit_sets(), *cifar_sets()):
        for c in cells(named, draws):
            found.append(c)
            print(f"{c['set']:34s} {100 * c['accuracy']:5.1f} % of {c['files']:5d}, n {c['n']:3d} "
                  f"{c['allocation']:13s} {c['metric']:24s} {100 * c['coverage']:5.1f} width "
                  f"{100 * c['width']:5.2f}", flush=True)  # fmt: skip
    least = 0.94 - 3 * float(np.sqrt(0.94 * 0.06 / draws))
    summary = {
        "benchmark": "subset_held_out", "draws": draws, "cells": len(found),
        "cell_low": min(c["coverage"] for c in found),
        "mean": float(np.mean([c["coverage"] for c in found])),
        "below": sum(c["coverage"] < least for c in found),
    }  # fmt: skip
    print(json.dumps(summary))
    return 1 if summary["below"] else 0


if __name__ == "__main__":
    sys.exit(main())
