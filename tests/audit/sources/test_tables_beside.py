"""Tables beside the pictures of a folder: read by what their cells name, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.sources import open_source
from tests.audit.sources.test_listed_splits import tree
from tests.audit.sources.trees import read

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
        table("id,text", *(f"{n},a picture of {i} things" for i, n in enumerate(IDS))),  # captions
        table("id,votes", *(f"{n},{v}" for n in IDS for v in "xyx")),  # several rows a picture
        table("id,vote", *rows_of("x", "y"), "0f3c,y", "33aa,x"),
        table("id,label", *(f"{n},4" for n in IDS)),  # one value, as in an empty submission
        table("id,class", *(f"z{row}" for row in rows_of("pug", "boxer"))),  # others' pictures
        table("id,x,y,w,h,class", *rows_of("1,1,5,5,pug", "2,2,5,5,boxer")),  # boxes
        table("id,colour,place", *rows_of("red,here", "blue,there")),  # which is the class?
        "id,label\n" + "\0" * 9,
    ],
)  # fmt: skip
def test_tables_that_tell_no_class(tmp_path: Path, text: str) -> None:
    root = tree(tmp_path, [f"images/{name}.jpg" for name in IDS], **{"t.csv": text})
    assert labels(root) == (" ".join(["/"] * 6), open_source([str(root)]).layout.reason)
    assert "t.csv" not in open_source([str(root)]).layout.reason


def test_each_split_has_its_table(tmp_path: Path) -> None:
    pictures = [f"{split}/{i}.jpg" for split in ("test", "train") for i in range(2)]
    texts = {"train.csv": "id,label\n0,cat\n1,dog\n", "test.csv": "id,label\n0,dog\n1,cat\n"}
    assert labels(tree(tmp_path / "a", pictures, **texts))[0] == (
        "test/dog test/cat train/cat train/dog"
    )
    # one table for both: whose pictures it means nobody can tell
    one = {"labels.csv": texts["train.csv"]}
    assert labels(tree(tmp_path / "b", pictures, **one))[0] == "test/ test/ train/ train/"
    beside = {f"{split}__metadata.csv": f"file_name,label\n0.jpg,{a}\n1.jpg,{b}\n"
              for split, a, b in (("train", "cat", "dog"), ("test", "dog", "cat"))}  # fmt: skip
    found, reason = labels(tree(tmp_path / "c", pictures, **beside))
    assert found == "test/dog test/cat train/cat train/dog"
    assert "label from 'label' of test/metadata.csv, train/metadata.csv" in reason


def test_the_split_of_a_table_may_be_a_number(tmp_path: Path) -> None:
    rows = [f"{name}.jpg,{'000012'[i]}" for i, name in enumerate(IDS)]
    texts = {"list_eval_partition.csv": table("image_id,partition", *rows)}
    root = tree(tmp_path, [f"img_align/{name}.jpg" for name in IDS], **texts)
    assert labels(root)[0] == "train/ train/ train/ train/ val/ test/"


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["all_images_1", "all_images_2"], "/pug /pug /pug /boxer /boxer /boxer"),
        (["input"], "/pug /boxer /pug /boxer /pug /boxer"),
        (["cats", "dogs"], "/cats /cats /cats /dogs /dogs /dogs"),  # they tell the class
    ],
)
def test_folders_that_tell_no_class_give_way(
    tmp_path: Path, folders: list[str], expected: str
) -> None:
    pictures = [f"{folders[i % len(folders)]}/{name}.jpg" for i, name in enumerate(IDS)]
    texts = {"meta.csv": table("image_id,dx", *rows_of("pug", "boxer"))}
    assert labels(tree(tmp_path, pictures, **texts))[0] == expected


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
