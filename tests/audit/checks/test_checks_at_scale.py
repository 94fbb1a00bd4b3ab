"""No check asks once per class or per image: the number of queries is the same for any dataset."""

from __future__ import annotations

import pytest

from audit.checking.check import all_checks, make_params
from audit.testing import Case, case_store
from tests.audit.asked import asked_of

pytestmark = pytest.mark.slow


def queries(classes: int) -> dict[str, int]:
    """How often each check asks a dataset of so many classes."""
    words = [f"{a}{b}word" for a in "bcdfghklmnp" for b in "rstvwxz"]
    images = [
        {"label": words[i % classes], "split": ("train", "test")[i // classes % 2]}
        for i in range(classes * 4)
    ]
    # A class of one split, a copy across splits and a conflicting label give every query work.
    images += [{"label": "lone", "split": "test"}] * 2
    images += [{"label": label, "pixel_hash": "f" * 32} for label in words[:2]]
    seen: dict[str, int] = {}
    with case_store(Case("many classes", images)) as store:
        for code, check in all_checks().items():
            store._shared.clear()  # each check as if it were alone
            with asked_of(store) as asked:
                list(check.find(store, make_params(check, {})))
                check.completeness(store, make_params(check, {}))
            seen[code] = len(asked)
    return seen


@pytest.fixture(scope="module")
def of_few_and_many() -> tuple[dict[str, int], dict[str, int]]:
    return queries(3), queries(60)


@pytest.mark.parametrize("code", list(all_checks()))
def test_the_number_of_queries_does_not_grow_with_classes(
    code: str, of_few_and_many: tuple[dict[str, int], dict[str, int]]
) -> None:
    few, many = of_few_and_many
    assert few[code] == many[code] <= 8
