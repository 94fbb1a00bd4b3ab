"""Cases of BOX021."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.testing import Case
from tests.audit.checks.case_tables import ENTRY, box_case, box_found

CROWD = {"crowd": True, "annotation_id": None}
RING = {**ENTRY, "kind": "polygon", "part": 0}


CASES: Mapping[str, Sequence[Case]] = {
    "BOX021": [
        box_case("a crowd among objects", {}, {}, CROWD),
        box_case("too few to tell", CROWD, CROWD),
        box_case("a polygon of one object", {}, annotation_shapes=[RING]),
        box_found(
            "every object is a crowd",
            *[{**CROWD, "x": 7.0 * n} for n in range(12)],
            expect="dataset:boxes.json",
        ),
        box_found("a crowd with a polygon", CROWD, {}, {}, annotation_shapes=[RING]),
    ],
}
