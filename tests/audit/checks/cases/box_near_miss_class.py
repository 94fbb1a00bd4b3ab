"""Cases of BOX026."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from audit.testing import Case
from tests.audit.checks.case_tables import box_case, box_found


def _label(name: str, n: int = 1) -> list[dict[str, object]]:
    return [{"label": name, "category_key": name}] * n


def _near_miss_class() -> Iterator[Case]:
    yield box_case("different names", *_label("cat", 30), *_label("car"))
    yield box_case("both are many", *_label("mouse", 9), *_label("house", 9))
    yield box_case("numbers", *_label("class 10", 40), *_label("class 11"))
    yield box_found(
        "a capital", *_label("cat", 3), *_label("Cat"), expect="dataset:boxes.json/Cat|cat"
    )
    yield box_found(
        "a letter too few",
        *_label("raccoon", 40),
        *_label("racoon"),
        expect="dataset:boxes.json/raccoon|racoon",
    )
    many = [*_label("cat", 3), *_label("Cat"), *_label("raccoon", 40), *_label("racoon")]
    yield box_found(
        "more classes than are compared by letters",
        *many,
        expect="dataset:boxes.json/Cat|cat",
        params={"max_classes": 2},
    )


CASES: Mapping[str, Sequence[Case]] = {
    "BOX026": list(_near_miss_class()),
}
