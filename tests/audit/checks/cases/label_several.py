"""Cases of LABEL008."""

from collections.abc import Mapping
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import Cases

IMAGES = [{"id": "a.jpg", "label": None}, {"id": "b.jpg", "label": None}]
SCORE: Mapping[str, Any] = {
    "sample_id": "a.jpg", "label": "dog", "given": False, "probability": 0.98, "error_chance": 0.9,
    "gain": 30.0,
}  # fmt: skip


def _case(name: str, expect: list[str], *rows: Mapping[str, Any], **params: float) -> Case:
    held = [{"sample_id": i["id"], "label": x} for i in IMAGES for x in ("cat", "owl")]
    scores = [{**SCORE, **row} for row in rows]
    return Case(name, IMAGES, expect, params, {"several_labels": held, "several_scores": scores})


CASES: Cases = {
    "LABEL008": [
        _case("no predictions", []),
        _case("a label that is probably right", [], {"error_chance": 0.6}),
        _case("doubtful predictions explain the class as well", [], {"gain": 1.0}),
        _case(
            "one lacks, one is wrong",
            ["a.jpg"],
            {},
            {"label": "owl", "given": True, "probability": 0.01},
        ),
        _case("two images", ["a.jpg", "b.jpg"], {}, {"sample_id": "b.jpg"}),
        _case("a lower threshold", ["a.jpg"], {"error_chance": 0.5}, min_chance=0.4),
    ],
}
