"""Means over classes and AUROC: their definitions, influences, and intervals that hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from audit.statistics.intervals import Floats, mcnemar, paired_difference
from audit.subset import metrics
from audit.subset.estimate import difference_interval
from audit.subset.metrics import Design, Linearised, estimate_linear

rng = np.random.default_rng(2)
LABEL, SAID = rng.integers(0, 3, 200), rng.integers(0, 4, 200)  # said 3: no class of the set
HIT = (LABEL == SAID).astype(float)
POSITIVE, SCORE = LABEL > 0, rng.integers(0, 8, 200) / 8
WEIGHT = rng.uniform(0.5, 2, 200)


def f1(w: Floats, k: int) -> float:
    hit = w[(k == LABEL) & (k == SAID)].sum()
    return float(2 * hit / (w[k == LABEL].sum() + w[k == SAID].sum()))


def recall(w: Floats, k: int) -> float:
    return float((w * HIT)[k == LABEL].sum() / w[k == LABEL].sum())


def area(w: Floats) -> float:
    wins = (SCORE[:, None] > SCORE[None, :]) + 0.5 * (SCORE[:, None] == SCORE[None, :])
    pairs = np.outer(POSITIVE * w, ~POSITIVE * w)
    return float((pairs * wins).sum() / pairs.sum())


METRICS: dict[str, tuple[Callable[[Floats], Linearised], Callable[[Floats], float]]] = {
    "macro-recall": (
        lambda w: metrics.macro_recall(LABEL, HIT, w, 3),
        lambda w: float(np.mean([recall(w, k) for k in range(3)])),
    ),
    "macro-f1": (
        lambda w: metrics.macro_f1(LABEL, SAID, HIT, w, 3),
        lambda w: float(np.mean([f1(w, k) for k in range(3)])),
    ),
    "auroc": (lambda w: metrics.auroc(POSITIVE, SCORE, w), area),
    "precision": (
        lambda w: metrics.share_of(HIT, (SAID == 1).astype(float), w),
        lambda w: float((w * HIT)[SAID == 1].sum() / w[SAID == 1].sum()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_value_and_influence_are_the_definition_and_its_derivative(name: str) -> None:
    linear, definition = METRICS[name]
    found = linear(WEIGHT)
    assert found.value == pytest.approx(definition(WEIGHT))
    assert (WEIGHT * found.share).sum() == pytest.approx(1)
    assert (WEIGHT * found.influence).sum() == pytest.approx(0, abs=1e-12)
    step = 1e-6
    for row in range(0, 200, 23):
        moved = WEIGHT.copy()
        moved[row] += step
        derivative = (definition(moved) - definition(WEIGHT)) / step
        assert found.influence[row] == pytest.approx(derivative, abs=1e-7)


@pytest.mark.parametrize("name", METRICS)
def test_rows_without_weight_do_not_count(name: str) -> None:
    linear, definition = METRICS[name]
    kept = np.where(np.arange(200) % 3 == 0, 0.0, WEIGHT)
    found = linear(kept)
    assert found.value == pytest.approx(definition(kept))
    assert not found.influence[::3].any()
    assert not found.share[::3].any()


def drawn(sizes: list[int], n_h: list[int]) -> Design:
    """A subset of single files, class by class."""
    stratum = np.repeat(np.arange(len(sizes)), n_h)
    weight = (np.array(sizes) / np.array(n_h))[stratum]
    ones, units = np.ones(stratum.size), np.arange(stratum.size)
    return Design(pl.DataFrame(), units, stratum, np.array(sizes, float), ones, weight)


def test_an_interval_has_a_width_unless_everything_was_scored() -> None:
    for sizes, known in (([400, 300, 300], False), ([40, 30, 30], True)):
        design = drawn(sizes, [40, 30, 30])
        label, hit = design.stratum, np.ones(100)
        for linear in (
            metrics.macro_recall(label, hit, design.weight, 3),
            metrics.macro_f1(label, label, hit, design.weight, 3),
            metrics.auroc(label == 0, (label == 0).astype(float), design.weight),
        ):
            found = estimate_linear(design, linear, 0.95)
            full = found["full-set"]
            assert full.value == pytest.approx(1)
            assert (full.low == full.high) is known
            assert found["generalisation"].low < 0.99


@pytest.mark.parametrize(("accuracy", "n"), [(0.98, 10), (0.9, 10)])
def test_macro_metrics_of_good_models_are_covered(accuracy: float, n: int) -> None:
    # where the spread of replicates covered 59 %
    random, classes = np.random.default_rng(int(1000 * accuracy) + n), 10
    design = drawn([1000] * classes, [n] * classes)
    each = np.clip(1 - (1 - accuracy) * np.linspace(0.3, 1.7, classes), 0, 1)
    held = {"recall": 0, "f1": 0}
    for _ in range(80):
        hit = (random.uniform(size=n * classes) < each[design.stratum]).astype(float)
        wrong = (design.stratum + random.integers(1, classes, hit.size)) % classes
        said = np.where(hit > 0, design.stratum, wrong)
        recall = metrics.macro_recall(design.stratum, hit, design.weight, classes)
        f1_of = metrics.macro_f1(design.stratum, said, hit, design.weight, classes)
        for name, linear in (("recall", recall), ("f1", f1_of)):
            found = estimate_linear(design, linear, 0.95)["generalisation"]
            # equal classes and errors that go anywhere: F1 of the set is the accuracy, nearly
            held[name] += found.low <= accuracy <= found.high
    assert min(held.values()) >= 70, held  # 95 % of 80 is 76; below 70 has a chance of 0.5 %


def test_macro_f1_under_unequal_weights_is_covered() -> None:
    # one mistake of the largest class, a third of whose samples have none, weighs 160 rows of the
    # smallest class: without a guard three in four of the intervals were right
    random, sizes = np.random.default_rng(6), np.array([12_000, 6_000, 1_500, 500])
    design = drawn(sizes.tolist(), [75] * 4)
    label, right = design.stratum, np.array([0.991, 0.994, 0.996, 0.997])
    wrong = (sizes * (1 - right)).sum() - sizes * (1 - right)
    true = float((2 * sizes * right / (sizes * (1 + right) + wrong / 3)).mean())
    held = {"share": 0, "difference": 0}
    for _ in range(80):
        models = []
        for _ in range(2):
            hit = (random.uniform(size=300) < right[label]).astype(float)
            said = np.where(hit > 0, label, (label + random.integers(1, 4, 300)) % 4)
            models.append(metrics.macro_f1(label, said, hit, design.weight, 4))
        both = metrics.difference_of(*models, (models[0].against[0] != models[1].against[0]))
        pair = both.ratio(design), both.told_apart(design)
        low, high, _ = difference_interval(*pair, "generalisation", 0.95)
        held["difference"] += bool(low <= 0 <= high)
        found = estimate_linear(design, models[0], 0.95)["generalisation"]
        held["share"] += found.low <= true <= found.high
    assert min(held.values()) >= 70, held  # 95 % of 80 is 76; below 70 has a chance of 0.5 %


@pytest.mark.parametrize(
    ("sizes", "n_h", "right"),
    [
        ([4000, 400, 40, 40], [30, 30, 30, 30], 0.9),  # a heavy row called a small class: too high
        ([400] * 12, [3] * 12, 0.6),  # three rows of a class: too low
    ],
)
def test_macro_f1_of_samples_is_off_by_what_it_says(sizes, n_h, right) -> None:
    random, K = np.random.default_rng(3), len(sizes)
    design, N = drawn(sizes, n_h), np.array(sizes, float)
    called = N * right + (N.sum() - N) * (1 - right) / (K - 1)
    true, found, held = float((2 * N * right / (N + called)).mean()), [], 0
    for _ in range(250):
        hit = (random.uniform(size=design.stratum.size) < right).astype(float)
        wrong = (design.stratum + random.integers(1, K, hit.size)) % K
        said = np.where(hit > 0, design.stratum, wrong)
        f1_of = metrics.macro_f1(design.stratum, said, hit, design.weight, K)
        found.append((f1_of.value - true, f1_of.curve[0]))
        limits = estimate_linear(design, f1_of, 0.95)["generalisation"]
        held += limits.low <= true <= limits.high
    off, told = np.mean(found, axis=0)
    assert abs(off) > 0.01
    assert 0.6 < told / off < 1.7
    assert held >= 226  # 95 % of 250 is 237; below 226 has a chance of 0.1 %
    whole = metrics.macro_f1(design.stratum, said, hit, np.ones(hit.size), K)
    assert whole.curve == (0.0, 0.0)  # where all is drawn, nothing is off


@pytest.mark.parametrize(("gain", "loss"), [(0.02, 0.02), (0.05, 0.01)])
def test_differences_under_unequal_weights_are_covered(gain: float, loss: float) -> None:
    # rows of the large stratum weigh 20 times as much; without a guard 67 to 92 % were covered
    random, design, held = np.random.default_rng(4), drawn([10_000, 500], [50, 50]), 0
    one = np.ones(100)
    for _ in range(120):
        u = random.uniform(size=100)
        change = np.where(u < gain, 1.0, np.where(u < gain + loss, -1.0, 0.0))
        both = design.ratio(change, one), design.ratio(np.abs(change), one)
        low, high, _ = difference_interval(*both, "generalisation", 0.95)
        held += bool(low <= gain - loss <= high)
    assert held >= 107  # 95 % of 120 is 114; below 107 has a chance of 0.4 %


def test_the_interval_of_a_difference_leaves_out_zero_where_the_test_rejects() -> None:
    gained, lost = (v.ravel() for v in np.mgrid[0:25, 0:25])
    low, high = paired_difference(gained / 60, lost / 60, 60)
    rejected = mcnemar(gained, lost) <= 0.05
    assert (rejected == ((low > 0) | (high < 0))).all()
    assert (low <= (gained - lost) / 60).all()
    assert (high >= (gained - lost) / 60).all()
    assert (high - low).min() > 0.05
