"""Cases of DUP003."""

from __future__ import annotations

from audit.testing import Case
from tests.audit.checks.case_tables import NEAR, NEAR_GROUP, PICTURES, Cases

A, B, C = PICTURES[:3]
THREE = {
    "groups": [*NEAR_GROUP, {"representative": A, "pixel_hash": C, "position": 2, "score": 3.5}]
}


CASES: Cases = {
    "DUP003": [
        Case("different pictures", [{}, {}]),
        Case(
            "one near-duplicate in each split: SPLIT001",
            [{"pixel_hash": A}, {"pixel_hash": B, "split": "test"}],
            tables=NEAR,
        ),
        Case("the same pixels twice: DUP002", [{"pixel_hash": A}, {"pixel_hash": A}]),
        Case(
            "a mirrored copy",
            [{"pixel_hash": A}, {"pixel_hash": B}, {}],
            ["group:aaaaaaaaaaaaaaaa/split:train"],
            tables=NEAR,
        ),
        Case(
            "without splits, and two labels",
            [{"pixel_hash": A, "split": None}, {"pixel_hash": B, "split": None, "label": "dog"}],
            ["group:aaaaaaaaaaaaaaaa"],
            tables=NEAR,
        ),
        Case(
            "two copies in one split, a third in another",
            [{"pixel_hash": B}, {"pixel_hash": C}, {"pixel_hash": A, "split": "test"}],
            ["group:aaaaaaaaaaaaaaaa/split:train"],
            tables=THREE,
        ),
    ],
}
