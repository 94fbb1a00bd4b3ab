"""No check asks once per class or per image: the number of queries is the same for any dataset."""

from __future__ import annotations

import pytest

from audit.checking.cases import Case, case_store
from audit.checking.check import all_checks, make_params

pytestmark = pytest.mark.slow


def queries(code: str, classes: int) -> int:
    words = [f"{a}{b}word" for a in "bcdfghklmnp" for b in "rstvwxz"]
    images = [
        {"label": words[i % classes], "split": ("train", "test")[i // classes % 2]}
        for i in range(classes * 4)
    ]
    # A class of one split, a copy across splits and a conflicting label give every query work.
    images += [{"label": "lone", "split": "test"}] * 2
    images += [{"label": label, "pixel_hash": "f" * 32} for label in words[:2]]
    check = all_checks()[code]
    seen: list[str] = []
    with case_store(Case("many classes", images)) as store:
        store._tracer = lambda sql, params: seen.append(sql)
        list(check.find(store, make_params(check, {})))
        check.completeness(store, make_params(check, {}))
    return len(seen)


@pytest.mark.parametrize("code", list(all_checks()))
def test_the_number_of_queries_does_not_grow_with_classes(code: str):
    assert queries(code, 3) == queries(code, 60) <= 8
