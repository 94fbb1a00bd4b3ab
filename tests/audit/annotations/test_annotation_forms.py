"""VOC, YOLO, LabelMe, Open Images and tables: boxes, classes, and lines that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.annotations.class_names import plain_names, yaml_items
from tests.audit.annotations.datasets import annotated, codes, judge, picture

pytestmark = pytest.mark.slow

VOC = """<annotation><filename>0.jpg</filename>
<size><width>64</width><height>48</height></size>
<object><name>cat</name><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>25</xmax><ymax>16</ymax></bndbox>
</object></annotation>"""


def yolo_tree(
    root: Path, *texts: str | bytes, names: str = "names: [cat, dog]\ntrain: .\n"
) -> Path:
    for i, text in enumerate(texts):
        picture(root / "images" / f"a.b{i}.jpg")
        (root / "labels").mkdir(exist_ok=True)
        raw = text if isinstance(text, bytes) else text.encode()
        (root / "labels" / f"a.b{i}.txt").write_bytes(raw)
    if names:
        (root / "data.yaml").write_text(names)
    return root


def first_box(root: Path) -> tuple[str, str, list[float]]:
    with annotated(root) as store:
        assert judge(store) == []
        row = store.rows("FROM boxes ORDER BY sample_id, entry")[0]
    return row["sample_id"], row["label"], [row[k] for k in ("x", "y", "width", "height")]


def test_voc(tmp_path: Path) -> None:
    picture(tmp_path / "JPEGImages" / "0.jpg")
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations" / "0.xml").write_text(VOC)
    assert first_box(tmp_path) == ("JPEGImages/0.jpg", "cat", [5, 6, 20, 10])


def test_yolo(tmp_path: Path) -> None:
    root = yolo_tree(tmp_path, "1 0.5 0.5 0.25 0.5\n")
    assert first_box(root) == ("images/a.b0.jpg", "dog", [24, 12, 16, 24])


def test_yolo_outlines_give_boxes(tmp_path: Path) -> None:
    root = yolo_tree(tmp_path, "0 0.25 0.25 0.75 0.25 0.75 0.5 0.25 0.5\n", "0 .5 .5 .2 .2\n")
    assert first_box(root) == ("images/a.b0.jpg", "cat", [16, 12, 32, 12])


def test_yolo_without_names_says_so(tmp_path: Path) -> None:
    with annotated(yolo_tree(tmp_path, "3 0.5 0.5 0.25 0.5\n", names="")) as store:
        assert store.scalar("SELECT label FROM boxes") == "class 3"
        assert "no file names the classes" in store.scalar("SELECT not_read FROM annotation_files")


@pytest.mark.parametrize(
    "line",
    [
        "0 0.5 0.5 0.2", "cat 0.5 0.5 0.2 0.2", "0,0.5,0.5,0.2,0.2", "0 x 0.5 0.2 0.2",
        "1.5 0.5 0.5 0.1 0.1",
    ],
)  # fmt: skip
def test_lines_that_are_no_labels(tmp_path: Path, line: str) -> None:
    good = "0 0.5 0.5 0.2 0.2\n"
    root = yolo_tree(tmp_path, good, good, f"{good}{line}\n")
    with annotated(root) as store:
        [row] = store.rows("FROM annotation_problems")
        assert "a.b2.txt, line 2" in row["place"]
        assert any(
            f.code == "BOX013" and f.sample_ids == ("images/a.b2.jpg",) for f in judge(store)
        )


def test_captions_beside_pictures_are_no_labels(tmp_path: Path) -> None:
    assert codes(yolo_tree(tmp_path, "a photo of 2 cats\n", "a dog\n", names="")) == set()
    with annotated(tmp_path) as store:
        assert store.scalar("SELECT count(*) FROM annotation_files") == 0


def test_labelme_json_and_xml(tmp_path: Path) -> None:
    picture(tmp_path / "0.jpg")
    shape = {"label": "cat", "points": [[5, 6], [25, 16]], "shape_type": "rectangle"}
    document = {"shapes": [shape], "imagePath": "0.jpg", "imageWidth": 64, "imageHeight": 48}
    (tmp_path / "0.json").write_text(json.dumps(document))
    assert first_box(tmp_path) == ("0.jpg", "cat", [5, 6, 20, 10])


def test_a_table_of_boxes(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "0.jpg")
    (tmp_path / "boxes.csv").write_text(
        "filename,width,height,class,xmin,ymin,xmax,ymax\n0.jpg,64,48,cat,5,6,25,16\n"
    )
    assert first_box(tmp_path) == ("images/0.jpg", "cat", [5, 6, 20, 10])


def test_open_images(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "0.jpg")
    (tmp_path / "train-annotations-bbox.csv").write_text(
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n0,x,/m/1,1,0.25,0.5,0,0.5,0\n"
    )
    (tmp_path / "class-descriptions.csv").write_text("/m/1,cat\n")
    assert first_box(tmp_path) == ("train/0.jpg", "cat", [16, 0, 16, 24])


def test_real_sets_are_silent(real_data: Path) -> None:
    assert codes(real_data / "raccoon") == set()
    for form in ("coco_dataset/coco", "yolo_dataset/labels", "voc_dataset/voc_dataset1"):
        assert codes(real_data / "formats" / form) == set(), form


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("names: [a, 'b, c', \"d\"] # x\n", ["a", "b, c", "d"]),
        ("nc: 2\nnames:\n  - a b\n  - c\ntrain: x\n", ["a b", "c"]),
        ("names:\n- a\n- b\nval: y", ["a", "b"]),
        ("names:\n  0: a\n  1: 'b'\n", ["a", "b"]),
        ("names: {0: a, 1: b}", ["a", "b"]),
        ("names: [\n a,\n b\n]\n", ["a", "b"]),
        ("train: x", []),
    ],
)
def test_names_in_yaml(text: str, names: list[str]) -> None:
    assert list(yaml_items(text, "names").values()) == names


def test_names_one_a_line() -> None:
    assert plain_names("a\nb c\n\n") == {"0": "a", "1": "b c"}


def test_a_number_sign_in_quotes_begins_no_comment() -> None:
    block = "names:\n  0: 'label #0'  # the first\n  1: \"it's #1\"\n  2: plain # said\n"
    assert yaml_items(block, "names") == {"0": "label #0", "1": "it's #1", "2": "plain"}
    assert yaml_items("names: ['a #1', b] # two\n", "names") == {"0": "a #1", "1": "b"}


# ---- files that other programs write ----


def test_an_outline_behind_a_box_of_voc_is_one(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "0.jpg")
    (tmp_path / "annotations").mkdir()
    points = "<x1>5</x1><y1>6</y1><x2>25</x2><y2>6</y2><x3>25</x3><y3>16</y3>"
    text = VOC.replace("</bndbox>", f"</bndbox><polygon>{points}</polygon>")
    (tmp_path / "annotations" / "0.xml").write_text(text)
    with annotated(tmp_path) as store:
        assert store.scalar("SELECT format FROM annotation_files") == "VOC"
        [row] = store.rows("SELECT kind, points FROM annotation_shapes")
        assert (row["kind"], row["points"]) == ("polygon", [5, 6, 25, 6, 25, 16])
        assert not judge(store)
    (tmp_path / "annotations" / "0.xml").write_text(text.replace("<x1>5<", "<x1>-5<"))
    assert codes(tmp_path) == {"BOX017"}


def test_an_xml_file_of_many_pictures_is_no_voc(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "0.jpg")
    cvat = "<annotations><version>1.1</version><image id='0' name='0.jpg'></image></annotations>"
    (tmp_path / "train.xml").write_text(cvat)
    assert codes(tmp_path) == set()


def test_open_images_may_name_files(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "0.jpg")
    rows = "ImageID,LabelName,XMin,XMax,YMin,YMax\n0.jpg,cat,0.1,0.5,0.1,0.6\n"
    (tmp_path / "boxes.csv").write_text(rows)
    with annotated(tmp_path) as store:
        assert store.scalar("SELECT sample_id FROM boxes") == "images/0.jpg"
        assert not judge(store)
