"""Keypoints of YOLO: read, placed, told from outlines; what is wrong with them is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.run.store import Store
from tests.audit.annotations.datasets import annotated, judge, picture

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
