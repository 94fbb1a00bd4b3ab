"""A detector's boxes against the annotations: planted errors found and ranked, agreement silent."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.annotations import holds_boxes, judge_boxes, load_results
from audit.checks.box_predicted import OverlookedObject
from audit.errors import UsageError
from audit.records import Finding
from tests.audit.annotations.datasets import annotated, coco, coco_tree, judge

pytestmark = pytest.mark.slow

CODES = ("BOX027", "BOX028", "BOX029")
N = 40


def truth(seed: int = 3) -> dict[str, Any]:
    """A document of N pictures with two to four objects of two classes that do not overlap."""
    rng = np.random.default_rng(seed)
    boxes = []
    for image in range(1, N + 1):
        for place in range(int(rng.integers(2, 5))):
            w, h = rng.integers(8, 14, 2).tolist()
            boxes.append((image, 2 + 30 * (place % 2), 2 + 24 * (place // 2), w, h))
    document = coco(N, boxes)
    document["categories"].append({"id": 2, "name": "dog"})
    for annotation in document["annotations"]:
        annotation["category_id"] = int(rng.integers(1, 3))
    return document


def predicted(document: dict[str, Any], seed: int = 5, noise: float = 0.6) -> list[dict[str, Any]]:
    """A good detector's answer: each box with an error of some px, unsure ones, doubles."""
    rng = np.random.default_rng(seed)
    found = []
    for annotation in document["annotations"]:
        box = (np.array(annotation["bbox"]) + rng.normal(0, noise, 4)).tolist()
        entry = {k: annotation[k] for k in ("image_id", "category_id")}
        found.append({**entry, "bbox": box, "score": float(rng.uniform(0.9, 1))})
        weak = (np.array(box) + rng.normal(0, 4, 4)).clip(1).tolist()
        found.append({**entry, "bbox": weak, "score": float(rng.uniform(0.05, 0.6))})
    return found


def found(root: Path, results: list[dict[str, Any]]) -> list[Finding]:
    path = root.parent / "results.json"
    path.write_text(json.dumps(results))
    with annotated(root) as store:
        judge_boxes(store, load_results(store, path))
        return [finding for finding in judge(store) if finding.code in CODES]


def test_nothing_is_said_where_the_predictions_agree(tmp_path: Path) -> None:
    for seed in range(3):
        document = truth(seed)
        root = coco_tree(tmp_path / str(seed) / "data", document, N)
        assert found(root, predicted(document, seed + 50)) == []
        crowd = {**document["annotations"][0], "id": 999, "iscrowd": 1, "bbox": [0, 0, 64, 48]}
        crowded = {**document, "annotations": [crowd, *document["annotations"][4:]]}
        (root / "annotations.json").write_text(json.dumps(crowded))
        assert [f for f in found(root, predicted(document, 9)) if "images/0.jpg" in f.sample_ids
                ] == []  # fmt: skip


def test_planted_errors_are_found_by_kind_and_ranked(tmp_path: Path) -> None:
    document = truth()
    results = predicted(document)
    for entry in results[::2]:
        entry["score"] = 0.97
    things, seen = document["annotations"], set[int]()
    firsts = [t for t in things if not (t["image_id"] in seen or seen.add(t["image_id"]))]
    planted = {"BOX027": firsts[:4], "BOX028": firsts[10:14], "BOX029": firsts[20:24]}
    for thing in planted["BOX027"]:
        things.remove(thing)
    for number, thing in enumerate(planted["BOX028"]):
        thing["bbox"][0] += 5 + number
    for thing in planted["BOX029"]:
        thing["category_id"] = 3 - thing["category_id"]
    root = coco_tree(tmp_path / "data", document, N)
    findings = found(root, results)
    for code, those in planted.items():
        said = [f for f in findings if f.code == code]
        assert {f.sample_ids[0] for f in said} == {f"images/{t['image_id'] - 1}.jpg" for t in those}
        assert [f.evidence["rank"] for f in said] == list(range(1, len(said) + 1))
        scores = [float(f.evidence["score"]) for f in said]
        assert scores == sorted(scores)
    farthest = planted["BOX028"][3]["image_id"] - 1
    assert next(f for f in findings if f.code == "BOX028").sample_ids == (f"images/{farthest}.jpg",)
    assert "is predicted as" in next(f.message for f in findings if f.code == "BOX029")


def test_the_quality_of_a_picture_is_low_where_it_is_contradicted(tmp_path: Path) -> None:
    document = coco(2, [(1, 5, 6, 20, 10), (2, 5, 6, 20, 10)])
    root = coco_tree(tmp_path / "data", document, 2)
    entry = {"category_id": 1, "score": 0.99}
    results = [
        {**entry, "image_id": 1, "bbox": [5, 6, 20, 10]},
        {**entry, "image_id": 2, "bbox": [40, 30, 10, 10]},
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results))
    with annotated(root) as store:
        judge_boxes(store, load_results(store, path))
        quality = dict(store.query("SELECT sample_id, quality FROM box_quality").iter_rows())
    assert quality["images/0.jpg"] == 1
    assert 0 < quality["images/1.jpg"] < 0.5


def test_predictions_of_low_probability_are_counted_as_left_out(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "data", coco(), 1)
    entry = {"image_id": 1, "category_id": 1, "bbox": [40, 30, 9, 9]}
    path = tmp_path / "results.json"
    path.write_text(json.dumps([{**entry, "score": score} for score in (0.3, 0.49, 0.5, 0.9)]))
    with annotated(root) as store:
        judge_boxes(store, load_results(store, path))
        words = OverlookedObject().completeness(store, OverlookedObject.Params())
    assert "compared, 2 below probability 0.5 left out; 2 disagree, 0 with" in words
    assert words.endswith("; 2 below min_probability 0.95 are not reported.")


def test_results_may_name_pictures_and_classes(tmp_path: Path) -> None:
    """As some tools write them: the stem of the file for the id, the name of the class."""
    root = tmp_path / "data"
    coco_tree(root, coco(), 1)
    (root / "annotations.json").unlink()
    (root / "boxes.csv").write_text("filename,class,xmin,ymin,xmax,ymax\n0.jpg,cat,5,6,25,16\n")
    results = [{"image_id": "0", "category_id": "cat", "bbox": [40, 30, 9, 9], "score": 0.99}]
    assert Counter(f.code for f in found(root, results)) == {"BOX027": 1}


GOOD: dict[str, Any] = {"image_id": 1, "category_id": 1, "bbox": [5, 6, 20, 10], "score": 0.9}
NO_BOX = {key: value for key, value in GOOD.items() if key != "bbox"}
BAD: list[tuple[str, Any, str]] = [
    ("an object", {"images": []}, "contains an object"),
    ("nothing", [], "contains no predictions"),
    ("five numbers", [GOOD, {**GOOD, "bbox": [1, 2, 3, 4, 5]}], "entry 1 has 5 numbers instead"),
    ("a NaN score", [GOOD, {**GOOD, "score": float("nan")}], "1 of 2 predictions have NaN"),
    ("a logit", [{**GOOD, "score": 3.2}], "outside 0 to 1"),
    ("no area", [{**GOOD, "bbox": [5, 6, 0, 10]}], "without width or height"),
    ("a text", [{**GOOD, "bbox": [5, 6, "7", 10]}], "is a text, null or a list"),
    ("no score", [{k: v for k, v in GOOD.items() if k != "score"}], "entry 0 has no `score`"),
    ("not an object", [GOOD, 7], "entry 1 is not an object"),
    ("an unknown class", [{**GOOD, "category_id": 0}], "category_id 0 is not a class"),
    ("unknown images", [{**GOOD, "image_id": 77}], "No image_id"),
    ("a huge number", [{**GOOD, "bbox": [5, 6, 10**400, 10]}], "NaN or infinite numbers"),
    ("no box", [NO_BOX], "entry 0 has no `bbox`"),
    ("runs that end early", [NO_BOX | {"segmentation": {"size": [48, 64], "counts": [5, 5]}}],
     "the segmentation of entry 0"),
    ("three numbers", [NO_BOX | {"segmentation": [[1, 2, 3]]}], "the segmentation of entry 0"),
    ("texts", [NO_BOX | {"segmentation": [["a"] * 6]}], "the segmentation of entry 0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "document", "said"), BAD, ids=[name for name, _, _ in BAD])
def test_what_cannot_be_used_is_one_sentence(
    name: str, document: Any, said: str, tmp_path: Path
) -> None:
    root = coco_tree(tmp_path / "data", coco(), 1)
    with pytest.raises(UsageError, match=said) as raised:
        found(root, document)
    assert str(raised.value).endswith(".")


def test_some_unknown_pictures_are_counted(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "data", coco(), 1)
    path = tmp_path / "results.json"
    path.write_text(json.dumps([GOOD, {**GOOD, "image_id": 5}]))
    with annotated(root) as store:
        results = load_results(store, path)
    assert (results.total, results.unknown) == (2, 1)


def test_the_two_kinds_of_predictions_are_told_apart_by_content(tmp_path: Path) -> None:
    cases = {"a.json": b" [1]", "b.txt": b"\xef\xbb\xbf{", "c.csv": b"path,cat\n", "d.x": b"PAR1.."}
    told = {}
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        told[name] = holds_boxes(tmp_path / name)
    assert told == {"a.json": True, "b.txt": True, "c.csv": False, "d.x": False}
    (tmp_path / "e.txt").write_text("0 0.5")
    with pytest.raises(UsageError, match="is neither a detector's boxes"):
        holds_boxes(tmp_path / "e.txt")
    (tmp_path / "f.json").write_bytes(b"[{")
    root = coco_tree(tmp_path / "data", coco(), 1)
    with annotated(root) as store, pytest.raises(UsageError, match="is not valid JSON"):
        load_results(store, tmp_path / "f.json")


def test_a_segmentation_stands_for_a_missing_box(tmp_path) -> None:
    root, path = coco_tree(tmp_path / "data", coco()), tmp_path / "results.json"
    shapes = [[4.2, 6, 10, 6, 10, 9, 4.2, 9]], {"size": [4, 5], "counts": [5, 2, 2, 2, 9]}
    path.write_text(json.dumps([NO_BOX | {"segmentation": shape} for shape in shapes]))
    with annotated(root) as store:
        frame = load_results(store, path).frame
    assert frame.select("x", "y", "width", "height").rows() == [(4, 6, 6, 3), (1, 1, 2, 2)]


def test_a_folder_of_masks_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="audit subset score"):
        holds_boxes(tmp_path)
