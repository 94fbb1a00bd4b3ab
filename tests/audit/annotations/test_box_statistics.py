"""Statistics of boxes: counted against figures worked out by hand, and the two ways of covering."""

import json
from pathlib import Path
from typing import Any

import pytest

from audit.annotations import measure_boxes
from audit.annotations.box_statistics import BoxStatistics, load_box_statistics
from audit.report.boxes import box_sentences, render_boxes
from tests.audit.annotations.datasets import annotated, coco, coco_tree, picture


def measured(root: Path) -> tuple[BoxStatistics, dict[str, Any]]:
    with annotated(root) as store:
        measure_boxes(store)
        stats = load_box_statistics(store)
        assert stats is not None
        sql = "SELECT id, n_boxes, box_cover, smallest_box FROM images ORDER BY id"
        return stats, {row["id"]: row for row in store.rows(sql)}


BOXES = [(1, 0, 0, 32, 24), (1, 16, 12, 32, 24), (2, 4, 4, 8, 16), (2, 20, 4, 40, 40)]


def test_figures_by_hand(tmp_path: Path) -> None:
    document = coco(4, BOXES)
    document["categories"].append({"id": 2, "name": "dog"})
    for at in (1, 3):
        document["annotations"][at]["category_id"] = 2
    document["images"] = document["images"][:3]
    stats, rows = measured(coco_tree(tmp_path, document, 4))
    first, second, empty, unlisted = rows.values()
    assert (first["n_boxes"], first["smallest_box"]) == (2, 24)
    union = 2 * 32 * 24 - 16 * 12
    assert first["box_cover"] == pytest.approx(union / (64 * 48))
    assert (second["n_boxes"], second["smallest_box"]) == (2, 8)
    assert (empty["n_boxes"], empty["box_cover"], empty["smallest_box"]) == (0, 0, None)
    assert (unlisted["n_boxes"], unlisted["box_cover"]) == (None, None)
    cat, dog = sorted(stats.classes, key=lambda c: c.label or "")
    assert (stats.annotated, stats.boxes) == (3, 4)
    assert (cat.boxes, cat.pictures, cat.small, cat.medium, cat.large) == (2, 2, 2, 0, 0)
    assert (dog.boxes, dog.small, dog.medium) == (2, 1, 1)
    assert stats.pairs == [("cat", "dog", 2)]
    assert {b.low: b.n for b in stats.counts} == {0.0: 1, 2.0: 2}
    assert {b.low: b.n for b in stats.overlaps} == {-1.0: 2, 0.1: 2}
    assert sum(p.n for p in stats.places) == 4
    assert "4 boxes of 2 classes in 3 annotated images: 1.3 an image" in box_sentences(stats)[0]


def test_an_object_that_two_files_give_counts_once(tmp_path: Path) -> None:
    root = coco_tree(tmp_path, coco(1, [(1, 4, 4, 20, 20), (1, 4, 4, 20, 20)]))
    rows = "filename,width,height,class,xmin,ymin,xmax,ymax\n0.jpg,64,48,cat,4,4,24,24\n"
    (root / "boxes.csv").write_text(rows + "0.jpg,64,48,cat,40,30,60,44\n")
    stats, images = measured(root)
    # Repeated within one file it is a finding, not one object: both stay.
    assert stats.boxes == 3
    assert images["images/0.jpg"]["n_boxes"] == 3


def test_near_duplicates_count_once_in_the_effective_size(tmp_path: Path) -> None:
    root = coco_tree(
        tmp_path, coco(3, [(1, 4, 4, 20, 20), (2, 4, 4, 20, 20), (3, 4, 4, 20, 20)]), 3
    )
    with annotated(root) as store:
        for place, name in enumerate(("images/0.jpg", "images/1.jpg")):
            group = {"representative": "images/0.jpg", "pixel_hash": name, "position": place}
            store.append("groups", [group])
        measure_boxes(store)
        stats = load_box_statistics(store)
    assert stats is not None
    (cat,) = stats.classes
    assert (cat.boxes, cat.effective_boxes) == (3, 2)
    assert (cat.pictures, cat.effective_pictures) == (3, 2)


def test_without_annotations_there_are_none(tmp_path: Path) -> None:
    picture(tmp_path / "0.jpg")
    with annotated(tmp_path) as store:
        measure_boxes(store)
        assert load_box_statistics(store) is None
        assert store.rows("SELECT n_boxes FROM images") == [{"n_boxes": None}]
    assert render_boxes(None) == ""


def test_odd_numbers_are_left_out(tmp_path: Path) -> None:
    boxes = [(1, 0, 0, 1e300, 1e300), (1, -5, -5, 10, 10), (1, 3, 3, 0, 4), (1, 3, 3, -4, 4)]
    document = json.dumps(coco(1, boxes)).replace('"bbox": [3, 3, 0, 4]', '"bbox": [NaN, 3, 3, 4]')
    stats, rows = measured(coco_tree(tmp_path, document))
    assert stats.boxes == 2
    assert rows["images/0.jpg"]["box_cover"] == pytest.approx(1.0)


def test_the_page_shows_hostile_classes_as_text(tmp_path: Path) -> None:
    document = coco(1, BOXES[:2])
    document["categories"] = [
        {"id": 1, "name": "<script>alert(1)</script>"}, {"id": 2, "name": "\u202egpj\"'>"},
    ]  # fmt: skip
    document["annotations"][1]["category_id"] = 2
    stats, _ = measured(coco_tree(tmp_path, document))
    page = render_boxes(stats)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page
