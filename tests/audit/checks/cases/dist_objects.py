"""Cases of DIST011."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import object_case

CAR, NONE = {"car": 1}, dict[str, int]()


def dist011() -> Iterator[Case]:
    for what, empty, expect in (
        ("as many as in train", 4, []),
        ("no annotations at all in val", 40, ["object:split:val"]),
        ("none in val, one in ten in train", 0, []),
        ("half of val", 20, ["object:split:val"]),
    ):
        pictures = [("train", CAR)] * 90 + [("train", NONE)] * 10
        pictures += [("val", NONE)] * empty + [("val", CAR)] * (40 - empty)
        yield object_case(what, *pictures, expect=expect)
    yield object_case("objects in val alone", *[("train", NONE)] * 50, *[("val", CAR)] * 40)
