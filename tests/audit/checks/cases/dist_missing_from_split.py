"""Cases of DIST003."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from audit.testing import Case
from tests.audit.checks.case_tables import object_case


def _class_missing_from_split() -> Iterator[Case]:
    yield Case("both splits have both",
         [{"label": x, "split": s} for x in "ab" for s in ("train", "test")])  # fmt: skip
    yield Case("one split", [{"label": "a"}, {"label": "b"}])
    yield Case("a split without labels: LABEL001", [{}, {}, {"split": "test", "label": None}])
    yield Case("one image cannot be in two splits",
         [{"label": "a"}, {"label": "a", "split": "test"}, {"label": "b"}])  # fmt: skip
    yield Case("tested but never trained",
         [{"label": "a"}, {"label": "a", "split": "test"}, {"label": "b", "split": "test"}],
         ["split:train/class:b"])  # fmt: skip
    yield Case("trained but never tested",
         [{"label": "a"}, {"label": "a", "split": "test"}] + [{"label": "b"}] * 3,
         ["split:test/class:b"])  # fmt: skip
    yield Case("an open-set split",
         [{"label": f"t{i}"} for i in range(8)]
         + [{"label": f"q{i}", "split": "query"} for i in range(8)] * 2,
         ["split:train", "split:query"], params={"max_share": 0.4})  # fmt: skip

    car, both = ("train", {"car": 2}), ("train", {"car": 1, "bus": 1})
    images, tables = object_case(*[car] * 20, *[both] * 2, *[("val", {"car": 1})] * 8)
    yield Case("objects of so few pictures that chance explains it", images, tables=tables)
    images, tables = object_case(*[car] * 20, *[both] * 20, *[("val", {"car": 1})] * 20)
    yield Case("objects trained and not in val", images, ["object:split:val/class:bus"],
         tables=tables)  # fmt: skip
    images, tables = object_case(*[car] * 20, ("val", {"car": 1, "bus": 1}))
    yield Case("objects tested and not trained", images, ["object:split:train/class:bus"],
         tables=tables)  # fmt: skip


CASES: Mapping[str, Sequence[Case]] = {
    "DIST003": list(_class_missing_from_split()),
}
