"""Subsets of real pictures, and of 10 million rows: what stratifying buys, whether intervals hold.

    python benchmarks/subset_real.py stratify [--draws 400]    about a minute
    python benchmarks/subset_real.py held-out [--draws 200] [--only "ten classes"]
    python benchmarks/subset_real.py speed [--rows 10000000]

`stratify`: what stratifying by a prior model's confidence buys. Two small classifiers are trained
here on 5,000 CIFAR-10 training pictures (kernel ridge regression on gradient histograms with
colours, and linear ridge on the histograms alone), so their mistakes are those of imperfect models,
not of a simulation. Subsets of the 1,000 test pictures are then planned three ways: label strata,
label x confidence of the first model, and the same with Neyman allocation. The price is the
variance of the estimated accuracy, for the model that the strata come from and for the *other* one,
which is the practical case: a later model is scored on strata made with an earlier one. Figures:
the equivalent simple random sample by formula, and the variance over repeated draws against a
simple random sample.

`held-out`: do intervals hold on predictions that no constant was set on? Sets whose full score is
known: digits of scikit-learn (1,797 pictures of ten classes, thinned to unequal classes as well)
with models of about 92 and 99 %, cross-validated; pairs of classes of CIFAR-10; and all of its ten
classes, equal and unequal, with the classifiers of `stratify`, cross-validated. Of each set a few
hundred subsets are drawn, in proportion and with equal shares of the classes. A full-set interval
holds where it contains the score of the whole set. CIFAR-10 is left out where its tar is not there,
the first two where scikit-learn is not.

`speed`: planning and drawing, on at most two cores. Rows are made up in memory (100 classes of
unequal size, a content hash each, 0.1 % of them in duplicate groups, 2 % excluded); making them is
not timed, their memory counts.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "2")

import cv2
import numpy as np
import polars as pl
from bench import Document, cifar_files, hall, measures, peak_mb, real_data, timed
from blake3 import blake3

from audit.subset import Goal, census, draw_subset, make_plan, score_subset
from audit.subset.baseline import equivalent_n
from audit.subset.draw import splitmix64
from audit.subset.metrics import Design
from audit.subset.source import select_eligible
from audit.subset.strata import form_units

CIFAR = "cifar10-mini.tar"
app = hall(__doc__)


def read_pictures(real: Path) -> tuple[np.ndarray, list[str], list[str]]:
    """Return CIFAR-10's pictures (n, 32, 32, 3), names and hashes, sorted by name."""
    rows = sorted(cifar_files(real))
    coded = (np.frombuffer(data, np.uint8) for _, data in rows)
    pictures = np.stack([cv2.imdecode(data, cv2.IMREAD_COLOR) for data in coded])
    return pictures, [name for name, _ in rows], [blake3(data).hexdigest() for _, data in rows]


# ---- what stratifying buys ----

N = 200  # files of a subset
CELL, BINS = 8, 9


def gradient_histograms(pictures: np.ndarray) -> np.ndarray:
    """Return histograms of gradient directions in 4 x 4 overlapping cells, normalised by cell."""
    grey = pictures.astype(np.float32).mean(3)
    dy, dx = np.gradient(grey, axis=(1, 2))
    size = np.hypot(dx, dy)
    direction = ((np.arctan2(dy, dx) % np.pi) / np.pi * BINS).astype(int) % BINS
    planes = np.stack([np.where(direction == b, size, 0) for b in range(BINS)], 3)
    starts = range(0, 32 - CELL + 1, CELL // 2)
    cells = [planes[:, y : y + CELL, x : x + CELL].sum((1, 2)) for y in starts for x in starts]
    return np.concatenate([c / (1 + np.linalg.norm(c, axis=1, keepdims=True)) for c in cells], 1)


def thumbnails(pictures: np.ndarray) -> np.ndarray:
    small = [cv2.resize(p, (8, 8), interpolation=cv2.INTER_AREA) for p in pictures]
    return np.stack(small).reshape(len(pictures), -1) / np.float32(255)


def standardized(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, spread = train.mean(0), train.std(0) + 1e-6
    return (train - mean) / spread, (test - mean) / spread


def kernel_scores(train: np.ndarray, target: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return kernel ridge scores with a Gaussian kernel of the median width."""
    x, z = standardized(train, test)
    squares = (x**2).sum(1)
    between = squares[:, None] + squares - 2 * x @ x.T
    width = np.median(between[::50])
    kernel = np.exp(-between / width) + 0.1 * np.eye(len(x))
    outer = np.exp(-((z**2).sum(1)[:, None] + squares - 2 * z @ x.T) / width)
    return outer @ np.linalg.solve(kernel, target)


def linear_scores(train: np.ndarray, target: np.ndarray, test: np.ndarray) -> np.ndarray:
    x, z = (np.c_[a, np.ones(len(a))] for a in standardized(train, test))
    return z @ np.linalg.solve(x.T @ x + 300 * np.eye(x.shape[1]), x.T @ target)


def decide(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted classes and confidences (a softmax about as sure as it is right)."""
    probability = np.exp(6 * (scores - scores.max(1, keepdims=True)))
    probability /= probability.sum(1, keepdims=True)
    return probability.argmax(1), probability.max(1)


def measure(
    frame: pl.DataFrame, hits: dict[str, np.ndarray], design: str, options: dict, draws: int
) -> list[dict]:
    made = make_plan(frame, Goal(n=N), **options)
    files = select_eligible(frame).files
    units = form_units(files, made.recipe.strata)
    n_h = np.array([s.n for s in made.strata])
    place = {name: i for i, name in enumerate(files["sample_id"])}
    drawn = [Design.of(draw_subset(frame, made.recipe, seed).rows) for seed in range(draws)]
    rows = [np.array([place[i] for i in d.rows["sample_id"]]) for d in drawn]
    results = []
    for model, hit in hits.items():
        scored = ((d, hit[r]) for d, r in zip(drawn, rows, strict=True))
        values = [float(d.ratio(hits, np.ones(hits.size)).value) for d, hits in scored]
        simple = (1 - N / hit.size) * hit.var(ddof=1) / N
        error = (np.mean(values) - hit.mean()) / (np.std(values) / np.sqrt(draws))
        results.append({
            "design": design, "model": model, "accuracy": round(float(hit.mean()), 4),
            "equivalent_n": round(equivalent_n(units, hit, n_h)[0], 1),
            "variance_ratio": round(float(np.var(values)) / simple, 3),
            "mean_error_in_se": round(error, 2),
        })  # fmt: skip
    return results


@measures(app)
def stratify(draws: int = 400, real: Path | None = None) -> Document:
    """What does stratifying by a prior model's confidence buy?"""
    pictures, names, hashes = read_pictures(real_data(real, CIFAR))
    labels = [name.split("/")[1] for name in names]
    classes = sorted(set(labels))
    code = np.array([classes.index(c) for c in labels])
    train = np.array([n.startswith("train/") for n in names])
    gradients = gradient_histograms(pictures)
    both = np.concatenate([gradients, thumbnails(pictures)], 1)
    target = np.eye(len(classes))[code[train]]
    test = np.flatnonzero(~train).tolist()
    ids, hits, tables = [names[i] for i in test], {}, []
    kinds = (("kernel", kernel_scores, both), ("linear", linear_scores, gradients))
    for name, scores, x in kinds:
        said, confidence = decide(scores(x[train], target, x[~train]))
        hits[name] = (said == code[~train]).astype(float)
        told = {"sample_id": ids, "prediction": [classes[k] for k in said]}
        tables.append(pl.DataFrame({**told, "confidence": confidence}))
    known = {"label": [labels[i] for i in test], "content_hash": [hashes[i] for i in test]}
    frame = pl.DataFrame({"sample_id": ids, **known, "confidence": tables[0]["confidence"]})
    prior = {"predictions": [tables[0]], "by": ["confidence"]}
    results = [
        *measure(frame, hits, "label", {}, draws),
        *measure(frame, hits, "label x confidence", prior, draws),
        *measure(frame, hits, "the same, Neyman", {**prior, "allocation": "neyman"}, draws),
    ]
    print(f"n = {N} of {len(test)}; strata from the confidence of 'kernel'; {draws} draws")
    print(pl.DataFrame(results))
    return {"n": N, "draws": draws, "rows": results}


# ---- predictions that no constant was set on ----

METRICS = ["macro-f1", "accuracy", "macro-recall", "auroc"]  # models are compared on the first
SIZES = (100, 300)
FOLDS = 3
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
    keep = thinned(y)
    strong = [SVC(gamma=0.001, probability=True, random_state=0), KNeighborsClassifier(5)]
    weak = [LogisticRegression(C=0.0003, max_iter=300), GaussianNB(var_smoothing=0.02)]
    for name, pair in (("strong", strong), ("weak", weak)):
        chances = [cross_val_predict(m, x, y, cv=folds, method="predict_proba") for m in pair]
        for part, rows in (("", np.ones(y.size, bool)), (", unequal classes", keep)):
            tables = [table_of(y[rows], c[rows]) for c in chances]
            yield f"digits, {name}{part}", frame_of(y[rows]), tables


def cifar_sets(real: Path) -> Iterator[Named]:
    """Yield pairs of classes of CIFAR-10's test pictures."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.svm import SVC

    if not (real / CIFAR).exists():
        return
    pictures, names, _ = read_pictures(real)
    known = np.array([name.split("/")[1] for name in names])
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


def thinned(y: np.ndarray) -> np.ndarray:
    """Return which rows to keep of classes 0 to 9 for shares of 1, .3 and .12."""
    shares = np.where(y < 3, 1.0, np.where(y < 7, 0.3, 0.12))
    return np.random.default_rng(3).uniform(size=y.size) < shares


def ridge_sets(real: Path) -> Iterator[Named]:
    """Yield all ten classes of CIFAR-10 with the two classifiers of `stratify`."""
    if not (real / CIFAR).exists():
        return
    pictures, names, _ = read_pictures(real)
    known = np.array([name.split("/")[1] for name in names])
    y = np.unique(known, return_inverse=True)[1]
    gradients = gradient_histograms(pictures)
    both = np.concatenate([gradients, thumbnails(pictures)], 1)
    fold = np.random.default_rng(0).permutation(y.size) % FOLDS
    chances = [np.empty((y.size, 10)) for _ in range(2)]
    for k in range(FOLDS):
        train, target = fold != k, np.eye(10)[y[fold != k]]
        scored = (
            kernel_scores(both[train], target, both[~train]),
            linear_scores(gradients[train], target, gradients[~train]),
        )
        for chance, scores in zip(chances, scored, strict=True):
            likely = np.exp(6 * (scores - scores.max(1, keepdims=True)))
            chance[~train] = likely / likely.sum(1, keepdims=True)
    for part, rows in (("", np.ones(y.size, bool)), (", unequal", thinned(y))):
        tables = [table_of(known[rows], c[rows]) for c in chances]
        yield f"CIFAR-10, ten classes{part}", frame_of(known[rows]), tables


def held_out_sets(real: Path, only: str) -> Iterator[Named]:
    """Yield the sets whose name contains a word."""
    kinds = [ridge_sets(real)]
    if importlib.util.find_spec("sklearn"):
        kinds += [digit_sets(), cifar_sets(real)]
    else:
        print("scikit-learn is not there: its sets are left out")
    yield from (named for kind in kinds for named in kind if only in named[0])


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


def cells(named: Named, draws: int, sizes: Sequence[int]) -> Iterator[dict]:
    """Yield the coverage of each figure, by size and allocation."""
    name, frame, tables = named
    true = figures(census(frame).rows, tables)
    for n in sizes:
        for allocation in ("proportional", "equal"):
            recipe = make_plan(frame, Goal(n=n), allocation=allocation, merge_strata=True).recipe
            drawn = (draw_subset(frame, recipe, seed).rows for seed in range(draws))
            scored = [figures(rows, tables) for rows in drawn]
            for metric, (value, _, _) in true.items():
                held = [s[metric][1] - 1e-9 <= value <= s[metric][2] + 1e-9 for s in scored]
                width = float(np.mean([s[metric][2] - s[metric][1] for s in scored]))
                yield {"set": name, "accuracy": true["accuracy"][0], "files": len(frame), "n": n,
                       "allocation": allocation, "metric": metric, "width": width,
                       "coverage": float(np.mean(held))}  # fmt: skip


@measures(app)
def held_out(
    draws: int = 200, only: str = "", n: list[int] | None = None, real: Path | None = None
) -> tuple[Document, bool]:
    """Do full-set intervals hold on real predictions?"""
    found = []
    for named in held_out_sets(real_data(real), only):
        for c in cells(named, draws, n or SIZES):
            found.append(c)
            print(
                *(f"{k}={v:.4g}" if isinstance(v, float) else v for k, v in c.items()), flush=True
            )
    least = 0.94 - 3 * float(np.sqrt(0.94 * 0.06 / draws))
    shares = [c["coverage"] for c in found]
    below = sum(share < least for share in shares)
    mean = float(np.mean(shares))
    summary = {"draws": draws, "cells": len(found), "cell_low": min(shares), "mean": mean}
    return {**summary, "below": below}, not below


# ---- ten million rows ----

LIMIT_SECONDS, LIMIT_GB = 20.0, 4.0
CLASSES = 100


def make_rows(count: int) -> pl.DataFrame:
    """Return a frame of `count` files with classes, hashes, duplicates and exclusions."""
    number = np.arange(count, dtype=np.uint64)
    share = splitmix64(number) / 2.0**64
    classes = pl.Series([f"class{k:03d}" for k in range(CLASSES)])
    label = classes.gather(pl.Series((CLASSES * share**1.5).astype(np.int64)))
    digest = pl.DataFrame({"h": splitmix64(number + np.uint64(count))}).select(
        pl.col("h").cast(pl.String).str.zfill(64)
    )["h"]
    row = pl.int_range(pl.len())
    frame = pl.DataFrame({"label": label, "content_hash": digest})
    return frame.select(
        sample_id=pl.format("test/{}.jpg", row),
        label="label",
        content_hash="content_hash",
        excluded_reason=pl.when(row % 50 == 0).then(pl.lit("unreadable file")),
        duplicate_group=pl.when(row % 1000 < 2).then(pl.format("d{}", row // 1000)),
        brightness=pl.Series(splitmix64(number + np.uint64(3 * count)) / 2.0**64),
    )


@measures(app)
def speed(rows: int = 10_000_000) -> tuple[Document, bool]:
    """How long do planning and drawing take, and what memory?"""
    frame, small = make_rows(rows), make_plan(make_rows(1000), Goal(half_width=0.05)).recipe
    draw_subset(make_rows(250_000), small, 1)  # compile
    with timed() as planned:
        made = make_plan(frame, Goal(half_width=0.01))
    plan_peak = peak_mb() / 1e3
    with timed() as drawn:
        subset = draw_subset(frame, made.recipe, seed=7)
    peak = peak_mb() / 1e3
    print(
        f"{rows:,} rows: plan {planned['wall_s']:.1f} s, draw of {subset.n_units:,} units "
        f"{drawn['wall_s']:.1f} s, peak {peak:.2f} GB ({plan_peak:.2f} after planning; the rows "
        f"are {frame.estimated_size() / 1e9:.2f} GB)."
    )
    held = planned["wall_s"] + drawn["wall_s"] < LIMIT_SECONDS and peak < LIMIT_GB
    figures = {"rows": rows, "plan_s": planned["wall_s"], "draw_s": drawn["wall_s"]}
    return {**figures, "peak_gb": round(peak, 2), "cores": 2, "within_limits": held}, held


if __name__ == "__main__":
    app()
