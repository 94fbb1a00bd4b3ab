"""`audit.testing`: cases of checks, for authors of checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import audit
from audit.run.store import Store
from audit.testing import Case, run_cases


class TooRed(audit.Check):
    """A check of a user, of a column of the user."""

    code, name, severity = "OWN001", "too-red", audit.Severity.WARNING
    features = ("redness",)

    def find(self, store: Store, params: Any) -> Iterator[audit.Finding]:
        for row in store.rows("SELECT id, subject, redness FROM images WHERE redness > 0.8"):
            yield self.about(row, f"{row['redness']:.0%} is red.", {"redness": row["redness"]})


CLEAN = Case("a photograph", [{"redness": 0.3}, {}])
DIRTY = Case("a failed white balance", [{}, {"id": "a.jpg", "redness": 0.9}], ["a.jpg"])


@pytest.mark.parametrize("check", [TooRed, TooRed()])
def test_results_of_cases_are_returned(check: audit.Check | type[audit.Check]) -> None:
    clean, dirty = run_cases(check, [CLEAN, DIRTY])
    assert (clean.case, clean.findings, clean.subjects) == (CLEAN, (), [])
    assert dirty.subjects == ["a.jpg"]
    assert [found.message for found in dirty.findings] == ["90% is red."]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        (
            Case("missed", [{"redness": 0.1}], ["a.jpg"]),
            "OWN001 too-red, case 'missed': expected findings: a.jpg; reported findings: none.",
        ),
        (
            Case("invented", [{"redness": 0.9}]),
            "OWN001 too-red, case 'invented': expected findings: none; "
            "reported findings: 0000.jpg.",
        ),
        (Case("typo", [{"rednes": 0.9}]), "Case 'typo': images have no column 'rednes'."),
    ],
)
def test_a_case_with_other_findings_fails_with_a_sentence(case: Case, sentence: str) -> None:
    with pytest.raises(AssertionError, match=f"^{re.escape(sentence)}$"):
        run_cases(TooRed, [CLEAN, DIRTY, case])


def test_every_wrong_case_is_reported() -> None:
    wrong = [Case(name, [{}], ["a.jpg"]) for name in ("first", "second")]
    with pytest.raises(AssertionError, match=r"'first'.*\n.*'second'"):
        run_cases(TooRed, wrong)
