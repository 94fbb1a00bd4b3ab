"""Plans: paths stay where they can and never lead out; annotations go along with their pictures."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import audit
from audit.exports.planning import Placed, case_clash, choose_targets, safe_path
from tests.audit.annotations.datasets import annotated, voc_xml
from tests.audit.run.scanned import scan_tree
from tests.conftest import picture


def place(path: str, before: str | None, kind: str | None, **now: str) -> Placed:
    return Placed(path, before, kind, now.get("split", before), now.get("label", kind))


def test_folders_follow_what_was_decided() -> None:
    samples = [
        place("data/training/Cat/a/1.jpg", "train", "Cat"),
        place("data/training/Cat/2.jpg", "train", "Cat", label="dog"),
        place("data/valid/Cat/3.jpg", "val", "Cat", split="train"),
        place("data/valid/Cat/4.jpg", "val", "Cat", split="test", label="owl"),
    ]
    assert choose_targets(samples, by_folders=True) == (
        ["data/training/Cat/a/1.jpg", "data/training/dog/2.jpg", "data/training/Cat/3.jpg",
         "data/test/owl/4.jpg"],
        "keep",
    )  # fmt: skip
    # what folders cannot say is filed
    samples = [place("a/1.jpg", None, None, label="cat"), place("b/1.jpg", None, None, label="cat")]
    assert choose_targets(samples, by_folders=True) == (["cat/1.jpg", "cat/1~2.jpg"], "folders")
    filed = choose_targets([place("x/1.jpg", "train", "a/b")], by_folders=False)
    assert filed == (["train/a%2Fb/1.jpg"], "folders")


@pytest.mark.parametrize(
    ("files", "by_folders", "expected"),
    [
        ([("cat/1.jpg", None, "cat")], True, ["train/cat/1.jpg"]),
        ([("cat/a/1.jpg", None, "cat"), ("cat/b/1.jpg", None, "cat")], True,
         ["train/cat/a/1.jpg", "train/cat/b/1.jpg"]),
        ([("1.jpg", None, None)], True, ["train/1.jpg"]),
        ([("images/1.jpg", None, None)], True, ["train/images/1.jpg"]),
        ([("valid/cat/1.jpg", "val", "cat")], True, ["train/cat/1.jpg"]),
        ([("val/cat/1.jpg", "val", "cat"), ("more/cat/1.jpg", None, "cat")], True,
         ["train/cat/1.jpg", "train/cat/more/1.jpg"]),
        ([("cat/a/1.jpg", None, "cat"), ("cat/b/1.jpg", None, "cat")], False,
         ["train/cat/a/1.jpg", "train/cat/b/1.jpg"]),
        ([("a/1.jpg", None, "cat"), ("b/1.jpg", None, "cat")], False,
         ["train/cat/1.jpg", "train/cat/1~2.jpg"]),
        ([("a/1.jpg", None, None), ("b/1.jpg", None, None)], False,
         ["train/1.jpg", "train/1~2.jpg"]),
    ],
)  # fmt: skip
def test_a_new_split_keeps_the_other_folders(
    files: list[tuple[str, str | None, str | None]], by_folders: bool, expected: list[str]
) -> None:
    samples = [place(*file, split="train") for file in files]
    assert choose_targets(samples, by_folders=by_folders)[0] == expected


def test_a_repeat_takes_no_name_that_another_has() -> None:
    samples = [place(path, None, None) for path in ("a.jpg", "a.jpg", "a~2.jpg", "a.jpg/b")]
    targets, _ = choose_targets(samples, by_folders=True)
    assert targets[:3] == ["a.jpg", "a~3.jpg", "a~2.jpg"]
    assert len(set(targets)) == 4
    assert not any(t.startswith("a.jpg/") for t in targets)


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("/abs//x.jpg", "abs/x.jpg"),
        ("a\nb\x1b[31m.jpg", "a%0Ab%1B[31m.jpg"),
        ("caf\udce9.jpg", "caf%E9.jpg"),
        (".preflight/receipt.jsonl", "_.preflight/receipt.jsonl"),
        ("..", "unnamed"),
    ],
)
def test_hostile_names(given: str, safe: str) -> None:
    assert safe_path(given) == safe


def test_long_names_keep_their_extension_and_names_that_differ_by_case_are_found() -> None:
    name = safe_path("é" * 200 + ".jpg")
    assert len(name.encode()) <= 255
    assert name.endswith(".jpg")
    assert case_clash(["Cat/1.jpg", "dog/1.jpg"]) is None
    assert case_clash(["Cat/1.jpg", "cat/2.jpg"]) == ("Cat", "cat")
    assert case_clash(["caf\u00e9.jpg", "cafe\u0301.jpg"]) is not None


# ---- the same boxes on the same pictures, read back ----


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
