"""Kernels of boxes, polygons and masks equal their plain forms on any input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.annotations import box_pairs, box_statistics, geometry
from audit.kernels.library import find_kernel

COORDINATE = st.floats() | st.integers(-9, 9).map(float)
OFTEN = settings(max_examples=200, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _built(kernels_of_module: None) -> None:
    """Hypothesis runs a test many times with one fixture."""


@OFTEN
@given(rings=st.lists(st.lists(COORDINATE, max_size=24), max_size=5))
@example(rings=[[0, 0, 4, 4, 4, 0, 0, 4], [], [1.0]])
def test_rings(rings: list[list[float]]) -> None:
    flat = np.array([v for ring in rings for v in ring], np.float64)
    offsets = np.cumsum([0, *map(len, rings)]).astype(np.int64)
    plain = np.empty((len(rings), 6))
    with np.errstate(all="ignore"):
        geometry._ring_facts(flat, offsets, plain)
    np.testing.assert_array_equal(geometry.ring_facts(flat, offsets), plain)


@OFTEN
@given(text=st.binary(max_size=40) | st.text("0123456789:;<OPQRnopY", max_size=40).map(str.encode))
def test_packed_runs(text: bytes) -> None:
    raw = np.frombuffer(text, np.uint8)
    kernel = find_kernel("unpack_runs")
    assert kernel
    ours, plain = np.zeros(len(raw) + 1, np.int64), np.zeros(len(raw) + 1, np.int64)
    with np.errstate(over="ignore"):
        assert kernel(raw, ours) == geometry._unpack_runs(raw, plain)
    np.testing.assert_array_equal(ours, plain)


@OFTEN
@given(
    runs=st.lists(st.integers(-50, 300) | st.integers(-(2**40), 2**40), max_size=30),
    height=st.integers(1, 60),
)
def test_masks(runs: list[int], height: int) -> None:
    values, plain = np.array(runs, np.int64), np.zeros(5)
    geometry._run_extent(values, height, plain)
    np.testing.assert_array_equal(geometry.run_extent(values, height), plain)


def boxes_of(seed: int, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of pictures, sorted by their upper edge, with many equal edges."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 30, (sum(counts), 2)).astype(float)
    corners = np.hstack([low, low + rng.integers(0, 20, low.shape)])
    offsets = np.cumsum([0, *counts])
    for first, last in itertools.pairwise(offsets):
        corners[first:last] = corners[first:last][corners[first:last, 1].argsort()]
    return corners, offsets


@pytest.mark.parametrize("counts", [[], [0], [1, 0, 3], [40, 7, 90], [2100]], ids=str)
def test_boxes(counts: list[int]) -> None:
    corners, offsets = boxes_of(len(counts), counts)
    codes = np.arange(len(corners)) % 3
    found, kernel = [], find_kernel("fill_pairs")
    assert kernel
    for fill in (kernel, box_pairs._fill_pairs):
        pairs = np.zeros((16 * len(corners), 2), np.int64)
        held = np.zeros(len(corners), np.int64)
        found.append((fill(corners, codes, held, offsets, pairs), held, pairs))
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, plain)
    cover, overlap = np.zeros(len(counts)), np.zeros(len(corners))
    box_statistics._fill(corners, offsets, cover, overlap)
    ours, greatest = box_statistics.cover_and_overlap(corners, offsets)
    np.testing.assert_allclose(ours, cover, rtol=1e-12)
    np.testing.assert_array_equal(greatest, overlap)


def test_offsets_beyond_the_boxes_are_passed_over() -> None:
    corners = boxes_of(0, [4])[0]
    offsets = np.array([0, 9, -3, 2])
    cover, overlap = box_statistics.cover_and_overlap(corners, offsets)
    assert (cover == 0).all()
    assert (overlap == 0).all()
    assert geometry.ring_facts(np.zeros(4), offsets).shape == (3, 6)
