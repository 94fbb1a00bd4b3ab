"""Rings, masks, boxes and pairs of boxes: what plain loops find, at a bounded work."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.annotations import box_pairs, box_statistics, geometry
from audit.annotations.box_pairs import MOST_PAIRS, sweep
from audit.checks.box_overlap import DuplicateBox
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import boxed

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


@pytest.mark.parametrize("text", ["P", "0P", "\x00", "\x10", "~", "é", "P" * 14 + "0"])
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
def test_cover_and_overlap(counts: list[int]) -> None:
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
    wide = np.minimum(corners[:, None, 2:], corners[None, :, 2:])
    wide = np.clip(wide - np.maximum(corners[:, None, :2], corners[None, :, :2]), 0, None)
    both, own = wide.prod(axis=2), (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    iou = both / (own[:, None] + own - both)
    np.fill_diagonal(iou, 0)
    rows, pictures = np.arange(len(own)), np.repeat(np.arange(len(counts)), counts)
    near = (np.abs(np.subtract.outer(rows, rows)) <= 1000) & (pictures[:, None] == pictures)
    np.testing.assert_allclose(overlap, np.where(near, iou, 0).max(axis=0, initial=0))


def some_boxes(n: int, seed: int, side: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    at, size = rng.random((n, 2)), side * rng.random((n, 2)) + 0.01
    corners = np.concatenate([at, at + size], 1)
    corners[: n // 3] = np.round(corners[: n // 3], 1)  # edges and boxes that are equal
    corners = corners[(corners[:, 2:] > corners[:, :2]).all(1)]
    return corners[np.argsort(corners[:, 1], kind="stable")]


@pytest.mark.parametrize("side", [0.05, 0.3, 1.0])
def test_a_sweep_finds_the_pairs_that_all_comparisons_find(side: float) -> None:
    for seed in range(4):
        corners = some_boxes(60, seed, side)
        codes = np.random.default_rng(seed).integers(0, 2, len(corners))
        first, second, limited = sweep(corners, np.array([0, len(corners)]), codes)
        low = np.maximum(corners[:, None, :2], corners[None, :, :2])
        high = np.minimum(corners[:, None, 2:], corners[None, :, 2:])
        both = np.clip(high - low, 0, None).prod(2)
        area = (corners[:, 2:] - corners[:, :2]).prod(1)
        half = both >= 0.4999 * (area[:, None] + area[None] - both)
        nested = both >= 0.8999 * np.minimum(area[:, None], area[None])
        wanted = np.argwhere(np.triu(half | (nested & (codes[:, None] == codes[None])), 1))
        assert limited == 0
        assert sorted(map(list, zip(first, second, strict=True))) == wanted.tolist()


def test_pairs_stay_within_their_picture() -> None:
    corners = np.tile([0.0, 0.0, 1.0, 1.0], (4, 1))
    first, second, _ = sweep(corners, np.array([0, 2, 4]), np.zeros(4, np.int64))
    assert list(zip(first, second, strict=True)) == [(0, 1), (2, 3)]


SETS: dict[str, Callable[[int], np.ndarray]] = {
    "in one place": lambda n: np.tile([0.1, 0.1, 0.5, 0.5], (n, 1)),
    "side by side": lambda n: np.array([[i, 0.0, i + 0.9, 1.0] for i in range(n)]),
    "one in another": lambda n: np.array([[i, i, 2.0 * n - i, 2.0 * n - i] for i in range(n)]),
    "apart": lambda n: np.array([[0.0, i, 1.0, i + 0.9] for i in range(n)]),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("what", ["pairs", "cover"])
def test_ten_times_the_boxes_are_ten_times_the_work(
    name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_pairs, "MOST_NEXT", 20)
    compared, work = box_pairs.compare_next, []

    def count(*given: Any) -> Iterator[Any]:
        for found in compared(*given):
            work[-1] += len(found[0]) + 1
            yield found

    for module in (box_pairs, box_statistics):
        monkeypatch.setattr(module, "compare_next", count)
    for n in (100, 1000):
        corners, offsets = SETS[name](n), np.array([0, n])
        work.append(1)
        if what == "pairs":
            sweep(corners, offsets, np.zeros(n, np.int64))
        else:
            box_statistics.cover_and_overlap(corners, offsets)
    assert work[1] < 12 * work[0]


@pytest.mark.parametrize("name", SETS)
def test_the_union_of_many_boxes_is_that_of_the_grid(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for boxes in (SETS[name](60), some_boxes(60, 3, 0.4)):
        area = box_statistics._union(boxes)
        with monkeypatch.context() as patch:
            patch.setattr(box_statistics, "FEW", 3)
            assert box_statistics._union(boxes) == pytest.approx(area, rel=1e-12)


def test_what_a_limit_left_out_is_said() -> None:
    check, n = DuplicateBox(), MOST_PAIRS + 8
    many: list[dict[str, object]] = [{}] * n
    for boxes, said in (
        (many, f"{MOST_PAIRS} pairs of each"),
        (many[:3], "compared with each other"),
    ):
        with case_store(Case("", [{}], tables=boxed(*boxes))) as store:
            (finding,) = check.find(store, check.Params())
            words = check.completeness(store, check.Params())
        assert finding.subject.startswith("0000.jpg@")
        assert said in words
        assert ("pairs of each" in words) == (len(boxes) == n)
