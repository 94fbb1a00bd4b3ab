"""Cases of BOX016, BOX017, BOX018, BOX025."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.testing import Case
from tests.audit.checks.case_tables import ENTRY, box_case, box_found

# An outline of the box of a case, sound in every way.
RING = {
    **ENTRY, "kind": "polygon", "part": 0, "n_points": 12, "crossings": 0, "area": 9000.0,
    "x": 100.0, "y": 100.0, "width": 200.0, "height": 150.0,
}  # fmt: skip
MASK = {**RING, "kind": "mask", "n_points": 307_200, "mask_width": 640, "mask_height": 480}
GIVEN = {**ENTRY, "kind": "box", "v1": 100.0, "v2": 100.0, "v3": 200.0, "v4": 150.0}


CASES: Mapping[str, Sequence[Case]] = {
    "BOX016": [
        box_case("a simple ring", {}, annotation_shapes=[RING]),
        box_case("not counted", {}, annotation_shapes=[{**RING, "crossings": None}]),
        box_found("a bow tie", {}, annotation_shapes=[{**RING, "crossings": 1}]),
        box_found(
            "the second ring", {}, annotation_shapes=[RING, {**RING, "part": 1, "crossings": 3}]
        ),
    ],
    "BOX017": [
        box_case("around it", {}, annotations=[GIVEN], annotation_shapes=[RING]),
        box_case(
            "a px more", {}, annotations=[GIVEN], annotation_shapes=[{**RING, "width": 201.0}]
        ),
        box_case("no outline", {}, annotations=[GIVEN]),
        box_found(
            "the box was moved", {}, annotations=[{**GIVEN, "v1": 140.0}], annotation_shapes=[RING]
        ),
        box_found(
            "far larger than its outline",
            {},
            annotations=[GIVEN],
            annotation_shapes=[{**RING, "width": 40.0, "height": 50.0}],
        ),
    ],
    "BOX018": [
        box_case("of the picture's size", {}, annotation_shapes=[MASK]),
        box_case("a ring with an area", {}, annotation_shapes=[RING]),
        box_found(
            "another size", {}, annotation_shapes=[{**MASK, "mask_width": 480, "mask_height": 640}]
        ),
        box_found("no pixel", {}, annotation_shapes=[{**MASK, "area": 0.0}]),
        box_found("runs that do not add up", {}, annotation_shapes=[{**MASK, "n_points": 307_000}]),
        box_found("two points", {}, annotation_shapes=[{**RING, "n_points": 2, "area": 0.0}]),
    ],
    "BOX025": [
        box_case("that of the box", {"area": 30_000.0}),
        box_case("that of the outline", {"area": 9100.0}, annotation_shapes=[RING]),
        box_case("none given", {}),
        box_found("larger than the box", {"area": 120_000.0}, *[{"area": 30_000.0}] * 9),
        box_found("zero in the whole file", *[{"area": 0.0}] * 9, expect="dataset:boxes.json"),
    ],
}
