"""Splits that lists, COCO files and file names tell are read, said and used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.sources import open_source
from tests.audit.sources.trees import read


def tree(root: Path, pictures: list[str], **texts: str) -> Path:
    """Make pictures (no bytes are read here) and text files, a name's `__` a folder."""
    for name in [*pictures, *texts]:
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(name, "x"))
    return root


def splits(root: Path) -> tuple[dict[str, str | None], str]:
    """Return the split of each picture by its name, and the reason of the layout."""
    source = open_source([str(root)])
    found = {Path(s.id).name: s.split for s in read(source)}
    return found, source.layout.reason


def test_lists_of_voc_are_read_and_those_of_classes_are_not(tmp_path: Path) -> None:
    lists = {
        "ImageSets__Main__train.txt": "000001\n000002\n", "ImageSets__Main__val.txt": "000003\n",
        "ImageSets__Main__trainval.txt": "000001\n000002\n000003\n",
        "ImageSets__Main__dog_train.txt": "000003  1\n", "ImageSets__Main__test.txt": "",
    }  # fmt: skip
    texts = {name.removesuffix(".txt") + ".txt": text for name, text in lists.items()}
    root = tree(tmp_path, [f"JPEGImages/00000{i}.jpg" for i in (1, 2, 3, 4)], **texts)
    found, said = splits(root)
    assert found == {
        "000001.jpg": "train", "000002.jpg": "train", "000003.jpg": "val", "000004.jpg": None,
    }  # fmt: skip
    assert "train from ImageSets/Main/train.txt (2), val from ImageSets/Main/val.txt (1)" in said


def test_lists_of_paths_tell_pictures_of_one_name_apart(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        ["images/a/1.jpg", "images/b/1.jpg", "images/b/2 x.png"],
        **{"train.txt": "./images/a/1.jpg\n", "valid.txt": "images/b/1.jpg\nimages/b/2 x.png\n"},
    )
    source = open_source([str(root)])
    assert {s.id: s.split for s in read(source)} == {
        "images/a/1.jpg": "train", "images/b/1.jpg": "val", "images/b/2 x.png": "val",
    }  # fmt: skip


def test_a_coco_file_a_split(tmp_path: Path) -> None:
    def coco(*files: str) -> str:
        images = [{"id": i, "file_name": name} for i, name in enumerate(files)]
        return json.dumps({"images": images, "annotations": [], "categories": []}, indent=1)

    root = tree(
        tmp_path,
        ["images/a.jpg", "images/ü.jpg"],
        **{
            "annotations__instances_train2017.json": coco("a.jpg"),
            "annotations__instances_val2017.json": coco("ü.jpg"),
        },
    )
    assert splits(root)[0] == {"a.jpg": "train", "ü.jpg": "val"}


def test_names_that_begin_with_a_split(tmp_path: Path) -> None:
    found, said = splits(tree(tmp_path, ["train_0001.jpg", "train_0002.jpg", "test-7.jpg"]))
    assert found == {"train_0001.jpg": "train", "train_0002.jpg": "train", "test-7.jpg": "test"}
    assert "train (2)" in said


YAML = "path: /content/sets/cats\ntrain: {}\nval: {}\nnames: [cat]\n"


@pytest.mark.parametrize(
    ("pictures", "texts", "expected"),
    [
        (["images/1.jpg", "images/2.jpg"],  # lists that only the YAML names
         {"lists__a.txt": "images/1.jpg\n", "lists__b.txt": "images/2.jpg\n",
          "data.yaml": YAML.format("lists/a.txt", "lists/b.txt")}, "train val"),
        (["images/a/1.jpg", "images/b/2.jpg", "images/c/3.jpg"],  # folders that it names
         {"data.yaml": YAML.format("[images/a, images/b]", "../images/c")}, "train train val"),
        (["images/1.jpg", "images/2.jpg"],  # one folder for both tells nothing
         {"data.yaml": YAML.format("images", "images")}, "None None"),
        (["images/1.jpg", "images/2.jpg"],  # paths of another machine
         {"train.txt": "/content/data/images/1.jpg\n", "val.txt": "/content/data/images/2.jpg\n"},
         "train val"),
        (["obj_train_data/1.jpg", "obj_train_data/2.jpg"],  # lists, over one folder's name
         {"train.txt": "data/obj/1.jpg\n", "test.txt": "data/obj/2.jpg\n"}, "train test"),
        (["VOCdevkit/VOC2007/JPEGImages/1.jpg", "VOCdevkit/VOC2007/JPEGImages/2.jpg"],
         {"VOCdevkit__VOC2007__ImageSets__Main__train.txt": "1\n",
          "VOCdevkit__VOC2007__ImageSets__Main__val.txt": "2\n"}, "train val"),
        (["A/JPEGImages/1.jpg", "A/JPEGImages/2.jpg", "B/JPEGImages/3.jpg", "B/JPEGImages/4.jpg"],
         {"A__ImageSets__train.txt": "1\n", "A__ImageSets__val.txt": "2\n",
          "B__ImageSets__train.txt": "3\n", "B__ImageSets__val.txt": "4\n"},
         "train val train val"),
        (["images/001.cat/1.jpg", "images/002.dog/2.jpg"],  # CUB, NABirds
         {"images.txt": "1 001.cat/1.jpg\n2 002.dog/2.jpg\n", "train_test_split.txt": "1 0\n2 1\n"},
         "test train"),
        (["img_train_1.jpg", "img_val_2.jpg"], {}, "train val"),
        (["cat/train_1.jpg", "cat/test_2.jpg", "dog/train_3.jpg"], {}, "train test train"),
        (["steam_train_1.jpg", "blood_test_2.jpg"], {}, "None None"),  # nothing else is shared
    ],
)  # fmt: skip
def test_what_tells_splits(
    tmp_path: Path, pictures: list[str], texts: dict[str, str], expected: str
) -> None:
    found, _ = splits(tree(tmp_path, pictures, **texts))
    assert " ".join(str(found[Path(name).name]) for name in pictures) == expected


def test_each_class_folder_has_the_splits_of_its_names(tmp_path: Path) -> None:
    pictures = [f"c{i:02}/{'train' if i % 3 else 'val'}_{i}.jpg" for i in range(30)]
    found, _ = splits(tree(tmp_path, pictures))
    assert {name: name.partition("_")[0] for name in found} == found


@pytest.mark.parametrize(
    ("column", "cells", "expected"),
    [
        ("set", "train test", "train test"),
        ("Usage", "Training PublicTest", "Training PublicTest"),
        ("is_valid", "False True", "train val"), ("fold", "train val", "train val"),
        ("fold", "0 1", "None None"), ("set", "hearts spades", "None None"),
        ("mode", "RGB L", "None None"), ("is_valid", "yes no", "None None"),
    ],
)  # fmt: skip
def test_columns_that_may_be_splits(tmp_path: Path, column: str, cells: str, expected: str) -> None:
    rows = "".join(f"{i}.jpg,cat,{cell}\n" for i, cell in enumerate(cells.split()))
    root = tree(tmp_path, ["0.jpg", "1.jpg"], **{"t.csv": f"path,label,{column}\n{rows}"})
    found = [sample.split for sample in read(open_source([str(root / "t.csv")]))]
    assert " ".join(map(str, found)) == expected


@pytest.mark.parametrize(
    ("pictures", "texts"),
    [
        (["train_1.jpg", "test_1.jpg", "steam.jpg"], {}),  # one name is another
        (["train_1.jpg", "train_2.jpg"], {}),  # one split
        (["a.jpg"], {"train.txt": "a\n"}),  # one list
        (["a.jpg"], {"train.txt": "lessons\n", "test.txt": "of a course\n"}),  # no pictures
    ],
)
def test_what_does_not_tell_splits(
    tmp_path: Path, pictures: list[str], texts: dict[str, str]
) -> None:
    assert set(splits(tree(tmp_path, pictures, **texts))[0].values()) == {None}


def test_folders_and_the_caller_come_first(tmp_path: Path) -> None:
    texts = {"lists__train.txt": "b\n", "lists__test.txt": "a\n"}
    root = tree(tmp_path, ["train/x/a.jpg", "test/x/b.jpg"], **texts)
    assert splits(root)[0] == {"a.jpg": "train", "b.jpg": "test"}
