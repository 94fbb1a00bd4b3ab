"""Cases of DIST002."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import object_case


def _sized(split: str | None, **counts: int) -> list[dict[str, Any]]:
    return [{"label": x, "split": split} for x, n in counts.items() for _ in range(n)]


def _rare_class() -> Iterator[Case]:
    one_each = _sized("test", cat=1, dog=1, owl=1)
    yield Case("equal classes, however small", [*one_each, *one_each])
    yield Case("small beside the others but large enough to measure",
         _sized("train", cat=1000, dog=1000, owl=100))  # fmt: skip
    yield Case("one sample: LABEL004", [{"label": x} for x in "ab" for _ in range(30)] + [{}])
    yield Case("one class has no neighbours", [{}] * 4)
    five = _sized("test", cat=5, dog=5, owl=1)
    yield Case("one by chance where the median class has five",
         _sized("train", cat=30, dog=30, owl=30) + five)  # fmt: skip
    yield Case("4 beside 30 in the test split, equal in train",
         _sized("train", cat=10, dog=10, owl=10) + _sized("test", cat=30, dog=30, owl=4),
         ["class:owl"])  # fmt: skip
    yield Case("no splits", _sized(None, cat=30, dog=30, owl=3), ["class:owl"])
    yield Case("all of a rare class lies in train",
         _sized("train", cat=30, dog=30, owl=5) + _sized("test", cat=30, dog=30),
         ["class:owl"])  # fmt: skip

    car, bus = ("test", {"car": 3, "bus": 1}), ("test", {"car": 1, "bus": 2, "van": 1})
    images, tables = object_case(*[car] * 30, *[bus] * 3)
    yield Case("objects of a class in 3 pictures", images, ["object:class:van"], tables=tables)
    images, tables = object_case(*[car] * 30, ("test", {"car": 1, "van": 40}), *[bus] * 20)
    yield Case("21 pictures of 51 are enough", images, tables=tables)


CASES: Mapping[str, Sequence[Case]] = {
    "DIST002": list(_rare_class()),
}
