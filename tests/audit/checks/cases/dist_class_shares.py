"""Cases of DIST006."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import object_case


def _split(split: str, **counts: int) -> list[dict[str, Any]]:
    return [{"label": x, "split": split} for x, n in counts.items() for _ in range(n)]


def _class_share_shift() -> Iterator[Case]:
    yield Case("the same mix", _split("train", a=80, b=40) + _split("test", a=40, b=20))
    yield Case("chance", _split("train", a=60, b=60, c=60) + _split("test", a=14, b=20, c=11))
    yield Case("too few", _split("train", a=80, b=40) + _split("test", b=9, a=1))
    yield Case("a class that is missing: DIST003", _split("train", a=50, b=50, c=100)
         + _split("test", a=40, b=40))  # fmt: skip
    yield Case("one split", _split("train", a=80, b=5))
    yield Case("another mix", _split("train", a=100, b=50) + _split("test", a=30, b=70),
         ["split:test"])  # fmt: skip
    yield Case("splits without training", _split("a", x=100, y=50) + _split("b", x=30, y=70),
         ["split:a", "split:b"])  # fmt: skip

    images, tables = object_case(
        *[("train", {"car": 2, "bus": 1})] * 60, *[("test", {"car": 1, "bus": 3})] * 40
    )
    yield Case("another mix of objects", images, ["object:split:test"], tables=tables)
    crowd = ("test", {"car": 1, "bus": 60})
    images, tables = object_case(
        *[("train", {"car": 2, "bus": 1})] * 60, *[("test", {"car": 2, "bus": 1})] * 40, crowd
    )
    yield Case("one picture with many objects", images, tables=tables)


CASES: Mapping[str, Sequence[Case]] = {
    "DIST006": list(_class_share_shift()),
}
