"""Cases of BOX022."""

from collections.abc import Mapping

from audit.checking.boxes import Rows
from audit.testing import Case
from tests.audit.checks.case_tables import Cases, box_case, box_found, boxed

COPIES = [{"pixel_hash": "e" * 32}] * 2
GROUP = "group:0000.jpg|0001.jpg"
OTHER = {"sample_id": "0001.jpg"}
LESS: Rows = [{}, {"x": 400.0}, OTHER]  # the second copy has a box less
_FILES: Rows = [{"pictures": 9}, {"file": "more.json", "pictures": 9}]


def _twice(n: int, moved: int = -1) -> Mapping[str, Rows]:
    rows: list[dict[str, object]] = []
    for i in range(n):
        rows += [
            {"sample_id": f"{i:04d}.jpg", "file": file, "entry": i,
             "x": 400.0 if file == "more.json" and i == moved else 100.0}
            for file in ("boxes.json", "more.json")
        ]  # fmt: skip
    return boxed(*rows, annotation_files=_FILES)


CASES: Cases = {
    "BOX022": [
        Case("two files agree", [{}] * 8, tables=_twice(8)),
        Case("files of two tasks", [{}], tables=_twice(1, moved=0)),
        box_case("equal copies, equal boxes", {}, OTHER, images=COPIES),
        box_case("more boxes than are compared", *LESS, images=COPIES, params={"max_boxes": 1}),
        Case("one of eight differs", [{}] * 8, ["0003.jpg"], tables=_twice(8, moved=3)),
        box_found("equal copies, a box less", *LESS, expect=GROUP, images=COPIES),
    ],
}
