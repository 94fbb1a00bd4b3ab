"""Checks that hold a value against a median: what lies on the other side of it is no finding."""

from __future__ import annotations

from typing import Any

import pytest

from audit.checking.check import all_checks, make_params
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import BOX, boxed

SPREAD = [{"sharpness": 0.20 + 0.001 * (i % 20)} for i in range(60)]
BOXES = [{**BOX, "sample_id": "0000.jpg", "x": 9.0 * n} for n in range(30)]


def sized(label: str, n: int) -> list[dict[str, Any]]:
    return [{"label": label}] * n


COMMON = [row for label in "abcde" for row in sized(label, 200)]
# code: (a case with one value far below the median, the same far above it)
SIDES: dict[str, tuple[Case, Case]] = {
    "IMG003": (
        Case("soft", [*SPREAD, {"sharpness": 0.05}]),
        Case("sharp", [*SPREAD, {"sharpness": 0.26}]),
    ),
    "BOX024": (
        Case("a click", [{}], tables=boxed(*BOXES, {**BOXES[0], "width": 1.5, "height": 1.5})),
        Case("ten times as large", [{}],
             tables=boxed(*BOXES, {**BOXES[0], "width": 2000.0, "height": 1500.0})),
    ),
    "DIST002": (
        Case("rare", [*COMMON, *sized("f", 5)]),
        Case("frequent", [*COMMON, *sized("f", 1500)]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", SIDES)
def test_only_one_side_of_the_median_is_a_finding(code: str) -> None:
    check = all_checks()[code]
    counts = []
    for case in SIDES[code]:
        with case_store(case) as store:
            counts.append(len(list(check.find(store, make_params(check, {})))))
    assert counts == [1, 0]
