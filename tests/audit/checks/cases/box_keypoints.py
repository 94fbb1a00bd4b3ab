"""Cases of BOX019, BOX020."""

from collections.abc import Mapping

from audit.checking.boxes import Rows
from audit.testing import Case
from tests.audit.checks.case_tables import ENTRY, Cases, box_case, boxed, shape_case, shape_found

POSE = {**ENTRY, "kind": "keypoints", "part": 0, "points": [120.0, 130.0, 2.0, 150.0, 160.0, 1.0]}
ANIMAL = {"file": "boxes.json", "category_key": "1", "label": "cat", "declared": True, "entry": 0}
EYED = {**ANIMAL, "keypoints": '["left_eye", "right_eye"]'}
TAILED = {**ANIMAL, "keypoints": '["eye", "ear", "tail"]'}
SHARES = {**POSE, "points": [0.25, 0.4, 2.0, 0.0, 0.0, 0.0]}
YOLO = {"format": "YOLO", "form": "centre share", "reading": "centre share"}


def _poses(n: int, flipped: int = -1, turned: int = 0) -> Mapping[str, Rows]:
    """Return tables of n skeletons; one exchanged, some seen from behind."""
    shapes = [
        {
            "file": "boxes.json", "image_key": f"{i:04d}.jpg", "entry": 0, "kind": "keypoints",
            "part": 0, "points": [150.0, 100.0, 2.0, 120.0, 101.0, 2.0]
            if i != flipped and i >= turned else [120.0, 100.0, 2.0, 150.0, 101.0, 2.0],
        }
        for i in range(n)
    ]  # fmt: skip
    rows = [{"sample_id": f"{i:04d}.jpg", "entry": 0} for i in range(n)]
    return boxed(*rows, annotation_shapes=shapes, categories=[EYED])


CASES: Cases = {
    "BOX019": [
        shape_case("inside", POSE),
        shape_case("shares", SHARES, annotation_files=[YOLO]),
        box_case(
            "in the frame of an image that is displayed on its side",
            {"stored_x": 100.0, "stored_y": 340.0, "stored_width": 150.0, "stored_height": 200.0},
            images=[{"orientation": 6}],
            annotation_shapes=[{**POSE, "points": [150.0, 500.0, 2.0]}],
            annotation_files=[{"frame": "stored"}],
        ),
        shape_case(
            "not labelled, so its place does not matter",
            {**POSE, "points": [120.0, 130.0, 2.0, -5.0, 0, 0]},
        ),
        shape_found("outside the image", {**POSE, "points": [655.0, 130.0, 2.0]}),
        shape_found("a number too few", POSE, categories=[TAILED]),
        shape_found("off its box", {**POSE, "points": [10.0, 10.0, 2.0] * 2}),
        shape_found(
            "shares: outside the image",
            SHARES,
            {**SHARES, "points": [1.02, 0.3, 2.0]},
            annotation_files=[YOLO],
        ),
    ],
    "BOX020": [
        Case("all alike", [{}] * 50, tables=_poses(50)),
        Case("no usual side", [{}] * 50, tables=_poses(50, turned=20)),
        Case("too few to tell", [{}] * 9, tables=_poses(9, flipped=3)),
        Case("one of fifty", [{}] * 50, ["0007.jpg"], tables=_poses(50, flipped=7)),
        Case("one of a hundred", [{}] * 100, ["0093.jpg"], tables=_poses(100, flipped=93)),
    ],
}
