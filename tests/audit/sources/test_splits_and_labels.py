"""Splits and labels that lists, tables, COCO files, names and cells tell, or leave open."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from audit.sources import open_source
from audit.sources.label_lists import read_lists
from audit.sources.packs.parquet_rows import list_members
from audit.sources.python_objects import store_dataset
from tests.audit.sources.trees import read


def tree(root: Path, pictures: list[str], **texts: str) -> Path:
    """Make pictures (no bytes are read here) and text files, a name's `__` a folder."""
    for name in [*pictures, *texts]:
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(name, "x"))
    return root


def coco(*files: str) -> str:
    images = [{"id": i, "file_name": name} for i, name in enumerate(files)]
    return json.dumps({"images": images, "annotations": [], "categories": []}, indent=1)


YAML = "path: /content/sets/cats\ntrain: {}\nval: {}\nnames: [cat]\n"
BY_CLASS = [f"c{i:02}/{'train' if i % 3 else 'val'}_{i}.jpg" for i in range(30)]
# images, texts beside them, the split of each image, parts of the reason of the layout
TOLD: list[tuple[list[str], dict[str, str], str, str]] = [
    ([f"JPEGImages/00000{i}.jpg" for i in (1, 2, 3, 4)],
     {"ImageSets__Main__train.txt": "000001\n000002\n", "ImageSets__Main__val.txt": "000003\n",
      "ImageSets__Main__trainval.txt": "000001\n000002\n000003\n",
      "ImageSets__Main__dog_train.txt": "000003  1\n", "ImageSets__Main__test.txt": ""},
     "train train val None",
     "train from ImageSets/Main/train.txt (2), val from ImageSets/Main/val.txt (1)"),
    (["images/a/1.jpg", "images/b/1.jpg", "images/b/2 x.png"],  # paths tell equal names apart
     {"train.txt": "./images/a/1.jpg\n", "valid.txt": "images/b/1.jpg\nimages/b/2 x.png\n"},
     "train val val", ""),
    (["images/a.jpg", "images/ü.jpg"],  # a COCO file a split
     {"annotations__instances_train2017.json": coco("a.jpg"),
      "annotations__instances_val2017.json": coco("ü.jpg")}, "train val", ""),
    (["train_0001.jpg", "train_0002.jpg", "test-7.jpg"], {}, "train train test", "train (2)"),
    (["images/1.jpg", "images/2.jpg"],  # lists that only the YAML names
     {"lists__a.txt": "images/1.jpg\n", "lists__b.txt": "images/2.jpg\n",
      "data.yaml": YAML.format("lists/a.txt", "lists/b.txt")}, "train val", ""),
    (["images/a/1.jpg", "images/b/2.jpg", "images/c/3.jpg"],  # folders that it names
     {"data.yaml": YAML.format("[images/a, images/b]", "../images/c")}, "train train val", ""),
    (["images/1.jpg", "images/2.jpg"],  # one folder for both tells nothing
     {"data.yaml": YAML.format("images", "images")}, "None None", ""),
    (["images/1.jpg", "images/2.jpg"],  # paths of another machine
     {"train.txt": "/content/data/images/1.jpg\n", "val.txt": "/content/data/images/2.jpg\n"},
     "train val", ""),
    (["obj_train_data/1.jpg", "obj_train_data/2.jpg"],  # lists, over one folder's name
     {"train.txt": "data/obj/1.jpg\n", "test.txt": "data/obj/2.jpg\n"}, "train test", ""),
    (["VOCdevkit/VOC2007/JPEGImages/1.jpg", "VOCdevkit/VOC2007/JPEGImages/2.jpg"],
     {"VOCdevkit__VOC2007__ImageSets__Main__train.txt": "1\n",
      "VOCdevkit__VOC2007__ImageSets__Main__val.txt": "2\n"}, "train val", ""),
    (["A/JPEGImages/1.jpg", "A/JPEGImages/2.jpg", "B/JPEGImages/3.jpg", "B/JPEGImages/4.jpg"],
     {"A__ImageSets__train.txt": "1\n", "A__ImageSets__val.txt": "2\n",
      "B__ImageSets__train.txt": "3\n", "B__ImageSets__val.txt": "4\n"},
     "train val train val", ""),
    (["images/001.cat/1.jpg", "images/002.dog/2.jpg"],  # CUB, NABirds
     {"images.txt": "1 001.cat/1.jpg\n2 002.dog/2.jpg\n", "train_test_split.txt": "1 0\n2 1\n"},
     "test train", ""),
    (["img_train_1.jpg", "img_val_2.jpg"], {}, "train val", ""),
    (["cat/train_1.jpg", "cat/test_2.jpg", "dog/train_3.jpg"], {}, "train test train", ""),
    (["steam_train_1.jpg", "blood_test_2.jpg"], {}, "None None", ""),  # nothing else is shared
    (BY_CLASS, {}, " ".join("train" if i % 3 else "val" for i in range(30)), ""),
    (["train/x/a.jpg", "test/x/b.jpg"],  # folders come before lists
     {"lists__train.txt": "b\n", "lists__test.txt": "a\n"}, "train test", ""),
    (["train_1.jpg", "test_1.jpg", "steam.jpg"], {}, "None None None", ""),  # one name is another
    (["train_1.jpg", "train_2.jpg"], {}, "None None", ""),  # one split
    (["a.jpg"], {"train.txt": "a\n"}, "None", ""),  # one list
    (["a.jpg"], {"train.txt": "lessons\n", "test.txt": "of a course\n"}, "None", ""),
]  # fmt: skip


@pytest.mark.parametrize(("pictures", "texts", "expected", "reason"), TOLD)
def test_what_tells_splits(
    tmp_path: Path, pictures: list[str], texts: dict[str, str], expected: str, reason: str
) -> None:
    source = open_source([str(tree(tmp_path, pictures, **texts))])
    found = {sample.id: sample.split for sample in read(source)}
    assert " ".join(str(found[name]) for name in pictures) == expected
    assert reason in source.layout.reason


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


CASES = {
    "parts that are labels": (["a", "b", "c", "a;b", "b; c"], None, {"a;b": "ab", "b; c": "bc"}),
    "a part that is none": (["a", "b", "a;d"], None, {}),
    "told": (["a", "b", "a;d", "d;;d"], ";", {"a;d": "ad", "d;;d": "d"}),
    "told another": (["a/b", "a;b"], "/", {"a/b": "ab"}),
    "commas of names": (["tench, Tinca", "goldfish, Carassius"], None, {}),
    "commas between labels": (["a", "b", "a,b"], None, {"a,b": "ab"}),
    "blanks between labels": (["a", "b", "c", "a b", "b c", "a b c"], None,
                              {"a b": "ab", "b c": "bc", "a b c": "abc"}),
    "blanks of names": (["red", "car", "red car"], None, {}),
    "blanks and a part that is none": (["a", "b", "a b", "b a", "a d"], None, {}),
    "bars": (["a", "b", "a|b"], None, {"a|b": "ab"}),
    "JSON": (['["a", "b"]', '["a"]', "[]"], None, {'["a", "b"]': "ab", '["a"]': "a", "[]": ""}),
    "as Python prints": (["['a', 'b']"], None, {"['a', 'b']": "ab"}),
    "numbers": (["[1, 2, 1]"], None, {"[1, 2, 1]": "12"}),
    "names in brackets": (["[none]", "[a]"], None, {}),
    "deep": (["[[1], [2]]"], None, {}),
    "single labels": (["a", "b"], None, {}),
    "nothing": ([], None, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cells(name: str) -> None:
    cells, told, wanted = CASES[name]
    found = read_lists(cells, told)
    assert {cell: "".join(labels) for cell, labels in found.lists.items()} == wanted
    assert bool(found.reading) == bool(wanted or name == "a part that is none")


def test_what_is_not_split_says_how_it_would_be() -> None:
    said = read_lists(["a", "b", "a;d"]).reading
    assert "'d' is not a label on its own" in said
    assert "--set scan.label_separator=';' splits" in said


@pytest.mark.parametrize("named", [lambda f: {"feature": f, "_type": "Sequence"}, lambda f: [f]])
def test_a_sequence_of_class_labels_in_parquet_has_its_names(tmp_path: Path, named: Any) -> None:
    import pyarrow.parquet as pq

    rows = pl.DataFrame({"image": [b"1", b"22"], "labels": [[0, 1], [1]]})
    feature = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    notes = {"huggingface": json.dumps({"info": {"features": {"labels": named(feature)}}})}
    pq.write_table(rows.to_arrow().replace_schema_metadata(notes), tmp_path / "a.parquet")
    found = [member.label for member in list_members(str(tmp_path / "a.parquet"))]
    assert found == ['["cat", "dog"]', '["dog"]']


def test_lists_of_words_from_python_are_labels_and_lists_of_numbers_are_not(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    labels: list[Any] = [["cat", "dog"], [1, 0], [], "cat"]
    items = [{"image": pixels + 9 * i, "label": x} for i, x in enumerate(labels)]
    manifest = store_dataset(items, tmp_path / "run")
    assert pl.read_parquet(manifest)["label"].to_list() == ['["cat", "dog"]', None, None, "cat"]


IDS = ["0f3c", "1a7b", "2e9d", "33aa", "4b01", "5cc2"]


def table(header: str, *rows: str) -> str:
    return "\n".join([header, *rows]) + "\n"


def rows_of(*cells: str, ending: str = "") -> list[str]:
    """Return a row for each picture of `IDS`, the cells one after the other and again."""
    return [f"{name}{ending},{cells[i % len(cells)]}" for i, name in enumerate(IDS)]


def labels(root: Path) -> tuple[str, str]:
    """Return split and label of each picture in order, and the reason of the layout."""
    source = open_source([str(root)])
    found = (f"{sample.split or ''}/{sample.label or ''}" for sample in read(source))
    return " ".join(found), source.layout.reason


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("id,breed", rows_of("pug", "boxer"), "label from 'breed' of labels.csv"),
        ("image_id,label", rows_of("pug", "boxer", ending=".jpg"), "label from 'label'"),
        ("Image,Id", rows_of("pug", "boxer", ending=".jpg"), "label from 'Id'"),
        ("id;Finding Labels;age", [f"{n};{'pug' if i % 2 == 0 else 'boxer'};{i}"
                                   for i, n in enumerate(IDS)], "label from 'Finding Labels'"),
        (",image,cls", [f"{i},{row}" for i, row in enumerate(rows_of("pug", "boxer"))], "'cls'"),
        ("id,boxer,pug", rows_of("0.0,1.0", "1.0,0.0"), "label from 'boxer, pug'"),
        ("id,ClassId,lot", [f"{n},{'pug' if i % 2 == 0 else 'boxer'},x{i}"
                            for i, n in enumerate(IDS)], "label from 'ClassId'"),
        ("image \t label", [f" {n.upper()}.JPG \t {'pug' if i % 2 == 0 else 'boxer'}"
                            for i, n in enumerate(IDS)], "label from 'label'"),
        ("a,b,c,d,name,label", [f"a{i},b{i},c{i},d{i},{row}" for i, row
                                in enumerate(rows_of("pug", "boxer"))], "label from 'label'"),
        ("image| class", [f"{row.replace(',', '| ')}" for row in rows_of("pug", "boxer")], "class"),
        ("path,class", [f"/content/x/train/{row}" for row in rows_of("pug", "boxer")], "'class'"),
    ],
)  # fmt: skip
def test_classes_of_a_table(tmp_path: Path, header: str, rows: list[str], said: str) -> None:
    pictures = [f"train/{name}.jpg" for name in IDS] + ["test/t1.jpg", "test/t2.jpg"]
    found, reason = labels(tree(tmp_path, pictures, **{"labels.csv": table(header, *rows)}))
    assert found == "test/ test/ " + " ".join(["train/pug", "train/boxer"] * 3)
    assert said in reason


@pytest.mark.parametrize(
    "text",
    [
        table("id,price", *(f"{n},{9.99 + i}" for i, n in enumerate(IDS))),  # a measure
        table("id,price", *rows_of("9.5", "8.25")),
        table("id,text", *(f"{n},an image of {i} things" for i, n in enumerate(IDS))),  # captions
        table("id,votes", *(f"{n},{v}" for n in IDS for v in "xyx")),  # several rows a picture
        table("id,vote", *rows_of("x", "y"), "0f3c,y", "33aa,x"),
        table("id,label", *(f"{n},4" for n in IDS)),  # one value, as in an empty submission
        table("id,class", *(f"z{row}" for row in rows_of("pug", "boxer"))),  # others' pictures
        table("id,x,y,w,h,class", *rows_of("1,1,5,5,pug", "2,2,5,5,boxer")),  # boxes
        table("id,colour,place", *rows_of("red,here", "blue,there")),  # which is the class?
        table("id,taken", *rows_of("2021-06-01", "2021-06-02")),
        table("id,assigned_to", *rows_of("ann", "bob")),
        table("id,PatientID", *rows_of("7", "8")),
        table("id,stars", *rows_of("1", "4", "5")),  # a number, and nothing says what of
        table("id,checked", *rows_of("yes", "no")),
        table("id,predicted_class", *rows_of("pug", "boxer")),
        table("id,same_as", *rows_of("0f3c.jpg", "1a7b.jpg")),
        table("0f3c,pug", *rows_of("pug", "boxer")[1:]),  # no header
        "".join(f'{{"id": "{n}", "objects": {{"at": [{i % 2}]}}}}\n' for i, n in enumerate(IDS)),
        "id,label\n" + "\0" * 9,
    ],
)  # fmt: skip
def test_tables_that_tell_no_class(tmp_path: Path, text: str) -> None:
    file = "t.jsonl" if text.startswith("{") else "t.csv"
    root = tree(tmp_path, [f"images/{name}.jpg" for name in IDS], **{file: text})
    found, reason = labels(root)
    assert found == " ".join(["/"] * 6)
    assert file not in reason


MANY = [f"patient_{i:02d}/scan/{i}.jpg" for i in range(30)]


@pytest.mark.parametrize(
    ("column", "names", "expected"),
    [
        ("diagnosis", [f"/data/me/{path}" for path in MANY], "/well"),
        ("diagnosis", [f"{i}" for i in range(30)], "/well"),
        ("diagnosis", [f"{i}" for i in range(5)], "/"),  # the others have none
        ("weather", MANY, "/"),  # which is the class? A patient is none
    ],
)
def test_folders_that_differ_in_numbers_give_way(
    tmp_path: Path, column: str, names: list[str], expected: str
) -> None:
    rows = [f"{name},{'well' if i % 2 == 0 else 'ill'}" for i, name in enumerate(names)]
    found, _ = labels(tree(tmp_path, MANY, **{"list.csv": table(f"file,{column}", *rows)}))
    assert found.split()[::29] == [expected, expected.replace("well", "ill")]


def test_names_are_compared_without_zeros_and_a_contradiction_is_no_class(tmp_path: Path) -> None:
    rows = [f"{i},{'ab'[i % 2]}" for i in range(200)] + ["3,a"]
    pictures = [f"{i:05d}.jpg" for i in range(200)]
    found = labels(tree(tmp_path, pictures, **{"t.csv": table("id,label", *rows)}))[0]
    assert found.split()[:6] == ["/a", "/b", "/a", "/", "/a", "/b"]


def test_a_table_that_names_pictures_and_cannot_be_read_is_told(tmp_path: Path) -> None:
    text = table("id,baseColour", *rows_of("Red", "Blue"), "9ab1,Navy, and white")
    found, reason = labels(tree(tmp_path / "a", [f"{n}.jpg" for n in IDS], **{"styles.csv": text}))
    assert found == " ".join(["/"] * 6)
    assert "not read: styles.csv, line 8: 3 fields, but the header has 2" in reason
    others = text.replace(IDS[0], "x")
    assert "styles" not in labels(tree(tmp_path / "b", ["y.jpg"], **{"styles.csv": others}))[1]


def test_each_split_has_its_table_beside_its_pictures(tmp_path: Path) -> None:
    texts = {f"{split}__metadata.csv": f"file_name,label\n0.jpg,{a}\n1.jpg,{b}\n"
             for split, a, b in (("train", "cat", "dog"), ("test", "dog", "cat"))}  # fmt: skip
    found, reason = labels(tree(tmp_path, IN_SPLITS, **texts))
    assert found == "test/dog test/cat train/cat train/dog"
    assert "label from 'label' of test/metadata.csv, train/metadata.csv" in reason


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["all_images_1", "all_images_2"], "/pug /pug /pug /boxer /boxer /boxer"),
        (["input"], "/pug /boxer /pug /boxer /pug /boxer"),
        (["cat_images", "dog_images"], " ".join(["/cat_images"] * 3 + ["/dog_images"] * 3)),
        (["cats/x", "dogs/y"], "/cats /cats /cats /dogs /dogs /dogs"),
        (["cats", "dogs"], "/cats /cats /cats /dogs /dogs /dogs"),  # they tell the class
    ],
)
def test_folders_that_tell_no_class_give_way(
    tmp_path: Path, folders: list[str], expected: str
) -> None:
    pictures = [f"{folders[i % len(folders)]}/{name}.jpg" for i, name in enumerate(IDS)]
    texts = {"meta.csv": table("image_id,dx", *rows_of("pug", "boxer"))}
    assert labels(tree(tmp_path, pictures, **texts))[0] == expected


@pytest.mark.parametrize("column", ["Patient ID", "lesion_id"])
def test_patients_are_groups(tmp_path: Path, column: str) -> None:
    rows = [f"{name},{'ab'[i % 2]},p{i // 2}" for i, name in enumerate(IDS)]
    root = tree(
        tmp_path, [f"{n}.jpg" for n in IDS], **{"t.csv": table(f"id,label,{column}", *rows)}
    )
    assert [s.group for s in read(open_source([str(root)]))] == ["p0", "p0", "p1", "p1", "p2", "p2"]


def test_other_columns_are_metadata_and_a_part_may_be_told(tmp_path: Path) -> None:
    rows = [f"{name},{'ab'[i % 2]},g{i // 2},{i}" for i, name in enumerate(IDS[:4])]
    texts = {"labels.csv": table("id,label,group,age", *rows)}
    source = open_source([str(tree(tmp_path, [f"{name}.jpg" for name in IDS], **texts))])
    samples = read(source)
    assert [s.label for s in samples] == ["a", "b", "a", "b", None, None]
    assert [s.group for s in samples] == ["g0", "g0", "g1", "g1", None, None]
    found = source.metadata
    assert found is not None
    assert found.rows() == [(f"{n}.jpg", i) for i, n in enumerate(IDS[:4])]
    assert source.label_columns == {"": ""}


IMAGES = [f"images/{name}.jpg" for name in IDS]
IN_SPLITS = [f"{split}/{i}.jpg" for split in ("test", "train") for i in range(2)]
SPLIT_TABLES = {"train.csv": "id,label\n0,cat\n1,dog\n", "test.csv": "id,label\n0,dog\n1,cat\n"}
VERSIONS = [(v, c, n) for v in ("color", "grey") for c in "ab" for n in range(2)]
TREES: dict[str, tuple[list[str], dict[str, str], str]] = {
    "numbers are classes where the table is named so": (
        IMAGES, {"trainLabels.csv": table("image,level", *rows_of("0.0", "2.0", ""))},
        "/0.0 /2.0 / /0.0 /2.0 /",
    ),
    "numbers of a submission are no classes": (
        IMAGES, {"sample_submission.csv": table("image,label", *rows_of("0", "2"))}, "/ / / / / /",
    ),
    "a lone folder is no class": ([f"holiday/{name}.jpg" for name in IDS], {}, "/ / / / / /"),
    "a lone folder with captions is no class": (
        [f"holiday/{name}.jpg" for name in IDS],
        {"captions.csv": table(
            "image,caption", *(f"{name}.jpg,text {n}" for name in IDS for n in range(5))
        )}, "/ / / / / /",
    ),
    "the split of a table is a number": (
        [f"img_align/{name}.jpg" for name in IDS],
        {"list_eval_partition.csv": table(
            "image_id,partition", *(f"{name}.jpg,{'000012'[i]}" for i, name in enumerate(IDS))
        )}, "train/ train/ train/ train/ val/ test/",
    ),
    "numbers of folds are no splits": (
        [f"{name}.jpg" for name in IDS],
        {"t.csv": table("id,label,split", *rows_of("a,0", "b,1", "a,2", "b,3"))},
        "/a /b /a /b /a /b",
    ),
    "a table for each split": (
        IN_SPLITS, SPLIT_TABLES, "test/dog test/cat train/cat train/dog",
    ),
    "one table of names that are in both splits": (
        IN_SPLITS, {"labels.csv": SPLIT_TABLES["train.csv"]}, "test/ test/ train/ train/",
    ),
    "tables named like splits": (
        [f"{i}.jpg" for i in range(4)],
        {"train.csv": "file\n0.jpg\n1.jpg\n", "val.csv": "file\n2.jpg\n3.jpg\n"},
        "train/ train/ val/ val/",
    ),
    "tables of labels named like splits": (
        [f"{i}.jpg" for i in range(4)],
        {"train.csv": "f,label\n0.jpg,a\n1.jpg,b\n", "val.csv": "f,label\n2.jpg,b\n3.jpg,a\n"},
        "train/a train/b val/b val/a",
    ),
    "tables named like splits that name an image twice": (
        [f"{i}.jpg" for i in range(4)],
        {"train.csv": "file\n0.jpg\n1.jpg\n", "val.csv": "file\n1.jpg\n2.jpg\n"}, "/ / / /",
    ),
    "a table with a line for Excel": (
        [f"bilder/{n}.jpg" for n in range(4)],
        {"tabelle.csv": table(
            "sep=;\nDatei;Klasse", *(f"bilder/{n}.jpg;{('gut', 'Riss')[n % 2]}" for n in range(4))
        )}, "/gut /Riss /gut /Riss",
    ),
    "boxes of images by number are no YOLO": (
        [f"images/{n // 2:03d}.Ani/{n}.jpg" for n in range(4)],
        {"bounding_boxes.txt": "1 60.0 27.0 325.0 304.0\n2 139.0 30.0 153.0 264.0\n"},
        "/000.Ani /000.Ani /001.Ani /001.Ani",
    ),
    "of several series of lists one counts": (
        [f"images/{c}/{n}.jpg" for c in ("banded", "bubbly") for n in range(4)],
        {
            f"labels/{split}{fold}.txt": "\n".join(f"banded/{n}.jpg" for n in numbers)
            for fold, parts in ((1, ([0, 1], [2], [3])), (2, ([3, 2], [1], [0])))
            for split, numbers in zip(("train", "val", "test"), parts, strict=True)
        }, "train/banded train/banded val/banded test/banded /bubbly /bubbly /bubbly /bubbly",
    ),
    "a folder beside a split with images in its name is none": (
        ["data_256/a.jpg", "data_256/b.jpg", "val_256/c.jpg"], {}, "/ / val/",
    ),
    "patients are no classes": (
        [f"{s}/patient0000{n}/study1/view.jpg" for s in ("train", "valid") for n in range(3)], {},
        "train/ train/ train/ val/ val/ val/",
    ),
    "a folder of lists is no empty class": (
        [f"images/{c}/{n}.jpg" for c in ("pie", "soup") for n in range(2)],
        {"meta/classes.txt": "pie\nsoup\n"}, "/pie /pie /soup /soup",
    ),
    "versions of the same images are no classes": (
        [f"{v}/{c}/{c}{n}.jpg" for v, c, n in VERSIONS], {}, "/a /a /b /b /a /a /b /b",
    ),
    "other images in each folder are no versions": (
        [f"{v}/{c}/{v}{n}.jpg" for v, c, n in VERSIONS], {},
        "/color /color /color /color /grey /grey /grey /grey",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_splits_and_classes_of_published_trees(tmp_path: Path, name: str) -> None:
    pictures, texts, expected = TREES[name]
    found, reason = labels(tree(tmp_path, pictures, **texts))
    assert found == expected
    assert "meta" not in reason
