"""Cases of DIST002."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import object_case, sized


def dist002() -> Iterator[Case]:
    one_each = sized("test", cat=1, dog=1, owl=1)
    yield Case("equal classes, however small", [*one_each, *one_each])
    yield Case("small beside the others but large enough to measure",
         sized("train", cat=1000, dog=1000, owl=100))  # fmt: skip
    yield Case("one sample: LABEL004", [{"label": x} for x in "ab" for _ in range(30)] + [{}])
    five = dict.fromkeys("abcde", 200)
    yield Case("far more images than in the median class", sized("train", **five, f=1500))
    yield Case("one class has no neighbours", [{}] * 4)
    five = sized("test", cat=5, dog=5, owl=1)
    yield Case("one by chance where the median class has five",
         sized("train", cat=30, dog=30, owl=30) + five)  # fmt: skip
    yield Case("4 beside 30 in the test split, equal in train",
         sized("train", cat=10, dog=10, owl=10) + sized("test", cat=30, dog=30, owl=4),
         ["class:owl"])  # fmt: skip
    yield Case("no splits", sized(None, cat=30, dog=30, owl=3), ["class:owl"])
    yield Case("all of a rare class lies in train",
         sized("train", cat=30, dog=30, owl=5) + sized("test", cat=30, dog=30),
         ["class:owl"])  # fmt: skip

    car, bus = ("test", {"car": 3, "bus": 1}), ("test", {"car": 1, "bus": 2, "van": 1})
    yield object_case("objects of a class in 3 images", *[car] * 30, *[bus] * 3,
         expect=["object:class:van"])  # fmt: skip
    yield object_case("21 images of 51 are enough", *[car] * 30,
         ("test", {"car": 1, "van": 40}), *[bus] * 20)  # fmt: skip
