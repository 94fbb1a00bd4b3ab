"""Annotations go along with an applied plan: the same boxes on the same pictures, read back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import audit
from tests.audit.annotations.datasets import annotated, voc_xml
from tests.audit.run.scanned import scan_tree
from tests.conftest import picture

NAMES = ("train/a", "train/b", "train/c", "val/a", "val/d")
CLASSES = ("cat", "dog")


def box(number: int) -> tuple[int, int, int, int]:
    """x, y, width, height in px, another for each picture."""
    return 8 * number, 4, 16, 8 + 4 * number


def save(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number, 64, 64)).save(path)


def yolo(root: Path) -> None:
    for number, name in enumerate(NAMES):
        save(root / f"images/{name}.png", number)
        x, y, w, h = box(number)
        label = root / f"labels/{name}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        middle = ((x + w / 2) / 64, (y + h / 2) / 64, w / 64, h / 64)
        label.write_text(f"{number % 2} {' '.join(map(str, middle))}\n")
    (root / "data.yaml").write_text(
        "train: images/train\nval: images/val\nnc: 2\nnames: [cat, dog]\n"
    )


def voc_entry(path: Path, picture_name: str, number: int) -> None:
    x, y, w, h = box(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    one = (CLASSES[number % 2], x + 1, y + 1, x + w, y + h)
    path.write_text(voc_xml(picture_name, one).replace("48</height>", "64</height>"))


def voc(root: Path) -> None:
    for number, name in enumerate(NAMES):
        split, stem = name.replace("/", "-").split("-")[0], name.replace("/", "-")
        save(root / f"JPEGImages/{stem}.png", number)
        voc_entry(root / f"Annotations/{stem}.xml", f"{stem}.png", number)
        listed = root / f"ImageSets/Main/{split}.txt"
        listed.parent.mkdir(parents=True, exist_ok=True)
        with listed.open("a") as file:
            file.write(f"{stem}\n")


def voc_beside(root: Path) -> None:
    """Entries beside their pictures in a folder a split: a moved picture gets another folder."""
    for number, name in enumerate(NAMES):
        save(root / f"{name}.png", number)
        voc_entry(root / f"{name}.xml", f"{name.split('/')[1]}.png", number)


def coco(root: Path) -> None:
    """Names of pictures are those below their folder, so they are not the ids of samples."""
    for split in ("train", "val"):
        document: dict[str, Any] = {
            "images": [], "annotations": [], "licenses": [{"id": 1, "name": "none"}],
            "categories": [{"id": n + 1, "name": name} for n, name in enumerate(CLASSES)],
        }  # fmt: skip
        for number, name in enumerate(NAMES):
            if not name.startswith(split):
                continue
            save(root / f"{name}.png", number)
            image = {"id": number, "file_name": f"{name.split('/')[1]}.png"}
            document["images"].append(image | {"width": 64, "height": 64})
            one = {"id": number, "image_id": number, "category_id": number % 2 + 1, "iscrowd": 0}
            document["annotations"].append(one | {"bbox": [*box(number)], "area": 1})
        (root / "annotations").mkdir(exist_ok=True)
        (root / f"annotations/instances_{split}.json").write_text(json.dumps(document))


def read_boxes(root: Path) -> dict[bytes, tuple[str | None, Counter[tuple[Any, ...]]]]:
    """The split of each picture and its boxes, by its content."""
    with annotated(root) as store:
        rows = store.query(
            "SELECT s.uri, s.split, b.label, round(b.x, 3), round(b.y, 3), round(b.width, 3), "
            "round(b.height, 3) FROM samples s LEFT JOIN boxes b ON b.sample_id = s.id"
        )
    found: dict[bytes, tuple[str | None, Counter[tuple[Any, ...]]]] = {}
    for path, split, *one in rows.iter_rows():
        found.setdefault(Path(path).read_bytes(), (split, Counter()))[1][tuple(one)] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("make", [yolo, voc, voc_beside, coco])
def test_boxes_follow_their_pictures(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "data")
    scan_tree(tmp_path / "data", tmp_path / "run", checks=("FILE",))
    run = audit.open(tmp_path / "run")
    places = dict(run.images.select("id", "path").iter_rows())
    expected = read_boxes(tmp_path / "data")
    assert all(boxes[(None,) * 5] == 0 for _, boxes in expected.values())
    assert len(expected) == len(NAMES)
    dropped, moved = (next(i for i in places if i.endswith(f"{n}.png")) for n in ("c", "a"))
    del expected[Path(places[dropped]).read_bytes()]
    content = Path(places[moved]).read_bytes()
    expected[content] = ("val", expected[content][1])
    run.decide(dropped, "drop")
    run.decide(moved, "move:val")
    run.apply(run.plan(tmp_path / "plan.json"), tmp_path / "new")
    assert read_boxes(tmp_path / "new") == expected


@pytest.mark.slow
def test_a_plan_made_again_keeps_what_it_did_not_write(tmp_path: Path) -> None:
    yolo(tmp_path / "data")
    scan_tree(tmp_path / "data", tmp_path / "run", checks=("FILE",))
    run = audit.open(tmp_path / "run")
    run.plan(tmp_path / "plan.json")
    mine = tmp_path / "plan.json.annotations" / "mine.txt"
    mine.write_text("mine")
    (tmp_path / "plan.json").unlink()
    run.plan(tmp_path / "plan.json")
    assert mine.read_text() == "mine"
    assert "mine.txt" not in (tmp_path / "plan.json").read_text()
