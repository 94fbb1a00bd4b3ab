"""Outliers: none where there is none, whatever the tails; those planted, alone and together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from audit.embeddings.isolation import Isolated, distance_scores, find_isolated
from audit.embeddings.ridge import decompose
from audit.statistics.outlying import chances_of_largest

RATE = 0.01  # the default of IMG009
ROWS = np.arange(250)


def isolated(
    points: np.ndarray, labels: np.ndarray | None = None, units: np.ndarray | None = None
) -> list[Isolated]:
    n = len(points)
    own = np.arange(n) if units is None else units
    parts = decompose((points - points.mean(0)).astype(np.float32))
    scores = distance_scores(parts, own)
    return find_isolated(scores, np.full(n, -1) if labels is None else labels, own, RATE)


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 32))


def heavy(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 32)) / np.sqrt(rng.chisquare(1, (n, 1)))


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.exp(rng.normal(size=(n, 32)))


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    centres, widths = 4 * rng.normal(size=(4, 32)), np.exp(0.7 * rng.normal(size=4))
    own = rng.permutation(np.arange(n) % 4)
    return centres[own] + widths[own, None] * rng.normal(size=(n, 32))


@pytest.mark.slow
@pytest.mark.parametrize("make", [normal, heavy, skewed, clustered])
def test_sets_without_outliers_are_silent(make: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    with_any = 0
    for round_ in range(24):
        n = (60, 250)[round_ % 2]
        with_any += bool(isolated(make(rng, n), rng.integers(3, size=n)))
    # of 24 sets at 1 %: 3 and more come by chance in one of 600 runs
    assert with_any <= 2


def test_columns_with_heavy_tails_are_silent() -> None:
    """A body of many columns and a tail of one: distances have heavier tails farther out."""
    with_any = 0
    for i in range(30):
        points = np.random.default_rng([i, 250, 7]).standard_t(3, size=(250, 64))
        scores = distance_scores(decompose((points - points.mean(0)).astype(np.float32)), ROWS)
        with_any += bool(chances_of_largest(np.sort(scores)[::-1]).min() <= RATE)
    assert with_any <= 2  # of 30 sets at 1 %: 3 and more come by chance in one of 300 runs


@pytest.mark.parametrize("together", [1, 3, 6])
def test_planted_outliers_are_found(together: int) -> None:
    rng = np.random.default_rng(together)
    points = normal(rng, 230)
    points[:together] += 12 * np.eye(32)[0] * 3
    assert {one.row for one in isolated(points)} == set(range(together))


def test_what_is_common_in_the_dataset_may_be_rare_in_a_class() -> None:
    rng = np.random.default_rng(8)
    points, labels = normal(rng, 300), np.arange(300) // 100
    points[labels > 0] *= 6
    points[0] *= 6  # among the first class, which lies close together
    found = isolated(points, labels)
    assert [(one.row, one.group) for one in found] == [(0, 0)]


def test_copies_of_an_outlier_count_once_and_are_all_named() -> None:
    rng = np.random.default_rng(9)
    points = normal(rng, 100)
    points[:12] = 40 * np.eye(32)[0] + 0.01 * rng.normal(size=(12, 32))
    units = np.arange(100)
    units[:12] = 0
    found = isolated(points, units=units)
    assert {one.row for one in found} == set(range(12))
    assert {one.n for one in found} == {89}


def test_too_few_and_none_and_all_alike() -> None:
    rng = np.random.default_rng(1)
    few = normal(rng, 49)
    few[0] += 100
    assert isolated(few) == []
    assert isolated(np.zeros((60, 8))) == []
    assert find_isolated(np.zeros(0), np.zeros(0, int), np.zeros(0, int), RATE) == []
