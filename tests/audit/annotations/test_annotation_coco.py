"""COCO files: what a good one gives, and a sentence with the place for everything else."""

import json
from pathlib import Path

import pytest

from audit.annotations.box_statistics import annotation_sentences
from tests.audit.annotations.datasets import annotated, coco, coco_tree, codes, judge

pytestmark = pytest.mark.slow


def problems(root: Path) -> dict[str, str]:
    with annotated(root) as store:
        judge(store)
        rows = store.rows("FROM annotation_problems")
    return {row["kind"]: f"{row['detail']} | {row['place']}" for row in rows}


def test_boxes_come_with_their_place_and_picture(tmp_path: Path) -> None:
    text = json.dumps(coco(2, [(1, 5, 6, 20, 10), (2, 1, 2, 3, 4)]), indent=1)
    with annotated(coco_tree(tmp_path, text, 2)) as store:
        first, second = store.rows("FROM boxes ORDER BY entry")
        assert (first["sample_id"], first["label"]) == ("images/0.jpg", "cat")
        assert [second[k] for k in ("x", "y", "width", "height")] == [1, 2, 3, 4]
        start = second["byte"]
        assert json.JSONDecoder().raw_decode(text[start:])[0]["id"] == 2
        assert second["line"] == text[:start].count("\n") + 1
        assert judge(store) == []
        assert annotation_sentences(store) == [
            "COCO annotations: 2 images, 2 boxes, 1 class (from annotations.json)."
        ]


def test_a_cut_file_is_said_with_its_byte_and_what_was_whole_is_kept(tmp_path: Path) -> None:
    text = json.dumps(coco(3, [(i + 1, 1, 2, 30, 20) for i in range(3)]))
    cut = text[: text.index('"id": 3', text.index("annotations"))]
    root = coco_tree(tmp_path, cut, 3)
    assert f"byte {len(cut):,} of {len(cut):,}" in problems(root)["truncated"]
    with annotated(root) as store:
        assert store.scalar("SELECT count(*) FROM boxes") == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "truncated"),
        ('{"images": [], "annotations": [}', "not-json"),
        ('{"images": [{"id": 1,}], "annotations": []}', "malformed"),
        ('{"images": [1, [2], "x", null], "annotations": []}', "malformed"),
        ('{"images": {}, "annotations": [], "categories": []}', "wrong-type"),
        ('{"images": [], "annotations": [' + "[" * 300 + "]" * 300 + "]}", "nesting"),
        ('{"images": [], "annotations": [], "images": [], "categories": []}', "duplicate-key"),
        ('{"images": [{"id": 1, "id": 2, "file_name": "0.jpg"}], "annotations": []}',
         "duplicate-key"),
    ],
)  # fmt: skip
def test_what_is_no_coco_file_is_a_problem(tmp_path: Path, text: str, kind: str) -> None:
    good = json.dumps(coco())
    root = coco_tree(tmp_path, good)
    (root / "other.json").write_text(text)
    found = problems(root)
    if text == "":
        assert found == {}  # an empty file claims to be nothing
    elif kind in ("duplicate-key", "wrong-type") and "{}" in text:
        assert found == {} or kind in found
    else:
        assert kind in found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"bbox": [float("nan"), 1, 2, 3]}, "BOX007"),
        ({"bbox": [1, 1, float("inf"), 3]}, "BOX007"),
        ({"bbox": [1, 1, 1e400, 3]}, "BOX007"),
        ({"bbox": "1 2 3 4"}, "BOX013"),
        ({"bbox": {"x": 1}}, "BOX013"),
        ({"bbox": ["1", "2", "3", "4"]}, "BOX013"),
        ({"bbox": [[1, 2], [3, 4]]}, "BOX007"),
        ({"bbox": [1, 2, 3]}, "BOX007"),
        ({"image_id": "1"}, "BOX013"),
        ({"image_id": None}, "BOX011"),
        ({"image_id": {"a": 1}}, "BOX011"),
        ({"segmentation": "x"}, "BOX013"),
        ({"segmentation": {"counts": "@@@", "size": [1]}}, "BOX013"),
        ({"segmentation": [["a", "b"]]}, "BOX013"),
        ({"segmentation": [[1, 2, 3, 4]]}, "BOX018"),
        ({"area": "large"}, "BOX013"),
        ({"iscrowd": [1]}, "BOX013"),
        ({"keypoints": [1, 2]}, "BOX019"),
    ],
)
def test_odd_values_become_findings(tmp_path: Path, change: dict, expected: str) -> None:
    document = coco(2, [(1, 5, 6, 20, 10), (2, 1, 2, 30, 20)])
    document["annotations"][0].update(change)
    assert expected in codes(coco_tree(tmp_path, document, 2))


def test_names_of_windows_and_byte_order_marks(tmp_path: Path) -> None:
    document = coco()
    document["images"][0]["file_name"] = "C:\\data\\images\\0.jpg"
    root = coco_tree(tmp_path, b"\xef\xbb\xbf" + json.dumps(document).encode())
    with annotated(root) as store:
        assert store.scalar("SELECT sample_id FROM boxes") == "images/0.jpg"
    root = coco_tree(tmp_path, json.dumps(document).encode("utf-16"))
    assert "UTF-16" in problems(root)["encoding"]


def test_masks_outlines_and_turned_boxes_are_kept(tmp_path: Path) -> None:
    document = coco(4, [(i + 1, 2, 3, 10, 8) for i in range(4)])
    a, b, c, d = document["annotations"]
    a["segmentation"] = [[2, 3, 12, 3, 12, 11, 2, 11]]
    b["segmentation"] = {"size": [48, 64], "counts": [100, 5, 48 * 64 - 105]}
    c["bbox"] = [30, 20, 10, 8, 0.5]
    del d["bbox"]
    d["segmentation"] = [[2, 3, 12, 3, 12, 11, 2, 11], [20, 20, 30, 20, 30, 30]]
    with annotated(coco_tree(tmp_path, document, 4)) as store:
        shapes = store.rows("FROM annotation_shapes ORDER BY entry, part")
        assert [(s["kind"], s["area"]) for s in shapes] == [
            ("polygon", 80.0), ("mask", 5.0), ("polygon", 80.0), ("polygon", 50.0),
        ]  # fmt: skip
        assert shapes[1]["x"] == 2
        assert shapes[1]["height"] == 5
        turned, outlined = store.rows("FROM boxes WHERE entry >= 2 ORDER BY entry")
        assert (turned["x"], turned["angle"]) == (25, 0.5)
        assert [outlined[k] for k in ("kind", "x", "y", "width", "height")] == [
            "outline", 2, 3, 28, 27,
        ]  # fmt: skip


def test_the_fast_and_the_exact_parser_agree(tmp_path: Path) -> None:
    document = coco(3, [(i % 3 + 1, i % 9 + 1, 2, 30, 20) for i in range(40)], area=600)
    with annotated(coco_tree(tmp_path / "fast", document, 3)) as store:
        fast = store.rows("SELECT * EXCLUDE (byte) FROM boxes ORDER BY entry")
    document["annotations"].append({"id": 99, "image_id": 1, "bbox": [float("nan")] * 4})
    with annotated(coco_tree(tmp_path / "exact", document, 3)) as store:
        exact = store.rows("SELECT * EXCLUDE (byte) FROM boxes WHERE entry < 40 ORDER BY entry")
    assert fast == exact


RING = [2, 3, 12, 3, 12, 11.5, 2, 11]
OUTLINES = [[RING], [], None, [[]], [RING, [20, 20, 30, 20, 30, 30]], [[None, *RING]]]


MASK = {"size": [48, 64], "counts": [10, 5, 48 * 64 - 15]}


@pytest.mark.parametrize("beside", [[["1", 2, 3, 4, 5, 6]], RING, MASK])
def test_polygons_are_the_same_whatever_lies_beside_them(tmp_path: Path, beside: object) -> None:
    """Lists of lists are parsed with the rest, all others as JSON."""
    document = coco(1, [(1, 2, 3, 10, 8)] * (len(OUTLINES) + 1))
    for one, outline in zip(document["annotations"], [*OUTLINES, None], strict=True):
        one["segmentation"] = outline
    shapes = []
    for name in ("plain", "mixed"):
        with annotated(coco_tree(tmp_path / name, document)) as store:
            sql = "FROM annotation_shapes WHERE entry < ? ORDER BY ALL"
            shapes.append(store.query(f"SELECT * EXCLUDE file {sql}", [len(OUTLINES)]).rows())
            held = store.scalar("SELECT count(*) FROM annotation_shapes WHERE entry = 6")
        assert bool(held) == (name == "mixed")
        document["annotations"][-1]["segmentation"] = beside
    assert repr(shapes[0]) == repr(shapes[1])  # NaN is not equal to NaN
    assert [row[2:5] for row in shapes[0]].count(("polygon", 0, 4)) >= 2
