"""Facts of rings, masks and boxes equal those of plain loops, on any input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.annotations import box_statistics, geometry

COORDINATE = st.floats() | st.integers(-9, 9).map(float)
OFTEN = settings(max_examples=200, deadline=None)


def turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def crossings(ring: np.ndarray) -> int:
    sides = list(zip(ring, np.roll(ring, -1, axis=0), strict=True))
    return sum(
        turn(a, b, c) * turn(a, b, d) < 0 and turn(c, d, a) * turn(c, d, b) < 0
        for (i, (a, b)), (k, (c, d)) in itertools.combinations(enumerate(sides), 2)
        if 1 < k - i < len(ring) - 1
    )


@OFTEN
@given(rings=st.lists(st.lists(COORDINATE, max_size=24), max_size=5))
@example(rings=[[0, 0, 4, 4, 4, 0, 0, 4], [], [1.0]])
def test_rings(rings: list[list[float]]) -> None:
    flat = np.array([v for ring in rings for v in ring], np.float64)
    facts = geometry.ring_facts(flat, np.cumsum([0, *map(len, rings)]).astype(np.int64))
    for ring, found in zip(rings, facts, strict=True):
        points = np.array(ring[: len(ring) // 2 * 2]).reshape(-1, 2)
        with np.errstate(all="ignore"):
            if not len(points) or not np.isfinite(points).all():
                assert np.isnan(found[5])
                continue
            low, high = points.min(axis=0), points.max(axis=0)
            np.testing.assert_array_equal(found[1:5], [*low, *(high - low)])
            assert found[5] == crossings(points)
            if np.abs(points).max() < 100:
                assert found[0] == pytest.approx(geometry.ring_area(ring), abs=1e-9)


def packed(runs: list[int]) -> str:
    """Write runs as pycocotools does."""
    text = ""
    for i, run in enumerate(runs):
        value, more = run - (runs[i - 2] if i > 2 else 0), True
        while more:
            code, value = value & 31, value >> 5
            more = value != (-1 if code & 16 else 0)
            text += chr(code + 48 + 32 * more)
    return text


@OFTEN
@given(runs=st.lists(st.integers(0, 300) | st.integers(0, 2**40), max_size=30))
def test_packed_runs(runs: list[int]) -> None:
    found = geometry.unpack_runs(packed(runs))
    assert found is not None
    assert found.tolist() == runs


@pytest.mark.parametrize("text", ["P", "0P", "\x10", "~", "é", "P" * 14 + "0"])
def test_text_that_is_no_mask(text: str) -> None:
    assert geometry.unpack_runs(text) is None


@OFTEN
@given(runs=st.lists(st.integers(0, 50), max_size=30), height=st.integers(1, 60))
def test_masks(runs: list[int], height: int) -> None:
    drawn = np.repeat(np.arange(len(runs)) % 2, runs)
    x, y = np.divmod(np.flatnonzero(drawn), height)
    found = geometry.run_extent(np.array(runs, np.int64), height)
    assert found[0] == len(x)
    if len(x):
        extent = [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1]
        assert found[1:].tolist() == extent
    else:
        assert all(map(math.isnan, found[1:]))


@pytest.mark.parametrize("counts", [[], [0], [1, 0, 3], [40, 7, 90], [1500]], ids=str)
def test_cover_and_overlap(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(len(counts))
    low = rng.integers(0, 30, (sum(counts), 2)).astype(float)
    corners = np.hstack([low, low + rng.integers(1, 20, low.shape)])
    offsets = np.cumsum([0, *counts])
    for first, last in itertools.pairwise(offsets):
        corners[first:last] = corners[first:last][corners[first:last, 1].argsort()]
    cover, overlap = box_statistics.cover_and_overlap(corners, offsets)
    for area, (first, last) in zip(cover, itertools.pairwise(offsets), strict=True):
        grid = np.zeros((50, 50), bool)
        for x0, y0, x1, y1 in corners[first:last].astype(int):
            grid[y0:y1, x0:x1] = True
        assert area == grid.sum()
    if sum(counts) < 1000:
        return
    wide = np.minimum(corners[:, None, 2:], corners[None, :, 2:])
    wide = np.clip(wide - np.maximum(corners[:, None, :2], corners[None, :, :2]), 0, None)
    both, own = wide.prod(axis=2), (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    iou = both / (own[:, None] + own - both)
    np.fill_diagonal(iou, 0)
    near = np.abs(np.subtract.outer(np.arange(len(own)), np.arange(len(own)))) <= 1000
    np.testing.assert_allclose(overlap, np.where(near, iou, 0).max(axis=0))
