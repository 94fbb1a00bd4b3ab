"""Cases of DIST001."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from audit.testing import Case
from tests.audit.checks.case_tables import object_case


def _class_imbalance() -> Iterator[Case]:
    yield Case("equal classes", [{"label": "cat"}, {"label": "dog"}] * 10)
    yield Case("nine to one", [{"label": "cat"}] * 9 + [{"label": "dog"}])
    yield Case("one class has no imbalance", [{"label": "cat"}] * 50)
    yield Case("samples without a label are no class", [{}] * 50 + [{"label": None}])
    yield Case(
        "20 to 1 in train only",
        [{"label": "cat"}] * 20 + [{"label": "dog"}]
        + [{"label": x, "split": "test"} for x in ("cat", "dog")],
        ["split:train"],
    )  # fmt: skip
    yield Case("no splits", [{"label": x, "split": None} for x in ["cat"] * 20 + ["dog"]],
         ["dataset"])  # fmt: skip

    images, tables = object_case(
        *[("train", {"car": 3, "bus": 1})] * 20, *[("test", {"car": 2, "bus": 1})] * 5
    )
    yield Case("objects three to one", images, tables=tables)
    images, tables = object_case(*[("train", {"car": 12, "bus": 1})] * 20)
    yield Case("objects twelve to one", images, ["object:split:train"], tables=tables)


CASES: Mapping[str, Sequence[Case]] = {
    "DIST001": list(_class_imbalance()),
}
