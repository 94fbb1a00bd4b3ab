"""Layouts: which tree is read how, and the reason that is printed."""

from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.sources import open_source
from tests.audit.sources.trees import grow, places, read, skipped

CASES: list[tuple[str, list[str], str, dict[str, tuple[str | None, str | None]]]] = [
    ("split, class", ["train/cat/a.png", "train/dog/b.png", "val/cat/c.png"], "split/class/file",
     {"train/cat/a.png": ("train", "cat"), "train/dog/b.png": ("train", "dog"),
      "val/cat/c.png": ("val", "cat")}),
    ("class", ["cat/a.png", "dog/b.png"], "class/file",
     {"cat/a.png": (None, "cat"), "dog/b.png": (None, "dog")}),
    ("split", ["train/a.png", "test/b.png"], "split/file",
     {"train/a.png": ("train", None), "test/b.png": ("test", None)}),
    ("flat", ["a.png", "b.png"], "flat", {"a.png": (None, None), "b.png": (None, None)}),
    ("unlabelled test", ["train/cat/a.png", "test/b.png"], "split/class/file",
     {"train/cat/a.png": ("train", "cat"), "test/b.png": ("test", None)}),
    ("a class of trains", ["bus/a.png", "car/b.png", "train/c.png", "ship/d.png"], "class/file",
     {"bus/a.png": (None, "bus"), "car/b.png": (None, "car"), "train/c.png": (None, "train"),
      "ship/d.png": (None, "ship")}),
    ("the class train in the split train",
     ["train/train/a.png", "train/bus/b.png", "test/bus/c.png"], "split/class/file",
     {"train/train/a.png": ("train", "train"), "train/bus/b.png": ("train", "bus"),
      "test/bus/c.png": ("test", "bus")}),
    ("containers", ["data/images/train/cat/a.png", "data/images/test/cat/b.png"],
     "split/class/file",
     {"data/images/train/cat/a.png": ("train", "cat"),
      "data/images/test/cat/b.png": ("test", "cat")}),
    ("container below the class", ["train/n01/images/a.png", "val/images/b.png"],
     "split/class/file",
     {"train/n01/images/a.png": ("train", "n01"), "val/images/b.png": ("val", None)}),
    ("archive in its own folder", ["birds/train/owl/a.png", "birds/test/owl/b.png"],
     "split/class/file",
     {"birds/train/owl/a.png": ("train", "owl"), "birds/test/owl/b.png": ("test", "owl")}),
    ("wrapper below a container", ["data/birds/train/owl/a.png", "data/birds/test/owl/b.png"],
     "split/class/file", {"data/birds/train/owl/a.png": ("train", "owl"),
                          "data/birds/test/owl/b.png": ("test", "owl")}),
    ("name repeated", ["seg_train/seg_train/sea/a.png", "seg_test/seg_test/sea/b.png"],
     "split/class/file",
     {"seg_train/seg_train/sea/a.png": ("train", "sea"),
      "seg_test/seg_test/sea/b.png": ("test", "sea")}),
    ("class above split", ["bottle/train/good/a.png", "bottle/test/broken/b.png",
                           "nut/train/good/c.png", "nut/test/bent/d.png"], "class/split/file",
     {"bottle/train/good/a.png": ("train", "bottle"),
      "bottle/test/broken/b.png": ("test", "bottle"),
      "nut/train/good/c.png": ("train", "nut"), "nut/test/bent/d.png": ("test", "nut")}),
    ("deeper than the class", ["cat/a.png", "dog/puppy/b.png"], "class/file",
     {"cat/a.png": (None, "cat"), "dog/puppy/b.png": (None, "dog")}),
    ("a third folder beside splits", ["train/a.png", "val/b.png", "extra/c.png"], "split/file",
     {"train/a.png": ("train", None), "val/b.png": ("val", None), "extra/c.png": ("extra", None)}),
    ("mostly at the root", ["a.png", "b.png", "c.png", "more/d.png"], "flat",
     {"a.png": (None, None), "b.png": (None, None), "c.png": (None, None),
      "more/d.png": (None, None)}),
    ("a container beside classes", ["cat/a.png", "dog/b.png", "images/c.png"], "class/file",
     {"cat/a.png": (None, "cat"), "dog/b.png": (None, "dog"), "images/c.png": (None, None)}),
    ("mask and no mask", ["mask/a.png", "no_mask/b.png"], "class/file",
     {"mask/a.png": (None, "mask"), "no_mask/b.png": (None, "no_mask")}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "layout", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_inferred(
    tmp_path: Path,
    files: list[str],
    layout: str,
    expected: dict[str, tuple[str | None, str | None]],
) -> None:
    grow(tmp_path, *files)
    assert places(tmp_path) == expected
    assert open_source([str(tmp_path)]).layout.name == layout


def test_the_reason_counts_classes(tmp_path: Path) -> None:
    grow(tmp_path, *(f"{s}/{c}/a.png" for s in ("train", "val", "test") for c in "abcdefgh"))
    source = open_source([str(tmp_path)])
    assert source.layout.reason == "train, val, test contain 8 class folders each"
    assert source.layout.reason in source.describe()


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("split/class/file", ("a", "b")), ("class/file", (None, "a")), ("split/file", ("a", None)),
        ("flat", (None, None)), ("class/split/file", ("b", "a")),
    ],
)  # fmt: skip
def test_given_layout_wins(
    tmp_path: Path, layout: str, expected: tuple[str | None, str | None]
) -> None:
    grow(tmp_path, "a/b/c.png", "x/y/z.png")
    assert places(tmp_path, layout=layout)["a/b/c.png"] == expected
    assert open_source([str(tmp_path)], layout=layout).layout.reason == "given by --layout"


def test_unknown_layout_lists_the_known(tmp_path: Path) -> None:
    grow(tmp_path, "a.png")
    with pytest.raises(UsageError, match=r"Unknown layout 'nested'.*class/file.*coco.*voc"):
        open_source([str(tmp_path)], layout="nested")


COCO = b'{"info": {}, "images": [{"id": 1}], "annotations": [], "categories": []}'
ANNOTATED = [
    ("COCO", ["train2017/a.jpg", "val2017/b.jpg"], {"annotations/instances_train2017.json": COCO},
     {"train2017/a.jpg": ("train", None), "val2017/b.jpg": ("val", None)}),
    ("COCO", ["images/a.jpg", "masks/a.png"], {"labels.json": COCO},
     {"images/a.jpg": (None, None)}),
    ("YOLO", ["images/train/a.jpg", "images/val/b.jpg"],
     {"labels/train/a.txt": b"0 0.5 0.5 0.1 0.1\n", "labels/val/b.txt": b""},
     {"images/train/a.jpg": ("train", None), "images/val/b.jpg": ("val", None)}),
    ("YOLO", ["train/images/a.jpg", "valid/images/b.jpg"],
     {"data.yaml": b"train: ../train/images\nnc: 1\nnames: [cat]\n", "train/labels/a.txt": b""},
     {"train/images/a.jpg": ("train", None), "valid/images/b.jpg": ("val", None)}),
    ("YOLO", ["train/images/a.jpg"],
     {"data.yaml": b'"train": "../train/images"\r\n"names": ["cat"]\r\n'},
     {"train/images/a.jpg": ("train", None)}),
    ("VOC", ["JPEGImages/a.jpg", "SegmentationClass/a.png"],
     {"Annotations/a.xml": b"<annotation><object><bndbox/></object></annotation>"},
     {"JPEGImages/a.jpg": (None, None)}),
    ("LabelMe", ["Images/set1/a.jpg"],
     {"Annotations/set1/a.xml": b"<annotation><object><polygon></polygon></object></annotation>"},
     {"Images/set1/a.jpg": (None, None)}),
]  # fmt: skip


@pytest.mark.parametrize(("form", "images", "others", "expected"), ANNOTATED)
def test_annotated_trees_are_named_and_scanned_without_labels(
    tmp_path: Path, form: str, images: list[str], others: dict[str, bytes],
    expected: dict[str, tuple[str | None, str | None]],
) -> None:  # fmt: skip
    grow(tmp_path, *images)
    for path, content in others.items():
        grow(tmp_path, path, content=content)
    assert places(tmp_path) == expected
    source = open_source([str(tmp_path)])
    assert source.layout.annotations == form
    assert form in source.describe()


def test_a_json_or_yaml_of_another_kind_proves_nothing(tmp_path: Path) -> None:
    grow(tmp_path, "cat/a.png", "dog/b.png")
    grow(tmp_path, "info.json", content=b'{"images": 2, "author": "me"}')
    grow(tmp_path, "data.yaml", content=b"names: of the authors\n")
    grow(tmp_path, "notes.txt", content=b"3 cats and 4 dogs\n")
    source = open_source([str(tmp_path)])
    assert (source.layout.name, source.layout.annotations) == ("class/file", None)


def test_keys_at_the_far_end_of_a_large_coco_file_are_found(tmp_path: Path) -> None:
    grow(tmp_path, "train/a.jpg", "val/b.jpg")
    filler = b'{"annotations": [' + b'{"id": 1},' * 40_000 + b'{}], "images": [], "categories": []}'
    grow(tmp_path, "all.json", content=filler)
    assert open_source([str(tmp_path)]).layout.annotations == "COCO"


def test_masks_are_counted_and_are_samples_only_when_alone(tmp_path: Path) -> None:
    grow(tmp_path / "both", "images/a.jpg", "masks/a.png", "masks/deep/b.png")
    source = open_source([str(tmp_path / "both")])
    assert [s.id for s in read(source)] == ["images/a.jpg"]
    assert skipped(source) == {("annotation", "png"): 2}
    grow(tmp_path / "alone", "masks/a.png")
    assert places(tmp_path / "alone") == {"masks/a.png": (None, None)}


def test_labels_keep_their_spelling_and_undecodable_bytes(tmp_path: Path) -> None:
    odd = "caf\udce9"
    grow(tmp_path, f"{odd}/a.png", "Cafe\u0301 x/b.png", "x/c.png")
    labels = {label for _, label in places(tmp_path).values()}
    assert labels == {"caf%E9", "Cafe\u0301 x", "x"}
