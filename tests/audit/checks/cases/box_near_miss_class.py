"""Cases of BOX026."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import box_case, file_found


def _label(name: str, n: int = 1) -> list[dict[str, object]]:
    return [{"label": name, "category_key": name}] * n


def box026() -> Iterator[Case]:
    yield box_case("different names", *_label("cat", 30), *_label("car"))
    yield box_case("both are many", *_label("mouse", 9), *_label("house", 9))
    yield box_case("numbers", *_label("class 10", 40), *_label("class 11"))
    cats = [*_label("cat", 3), *_label("Cat")]
    raccoons = [*_label("raccoon", 40), *_label("racoon")]
    yield file_found("a capital", "/Cat|cat", *cats)
    yield file_found("a letter too few", "/raccoon|racoon", *raccoons)
    limit = {"max_classes": 2}
    yield file_found("more classes than are compared by letters", "/Cat|cat", *cats, *raccoons,
         params=limit)  # fmt: skip
