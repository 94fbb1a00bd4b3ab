"""What stratifying by a prior model's confidence buys, on real CIFAR-10 test labels.

Two small classifiers are trained here on 5,000 CIFAR-10 training pictures (kernel ridge regression
on gradient histograms with colours, and linear ridge on the histograms alone), so their mistakes
are those of imperfect models, not of a simulation. Subsets of the 1,000 test pictures are then
planned three ways: label strata, label x confidence of the first model, and the same with Neyman
allocation. The price is the variance of the estimated accuracy, for the model that the strata come
from and for the *other* one, which is the practical case: a later model is scored on strata made
with an earlier one. Figures: the equivalent simple random sample by formula, and the variance over
repeated draws against a simple random sample. The data are looked for in $PREFLIGHT_REAL_DATA or
../shared/data.

    python benchmarks/subset_stratify.py            # 400 draws a design, about a minute
    python benchmarks/subset_stratify.py --quick
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
from pathlib import Path

import cv2
import numpy as np
import polars as pl
from blake3 import blake3

from audit.subset import Goal, draw_subset, make_plan
from audit.subset.design import Design
from audit.subset.equivalent_size import equivalent_n
from audit.subset.frame import select_eligible
from audit.subset.units import form_units

ROOT = Path(__file__).parent.parent
N = 200
CELL, BINS = 8, 9


def find_data() -> Path | None:
    folder = Path(os.environ.get("PREFLIGHT_REAL_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "cifar10-mini.tar"
    return path if path.is_file() else None


def read_pictures(path: Path) -> tuple[np.ndarray, list[str], list[str], list[str]]:
    """Return pictures (n, 32, 32, 3), names, labels and hashes, sorted by name."""
    rows = []
    with tarfile.open(path) as tar:
        for member in tar:
            handle = tar.extractfile(member) if member.isfile() else None
            if handle is not None:
                raw = handle.read()
                picture = cv2.imdecode(np.frombuffer(raw, np.uint8), cv2.IMREAD_COLOR)
                rows.append((member.name, picture, blake3(raw).hexdigest()))
    rows.sort(key=lambda row: row[0])
    names = [row[0].split("/", 1)[1] for row in rows]
    labels = [name.split("/")[1] for name in names]
    return np.stack([row[1] for row in rows]), names, labels, [row[2] for row in rows]


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
    return np.stack(
        [cv2.resize(p, (8, 8), interpolation=cv2.INTER_AREA) for p in pictures]
    ).reshape(len(pictures), -1) / np.float32(255)


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
    """Return ridge regression scores."""
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
        values = [
            float(d.ratio(hit[r], np.ones(r.size)).value) for d, r in zip(drawn, rows, strict=True)
        ]
        simple = (1 - N / hit.size) * hit.var(ddof=1) / N
        results.append(
            {
                "design": design,
                "model": model,
                "accuracy": round(float(hit.mean()), 4),
                "equivalent_n": round(equivalent_n(units, hit, n_h)[0], 1),
                "variance_ratio": round(float(np.var(values)) / simple, 3),
                "mean_error_in_se": round(
                    (np.mean(values) - hit.mean()) / (np.std(values) / np.sqrt(draws)), 2
                ),
            }
        )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="40 draws a design")
    draws = 40 if parser.parse_args().quick else 400
    path = find_data()
    if path is None:
        print("No cifar10-mini.tar in $PREFLIGHT_REAL_DATA or ../shared/data: nothing measured.")
        print(json.dumps({"benchmark": "subset_stratify", "skipped": "no data"}))
        return 0
    pictures, names, labels, hashes = read_pictures(path)
    classes = sorted(set(labels))
    code = np.array([classes.index(c) for c in labels])
    train = np.array([n.startswith("train/") for n in names])
    tables, hits = [], {}
    gradients = gradient_histograms(pictures)
    both = np.concatenate([gradients, thumbnails(pictures)], 1)
    target = np.eye(len(classes))[code[train]]
    kinds = (("kernel", kernel_scores, both), ("linear", linear_scores, gradients))
    test = [i for i, is_train in enumerate(train) if not is_train]
    for name, scores, x in kinds:
        said, confidence = decide(scores(x[train], target, x[~train]))
        hits[name] = (said == code[~train]).astype(float)
        said_names = [classes[k] for k in said]
        ids = [names[i] for i in test]
        tables.append(
            pl.DataFrame({"sample_id": ids, "prediction": said_names, "confidence": confidence})
        )
    frame = pl.DataFrame(
        {
            "sample_id": [names[i] for i in test],
            "label": [labels[i] for i in test],
            "content_hash": [hashes[i] for i in test],
            "confidence": tables[0]["confidence"],
        }
    )
    prior = {"predictions": [tables[0]], "by": ["confidence"]}
    results = [
        *measure(frame, hits, "label", {}, draws),
        *measure(frame, hits, "label x confidence", prior, draws),
        *measure(frame, hits, "the same, Neyman", {**prior, "allocation": "neyman"}, draws),
    ]
    print(f"n = {N} of {len(test)}; strata from the confidence of 'kernel'; {draws} draws")
    for r in results:
        print(
            f"{r['design']:20s} scoring {r['model']:6s} (accuracy {r['accuracy']:.3f}): as precise "
            f"as a simple sample of {r['equivalent_n']:.0f}; measured variance "
            f"{r['variance_ratio']:.2f} of the simple sample's; mean error "
            f"{r['mean_error_in_se']:+.1f} SE"
        )
    print(json.dumps({"benchmark": "subset_stratify", "n": N, "draws": draws, "rows": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
