"""How sure a finding is: when it is an error, a warning or a note, and what its sentence says."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from audit.checks.box_predicted import BadlyPlacedBox, OverlookedObject, SwappedClass
from audit.checks.label_several import SuspectSeveral
from audit.records import Action, Severity
from audit.report.screen import not_examined
from audit.testing import case_store
from tests.audit.checks.case_tables import NEAR_GROUP, NEAR_PAIR, PICTURES, boxed, judge
from tests.audit.checks.cases import CASES

A, B = PICTURES[:2]
FACTS = [{"key": "threshold", "value": "6.8"}, {"key": "threshold_error", "value": "1.2"}]
FIT = {"file": "b.json", "label": None, "boxes": 60, "units": 60, "share": 0.7}


def near_tables(score: float, checked: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of one near-duplicate pair of A and B of this score."""
    return {
        "pairs": [{**NEAR_PAIR, "score": score, "verified_full_size": checked}],
        "groups": [dict(NEAR_GROUP[0]), {**NEAR_GROUP[1], "score": score}],
        "relate_facts": [dict(fact) for fact in FACTS],
    }


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
def test_an_overlap_that_is_an_error_is_sure(
    score: float, checked: bool, third: dict[str, str], sure: bool, grouped: bool
) -> None:
    tables = near_tables(score, checked)
    if not grouped:
        tables["groups"] = []
    found = judge("SPLIT001", [{"pixel_hash": A}, {"pixel_hash": B, "split": "test"}, third],
                  **tables)  # fmt: skip
    assert (Severity.ERROR in {finding.severity for finding in found}) == sure
    for finding in found:
        doubt = "are nearly as similar" in finding.message
        assert doubt == (finding.severity is Severity.WARNING) == (finding.action is Action.REVIEW)


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
    rows = [{"pixel_hash": h, "label": x} for h, x in zip((A, B, A), labels, strict=True)]
    (found,) = judge("DUP003", rows, **near_tables(score, checked))
    assert found.severity is worst
    doubt = worst is Severity.WARNING and len(set(labels)) > 1
    assert ("are nearly as similar" in found.message) == doubt


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
    (found,) = judge("DIST004", rows)
    assert (found.subject, found.severity) == ("class:tree", severity)


@pytest.mark.parametrize(
    ("opposite", "words"),
    [(2.0, "12% of the image further left than"), (4.0, "in an unknown direction")],
)
def test_a_direction_is_named_where_only_one_direction_fits(opposite: float, words: str) -> None:
    fits = [
        {**FIT, "elsewhere": "12% further left", "gain_z": 6.0},
        {**FIT, "elsewhere": "12% further right", "gain_z": opposite},
    ]
    (finding,) = judge("BOX015", [{}], **boxed({}, box_fits=fits))
    assert words in finding.message


@pytest.mark.parametrize(
    ("elsewhere", "severity"), [("mirrored", Severity.WARNING), ("half as large", Severity.INFO)]
)
def test_another_size_is_a_note(elsewhere: str, severity: Severity) -> None:
    fits = [{**FIT, "elsewhere": elsewhere, "gain_z": 9.0, "share": 0.8}]
    (finding,) = judge("BOX015", [{}], **boxed({}, box_fits=fits))
    assert finding.severity == severity
    assert ("mark a part" in finding.message) == (severity == Severity.INFO)


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


@pytest.mark.parametrize(
    ("chance", "shown"), [(0.657, "66%"), (0.99, "99%"), (0.997, "over 99%"), (1.0, "over 99%")]
)
def test_the_chance_of_an_error_is_named_and_never_certain(chance: float, shown: str) -> None:
    row = {"lacking": "owl", "wrong": "", "error_chance": chance, "predicted": "owl 0.99"}
    assert SuspectSeveral().said(row, None) == (
        f"This image probably lacks owl (highest error probability {shown}; predicted "
        "probability: owl 0.99)."
    )
