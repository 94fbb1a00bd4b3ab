"""What the numbers mean: readings, units, pictures that EXIF turns, keypoints of YOLO."""

import json
from pathlib import Path

import numpy as np
import pytest

from audit.run.store import Store
from tests.audit.annotations.datasets import annotated, coco, coco_tree, codes, judge, picture


def boxes(n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(3)
    size = rng.uniform(6, 30, (n, 2))
    return np.hstack([rng.uniform(0, 1, (n, 2)) * ([64, 48] - size), size]).round(1)


READINGS = {
    "corners": lambda x, y, w, h: (x, y, x + w, y + h),
    "centre": lambda x, y, w, h: (x + w / 2, y + h / 2, w, h),
    "yxhw": lambda x, y, w, h: (y, x, h, w),
}


@pytest.mark.parametrize("name", READINGS)
def test_another_reading_is_found_and_used(tmp_path: Path, name: str) -> None:
    given = boxes(120)
    written = [(1, *READINGS[name](*box)) for box in given.tolist()]
    with annotated(coco_tree(tmp_path, coco(1, written))) as store:
        found = store.query("SELECT x, y, width, height FROM boxes ORDER BY entry").to_numpy()
        assert store.scalar("SELECT reading FROM annotation_files") == f"{name} px"
        assert "BOX008" in {f.code for f in judge(store)}
    assert np.allclose(found, given)


def test_boxes_as_the_format_says_stay(tmp_path: Path) -> None:
    with annotated(coco_tree(tmp_path, coco(1, [(1, *b) for b in boxes().tolist()]))) as store:
        row = store.rows("FROM annotation_files")[0]
        assert row["reading"] == row["form"]
        assert row["fit_share"] == 1


def test_too_few_boxes_cannot_tell(tmp_path: Path) -> None:
    written = [(1, *READINGS["corners"](*box)) for box in boxes(6).tolist()]
    found = codes(coco_tree(tmp_path, coco(1, written)))
    assert "BOX008" not in found
    assert "BOX001" in found


@pytest.mark.parametrize(
    ("declared", "box"), [((64, 48), (50, 5, 10, 40)), ((48, 64), (5, 50, 40, 10))]
)
def test_a_turned_picture_has_its_boxes_where_they_fit(
    tmp_path: Path, declared: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    """Stored 64 x 48, shown 48 x 64: a box at x = 50 fits the stored picture alone."""
    picture(tmp_path / "images" / "0.jpg", 64, 48, orientation=6)
    document = coco(1, [(1, *box)])
    document["images"][0].update(width=declared[0], height=declared[1])
    root = coco_tree(tmp_path / "made", document)
    (tmp_path / "images" / "0.jpg").rename(root / "images" / "0.jpg")
    with annotated(root) as store:
        [row] = store.rows("FROM boxes")
        shown = [row[k] for k in ("x", "y", "width", "height")]
        stored = [row[f"stored_{k}"] for k in ("x", "y", "width", "height")]
        found = {f.code for f in judge(store)}
    # orientation 6: the stored left edge becomes the upper edge, the lower one becomes the left
    expected = [48 - 5 - 40, 50, 40, 10] if declared == (64, 48) else list(box)
    assert shown == expected
    assert stored == [50, 48 - expected[0] - expected[2], 10, 40]
    assert ("BOX005" in found) == (declared == (64, 48))
    assert "BOX001" not in found


POSES = "kpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\nnames: [cat, dog]\nkpt_names:\n  0:\n    - nose\n"
POSES += "    - left_ear\n    - right_ear\n"


def pose_tree(root: Path, yaml: str, *texts: str) -> Path:
    for i, text in enumerate(texts):
        picture(root / "images" / f"{i}.jpg", 100, 50)
        (root / "labels").mkdir(exist_ok=True)
        (root / "labels" / f"{i}.txt").write_text(text)
    (root / "data.yaml").write_text(yaml)
    return root


def shapes_of(store: Store) -> list[tuple[str, list[float]]]:
    sql = "SELECT kind, points FROM annotation_shapes ORDER BY image_key, entry"
    return [(row["kind"], row["points"]) for row in store.rows(sql)]


def test_keypoints_follow_the_box(tmp_path: Path) -> None:
    line = "0 0.5 0.5 0.4 0.4 0.4 0.5 2 0.5 0.4 1 0 0 0\n"
    with annotated(pose_tree(tmp_path, POSES, line, "1" + line[1:])) as store:
        assert shapes_of(store) == [("keypoints", [0.4, 0.5, 2, 0.5, 0.4, 1, 0, 0, 0])] * 2
        rows = store.rows("SELECT category_key, keypoints FROM categories ORDER BY 1")
        assert [json.loads(row["keypoints"]) for row in rows] == [
            ["nose", "left_ear", "right_ear"], ["point 0", "left 1", "right 1"],
        ]  # fmt: skip
        [box] = store.query("SELECT DISTINCT kind, x, y, width, height FROM boxes").rows()
        assert box == pytest.approx(("box", 30, 15, 40, 20))
        assert store.scalar("SELECT not_read FROM annotation_files") == ""
        assert not judge(store)


def test_two_numbers_a_keypoint_leave_out_those_at_zero(tmp_path: Path) -> None:
    yaml = "kpt_shape:\n  - 2\n  - 2\nnames: [cat]\n"
    tree = pose_tree(tmp_path, yaml, "0 0.5 0.5 0.4 0.4 0.4 0.5 0 0\n")
    with annotated(tree) as store:
        assert shapes_of(store) == [("keypoints", [0.4, 0.5, 2, 0, 0, 0])]
        assert not judge(store)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ("0 0.1 0.1 0.4 0.1 0.4 0.4 0.1 0.4", ["polygon"]),  # corners of a turned box
        ("0 0.5 0.5 0.2 0.2 0.4 0.4 2 0.5 0.5 1", ["keypoints"]),
        ("0 0.1 0.1 0.5 0.1 0.9 0.3 0.5 0.9 0.1 0.5", ["polygon"]),  # as many numbers
        # 10 numbers, and 0 or 1 in them
        ("0 0 0 1 0 1 1 0 1 0 1\n0 0.1 0.1 0.4 0.1 0.4 0.4", ["polygon", "polygon"]),
    ],
    ids=["turned box", "pose", "outline", "outlines of several lengths"],
)
def test_without_a_shape_lines_tell_poses_from_outlines(
    tmp_path: Path, lines: str, kinds: list[str]
) -> None:
    with annotated(pose_tree(tmp_path, "names: [cat]\n", lines + "\n")) as store:
        assert [found for found, _ in shapes_of(store)] == kinds


@pytest.mark.parametrize(
    ("yaml", "line", "said"),
    [
        (POSES, "0 0.5 0.5 0.4 0.4 0.4 0.5 2 0.5 0.4 1", "the 14 columns of `kpt_shape`"),
        (POSES, "0 0.15 0.2 0.2 0.3", "not have the 14 columns"),
        (POSES.replace("[0, 2, 1]", "[0, 2]"), "", "`flip_idx` does not pair the 3 keypoints"),
        (POSES.replace("[0, 2, 1]", "[1, 2, 0]"), "", "`flip_idx` does not pair"),
        (POSES.replace("[3, 3]", "[3, 4]"), "", "`kpt_shape` is not [number of keypoints, 2 or 3]"),
    ],
    ids=["too few", "no keypoints", "short flip", "flip that does not go back", "shape"],
)
def test_what_is_wrong_with_poses_is_said(tmp_path: Path, yaml: str, line: str, said: str) -> None:
    whole = "0 0.5 0.5 0.4 0.4 0.4 0.5 2 0.5 0.4 1 0 0 0"
    with annotated(pose_tree(tmp_path, yaml, f"{whole}\n{line}\n")) as store:
        [finding] = judge(store)
        assert (finding.code, said in finding.message) == ("BOX013", True), finding.message


def test_keypoints_of_another_data_yaml_are_not_expected(tmp_path: Path) -> None:
    pose_tree(tmp_path / "pose", POSES, "0 0.5 0.5 0.4 0.4 0.4 0.5 2 0.5 0.4 1 0 0 0\n")
    pose_tree(tmp_path / "boxes", "names: [cat]\n", "0 0.5 0.5 0.4 0.4\n")
    with annotated(tmp_path) as store:
        assert len(shapes_of(store)) == 1
        assert not judge(store)
