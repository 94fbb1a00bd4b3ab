"""Pairs of boxes: the sweep finds those that all comparisons find, and its work is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from audit.annotations import box_pairs, box_statistics
from audit.annotations.box_pairs import MOST_PAIRS, sweep
from audit.checks.box_overlap import DuplicateBox
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import boxed


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
