"""The map: what looks alike lies together, with UMAP and without."""

from __future__ import annotations

import importlib.util

import numpy as np

from audit.embeddings.flat_map import AXES, UMAP, place_on_map
from audit.embeddings.ridge import decompose


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
