"""Vectors: their cost, and which wrong labels they find.

    python benchmarks/vectors.py cost [6000 20000 60000] [--given 256]
    python benchmarks/vectors.py labels cifar10-mini/train [--seeds 5] [--vectors F.npy]

`cost`: CPU seconds by part, and peak memory. Signatures are drawn: ten smooth pictures, one a
class, with noise. Everything that a scan makes of them is timed: vectors, principal axes,
neighbours by meaning, distances to the tenth nearest, and labels. Nothing is decoded or stored.
With --given, vectors of that length are drawn instead, as a user's own model would give them.

`labels`: labels of class folders are changed at random (symmetric), or to one class that looks
alike (class-dependent: car to truck, cat to dog, ...), 5, 10, 20 and 40 % of them. Per setting, the
mean over seeds: average precision of the order, precision among the flagged, the estimated number
of wrong labels with its interval, and what the review list holds beside what it was said to; the
same of cleanlab, which gets probabilities of logistic regression out of five folds
on the same vectors (needs `pip install cleanlab`; else --no-beside). Then how often the interval
from labels drawn at random and reviewed holds the share: 200 draws a setting.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
import typer
from bench import Document, hall, measures, peak_mb, read_picture, timed

from audit.decisions.label_sample import share_of_sample
from audit.embeddings.judged import judge_vectors
from audit.embeddings.nearest import (
    ISOLATION,
    Nearest,
    compare_axes,
    distance_scores,
    nearest_places,
    nearest_rows,
)
from audit.embeddings.patches import describe_patches, scale_columns
from audit.embeddings.ridge import decompose
from audit.picture.signatures import (
    COLOUR_SIDE,
    GREY_SIDE,
    SIGNATURE_DTYPE,
    Signatures,
    make_signature,
    stack_signatures,
)

app = hall(__doc__)


# ---- what it costs ----

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


def cost_of(n: int, width: int | None) -> Document:
    """Return CPU seconds by part for n pictures, and the peak memory of the process in MB."""
    own, seconds = np.arange(n), {}
    table, labels = drawn(n) if width is None else drawn_vectors(n, width)
    with timed() as seconds["vectors"]:
        views = describe_patches(table).views if width is None else scale_columns(table)[None]
    mean = views[0] if len(views) == 1 else views.mean(0)
    with timed() as seconds["axes"]:
        parts = decompose(mean)
    with timed() as seconds["neighbours"]:
        near = nearest_rows(points := compare_axes(parts), own)
    with timed() as seconds["distances"]:
        distance_scores(points, nearest_places(points, own, ISOLATION))
    with timed() as seconds["labels"]:
        judge_vectors(views, near, labels, own, CLASSES, parts)
    found = {part: spent["cpu_s"] for part, spent in seconds.items()}
    return {**found, "all": round(sum(found.values()), 1), "peak_mb": round(peak_mb())}


@measures(app)
def cost(
    sizes: Annotated[list[int] | None, typer.Argument()] = None, given: int | None = None
) -> Document:
    """What do the vectors and what is asked of them cost? --given: vectors of this length."""
    found = {}
    for n in sizes or (6_000, 20_000, 60_000):
        found[f"{n}"] = cost_of(n, given)
        print(f"{n:9,} pictures: {found[f'{n}']}", flush=True)
    return found


# ---- wrong labels ----

RATES = (0.05, 0.10, 0.20, 0.40)
# CIFAR-10's classes in order, and the class that each is mistaken for.
ALIKE = {
    "airplane": "ship", "automobile": "truck", "bird": "airplane", "cat": "dog", "deer": "horse",
    "dog": "cat", "frog": "bird", "horse": "deer", "ship": "airplane", "truck": "automobile",
}  # fmt: skip
REVIEWED = (50, 100, 200)
LEAST_CHANCE, LEAST_GAIN = 0.7, 4.0  # the defaults of LABEL006


def read_classes(root: Path) -> tuple[Signatures, np.ndarray, list[str]]:
    """Return signatures, labels and class names of a folder of class folders."""
    names = sorted(p.name for p in root.iterdir() if p.is_dir())
    paths = [(n, path) for n, name in enumerate(names) for path in sorted((root / name).iterdir())]
    table = stack_signatures([make_signature(read_picture(path)) for _, path in paths])
    return table, np.array([number for number, _ in paths]), names


def with_noise(
    labels: np.ndarray, names: list[str], rate: float, kind: str, seed: int
) -> np.ndarray:
    """Return labels of which a share is wrong."""
    rng = np.random.default_rng(seed)
    wrong, k = rng.random(len(labels)) < rate, len(names)
    if kind == "symmetric":
        others = (labels + rng.integers(1, k, len(labels))) % k
    else:
        # of other classes than CIFAR-10's, each is mistaken for the next
        known = set(names) == set(ALIKE)
        alike = [names.index(ALIKE[n]) if known else (i + 1) % k for i, n in enumerate(names)]
        others = np.array(alike)[labels]
    return np.where(wrong, others, labels)


def average_precision(score: np.ndarray, wrong: np.ndarray) -> float:
    hits = wrong[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def measured(score: np.ndarray, flagged: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    return {
        "ap": average_precision(score, wrong),
        "flagged": float(flagged.sum()),
        "precision": float(wrong[flagged].mean()) if flagged.any() else float("nan"),
    }


def mean_known(values: list[float]) -> float | None:
    """Return the mean of what is no NaN: precision is none where nothing is flagged."""
    known = [v for v in values if v == v]
    return round(float(np.mean(known)), 4) if known else None


def ours(
    views: np.ndarray, near: Nearest, given: np.ndarray, wrong: np.ndarray
) -> dict[str, float]:
    judged = judge_vectors(views, near, given, np.arange(len(given)), int(given.max()) + 1)
    flagged = (judged.error_chance >= LEAST_CHANCE) & (judged.gain >= LEAST_GAIN)
    found = measured(-judged.quality, flagged, wrong)
    every, first = judged.forecast(len(wrong)), judged.review_list()
    held = float(wrong[judged.order()[: first.n]].sum())
    return found | {
        "wrong": float(wrong.sum()), "estimated": every.wrong, "low": every.low,
        "high": every.high, "listed": float(first.n), "held": held, "forecast": first.wrong,
    }  # fmt: skip


def coverage(wrong: np.ndarray, reviewed: int, seed: int) -> float:
    """Return how many of 200 draws have the true share within their limits."""
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(200):
        drawn = rng.choice(wrong, reviewed, replace=False)
        found = share_of_sample(int(drawn.sum()), reviewed, len(wrong))
        hits += found.low <= wrong.mean() <= found.high
    return hits / 200


def cleanlab(vectors: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged after 100 steps: so are its examples
        model = LogisticRegression(max_iter=100)
        p = cross_val_predict(model, vectors, given, cv=5, method="predict_proba")
    return -get_label_quality_scores(given, p), find_label_issues(given, p)


@measures(app)
def labels(
    data: Path, seeds: int = 5, vectors: Path | None = None, beside: bool = True
) -> Document:
    """How well are wrong labels found, beside cleanlab? VECTORS (n, d) in order of the listing."""
    table, known, names = read_classes(data)
    if vectors:
        views = np.load(vectors).astype(np.float32)[None]
        views -= views.mean(1)
    else:
        views = describe_patches(table).views
    # the rival gets the vectors of whole pictures, of unit deviation, as the regression wants them
    whole = views[0] / (views[0].std(0) + 1e-6)
    mean = views.mean(0)
    near = nearest_rows(compare_axes(decompose(mean - mean.mean(0))), np.arange(len(known)))
    settings, better = {}, 0
    covered: dict[int, list[float]] = {}
    for kind in ("symmetric", "class-dependent"):
        for rate in RATES:
            rows: dict[str, list[dict[str, float]]] = {"audit": [], "cleanlab": []}
            for seed in range(seeds):
                given = with_noise(known, names, rate, kind, seed)
                wrong = given != known
                rows["audit"].append(ours(views, near, given, wrong))
                for size in REVIEWED:
                    covered.setdefault(size, []).append(coverage(wrong, size, seed))
                if beside:
                    rows["cleanlab"].append(measured(*cleanlab(whole, given), wrong))
            found = {
                tool: {key: mean_known([r[key] for r in some]) for key in some[0]}
                for tool, some in rows.items()
                if some
            }
            settings[f"{kind} {rate:.0%}"] = found
            better += "cleanlab" in found and found["audit"]["ap"] > found["cleanlab"]["ap"]
            print(f"{kind:>15} {rate:4.0%}  {found}", flush=True)
    intervals = {n: {"lowest": min(c), "mean": float(np.mean(c))} for n, c in covered.items()}
    return {
        "pictures": len(known), "seeds": seeds, "settings": settings,
        "better_ap_than_cleanlab": better, "coverage": intervals,
    }  # fmt: skip


if __name__ == "__main__":
    app()
