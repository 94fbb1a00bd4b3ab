"""Cases of DUP003."""

from audit.testing import Case
from tests.audit.checks.case_tables import NEAR, NEAR_GROUP, PICTURES, Cases

A, B, C = ({"pixel_hash": picture} for picture in PICTURES[:3])
TEST = {"split": "test"}
IN_TRAIN = ["group:aaaaaaaaaaaaaaaa/split:train"]
THREE = {"groups": [*NEAR_GROUP, {"representative": PICTURES[0], **C, "position": 2, "score": 3.5}]}


CASES: Cases = {
    "DUP003": [
        Case("different images", [{}, {}]),
        Case("one near-duplicate in each split: SPLIT001", [A, {**B, **TEST}], tables=NEAR),
        Case("the same pixels twice: DUP002", [A, A]),
        Case("a mirrored copy", [A, B, {}], IN_TRAIN, tables=NEAR),
        Case(
            "without splits, and two labels",
            [{**A, "split": None}, {**B, "split": None, "label": "dog"}],
            ["group:aaaaaaaaaaaaaaaa"],
            tables=NEAR,
        ),
        Case(
            "two copies in one split, a third in another",
            [B, C, {**A, **TEST}],
            IN_TRAIN,
            tables=THREE,
        ),
    ],
}
