"""Trees as publishers ship them: what is no class or split is not taken for one."""

from __future__ import annotations

from pathlib import Path

from audit.sources.source import open_source
from tests.audit.sources.test_tables_beside import labels, tree


def test_tables_with_a_line_for_excel_are_read(tmp_path: Path) -> None:
    pictures = [f"bilder/{n}.jpg" for n in range(4)]
    rows = [f"bilder/{n}.jpg;{'Riss' if n % 2 else 'gut'}" for n in range(4)]
    text = "sep=;\n" + "\n".join(["Datei;Klasse", *rows]) + "\n"
    root = tree(tmp_path, pictures, **{"tabelle.csv": text})
    assert labels(root)[0] == "/gut /Riss /gut /Riss"


def test_boxes_of_pictures_by_number_are_no_yolo(tmp_path: Path) -> None:
    pictures = [f"images/{n // 2:03d}.Ani/{n}.jpg" for n in range(4)]
    boxes = "1 60.0 27.0 325.0 304.0\n2 139.0 30.0 153.0 264.0\n"
    assert labels(tree(tmp_path, pictures, **{"bounding_boxes.txt": boxes}))[0] == (
        "/000.Ani /000.Ani /001.Ani /001.Ani"
    )


def test_of_several_series_of_lists_one_counts(tmp_path: Path) -> None:
    lists = {
        f"labels/{split}{fold}.txt": "\n".join(f"banded/{n}.jpg" for n in numbers)
        for fold, parts in ((1, ([0, 1], [2], [3])), (2, ([3, 2], [1], [0])))
        for split, numbers in zip(("train", "val", "test"), parts, strict=True)
    }
    pictures = [f"images/{c}/{n}.jpg" for c in ("banded", "bubbly") for n in range(4)]
    found = labels(tree(tmp_path, pictures, **lists))[0].split()
    assert found[:4] == ["train/banded", "train/banded", "val/banded", "test/banded"]


def test_what_is_beside_a_split_with_pictures_in_its_name_is_none(tmp_path: Path) -> None:
    pictures = ["data_256/a.jpg", "data_256/b.jpg", "val_256/c.jpg"]
    assert labels(tree(tmp_path, pictures))[0] == "/ / val/"


def test_patients_are_no_classes(tmp_path: Path) -> None:
    scans = [f"{s}/patient0000{n}/study1/view.jpg" for s in ("train", "valid") for n in range(3)]
    assert labels(tree(tmp_path / "a", scans))[0] == "train/ train/ train/ val/ val/ val/"


def test_a_folder_of_lists_is_no_empty_class(tmp_path: Path) -> None:
    pictures = [f"images/{c}/{n}.jpg" for c in ("pie", "soup") for n in range(2)]
    root = tree(tmp_path, pictures, **{"meta/classes.txt": "pie\nsoup\n"})
    source = open_source([str(root)])
    assert labels(root)[0] == "/pie /pie /soup /soup"
    assert "meta" not in source.layout.reason


def test_versions_of_the_same_pictures_are_no_classes(tmp_path: Path) -> None:
    pictures = [f"{v}/{c}/{c}{n}.jpg" for v in ("color", "grey") for c in "ab" for n in range(2)]
    assert labels(tree(tmp_path / "a", pictures))[0] == "/a /a /b /b /a /a /b /b"
    others = [f"{v}/{c}/{v}{n}.jpg" for v in ("color", "grey") for c in "ab" for n in range(2)]
    assert labels(tree(tmp_path / "b", others))[0].split()[0] == "/color"
