"""Boxes are cut while pictures are read: once, again where they changed, the same as at first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from audit.annotations import asked_crops
from audit.machine.executors import Serial
from audit.run.generations import open_run
from audit.scanning.scanning import ScanResult, scan
from audit.sources import open_source

KINDS = ("disc", "bars", "cross", "ring")
TABLES = ("crops", "box_looks", "box_look_facts")
Boxes = list[dict[str, Any]]


def draw(rng: np.random.Generator, kind: str, side: int) -> np.ndarray:
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    apart = np.hypot(x, y)
    inside = {
        "disc": apart < 0.9, "bars": (np.floor((x + 1) * 4) % 2) == 0,
        "cross": (abs(x) < 0.3) | (abs(y) < 0.3), "ring": abs(apart - 0.7) < 0.2,
    }[kind]  # fmt: skip
    shade = np.where(inside[..., None], rng.integers(170, 255, 3), rng.integers(0, 60, 3))
    return np.asarray(shade, np.float64)


@dataclass
class Drawn:
    """A folder of 60 pictures with four drawn things each, and what is wrong with which boxes."""

    folder: Path
    boxes: Boxes
    wrong: dict[int, str]

    def write(self) -> None:
        document = {
            "images": [
                {"id": n, "file_name": f"{n:03d}.png", "width": 160, "height": 120}
                for n in range(63)
            ],
            "categories": [{"id": n, "name": name} for n, name in enumerate(KINDS)],
            "annotations": self.boxes,
        }
        (self.folder / "boxes.json").write_text(json.dumps(document))


@pytest.fixture
def drawn(tmp_path: Path) -> Drawn:
    rng = np.random.default_rng(4)
    folder = tmp_path / "set"
    (folder / "images").mkdir(parents=True)
    boxes: Boxes = []
    wrong: dict[int, str] = {}
    for number in range(60):
        rgb = rng.normal(110, 12, (120, 160, 3)) + rng.normal(0, 25, 3)
        for place in range(4):
            left, top = 40 * place + int(rng.integers(8)), int(rng.integers(4, 80))
            kind = str(rng.choice(KINDS))
            fault = {7: "class", 23: "background"}.get(len(boxes) % 30, "")
            if fault != "background":
                rgb[top : top + 30, left : left + 30] = draw(rng, kind, 30)
            if fault:
                wrong[len(boxes)] = fault
            label = (KINDS.index(kind) + (fault == "class")) % len(KINDS)
            boxes.append({
                "id": len(boxes), "image_id": number, "category_id": label, "iscrowd": 0,
                "bbox": [left, top, 30, 30], "area": 900,
            })  # fmt: skip
        pixels = np.clip(rgb, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"images/{number:03d}.png")
    made = Drawn(folder, boxes, wrong)
    made.write()
    return made


def scanned(folder: Path, run: Path) -> ScanResult:
    return scan(open_source([str(folder)]), run, executor=Serial(), checks=["BOX031", "BOX032"])


def told(run: Path) -> dict[str, list[Any]]:
    with open_run(run) as store:
        rows = {name: store.query(f"FROM {name} ORDER BY ALL").rows() for name in TABLES}
    assert len(set(rows["crops"])) == len(rows["crops"])
    return rows


def test_wrong_classes_and_boxes_on_background_are_found(drawn: Drawn, tmp_path: Path) -> None:
    scanned(drawn.folder, tmp_path / "run")
    with open_run(tmp_path / "run") as store:
        found = store.rows("SELECT code, evidence FROM findings WHERE code LIKE 'BOX03%'")
    by_code = {"BOX031": "class", "BOX032": "background"}
    entries = {json.loads(row["evidence"])["entry"]: by_code[row["code"]] for row in found}
    assert entries.keys() <= drawn.wrong.keys()
    right = [entry for entry, kind in entries.items() if drawn.wrong[entry] == kind]
    assert len(right) >= 0.8 * len(entries)  # what is no object may look like one
    assert set(entries.values()) == {"class", "background"}
    assert len(entries) >= 10


def shifted(drawn: Drawn) -> int:
    drawn.boxes[100]["bbox"][0] += 4
    return 1


def renamed(drawn: Drawn) -> int:
    drawn.boxes[8]["category_id"] = (drawn.boxes[8]["category_id"] + 1) % 4
    return 0  # the pixels are the same


def removed(drawn: Drawn) -> int:
    del drawn.boxes[120:124]
    return 0  # a picture without boxes asks for nothing


def added(drawn: Drawn) -> int:
    drawn.boxes.append({**drawn.boxes[50], "id": 999, "bbox": [5, 5, 20, 20]})
    return 1


def copied(drawn: Drawn) -> int:
    """Three more files show the first picture: two with its boxes, one with fewer."""
    for number, boxes in ((60, 4), (61, 4), (62, 3)):
        shutil.copy(drawn.folder / "images/000.png", drawn.folder / f"images/{number:03d}.png")
        for box in drawn.boxes[:boxes]:
            drawn.boxes.append({**box, "id": len(drawn.boxes), "image_id": number})
    return 3


def moved(drawn: Drawn) -> int:
    images = drawn.folder / "images"
    (images / "009.png").rename(images / "900.png")
    text = (drawn.folder / "boxes.json").read_text().replace("009.png", "900.png")
    (drawn.folder / "boxes.json").write_text(text)
    return 1


@pytest.mark.parametrize("change", [shifted, renamed, removed, added, copied, moved])
def test_a_second_scan_says_what_a_first_one_would(
    drawn: Drawn, tmp_path: Path, change: Callable[[Drawn], int]
) -> None:
    scanned(drawn.folder, tmp_path / "run")
    before = told(tmp_path / "run")
    assert before["crops"]
    assert before["box_looks"]
    again = change(drawn)
    if change is not moved:
        drawn.write()
    assert scanned(drawn.folder, tmp_path / "run").measured == again
    scanned(drawn.folder, tmp_path / "fresh")
    assert told(tmp_path / "run") == told(tmp_path / "fresh") != before


def test_crops_that_are_lost_are_cut_again(drawn: Drawn, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scanned(drawn.folder, run)
    before = told(run)
    shifted(drawn)
    drawn.write()
    scanned(drawn.folder, run)
    after = told(run)
    parts = sorted((run / "signatures").glob("*.parquet"), key=lambda p: p.stat().st_size)
    assert len(parts) == 2
    parts[0].write_bytes(parts[0].read_bytes()[:-9])  # that of the picture read again
    assert scanned(drawn.folder, run).measured == 1
    assert told(run) == after != before


def test_a_run_of_before_has_its_boxes_cut(drawn: Drawn, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scanned(drawn.folder, run)
    first = told(run)
    shutil.copytree(drawn.folder, tmp_path / "plain")
    (tmp_path / "plain/boxes.json").unlink()
    scanned(tmp_path / "plain", tmp_path / "other")  # measured, and without crops
    shutil.copy(drawn.folder / "boxes.json", tmp_path / "plain/boxes.json")
    assert scanned(tmp_path / "plain", tmp_path / "other").measured == 60
    assert [row[1:] for row in told(tmp_path / "other")["crops"]] == [
        row[1:] for row in first["crops"]
    ]


def test_a_set_without_boxes_asks_for_nothing(drawn: Drawn, tmp_path: Path) -> None:
    (drawn.folder / "boxes.json").unlink()
    scanned(drawn.folder, tmp_path / "run")
    assert told(tmp_path / "run") == {name: [] for name in TABLES}
    with open_run(tmp_path / "run") as store:
        assert not store.columns("boxed")


def test_of_very_many_boxes_those_of_some_pictures_are_cut(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_crops, "MOST", 130)
    scanned(drawn.folder, tmp_path / "half")
    monkeypatch.setattr(asked_crops, "MOST", 65)
    scanned(drawn.folder, tmp_path / "quarter")
    half, quarter = (
        {row[0] for row in told(tmp_path / name)["crops"]} for name in ("half", "quarter")
    )
    assert quarter < half
    assert 15 < len(half) < 45
