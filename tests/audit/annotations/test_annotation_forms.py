"""VOC, YOLO, LabelMe, Open Images, tables, manifests: boxes, classes, lines that are none."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import audit
from audit.run import run_version
from audit.sources import open_source
from tests.audit.annotations.datasets import annotated, boxes_of, codes, judge, picture, voc_xml

pytestmark = pytest.mark.slow


VOC = voc_xml("0.jpg", ("cat", 5, 6, 25, 16))


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


LABELME = {
    "shapes": [{"label": "cat", "points": [[5, 6], [25, 16]], "shape_type": "rectangle"}],
    "imagePath": "0.jpg", "imageWidth": 64, "imageHeight": 48,
}  # fmt: skip


@pytest.mark.parametrize(
    ("image", "file", "text"),
    [
        ("JPEGImages/0.jpg", "Annotations/0.xml", VOC),
        ("0.jpg", "0.json", json.dumps(LABELME)),
        ("images/0.jpg", "boxes.csv",
         "filename,width,height,class,xmin,ymin,xmax,ymax\n0.jpg,64,48,cat,5,6,25,16\n"),
        ("images/0.jpg", "boxes.csv",
         "ImageID,LabelName,XMin,XMax,YMin,YMax\n0.jpg,cat,0.078125,0.390625,0.125,0.33333333333\n"),
    ],
    ids=["VOC", "LabelMe", "table", "Open Images that names files"],
)  # fmt: skip
def test_a_file_of_one_box(tmp_path: Path, image: str, file: str, text: str) -> None:
    picture(tmp_path / image)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert first_box(tmp_path) == (image, "cat", pytest.approx([5, 6, 20, 10]))


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


def test_a_fault_in_data_yaml_is_a_finding_until_it_is_corrected(tmp_path: Path) -> None:
    root, run = tmp_path / "data", tmp_path / "run"
    yolo_tree(root, "1 0.5 0.5 0.25 0.5\n", names="nc: 2\nnames: [cat, dog\ntrain: .\n")
    assert audit.scan(root, run, checks=["BOX013"]).found("BOX013")["message"].to_list() == [
        "In labels, 1 time: a file of class names is only partly read: did not find expected "
        "',' or ']' (data.yaml, line 3)."
    ]
    with run_version.open_run(run) as store:
        assert store.scalar("SELECT label FROM boxes") == "class 1"
        assert "data.yaml cannot be read" in store.scalar("SELECT not_read FROM annotation_files")
    (root / "data.yaml").write_text("nc: 2\nnames: [cat, dog]\n")
    assert audit.scan(root, run, checks=["BOX013"]).found("BOX013").height == 0
    with run_version.open_run(run) as store:
        assert store.scalar("SELECT label FROM boxes") == "dog"


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


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("utf-8-sig", "a file begins with a byte-order mark"), ("utf-16", "a file is UTF-16")],
)
def test_labels_in_another_encoding_are_read_and_named(
    tmp_path: Path, encoding: str, said: str
) -> None:
    good = "0 0.5 0.5 0.2 0.2\n"
    with annotated(yolo_tree(tmp_path, good, good, good.encode(encoding))) as store:
        [row] = store.rows("FROM annotation_problems")
        assert (row["kind"], row["image_key"]) == ("encoding", "a.b2.txt")
        assert row["detail"].startswith(said)
        assert store.scalar("SELECT count(*) FROM boxes WHERE width > 0") == 3


def test_captions_beside_pictures_are_no_labels(tmp_path: Path) -> None:
    assert codes(yolo_tree(tmp_path, "a photo of 2 cats\n", "a dog\n", names="")) == set()
    with annotated(tmp_path) as store:
        assert store.scalar("SELECT count(*) FROM annotation_files") == 0


def test_open_images_with_names_that_are_edited_later(tmp_path: Path) -> None:
    root, run = tmp_path / "data", tmp_path / "run"
    picture(root / "train" / "0.jpg")
    (root / "train-annotations-bbox.csv").write_text(
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n0,x,/m/1,1,0.25,0.5,0,0.5,0\n"
    )
    for name in ("cat", "tiger"):
        (root / "class-descriptions.csv").write_text(f"/m/1,{name}\n")
        assert first_box(root) == ("train/0.jpg", name, [16, 0, 16, 24])
        audit.scan(root, run, checks=["BOX013"])
        with run_version.open_run(run) as store:
            assert store.scalar("SELECT label FROM boxes") == name


def test_real_sets_are_silent(real_data: Path) -> None:
    assert codes(real_data / "raccoon") == set()
    for form in ("coco_dataset/coco", "yolo_dataset/labels", "voc_dataset/voc_dataset1"):
        assert codes(real_data / "formats" / form) == set(), form


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


ROWS: list[dict[str, Any]] = [
    {"path": "a.jpg", "label": "cat", "xmin": 5.5, "ymin": 6, "xmax": 25, "ymax": 16, "split": "a"},
    {"path": "a.jpg", "label": "dog", "xmin": 30, "ymin": 6, "xmax": 45, "ymax": 16, "split": "a"},
    {"path": "b.jpg", "label": "cat", "xmin": 5, "ymin": 6, "xmax": 25, "ymax": 16, "split": "b"},
    {"path": "c.jpg", "label": None, "xmin": None, "ymin": None, "xmax": None, "ymax": None,
     "split": "b"},
]  # fmt: skip


def written(folder: Path, extension: str, rows: list[dict[str, Any]]) -> Path:
    for name in "abc":
        picture(folder / f"{name}.jpg")
    frame, path = pl.DataFrame(rows, infer_schema_length=None), folder / f"boxes.{extension}"
    if extension == "csv":
        frame.write_csv(path)
    elif extension == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_ndjson(path)
    return path


EXPECTED = [
    ("a.jpg", "cat", 5.5, 6, 19.5, 10), ("a.jpg", "dog", 30, 6, 15, 10),
    ("b.jpg", "cat", 5, 6, 20, 10),
]  # fmt: skip


@pytest.mark.parametrize("extension", ["csv", "parquet", "jsonl"])
def test_a_row_a_box(extension: str, tmp_path: Path) -> None:
    path = written(tmp_path, extension, ROWS)
    source = open_source([str(path)])
    samples = [s for batch in source.batches() for s in batch]
    assert [(s.id, s.split, s.label) for s in samples] == [
        ("a.jpg", "a", None), ("b.jpg", "b", None), ("c.jpg", "b", None),
    ]  # fmt: skip
    assert source.notes == []
    assert source.metadata is None
    assert "boxes: xmin, ymin, xmax, ymax" in source.describe()
    with annotated(path) as store:
        assert boxes_of(store) == EXPECTED
        assert store.scalar("SELECT count(*) FROM annotated_images") == 3
        assert judge(store) == []


def test_sizes_sides_and_one_box_a_picture(tmp_path: Path) -> None:
    rows = [{"path": f"{n}.jpg", "class": "cat", "x": 5, "y": 6, "w": 20, "h": 10} for n in "abc"]
    path = written(tmp_path, "csv", rows)
    source = open_source([str(path)])
    assert {s.label for batch in source.batches() for s in batch} == {"cat"}
    with annotated(path) as store:
        assert boxes_of(store)[0] == ("a.jpg", "cat", 5, 6, 20, 10)
    sized = [{**row, "width": 48, "height": 64} for row in ROWS[:3]]
    path = written(tmp_path / "sized", "csv", sized)
    with annotated(path) as store:
        assert {f.code for f in judge(store)} == {"BOX005"}


def test_faults_are_found_with_their_line(tmp_path: Path) -> None:
    rows = [{k: None if v is None else str(v) for k, v in row.items()} for row in ROWS]
    rows[1] |= {"xmax": "90"}
    rows.append({**rows[2], "xmin": "left"})
    path = written(tmp_path, "csv", rows)
    with annotated(path) as store:
        found = {f.code: f for f in judge(store)}
    assert set(found) >= {"BOX001", "BOX007", "BOX013"}
    assert "line 3" in found["BOX001"].message
    assert "line 6" in str(found["BOX013"].evidence) + found["BOX013"].message


def test_published_boxes_as_a_manifest(real_data: Path, tmp_path: Path) -> None:
    """The raccoons' own CSV, given as the source, has the boxes of its VOC files."""
    table = pl.read_csv(real_data / "raccoon" / "data" / "raccoon_labels.csv")
    images = real_data / "raccoon" / "images"
    named = table.with_columns(filename=pl.lit(f"{images}/") + pl.col("filename"))
    named.write_csv(tmp_path / "boxes.csv")
    with annotated(tmp_path / "boxes.csv") as store:
        assert store.scalar("SELECT count(*) FROM samples") == 200
        assert store.scalar("SELECT count(*) FROM boxes WHERE sample_id IS NOT NULL") == 217
