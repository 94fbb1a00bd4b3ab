"""Hostile names: no page, chart, grid or choice of the app shows their characters; boxes view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from audit.decisions.decisions import decide_samples
from audit.records import Action
from audit.scanning import scanning
from audit.sources import open_source
from tests.audit.annotations import datasets
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree
from tests.audit.ui.pages import Show, html, text
from tests.conftest import picture

pytestmark = pytest.mark.slow


EVIL = "\u202egpj\x1b"
FETCH = "![p](http://h.invalid/p)"  # a browser that reads it as Markdown asks that server
MARKUP = "<img src=x onerror=alert(1)>"
PAGES = ("overview", "findings", "duplicates", "labels", "explore", "decisions", "subset", "start")
# What a component is sent holds ids beside the escaped texts that it draws.
COMPONENTS = ("bidi_component", "component_instance")


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which every name is hostile, with a column and a decision that are too."""
    folder = tmp_path_factory.mktemp("evil")
    lines = [f"path,label,split,m{EVIL},{FETCH}"]
    for split in ("train", "test"):
        for seed, label in enumerate(("cat", "dog")):
            for i in range(3):
                name = f"{split}{label}{i}{EVIL}{MARKUP}.png"
                Image.fromarray(picture(i + 10 * seed)).save(folder / name)
                lines.append(f"{name},{label}{EVIL}{FETCH}{MARKUP},{split}{EVIL},x{i}{EVIL},{i}")
    (folder / "m.csv").write_text("\n".join(lines), "utf-8")
    run = folder / f"run{EVIL}"
    scanning.scan(open_source([str(folder / "m.csv")]), run, jobs=1)
    decide_samples(
        run, [f"testcat0{EVIL}{MARKUP}.png"], Action.DROP, note=EVIL + MARKUP, by=f"me{EVIL}"
    )
    return run


def elements(block: Any) -> Iterator[Any]:
    """Every element of a page, whatever it lies in."""
    children = getattr(block, "children", None)
    if children is None:
        yield block
    else:
        for child in children.values():
            yield from elements(child)


@pytest.mark.parametrize("page", PAGES)
def test_no_element_shows_a_character_of_direction(show: Show, evil: Path, page: str) -> None:
    links: dict[str, dict[str, str]] = {
        "labels": {"view": "overlap"},
        "explore": {
            "show": f"manifest.{FETCH}",
            "where": json.dumps([[f"manifest.{FETCH}", "in", "0", "1"],
                                 [f"manifest.m{EVIL}", "has", "x"]]),
        },
        "subset": {"metric": "recall"},
    }  # fmt: skip
    for link in ({}, links[page]) if page in links else ({},):
        at = show(page, evil, **link)
        assert not at.exception
        assert at.title[0].value
        assert 'class="notice error"' not in html(at)
        assert "<img src" not in html(at)
        kinds = [element for element in elements(at._tree) if element.type not in COMPONENTS]
        assert len(kinds) > 3, kinds
        for element in kinds:
            sent = element.proto.SerializeToString()
            assert "\u202e".encode() not in sent, (page, element.type)
        for drawn in markdown_of(at._tree):
            assert "![" not in drawn.replace("\\!\\[", ""), (page, drawn)
            assert "<img" not in drawn.replace("\\<img", ""), (page, drawn)


def markdown_of(block: Any) -> Iterator[str]:
    """Every text of a page that Streamlit reads as Markdown: labels, helps, headings, notices."""
    children = getattr(block, "children", None)
    if children is not None:
        for child in children.values():
            yield from markdown_of(child)
        yield getattr(getattr(getattr(block, "proto", None), "expandable", None), "label", "")
    elif block.type not in ("html", *COMPONENTS):
        for name in ("label", "help", "body", "text"):
            found = getattr(block.proto, name, "")
            yield found if isinstance(found, str) else ""


# ---- the view of boxes on the page Labels ----


EVIL_CLASS = "<img src=x onerror=alert(1)>\u202e**b**"


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures; one has a box of a hostile class that leaves it."""
    folder = tmp_path_factory.mktemp("boxed")
    document = coco(2, [(1, 5, 6, 20, 10), (2, 60, 40, 30, 30)])
    document["categories"].append({"id": 2, "name": EVIL_CLASS})
    document["annotations"][1]["category_id"] = 2
    return annotated_run(coco_tree(folder / "d", document, 2), folder / "run")


def test_statistics_and_pictures_are_shown(show: Show, boxed: Path) -> None:
    at = show("labels", boxed, view="Boxes")
    said = text(at)
    (drawn,) = [c.proto.json for c in at.get("bidi_component") if '"markup"' in c.proto.json]
    assert "2 boxes of 2 classes in 2 annotated images" in drawn
    assert "<svg" in drawn
    assert EVIL_CLASS[:9] not in drawn
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
    datasets.picture(tmp_path / "d" / "0.jpg")
    run = annotated_run(tmp_path / "d", tmp_path / "run")
    plain = show("labels", run)
    assert "Boxes" not in text(plain)
    asked = show("labels", run, view="Boxes")
    assert "This dataset has no readable bounding boxes." in text(asked)
    assert 'class="notice error"' not in html(asked)
