"""Annotations out and in again: the same boxes, outlines, masks and keypoints, or a sentence."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from audit.annotations.entries import AnnotationFile, attributes_of
from audit.decisions.decisions import decide_findings, decide_samples
from audit.errors import UsageError
from audit.exports.annotation_export import RECORD, _refuse_double, export_annotations
from audit.records import Action
from audit.run import run_version
from audit.run.store import Store
from tests.audit.annotations.datasets import (
    annotated,
    annotated_run,
    coco,
    coco_tree,
    picture,
    voc_xml,
)

pytestmark = pytest.mark.slow

KINDS = ("boxes", "shapes", "traits")
BOXES = """
    SELECT sample_id, label, x, y, width, height, stored_x, stored_y, crowd, kind, angle
    FROM boxes WHERE sample_id IS NOT NULL
"""
SHAPES = """
    SELECT p.sample_id, s.kind, s.part, s.points, s.mask_width, s.mask_height,
        ends_with(coalesce(f.reading, f.form), 'share') AS shares, i.width, i.height
    FROM annotation_shapes s JOIN annotated_images p ON p.file = s.file
        AND p.image_key = s.image_key JOIN annotation_files f ON f.file = s.file
    JOIN images i ON i.id = p.sample_id
"""
TRAITS = """
    SELECT p.sample_id, a.track, a.attributes, a.n_keypoints, a.area FROM annotations a
    JOIN annotated_images p ON p.file = a.file AND p.image_key = a.image_key
    WHERE p.sample_id IS NOT NULL
"""


def near(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def contents(store: Store) -> dict[str, Counter[Any]]:
    """What the annotations say, whatever form they are in; px to a ten-thousandth."""
    shapes = []
    for *head, points, mw, mh, shares, w, h in store.query(SHAPES).rows():
        scale = (w, h) if shares else (1, 1)
        scale += (1,) if head[1] == "keypoints" else ()
        scaled = [None if v is None else v * scale[i % len(scale)] for i, v in enumerate(points)]
        shapes.append((*head, tuple(near(v) for v in scaled), mw, mh))
    traits = [
        (sample, track, json.dumps(attributes_of(a), sort_keys=True) if a else None, n, near(area))
        for sample, track, a, n, area in store.query(TRAITS).rows()
    ]
    boxes = [tuple(near(v) for v in row) for row in store.query(BOXES).rows()]
    return {"boxes": Counter(boxes), "shapes": Counter(shapes), "traits": Counter(traits)}


def bare_copy(root: Path, target: Path) -> Path:
    """The pictures of a dataset, without its annotations."""
    for path in root.rglob("*"):
        if path.is_file() and path.suffix.lower() in (".jpg", ".jpeg", ".png"):
            place = target / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    return target


def there_and_back(
    root: Path, folder: Path, form: str, chosen: Sequence[str] = ()
) -> tuple[dict[str, Counter[Any]], dict[str, Counter[Any]], list[str]]:
    """Contents before and after a round trip, and what the export said it cannot hold."""
    run = folder / "run"
    if not run.exists():
        annotated_run(root, run)
    with run_version.open_run(run) as store:
        before = contents(store)
    target = bare_copy(root, folder / f"as {form}")
    result = export_annotations(run, target, form, chosen)
    with annotated(target) as store:
        return before, contents(store), result.lost


def rich() -> dict[str, Any]:
    """A COCO document of all that COCO holds; picture 4 is turned by EXIF."""
    document = coco(4, [(1, 5, 6, 20, 10), (2, 1.25, 2.5, 30.1, 20.7), (4, 10, 20, 30, 40)])
    document["images"][3] |= {"width": 48, "height": 64}
    document["info"], document["licenses"] = {"year": 2020}, [{"id": 3, "name": "free"}]
    document["categories"][0] |= {
        "keypoints": ["eye", "ear"], "skeleton": [[1, 2]], "supercategory": "animal",
    }  # fmt: skip
    document["images"][0]["license"] = 3
    things = document["annotations"]
    things[0] |= {"segmentation": [[5, 6, 25, 6, 25, 16.5]], "area": 105.0, "score_by": "anna"}
    things[1] |= {"keypoints": [3, 4, 2, 0, 0, 0], "num_keypoints": 1, "track_id": 7,
                  "attributes": {"occluded": True}}  # fmt: skip
    more = {"image_id": 2, "category_id": 1}
    things += [
        {**more, "id": 9, "iscrowd": 1, "bbox": [0, 0, 3, 2], "area": 6,
         "segmentation": {"size": [48, 64], "counts": [0, 2, 46, 2, 46, 2, 2974]}},
        {**more, "id": 10, "iscrowd": 0, "bbox": [30, 20, 20, 10, 15.5]},
        {**more, "id": 11, "iscrowd": 0, "segmentation": [[1, 1, 9, 1, 9, 9], [20, 20, 30, 20,
                                                                               30, 30]]},
    ]  # fmt: skip
    return document


@pytest.fixture(scope="module")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trip")
    coco_tree(folder / "data", rich(), 3)
    picture(folder / "data" / "images" / "3.jpg", orientation=6)
    annotated_run(folder / "data", folder / "run")
    return folder


def test_coco_comes_back_with_everything(trip: Path) -> None:
    before, after, lost = there_and_back(trip / "data", trip, "coco")
    assert after == before
    assert lost == []
    written = json.loads((trip / "as coco" / "annotations.json").read_text())
    original = rich()
    assert {k: written[k] for k in ("info", "licenses")} == {
        k: original[k] for k in ("info", "licenses")
    }
    for key in ("images", "annotations", "categories"):
        assert sorted(written[key], key=lambda e: e["id"]) == sorted(
            original[key], key=lambda e: e["id"]
        )


def test_coco_comes_back_where_the_file_is_gone(trip: Path, tmp_path: Path) -> None:
    shutil.copytree(trip / "data", tmp_path / "data")
    annotated_run(tmp_path / "data", tmp_path / "run")
    text = (tmp_path / "data" / "annotations.json").read_text()
    (tmp_path / "data" / "annotations.json").write_text(text + " ")
    before, after, lost = there_and_back(tmp_path / "data", tmp_path, "coco")
    assert after == before
    assert len(lost) == 1
    assert "changed after the scan" in lost[0]


@pytest.mark.parametrize("form", ["yolo", "voc"])
def test_boxes_come_back_in_other_forms_and_the_rest_is_counted(trip: Path, form: str) -> None:
    before, after, lost = there_and_back(trip / "data", trip, form)
    upright = [k for k in before["boxes"] if not k[8]]  # crowds are left out
    place = slice(0, 6)
    assert Counter(k[place] for k in after["boxes"]) == Counter(k[place] for k in upright)
    said = " ".join(lost)
    for word in ("1 crowd", "1 rotated", "2 outlines"):
        assert word in said, said
    assert ("keypoints of 1" in said) == (form == "voc"), said
    assert "mask" not in said  # that of the crowd is counted with it
    assert ("1 annotations" in said) == (form == "yolo" or "Attributes" in said)


def test_voc_and_yolo_come_back_as_themselves(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for i in range(3):
        picture(root / "images" / f"{i}.jpg")
        (root / "labels").mkdir(exist_ok=True)
    (root / "labels" / "0.txt").write_text("0 0.5 0.5 0.25 0.123456789\n2 0.1 0.1 0.2 0.2\n")
    (root / "labels" / "1.txt").write_text("1 0.1 0.1 0.4 0.1 0.4 0.5 0.2 0.6\n1 .5 .5 .1 .1\n")
    (root / "labels" / "2.txt").write_text("")
    (root / "data.yaml").write_text("names: [cat, 'a: dog', owl]\n")
    before, after, lost = there_and_back(root, tmp_path, "yolo")
    assert after == before
    assert lost == []
    assert (tmp_path / "as yolo" / "labels" / "2.txt").read_text() == ""
    before, after, lost = there_and_back(root, tmp_path, "coco")
    assert {k[:6] for k in after["boxes"]} == {k[:6] for k in before["boxes"]}
    assert after["shapes"] == before["shapes"]
    assert lost == []
    shutil.rmtree(tmp_path / "run")
    shutil.rmtree(tmp_path / "as voc", ignore_errors=True)
    before, after, _ = there_and_back(root, tmp_path, "voc")
    voc = tmp_path / "as voc"
    again, twice, lost = there_and_back(voc, tmp_path / "second", "voc")
    assert twice == again
    assert lost == []


def test_published_sets_come_back(real_data: Path, tmp_path: Path) -> None:
    """Every small published set of boxes, in its own form, and the raccoons as COCO and YOLO."""
    sets = {
        "coco_dataset/coco_instances": "coco", "coco_dataset/coco_person_keypoints": "coco",
        "coco_dataset/coco_stuff": "coco", "voc_dataset/voc_detection": "voc",
    }  # fmt: skip
    tried = 0
    for number, (name, form) in enumerate(sets.items()):
        root = real_data / "formats" / name
        if not root.is_dir():
            continue
        before, after, _ = there_and_back(root, tmp_path / str(number), form)
        assert after["boxes"] == before["boxes"], name
        assert after["shapes"] == before["shapes"], name
        tried += 1
    assert tried >= 2


# ---- decisions, and whose files they are ----


def test_dropped_pictures_are_left_out_and_files_of_others_stay(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "data", coco(2, [(1, 5, 6, 20, 10), (2, 5, 6, 20, 10)]), 2)
    run = annotated_run(root, tmp_path / "run")
    out = tmp_path / "out"
    first = export_annotations(run, out, "yolo")
    assert sorted(first.files) == ["data.yaml", "labels/0.txt", "labels/1.txt", "train.txt"]
    decide_samples(run, ["images/1.jpg"], Action.DROP, by="anna")
    second = export_annotations(run, out, "yolo")
    assert second.removed == 1
    assert not (out / "labels" / "1.txt").exists()
    (out / "labels" / "0.txt").write_text("0 0.1 0.1 0.1 0.1\n")
    with pytest.raises(UsageError, match="was edited after the last export"):
        export_annotations(run, out, "yolo")
    assert (out / "labels" / "0.txt").read_text() == "0 0.1 0.1 0.1 0.1\n"
    export_annotations(run, out, "yolo", replace=True)
    (out / RECORD).unlink()
    with pytest.raises(UsageError, match="exists: choose another folder"):
        export_annotations(run, out, "yolo")
    assert not list(out.glob(".annotations*"))
    with pytest.raises(UsageError, match="no annotation file 'x'"):
        export_annotations(run, tmp_path / "other", "coco", ["x"])


def test_of_several_files_of_one_picture_always_the_same_two_are_named() -> None:
    files = [AnnotationFile(name, "COCO", "", "", "", "") for name in "dcba"]
    store = Store.memory()
    store.execute(
        "CREATE TABLE kept_pictures AS SELECT 'a' AS file, i AS sample_id FROM range(3) r(i) "
        "UNION ALL SELECT 'dcb'[i + 1], i FROM range(3) r(i)"
    )
    with pytest.raises(UsageError, match=r"^a and b both annotate .* \(3 have several files\)"):
        _refuse_double(store, files)


def test_two_files_of_the_same_pictures_need_a_choice(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "data", coco(), 1)
    (root / "boxes.csv").write_text("filename,class,xmin,ymin,xmax,ymax\n0.jpg,cat,5,6,25,16\n")
    run = annotated_run(root, tmp_path / "run")
    with pytest.raises(UsageError, match="choose one with --annotations"):
        export_annotations(run, tmp_path / "out", "voc")
    assert export_annotations(run, tmp_path / "out", "voc", ["boxes.csv"]).pictures == 1
    both = export_annotations(run, tmp_path / "both", "coco")
    assert set(both.files) == {"annotations.json", "boxes.json"}


def test_small_files_that_nothing_was_decided_of_are_copied_whole(tmp_path: Path) -> None:
    """What is not read of them stays: parts in VOC, keypoints in YOLO."""
    root = tmp_path / "data"
    for i in range(2):
        picture(root / "images" / f"{i}.jpg")
    (root / "annotations").mkdir()
    for i, left in enumerate((5, 66)):
        text = voc_xml(f"{i}.jpg", ("cat", left, 5, 70, 20)).replace(
            "</name>", "</name><!-- by anna --><part><name>head</name></part>"
        )
        (root / "annotations" / f"{i}.xml").write_text(text)
    run = annotated_run(root, tmp_path / "run")
    out = tmp_path / "out"
    assert export_annotations(run, out, "voc").lost == []
    for i in range(2):
        made, given = out / "Annotations" / f"{i}.xml", root / "annotations" / f"{i}.xml"
        assert made.read_bytes() == given.read_bytes()
    decide_findings(run, ["BOX001"], Action.FIX)
    result = export_annotations(run, out, "voc")
    assert result.fixed == 1
    assert result.lost == ["1 files are rewritten because of decisions: parts that audit does not "
                           "read are lost."]  # fmt: skip
    assert "<xmax>64</xmax>" in (out / "Annotations" / "0.xml").read_text()
    assert "by anna" in (out / "Annotations" / "1.xml").read_text()


@pytest.mark.parametrize("numbers", [2, 3])
def test_keypoints_of_yolo_come_back_from_yolo_and_from_coco(tmp_path: Path, numbers: int) -> None:
    root = tmp_path / "data"
    picture(root / "images" / "0.jpg")
    (root / "labels").mkdir()
    points = ["0.5 0.5", "0.4 0.4", "0 0"]
    marks = ["", "", ""] if numbers == 2 else [" 2", " 1", " 0"]
    line = f"0 0.5 0.5 0.25 0.25 {' '.join(map(''.join, zip(points, marks, strict=True)))}\n"
    (root / "labels" / "0.txt").write_text(line)
    yaml = f"names: [cat]\nkpt_shape: [3, {numbers}]\nflip_idx: [0, 2, 1]\n"
    (root / "data.yaml").write_text(yaml)
    before, after, lost = there_and_back(root, tmp_path, "yolo")
    assert before == after
    assert [key[1] for key in after["shapes"]] == ["keypoints"]
    assert lost == []
    written = (tmp_path / "as yolo" / "data.yaml").read_text()
    assert "kpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n" in written
    assert "kpt_names" not in written
    # a line of three numbers a keypoint is copied, one of two is written with its visibilities
    copied = (tmp_path / "as yolo" / "labels" / "0.txt").read_text() == line
    assert copied == (numbers == 3)
    before, after, lost = there_and_back(root, tmp_path, "coco")
    assert before["shapes"] == after["shapes"]
    assert lost == []


def test_keypoints_of_coco_become_poses(trip: Path, tmp_path: Path) -> None:
    export_annotations(trip / "run", tmp_path, "yolo")
    lines = "".join(path.read_text() for path in sorted((tmp_path / "labels").glob("*.txt")))
    assert {len(line.split()) for line in lines.splitlines()} == {5 + 3 * 2}
    assert " 0.046875 0.083333333333333" in lines  # (3, 4) of 64 x 48 px
    yaml = (tmp_path / "data.yaml").read_text()
    assert (
        "kpt_shape: [2, 3]\nflip_idx: [0, 1]\nkpt_names:\n  0:\n    - 'eye'\n    - 'ear'\n" in yaml
    )
