"""BOX015 says no more than it knows: which way, and how sure."""

from __future__ import annotations

import pytest

from audit.checks.box_shifted_class import ShiftedClass
from audit.records import Severity
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import boxed

FIT = {"file": "b.json", "label": None, "boxes": 60, "units": 60, "share": 0.7}


@pytest.mark.parametrize(
    ("opposite", "said"),
    [(2.0, "12% of the picture further left than"), (4.0, "in a direction that cannot be told")],
)
def test_a_direction_is_told_where_one_alone_fits(opposite: float, said: str) -> None:
    fits = [
        {**FIT, "elsewhere": "12% further left", "gain_z": 6.0},
        {**FIT, "elsewhere": "12% further right", "gain_z": opposite},
    ]
    with case_store(Case("", [{}], tables=boxed({}, box_fits=fits))) as store:
        [finding] = ShiftedClass().find(store, ShiftedClass.Params())
    assert said in finding.message


@pytest.mark.parametrize(
    ("elsewhere", "severity"), [("mirrored", Severity.WARNING), ("half as large", Severity.INFO)]
)
def test_another_size_is_a_note(elsewhere: str, severity: Severity) -> None:
    fits = [{**FIT, "elsewhere": elsewhere, "gain_z": 9.0, "share": 0.8}]
    with case_store(Case("", [{}], tables=boxed({}, box_fits=fits))) as store:
        [finding] = ShiftedClass().find(store, ShiftedClass.Params())
    assert finding.severity == severity
    assert ("meant to hold a part" in finding.message) == (severity == Severity.INFO)
