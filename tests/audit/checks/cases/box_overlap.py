"""Cases of BOX004, BOX006, BOX010."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import Cases, box_case, box_found, in_two_pictures


def box004() -> Iterator[Case]:
    yield box_case("two objects", {}, {"x": 320.0})
    yield box_case("two classes: BOX006", {}, {"label": "dog", "category_key": "2"})
    yield box_case("a crowd region over it", {}, {"crowd": True})
    yield box_found("entered twice", {}, {})
    yield box_found("drawn twice", {}, {"x": 102.0, "y": 101.0})
    beside = {"x": 115.0}  # an overlap of 86 %
    yield box_found("drawn twice, carelessly", {}, beside)
    yield in_two_pictures("a class that lies so close", {}, beside)
    near = [{"x": x, "y": 120.0 * y} for y in range(9) for x in (100.0, 115.0)]
    lie = [{"x": x, "y": 120.0 * y, "sample_id": "0001.jpg"}
           for y in range(9) for x in (100.0, 130.0)]  # fmt: skip
    yield box_found("a class that was drawn twice", *near)
    yield box_found("three of a class that were drawn twice", *near[:6])
    yield box_case("a crowd", *near, *lie, images=[{}, {}])


DOG = {"label": "dog", "category_key": "2"}
INNER = {"x": 120.0, "y": 120.0, "width": 50.0, "height": 40.0}


CASES: Cases = {
    "BOX006": [
        box_case("beside each other", {}, {**DOG, "x": 320.0}),
        in_two_pictures("a convention", {}, DOG),
        box_found("once in the dataset", {}, DOG),
        box_found("nearly the same box", {}, {**DOG, "x": 101.0}, {"x": 400.0}),
    ],
    "BOX010": [
        box_case("beside each other", {}, {"x": 320.0}),
        in_two_pictures("usual in this class", {}, INNER),
        box_case("the same box: BOX004", {}, {"width": 199.0}),
        box_found("a part of it", {}, INNER),
        box_found("half its size", {}, {"width": 100.0}),
    ],
}
