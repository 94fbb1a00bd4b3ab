"""Cases of SPLIT001."""

from __future__ import annotations

from audit.testing import Case
from tests.audit.checks.case_tables import NEAR, NEAR_GROUP, NEAR_PAIR, PICTURES, Cases

A, B, C, D = PICTURES
OTHER = [
    {"representative": C, "pixel_hash": C, "position": 0, "score": 1.0},
    {"representative": C, "pixel_hash": D, "position": 1, "score": 4.5},
]
BRIDGE = {**NEAR_PAIR, "a": B, "b": C, "score": 2.5}
TEST = {"split": "test"}


CASES: Cases = {
    "SPLIT001": [
        Case("different pictures", [{}, TEST]),
        Case(
            "near-duplicates in one split: DUP003",
            [{"pixel_hash": A}, {"pixel_hash": B}, TEST],
            tables=NEAR,
        ),
        Case(
            "blank pictures all look the same",
            [{"pixel_hash": A, "contrast": 0.0}, {"pixel_hash": A, "contrast": 0.0, **TEST}],
        ),
        Case(
            "copies without splits",
            [{"pixel_hash": A, "split": None}, {"pixel_hash": A, "split": None}],
        ),
        Case(
            "the same file",
            [{"pixel_hash": A, "content_hash": "e" * 64, **split} for split in ({}, TEST)],
            ["group:aaaaaaaaaaaaaaaa"],
        ),
        Case(
            "the same pixels",
            [{"pixel_hash": A}, {"pixel_hash": A, **TEST}, {}],
            ["group:aaaaaaaaaaaaaaaa"],
        ),
        Case(
            "a near-duplicate",
            [{"pixel_hash": A}, {"pixel_hash": B, **TEST}, TEST],
            ["group:aaaaaaaaaaaaaaaa"],
            tables=NEAR,
        ),
        Case(
            "two groups joined by one pair across splits",
            [
                {"pixel_hash": A},
                {"pixel_hash": B},
                {"pixel_hash": C, **TEST},
                {"pixel_hash": D, **TEST},
            ],
            ["group:aaaaaaaaaaaaaaaa|cccccccccccccccc"],
            tables={"groups": [*NEAR_GROUP, *OTHER], "pairs": [NEAR_PAIR, BRIDGE]},
        ),
    ],
}
