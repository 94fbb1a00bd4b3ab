"""What recurs at one place in the pictures of a class."""

from __future__ import annotations

import numpy as np
import pytest

from audit.statistics.association import auc_of
from audit.statistics.recurring import PARTS, find_recurring, fine_detail

N = 160


def textures(seed: int, n: int = N) -> np.ndarray:
    """Pictures (n, 32, 32) that have nothing in common."""
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(120, 30, (n, 32, 32)), 0, 255).astype(np.uint8)


LABEL = (np.arange(N) % 4 == 0).astype(np.int64)


@pytest.mark.parametrize("part", PARTS)
def test_a_stamp_is_found_where_it_is_and_in_the_class_that_has_it(part: str) -> None:
    grey = textures(1)
    rows, columns = PARTS[part]
    at = (slice(rows.start + 3, rows.start + 5), slice(columns.start + 3, columns.start + 6))
    marked = LABEL == 1
    grey[(marked, *at)] = 250
    found = find_recurring(fine_detail(grey), LABEL, 2, 0.8)
    assert [(one.label, one.part) for one in found] == [(1, part)]
    assert auc_of(found[0].scores, marked) > 0.95
    assert auc_of(found[0].scores, np.ones(N, bool)) == 0.5  # without one side
    assert auc_of(np.arange(4.0), np.arange(4) > 1) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_pictures_without_a_stamp_have_none(seed: int) -> None:
    assert find_recurring(fine_detail(textures(seed)), LABEL, 2, 0.7) == []


def test_many_small_classes_have_none_by_chance() -> None:
    grey = textures(7, 4000)
    label = np.random.default_rng(8).permutation(np.repeat(np.arange(200), 20))
    grey[label == 3, 2:6, 2:8] = 250
    found = [(one.label, one.part) for one in find_recurring(fine_detail(grey), label, 200, 0.65)]
    assert (3, "top left") in found
    assert len(found) < 4  # where an AUC of .65 is enough, 20 are


@pytest.mark.parametrize(
    ("seed", "rows", "columns", "marked"),
    [
        (2, slice(12, 20), slice(12, 20), LABEL == 1),
        (5, slice(10, 28, 3), slice(4, 28, 3), LABEL == 1),
        (3, slice(28, 30), slice(20, 26), LABEL >= 0),
    ],
    ids=["in the middle", "a subject that reaches the rim", "what all classes have"],
)
def test_what_is_no_mark_of_a_class(
    seed: int, rows: slice, columns: slice, marked: np.ndarray
) -> None:
    grey = textures(seed)
    grey[marked, rows, columns] = 250
    assert find_recurring(fine_detail(grey), LABEL, 2, 0.7) == []


def test_a_stamp_beside_a_subject_that_recurs_is_found() -> None:
    grey = textures(6)
    faint = grey[LABEL == 1, 10:22:2, 10:22:2] // 2 + 60
    grey[LABEL == 1, 10:22:2, 10:22:2] = faint
    grey[LABEL == 1, 27:29, 3:9] = 250
    found = find_recurring(fine_detail(grey), LABEL, 2, 0.7)
    assert [one.part for one in found] == ["bottom left"]


def test_a_few_classes_dealt_to_coarse_pictures_have_none_by_chance() -> None:
    rng = np.random.default_rng(4)
    coarse = rng.normal(128, 40, (200, 16, 16)).repeat(2, 1).repeat(2, 2)
    detail = fine_detail(np.clip(coarse, 0, 255).astype(np.uint8))
    deals = [rng.permutation(np.arange(200) % 5) for _ in range(40)]
    # their AUCs spread 1.3 times as far as those of strangers: 4 would be found
    assert [find_recurring(detail, deal, 5, 0.65) for deal in deals] == [[]] * 40
