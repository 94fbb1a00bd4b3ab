"""Cases of BOX021."""

from tests.audit.checks.case_tables import ENTRY, Cases, box_case, box_found, file_found, shape_case

CROWD = {"crowd": True, "annotation_id": None}
RING = {**ENTRY, "kind": "polygon", "part": 0}


CASES: Cases = {
    "BOX021": [
        box_case("a crowd among objects", {}, {}, CROWD),
        box_case("too few to tell", CROWD, CROWD),
        shape_case("a polygon of one object", RING),
        file_found("every object is a crowd", "", *[{**CROWD, "x": 7.0 * n} for n in range(12)]),
        box_found("a crowd with a polygon", CROWD, {}, {}, annotation_shapes=[RING]),
    ],
}
