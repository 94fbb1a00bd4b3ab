"""What the checks of predicted boxes count beside their findings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from audit.checks.box_predicted import BadlyPlacedBox, OverlookedObject, SwappedClass
from audit.report.screen import not_examined
from audit.testing import case_store
from tests.audit.checks.cases import CASES


@pytest.mark.parametrize("kind", [OverlookedObject, BadlyPlacedBox, SwappedClass])
def test_predictions_below_the_threshold_are_counted(kind: type[OverlookedObject]) -> None:
    check, low = kind(), {"min_probability": 0.99}
    (dirty,) = (case for case in CASES[kind.code] if case.expect and not case.params)
    with case_store(dirty) as store:
        assert "0 below min_probability 0.95" in check.completeness(store, check.Params())
        words = check.completeness(store, check.Params(**low))
        assert not list(check.find(store, check.Params(**low)))
    assert "1 below min_probability 0.99 are not reported" in words
    found = SimpleNamespace(completeness=words, code=check.code)
    data = SimpleNamespace(by_split=lambda: {"test": 1}, by_class=lambda: {"a": 9}, status={})
    report = SimpleNamespace(checks=[found], failed=(), dataset=data, boxes=None, not_run=())
    assert any(
        line == "1 mismatch with predictions below min_probability (BOX027-029)"
        for line in not_examined(cast(Any, report))
    )
