"""Every CLEAN and DIRTY case of every check in an in-memory store, and what findings share."""

from __future__ import annotations

import re

import pytest

from audit.checking.cases import Case, case_store
from audit.checking.check import Check, all_checks, make_params
from audit.records import Action, Finding, Severity

HASH = re.compile(r"@[0-9a-f]{1,16}$")


def cases(kind: str) -> list[object]:
    return [
        pytest.param(check, case, id=f"{check.code}-{case.name}")
        for check in all_checks().values()
        for case in getattr(check, kind)
    ]


CASE_NAMES = {c.name for check in all_checks().values() for c in (*check.CLEAN, *check.DIRTY)}
JUDGED: dict[int, tuple[list[Finding], str, dict[str, str | None]]] = {}


def judge(check: Check, case: Case) -> tuple[list[Finding], str, dict[str, str | None]]:
    """Return findings, completeness and content hashes by id of a case, which is judged once."""
    if id(case) not in JUDGED or case.name not in CASE_NAMES:
        with case_store(case) as store:
            params = make_params(check, case.params)
            findings, completeness = (
                list(check.find(store, params)),
                check.completeness(store, params),
            )
            hashes = dict(store.query("SELECT sample_id, content_hash FROM features").iter_rows())
            JUDGED[id(case)] = findings, completeness, hashes
    return JUDGED[id(case)]


@pytest.mark.parametrize(("check", "case"), cases("CLEAN"))
def test_clean_case_is_clean(check: Check, case: Case):
    findings, _, _ = judge(check, case)
    assert case.expect == ()
    assert [f.message for f in findings] == []


@pytest.mark.parametrize(("check", "case"), cases("DIRTY"))
def test_dirty_case_is_found(check: Check, case: Case):
    findings, _, _ = judge(check, case)
    # A case names a sample by its id; the made-up content hash behind it is checked below.
    assert sorted(HASH.sub("", f.subject) for f in findings) == sorted(case.expect)
    assert case.expect


@pytest.mark.parametrize(("check", "case"), cases("DIRTY"))
def test_findings_are_well_formed(check: Check, case: Case):
    findings, _, hashes = judge(check, case)
    assert len({f.fingerprint for f in findings}) == len(findings)
    for finding in findings:
        assert finding.code == check.code
        assert isinstance(finding.severity, Severity)
        assert isinstance(finding.action, Action)
        assert list(finding.sample_ids) == sorted(set(finding.sample_ids))
        assert set(finding.sample_ids) <= hashes.keys() or check.code == "FILE008"
        assert finding.evidence
        assert all(type(v) in (int, float, str) for v in finding.evidence.values()), (
            finding.evidence
        )
        assert finding.evidence_json()
        if not finding.subject.startswith(("group:", "class:", "split:", "dataset")):
            (sample,) = finding.sample_ids
            digest = hashes.get(sample)
            assert finding.subject == (f"{sample}@{digest[:16]}" if digest else sample)


@pytest.mark.parametrize(("check", "case"), cases("DIRTY"))
def test_messages_are_sentences_with_numbers(check: Check, case: Case):
    findings, completeness, _ = judge(check, case)
    for text in [f.message for f in findings] + ([completeness] if completeness else []):
        assert re.search(r"\d", text), text
        assert text.endswith("."), text
        assert not text.endswith(".."), text
        assert text[0].isupper() or text[0].isdigit(), text
        assert "\n" not in text
        assert "None" not in text.replace("None of", ""), text
        assert "nan" not in text.split(), text


@pytest.mark.parametrize("code", list(all_checks()))
def test_an_empty_dataset_is_clean(code: str):
    findings, completeness, _ = judge(all_checks()[code], Case("nothing", []))
    assert findings == []
    assert completeness == "" or completeness.endswith(".")


@pytest.mark.parametrize("code", list(all_checks()))
def test_unreadable_samples_have_no_features_and_break_nothing(code: str):
    """Rows as the scan writes them for files without a picture: every measured column is null."""
    from audit.picture.features import FEATURES

    nothing = {c.name: None for c in FEATURES} | {
        "status": "unreadable", "format": None, "width": None, "height": None, "mode": None,
        "bit_depth": None, "pixel_hash": None, "grey_tail": None, "frames": None, "animated": None,
        "orientation": None, "has_alpha": None, "trailing_bytes": None, "missing_end": None,
        "detected": None, "progressive": None,
    }  # fmt: skip
    rows = [{**nothing, "error_kind": kind} for kind in ("empty", "truncated", "bomb", None)]
    rows += [{**row, "label": None, "split": None, "content_hash": None} for row in rows]
    findings, _, _ = judge(all_checks()[code], Case("broken", rows * 8))
    if code.startswith(("IMG", "DUP")):
        assert findings == []


def test_all_codes_of_this_family_exist():
    wanted = [f"FILE00{i}" for i in range(1, 9)] + ["DUP001", "DUP002", "DUP003"]
    wanted += ["SPLIT001", "SPLIT002"]
    wanted += [f"LABEL00{i}" for i in range(1, 6)] + [f"DIST00{i}" for i in range(1, 9)]
    wanted += [f"IMG00{i}" for i in range(1, 9)]
    assert set(wanted) <= all_checks().keys()
