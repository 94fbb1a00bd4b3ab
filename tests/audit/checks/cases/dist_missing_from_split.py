"""Cases of DIST003."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import object_case, sized


def dist003() -> Iterator[Case]:
    yield Case("both splits have both", sized("train", a=1, b=1) + sized("test", a=1, b=1))
    yield Case("one split", sized("train", a=1, b=1))
    yield Case("a split without labels: LABEL001", [{}, {}, {"split": "test", "label": None}])
    train, test = sized("train", a=1), sized("test", a=1)
    yield Case("one image cannot be in two splits", train + test + sized("train", b=1))
    yield Case("tested but never trained", train + test + sized("test", b=1),
         ["split:train/class:b"])  # fmt: skip
    yield Case("trained but never tested", train + test + sized("train", b=3),
         ["split:test/class:b"])  # fmt: skip
    yield Case("an open-set split",
         [{"label": f"t{i}"} for i in range(8)]
         + [{"label": f"q{i}", "split": "query"} for i in range(8)] * 2,
         ["split:train", "split:query"], params={"max_share": 0.4})  # fmt: skip

    car, both = ("train", {"car": 2}), ("train", {"car": 1, "bus": 1})
    val = ("val", {"car": 1})
    yield object_case("objects of so few images that chance explains it",
         *[car] * 20, *[both] * 2, *[val] * 8)  # fmt: skip
    yield object_case("objects trained and not in val", *[car] * 20, *[both] * 20, *[val] * 20,
         expect=["object:split:val/class:bus"])  # fmt: skip
    yield object_case("objects tested and not trained", *[car] * 20,
         ("val", {"car": 1, "bus": 1}), expect=["object:split:train/class:bus"])  # fmt: skip
