"""Cases of BOX001, BOX002, BOX007, BOX008, BOX009."""

from tests.audit.checks.case_tables import Cases, box_case, box_found, file_found

NO_NUMBERS = {"x": None, "y": None, "width": None, "height": None}
CORNERS = {"reading": "corners px", "fit_share": 1.0, "form_fit_share": 0.3}


CASES: Cases = {
    "BOX001": [
        box_case("inside", {}),
        box_case("counted from 1", {"x": 441.0}),
        box_case(
            "inside the declared size, which is wrong: BOX005",
            {"x": 700.0, "declared_width": 1280.0, "declared_height": 960.0},
        ),
        box_found("over the right edge", {"x": 475.0}),
        box_found("wholly outside, above", {"y": -300.0}),
        box_found(
            "an image that cannot be decoded, by its declared size",
            {"x": 475.0, "picture_width": None, "picture_height": None},
            images=[{"status": "unreadable", "width": None, "height": None}],
        ),
    ],
    "BOX002": [
        box_case("a box of an area", {}),
        box_case("one px is an area", {"width": 1.0, "height": 1.0}),
        box_found("no height", {"height": 0.0}),
        box_found("corners exchanged", {"width": -20.0}, {}),
        box_found("a higher limit", {"width": 1.5}, params={"least_px": 2.0}),
    ],
    "BOX007": [
        box_case("four numbers", {}),
        box_case("large numbers are numbers: BOX001", {"x": 1e9}),
        box_found("no number at all", NO_NUMBERS),
        box_found("one of two boxes", {}, NO_NUMBERS),
    ],
    "BOX008": [
        box_case("as the format says", {}),
        box_case("not decided", {}, annotation_files=[{"reading": None}]),
        file_found("corners in a COCO file", "", {}, annotation_files=[CORNERS]),
        file_found("shares in a COCO file", "", {}, annotation_files=[{"reading": "xywh share"}]),
    ],
    "BOX009": [
        box_case("one unit", {}, {}),
        box_case("a small box is no share", {"width": 2.0, "height": 2.0}),
        box_found("one box of another unit", {}, {"other_unit": True}),
        box_case(
            "two images",
            {"other_unit": True},
            {"other_unit": True, "sample_id": "0001.jpg"},
            expect=["0000.jpg", "0001.jpg"],
            images=[{}, {}],
        ),
    ],
}
