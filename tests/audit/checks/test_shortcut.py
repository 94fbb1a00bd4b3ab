"""DIST004: when a shortcut that is another in another split is an error."""

from __future__ import annotations

import pytest

from audit.checking.check import all_checks, make_params
from audit.records import Severity
from audit.testing import Case, case_store


@pytest.mark.parametrize(
    ("png_in_test", "severity"), [(0.8, Severity.WARNING), (0.1, Severity.ERROR)]
)
def test_a_shortcut_that_is_surely_weaker_is_no_error_while_half_of_it_is_left(
    png_in_test: float, severity: Severity
) -> None:
    rows = [
        {"label": label, "split": split, "format": "PNG" if png and i < 1000 * png else "JPEG"}
        for split, share in (("train", 1.0), ("test", png_in_test))
        for label, png in (("apple", 0.0), ("boat", 0.0), ("tree", share))
        for i in range(1000)
    ]
    check = all_checks()["DIST004"]
    with case_store(Case("png", rows)) as store:
        (found,) = check.find(store, make_params(check, {}))
    assert (found.subject, found.severity) == ("class:tree", severity)
