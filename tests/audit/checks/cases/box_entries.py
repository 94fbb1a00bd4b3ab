"""Cases of BOX013, BOX012, BOX011, BOX014, BOX003."""

from audit.testing import Case
from tests.audit.checks.case_tables import Cases, box_case, box_found, file_found

PROBLEM = {
    "kind": "truncated", "file": "boxes.json", "place": "line 9, byte 120",
    "detail": "the file ends inside its JSON", "more": 0,
}  # fmt: skip
MALFORMED = {**PROBLEM, "kind": "malformed"}
LISTED = {"file": "boxes.json", "entry": 0, "image_key": "1", "sample_id": "0000.jpg"}
ROW = {"file": "boxes.json", "entry": 0, "image_key": "1", "annotation_id": "5", "kind": "box"}
CAT = {"file": "boxes.json", "entry": 0, "category_key": "1", "label": "cat", "declared": True}
ENTRY = {"file": "boxes.json", "entry": 0, "image_key": "0000.jpg", "file_name": "0000.jpg"}
FOUND = {**ENTRY, "sample_id": "0000.jpg", "matched_by": "path"}
ORPHAN = {"file": "boxes.json", "entry": 1, "image_key": "77", "kind": "box", "line": 9}


def _listed(n: int) -> list[dict[str, object]]:
    return [
        {"file": "boxes.json", "entry": i, "image_key": f"{i}", "sample_id": f"{i:04d}.jpg"}
        for i in range(n)
    ]


CLASSES = ({"file": "boxes.json", "category_key": "1", "label": "cat", "declared": True},)


CASES: Cases = {
    "BOX013": [
        box_case("nothing to report", {}),
        box_case("a file without boxes", annotation_files=[{}]),
        file_found("cut short", "/truncated", annotation_problems=[PROBLEM]),
        file_found("two of one kind", "/malformed", annotation_problems=[MALFORMED] * 2),
    ],
    "BOX012": [
        box_case("all different", annotations=[ROW, {**ROW, "entry": 1, "annotation_id": "6"}]),
        box_case(
            "numbers within the file of an image",
            annotations=[ROW, {**ROW, "image_key": "2"}],
            annotation_files=[{"format": "LabelMe"}],
        ),
        box_case(
            "formats without ids",
            annotations=[{**ROW, "annotation_id": None, "entry": n} for n in (0, 1)],
        ),
        file_found(
            "an annotation id twice", "/annotation ids", annotations=[ROW, {**ROW, "entry": 1}]
        ),
        file_found(
            "an image under two ids",
            "/pictures",
            annotated_images=[LISTED, {**LISTED, "entry": 1, "image_key": "2"}],
        ),
        file_found(
            "a class name twice",
            "/class names",
            categories=[CAT, {**CAT, "entry": 1, "category_key": "2"}],
        ),
    ],
    "BOX011": [
        box_case("all images are there", {}, annotated_images=[FOUND]),
        box_case(
            "an annotation of a listed image",
            annotated_images=[FOUND],
            annotations=[{**ORPHAN, "image_key": "0000.jpg"}],
        ),
        file_found("an unknown image id", "/ids", annotated_images=[FOUND], annotations=[ORPHAN]),
        file_found(
            "an image that is gone",
            "/missing",
            annotation_files=[{"pictures": 1}],
            annotated_images=[{**ENTRY, "matched_by": "missing"}],
        ),
    ],
    "BOX014": [
        box_case("all are listed", images=[{}] * 30, annotated_images=_listed(30)),
        box_case("annotated in part", images=[{}] * 30, annotated_images=_listed(20)),
        Case("not annotated at all", [{}] * 30),
        box_found(
            "one is missing", expect="dataset:.", images=[{}] * 30, annotated_images=_listed(29)
        ),
        box_found(
            "two of forty", expect="dataset:.", images=[{}] * 40, annotated_images=_listed(38)
        ),
    ],
    "BOX003": [
        box_case("a class of the list", {}, categories=CLASSES),
        box_case("no list of classes", {"label": None, "category_key": "7"}),
        box_found(
            "a number that the list lacks",
            {"label": None, "category_key": "99"},
            categories=CLASSES,
        ),
        box_found("no class at all", {"label": None, "category_key": None}, categories=CLASSES),
    ],
}
