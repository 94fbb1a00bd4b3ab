"""The ranking by isolation, the chance of a largest value, and the map of the embeddings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import pytest

from audit.embeddings.flat_map import AXES, UMAP, place_on_map
from audit.embeddings.isolation import distance_scores
from audit.embeddings.ridge import decompose
from audit.statistics.outlying import chances_of_largest

RATE = 0.01


def scores_of(points: np.ndarray, units: np.ndarray | None = None) -> np.ndarray:
    own = np.arange(len(points)) if units is None else units
    return distance_scores(decompose((points - points.mean(0)).astype(np.float32)), own)


def smallest_chance(points: np.ndarray) -> float:
    return float(chances_of_largest(np.sort(scores_of(points))[::-1]).min())


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 32))


def heavy(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 32)) / np.sqrt(rng.chisquare(1, (n, 1)))


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.exp(rng.normal(size=(n, 32)))


def columns(rng: np.random.Generator, n: int) -> np.ndarray:
    """A body of many columns and a tail of one: distances have heavier tails farther out."""
    return rng.standard_t(3, size=(n, 64))


@pytest.mark.slow
@pytest.mark.parametrize("make", [normal, heavy, skewed, columns])
def test_chances_of_sets_without_outliers_are_large(make: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    found = sum(smallest_chance(make(rng, (60, 250)[i % 2])) <= RATE for i in range(30))
    assert found <= 2  # of 30 sets at 1 %: 3 and more come by chance in one of 300 runs


@pytest.mark.parametrize("together", [1, 3, 6])
def test_planted_outliers_rank_first(together: int) -> None:
    points = normal(np.random.default_rng(together), 230)
    points[:together] += 36 * np.eye(32)[0]
    order = np.argsort(-scores_of(points))
    assert set(order[:together]) == set(range(together))
    assert smallest_chance(points) <= RATE


def test_copies_of_an_outlier_do_not_hide_it() -> None:
    rng = np.random.default_rng(9)
    points, units = normal(rng, 100), np.arange(100)
    points[:12] = 40 * np.eye(32)[0] + 0.01 * rng.normal(size=(12, 32))
    assert set(np.argsort(-scores_of(points))[:12]) != set(range(12))
    units[:12] = 0
    assert set(np.argsort(-scores_of(points, units))[:12]) == set(range(12))


def test_two_clouds_lie_apart() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 12)) + 9 * (np.arange(120) % 2)[:, None]
    places, how = place_on_map(decompose((points - points.mean(0)).astype(np.float32)))
    assert how == (UMAP if importlib.util.find_spec("umap") else AXES)
    middles = np.stack([places[i::2].mean(0) for i in range(2)])
    spread = max(places[i::2].std(0).max() for i in range(2))
    assert np.linalg.norm(middles[0] - middles[1]) > 4 * spread


def test_one_direction_only() -> None:
    line = np.linspace(-1, 1, 20)[:, None] * np.ones((1, 3))
    places, how = place_on_map(decompose(line.astype(np.float32)))
    assert (how, places.shape) == (AXES, (20, 2))
    assert np.isfinite(places).all()
