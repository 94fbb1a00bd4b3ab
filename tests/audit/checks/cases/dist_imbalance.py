"""Cases of DIST001."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import object_case, sized


def dist001() -> Iterator[Case]:
    yield Case("equal classes", [{"label": "cat"}, {"label": "dog"}] * 10)
    yield Case("nine to one", [{"label": "cat"}] * 9 + [{"label": "dog"}])
    yield Case("one class has no imbalance", [{"label": "cat"}] * 50)
    yield Case("samples without a label are no class", [{}] * 50 + [{"label": None}])
    skewed = sized("train", cat=20, dog=1)
    yield Case("20 to 1 in train only", skewed + sized("test", cat=1, dog=1), ["split:train"])
    yield Case("no splits", sized(None, cat=20, dog=1), ["dataset"])
    test = [("test", {"car": 2, "bus": 1})] * 5
    yield object_case("objects three to one", *[("train", {"car": 3, "bus": 1})] * 20, *test)
    train = [("train", {"car": 12, "bus": 1})] * 20
    yield object_case("objects twelve to one", *train, expect=["object:split:train"])
