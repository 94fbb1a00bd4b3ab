"""Cases of SPLIT001."""

from audit.testing import Case
from tests.audit.checks.case_tables import NEAR, NEAR_GROUP, NEAR_PAIR, PICTURES, Cases

A, B, C, D = ({"pixel_hash": picture} for picture in PICTURES)
FILE = {**A, "content_hash": "e" * 64}
GROUP_A = ["group:aaaaaaaaaaaaaaaa"]
OTHER = [
    {"representative": PICTURES[2], **C, "position": 0, "score": 1.0},
    {"representative": PICTURES[2], **D, "position": 1, "score": 4.5},
]
BRIDGE = {**NEAR_PAIR, "a": PICTURES[1], "b": PICTURES[2], "score": 2.5}
TEST = {"split": "test"}
BLANK = {**A, "contrast": 0.0}


CASES: Cases = {
    "SPLIT001": [
        Case("different images", [{}, TEST]),
        Case("near-duplicates in one split: DUP003", [A, B, TEST], tables=NEAR),
        Case("blank images all look the same", [BLANK, {**BLANK, **TEST}]),
        Case("copies without splits", [{**A, "split": None}] * 2),
        Case("the same file", [FILE, {**FILE, **TEST}], GROUP_A),
        Case("the same pixels", [A, {**A, **TEST}, {}], GROUP_A),
        Case("a near-duplicate", [A, {**B, **TEST}, TEST], GROUP_A, tables=NEAR),
        Case(
            "two groups joined by one pair across splits",
            [A, B, {**C, **TEST}, {**D, **TEST}],
            ["group:aaaaaaaaaaaaaaaa|cccccccccccccccc"],
            tables={"groups": [*NEAR_GROUP, *OTHER], "pairs": [NEAR_PAIR, BRIDGE]},
        ),
    ],
}
