"""Cases of DIST006."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import object_case, sized


def dist006() -> Iterator[Case]:
    yield Case("the same mix", sized("train", a=80, b=40) + sized("test", a=40, b=20))
    yield Case("chance", sized("train", a=60, b=60, c=60) + sized("test", a=14, b=20, c=11))
    yield Case("too few", sized("train", a=80, b=40) + sized("test", b=9, a=1))
    yield Case("a class that is missing: DIST003", sized("train", a=50, b=50, c=100)
         + sized("test", a=40, b=40))  # fmt: skip
    yield Case("one split", sized("train", a=80, b=5))
    yield Case("another mix", sized("train", a=100, b=50) + sized("test", a=30, b=70),
         ["split:test"])  # fmt: skip
    yield Case("splits without training", sized("a", x=100, y=50) + sized("b", x=30, y=70),
         ["split:a", "split:b"])  # fmt: skip

    train = [("train", {"car": 2, "bus": 1})] * 60
    test = [("test", {"car": 1, "bus": 3})] * 40
    yield object_case("another mix of objects", *train, *test, expect=["object:split:test"])
    test = [*[("test", {"car": 2, "bus": 1})] * 40, ("test", {"car": 1, "bus": 60})]
    yield object_case("one image with many objects", *train, *test)
