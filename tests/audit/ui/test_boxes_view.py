"""The view of boxes on the page Labels: what it says, filters in the link, hostile class names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.annotations.datasets import annotated_run, coco, coco_tree, picture
from tests.audit.ui.pages import Show, html, text
from tests.audit.ui.test_hostile_names import COMPONENTS, elements

pytestmark = pytest.mark.slow

EVIL = "<img src=x onerror=alert(1)>\u202e**b**"


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures; one has a box of a hostile class that leaves it."""
    folder = tmp_path_factory.mktemp("boxed")
    document = coco(2, [(1, 5, 6, 20, 10), (2, 60, 40, 30, 30)])
    document["categories"].append({"id": 2, "name": EVIL})
    document["annotations"][1]["category_id"] = 2
    return annotated_run(coco_tree(folder / "d", document, 2), folder / "run")


def test_statistics_and_pictures_are_shown(show: Show, boxed: Path) -> None:
    at = show("labels", boxed, view="Boxes")
    said = text(at)
    (drawn,) = [c.proto.json for c in at.get("bidi_component") if '"markup"' in c.proto.json]
    assert "2 boxes of 2 classes in 2 annotated images" in drawn
    assert "<svg" in drawn
    assert EVIL[:9] not in drawn
    assert "2 images" in said
    assert 'class="notice error"' not in html(at)
    filtered = show("labels", boxed, view="Boxes", box_class="cat", code="BOX001")
    assert "No image fits." in text(filtered)
    nonsense = show("labels", boxed, view="Boxes", box_size="huge", start="-x")
    assert 'class="notice error"' not in html(nonsense)


def test_hostile_classes_are_text(show: Show, boxed: Path) -> None:
    at = show("labels", boxed, view="Boxes")
    assert "<img" not in html(at)
    for element in elements(at._tree):
        if element.type not in COMPONENTS:
            assert "\u202e".encode() not in element.proto.SerializeToString(), element.type


def test_without_boxes_there_is_one_calm_sentence(show: Show, tmp_path: Path) -> None:
    picture(tmp_path / "d" / "0.jpg")
    run = annotated_run(tmp_path / "d", tmp_path / "run")
    plain = show("labels", run)
    assert "Boxes" not in text(plain)
    asked = show("labels", run, view="Boxes")
    assert "This dataset has no readable bounding boxes." in text(asked)
    assert 'class="notice error"' not in html(asked)
