"""What the numbers mean: readings told from all boxes of a file, units, and pictures EXIF turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.annotations.geometry import ring_facts, run_extent, unpack_runs
from tests.audit.annotations.datasets import annotated, coco, coco_tree, codes, judge, picture


def boxes(n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(3)
    size = rng.uniform(6, 30, (n, 2))
    return np.hstack([rng.uniform(0, 1, (n, 2)) * ([64, 48] - size), size]).round(1)


READINGS = {
    "corners": lambda x, y, w, h: (x, y, x + w, y + h),
    "centre": lambda x, y, w, h: (x + w / 2, y + h / 2, w, h),
    "yxhw": lambda x, y, w, h: (y, x, h, w),
}


@pytest.mark.parametrize("name", READINGS)
def test_another_reading_is_found_and_used(tmp_path: Path, name: str) -> None:
    given = boxes(120)
    written = [(1, *READINGS[name](*box)) for box in given.tolist()]
    with annotated(coco_tree(tmp_path, coco(1, written))) as store:
        found = store.query("SELECT x, y, width, height FROM boxes ORDER BY entry").to_numpy()
        assert store.scalar("SELECT reading FROM annotation_files") == f"{name} px"
        assert "BOX008" in {f.code for f in judge(store)}
    assert np.allclose(found, given)


def test_boxes_as_the_format_says_stay(tmp_path: Path) -> None:
    with annotated(coco_tree(tmp_path, coco(1, [(1, *b) for b in boxes().tolist()]))) as store:
        row = store.rows("FROM annotation_files")[0]
        assert row["reading"] == row["form"]
        assert row["fit_share"] == 1


def test_too_few_boxes_cannot_tell(tmp_path: Path) -> None:
    written = [(1, *READINGS["corners"](*box)) for box in boxes(6).tolist()]
    found = codes(coco_tree(tmp_path, coco(1, written)))
    assert "BOX008" not in found
    assert "BOX001" in found


@pytest.mark.parametrize(
    ("declared", "box"), [((64, 48), (50, 5, 10, 40)), ((48, 64), (5, 50, 40, 10))]
)
def test_a_turned_picture_has_its_boxes_where_they_fit(
    tmp_path: Path, declared: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    """Stored 64 x 48, shown 48 x 64: a box at x = 50 fits the stored picture alone."""
    picture(tmp_path / "images" / "0.jpg", 64, 48, orientation=6)
    document = coco(1, [(1, *box)])
    document["images"][0].update(width=declared[0], height=declared[1])
    root = coco_tree(tmp_path / "made", document)
    (tmp_path / "images" / "0.jpg").rename(root / "images" / "0.jpg")
    with annotated(root) as store:
        [row] = store.rows("FROM boxes")
        shown = [row[k] for k in ("x", "y", "width", "height")]
        stored = [row[f"stored_{k}"] for k in ("x", "y", "width", "height")]
        found = {f.code for f in judge(store)}
    # orientation 6: the stored left edge becomes the upper edge, the lower one becomes the left
    expected = [48 - 5 - 40, 50, 40, 10] if declared == (64, 48) else list(box)
    assert shown == expected
    assert stored == [50, 48 - expected[0] - expected[2], 10, 40]
    assert ("BOX005" in found) == (declared == (64, 48))
    assert "BOX001" not in found


def test_ring_facts_of_known_rings() -> None:
    square, bow = [0, 0, 4, 0, 4, 3, 0, 3], [0, 0, 4, 4, 4, 0, 0, 4]
    facts = ring_facts(np.array([*square, *bow], float), np.array([0, 8, 16]))
    assert facts[0].tolist() == [12, 0, 0, 4, 3, 0]
    assert facts[1, 5] == 1


def test_runs_of_coco_text() -> None:
    # pycocotools: encode of a 3 x 3 mask with its middle column set
    assert unpack_runs("333").tolist() == [3, 3, 3]
    assert unpack_runs("\x00") is None
    assert run_extent(np.array([3, 3, 3]), 3).tolist() == [3, 1, 0, 1, 3]
    assert np.isnan(run_extent(np.array([9]), 3)[1:]).all()
