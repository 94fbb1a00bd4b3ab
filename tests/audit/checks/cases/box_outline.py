"""Cases of BOX016, BOX017, BOX018, BOX025."""

from tests.audit.checks.case_tables import (
    ENTRY,
    Cases,
    box_case,
    box_found,
    file_found,
    shape_case,
    shape_found,
)

# An outline of the box of a case, sound in every way.
RING = {
    **ENTRY, "kind": "polygon", "part": 0, "n_points": 12, "crossings": 0, "area": 9000.0,
    "x": 100.0, "y": 100.0, "width": 200.0, "height": 150.0,
}  # fmt: skip
SMALL_RING = {**RING, "width": 40.0, "height": 50.0}
MASK = {**RING, "kind": "mask", "n_points": 307_200, "mask_width": 640, "mask_height": 480}
GIVEN = {**ENTRY, "kind": "box", "v1": 100.0, "v2": 100.0, "v3": 200.0, "v4": 150.0}


CASES: Cases = {
    "BOX016": [
        shape_case("a simple ring", RING),
        shape_case("not counted", {**RING, "crossings": None}),
        shape_found("a bow tie", {**RING, "crossings": 1}),
        shape_found("the second ring", RING, {**RING, "part": 1, "crossings": 3}),
    ],
    "BOX017": [
        shape_case("around it", RING, annotations=[GIVEN]),
        shape_case("a px more", {**RING, "width": 201.0}, annotations=[GIVEN]),
        box_case("no outline", {}, annotations=[GIVEN]),
        shape_found("the box was moved", RING, annotations=[{**GIVEN, "v1": 140.0}]),
        shape_found("far larger than its outline", SMALL_RING, annotations=[GIVEN]),
    ],
    "BOX018": [
        shape_case("of the image's size", MASK),
        shape_case("a ring with an area", RING),
        shape_found("another size", {**MASK, "mask_width": 480, "mask_height": 640}),
        shape_found("no pixel", {**MASK, "area": 0.0}),
        shape_found("runs that do not add up", {**MASK, "n_points": 307_000}),
        shape_found("two points", {**RING, "n_points": 2, "area": 0.0}),
    ],
    "BOX025": [
        box_case("that of the box", {"area": 30_000.0}),
        box_case("that of the outline", {"area": 9100.0}, annotation_shapes=[RING]),
        box_case("none given", {}),
        box_found("larger than the box", {"area": 120_000.0}, *[{"area": 30_000.0}] * 9),
        file_found("zero in the whole file", "", *[{"area": 0.0}] * 9),
    ],
}
