"""SPLIT001, DUP003: when a near-duplicate is an error, and when it is a warning."""

from __future__ import annotations

import pytest

from audit.checks.dup_near import NearDuplicate
from audit.checks.split_overlap import SplitOverlap
from audit.records import Action, Severity
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import NEAR_GROUP, NEAR_PAIR, PICTURES

A, B = PICTURES[:2]
FACTS = [{"key": "threshold", "value": "6.8"}, {"key": "threshold_error", "value": "1.2"}]


@pytest.mark.parametrize(
    ("score", "checked", "third", "sure"),
    [
        (7.0, False, {}, False),  # within two errors of the threshold
        (7.0, True, {}, False),  # a check at full resolution is in the score
        (9.3, False, {}, True),
        (7.0, False, {"pixel_hash": A, "split": "test"}, True),  # the same pixels are sure
        (7.0, False, {"pixel_hash": B, "split": "test"}, False),
    ],
)
@pytest.mark.parametrize("grouped", [True, False])
def test_an_error_is_sure(
    score: float, checked: bool, third: dict[str, str], sure: bool, grouped: bool
) -> None:
    pair = {**NEAR_PAIR, "score": score, "verified_full_size": checked}
    group = [NEAR_GROUP[0], {**NEAR_GROUP[1], "score": score}] if grouped else []
    case = Case(
        "", [{"pixel_hash": A}, {"pixel_hash": B, "split": "test"}, third],
        tables={"pairs": [pair], "groups": group, "relate_facts": FACTS},
    )  # fmt: skip
    with case_store(case) as store:
        found = list(SplitOverlap().find(store, SplitOverlap.Params()))
    assert (Severity.ERROR in {one.severity for one in found}) == sure
    for one in found:
        doubt = "come nearly as close" in one.message
        assert doubt == (one.severity is Severity.WARNING) == (one.action is Action.REVIEW)


@pytest.mark.parametrize(
    ("score", "checked", "labels", "worst"),
    [
        (7.0, False, ("cat", "dog", "cat"), Severity.WARNING),
        (7.0, True, ("cat", "dog", "cat"), Severity.WARNING),
        (9.3, False, ("cat", "dog", "cat"), Severity.ERROR),
        (9.3, False, ("cat", "cat", "cat"), Severity.WARNING),
        (7.0, False, ("cat", "cat", "dog"), Severity.ERROR),  # the third is A again
    ],
)
def test_labels_that_differ_surely(
    score: float, checked: bool, labels: tuple[str, ...], worst: Severity
) -> None:
    hashes = (A, B, A)
    pair = {**NEAR_PAIR, "score": score, "verified_full_size": checked}
    group = [NEAR_GROUP[0], {**NEAR_GROUP[1], "score": score}]
    case = Case(
        "", [{"pixel_hash": h, "label": label} for h, label in zip(hashes, labels, strict=True)],
        tables={"pairs": [pair], "groups": group, "relate_facts": FACTS},
    )  # fmt: skip
    with case_store(case) as store:
        (found,) = NearDuplicate().find(store, NearDuplicate.Params())
    assert found.severity is worst
    doubt = worst is Severity.WARNING and len(set(labels)) > 1
    assert ("come nearly as close" in found.message) == doubt
