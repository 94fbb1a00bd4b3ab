"""Cases of BOX005."""

from tests.audit.checks.case_tables import Cases, box_case, box_found

ENTRY = {
    "file": "boxes.json", "image_key": "0000.jpg", "sample_id": "0000.jpg", "entry": 0,
    "width": 640.0, "height": 480.0,
}  # fmt: skip
TURNED = {**ENTRY, "width": 480.0, "height": 640.0}


CASES: Cases = {
    "BOX005": [
        box_case("the size of the image", {}, annotated_images=[ENTRY]),
        box_case("no size given", {}, annotated_images=[{**ENTRY, "width": None, "height": None}]),
        box_found("width and height exchanged", {}, annotated_images=[TURNED]),
        box_found(
            "the size before EXIF turned the image",
            {},
            images=[{"orientation": 6}],
            annotated_images=[TURNED],
        ),
    ],
}
