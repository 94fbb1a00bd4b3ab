"""How well wrong labels are found: planted noise in real pictures, beside cleanlab.

    python benchmarks/label_errors.py --data cifar10-mini/train [--seeds 5] [--vectors F.npy]

Labels of class folders are changed at random (symmetric), or to one class that looks alike
(class-dependent: car to truck, cat to dog, ...), 5, 10, 20 and 40 % of them. Per setting, the mean
over seeds: average precision and ROC-AUC of the order, precision among the flagged, the estimated
share of wrong labels and its limit, the share expected and found among the first 50, 200 and 1,000;
the same of cleanlab, which gets probabilities of logistic regression out of five folds on the same
vectors (needs `pip install cleanlab`; else --no-cleanlab). Then how often the interval from labels
drawn at random and reviewed holds the share: 200 draws a setting. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import cv2
import numpy as np

from audit.embeddings.judged import judge_vectors
from audit.embeddings.nearest import Nearest, nearest_rows
from audit.embeddings.patches import describe_patches
from audit.embeddings.ridge import decompose
from audit.neighbors.signatures import make_signature, stack_signatures
from audit.review.label_sample import share_of_sample

RATES = (0.05, 0.10, 0.20, 0.40)
# CIFAR-10's classes in order, and the class that each is mistaken for.
ALIKE = {
    "airplane": "ship", "automobile": "truck", "bird": "airplane", "cat": "dog", "deer": "horse",
    "dog": "cat", "frog": "bird", "horse": "deer", "ship": "airplane", "truck": "automobile",
}  # fmt: skip
REVIEWED = (50, 100, 200)
LEAST_CHANCE, LEAST_GAIN = 0.5, 4.0  # the defaults of LABEL006


def read(root: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return signatures, labels and class names of a folder of class folders."""
    names = sorted(p.name for p in root.iterdir() if p.is_dir())
    signatures, labels = [], []
    for number, name in enumerate(names):
        for path in sorted((root / name).iterdir()):
            pixels = cv2.imread(str(path))
            if pixels is not None:
                signatures.append(make_signature(np.ascontiguousarray(pixels[:, :, ::-1])))
                labels.append(number)
    return stack_signatures(signatures), np.array(labels), names


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


def roc_auc(score: np.ndarray, wrong: np.ndarray) -> float:
    ranks = np.argsort(np.argsort(score, kind="stable"), kind="stable") + 1
    n = int(wrong.sum())
    return float((ranks[wrong].sum() - n * (n + 1) / 2) / (n * (len(wrong) - n)))


def measured(score: np.ndarray, flagged: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    return {
        "ap": average_precision(score, wrong),
        "auc": roc_auc(score, wrong),
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
    found |= {"share": judged.share, "limit": judged.share_limit}
    for n, expected in judged.expected_shares().items():
        found[f"expected {n}"] = expected
        found[f"wrong {n}"] = float(wrong[judged.order()[:n]].mean())
    return found


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--vectors", type=Path, help=".npy (n, d), in the order of the listing")
    parser.add_argument("--no-cleanlab", action="store_true")
    options = parser.parse_args()
    table, labels, names = read(options.data)
    if options.vectors:
        views = np.load(options.vectors).astype(np.float32)[None]
        views -= views.mean(1)
    else:
        views = describe_patches(table)
    # the rival gets the vectors of whole pictures, of unit deviation, as the regression wants them
    whole = views[0] / (views[0].std(0) + 1e-6)
    mean = views.mean(0)
    near = nearest_rows(decompose(mean - mean.mean(0)), np.arange(len(labels)))
    settings, better = {}, 0
    covered: dict[int, list[float]] = {}
    for kind in ("symmetric", "class-dependent"):
        for rate in RATES:
            rows: dict[str, list[dict[str, float]]] = {"audit": [], "cleanlab": []}
            for seed in range(options.seeds):
                given = with_noise(labels, names, rate, kind, seed)
                wrong = given != labels
                rows["audit"].append(ours(views, near, given, wrong))
                for size in REVIEWED:
                    covered.setdefault(size, []).append(coverage(wrong, size, seed))
                if not options.no_cleanlab:
                    rows["cleanlab"].append(measured(*cleanlab(whole, given), wrong))
            found = {
                tool: {key: mean_known([r[key] for r in some]) for key in some[0]}
                for tool, some in rows.items()
                if some
            }
            settings[f"{kind} {rate:.0%}"] = found
            better += "cleanlab" in found and found["audit"]["ap"] > found["cleanlab"]["ap"]
            print(f"{kind:>15} {rate:4.0%}  " + "   ".join(
                f"{tool}: "
                + ", ".join(f"{k} {value:.3f}" for k, value in values.items() if value is not None)
                for tool, values in found.items()
            ), flush=True)  # fmt: skip
    intervals = {n: {"lowest": min(c), "mean": float(np.mean(c))} for n, c in covered.items()}
    print(json.dumps({"pictures": len(labels), "seeds": options.seeds, "settings": settings,
                      "better_ap_than_cleanlab": better, "coverage": intervals}))  # fmt: skip


if __name__ == "__main__":
    main()
