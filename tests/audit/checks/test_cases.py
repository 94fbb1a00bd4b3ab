"""Every clean and dirty case of every check in an in-memory store, and how often it is queried."""

import re
from collections.abc import Iterable, Iterator

import duckdb
import pytest

from audit.checking.check import Check, all_checks, make_params, one_of_each_first
from audit.decisions.decisions import is_of_box
from audit.picture.features import FEATURES
from audit.records import Action, Finding, Severity
from audit.run.store import Store
from audit.run.tables import IMAGES_VIEW
from audit.testing import Case, case_store
from dataset_preflight.foundation.text import agreed
from tests.audit.asked import asked_of
from tests.audit.checks.cases import CASES, FILES

HASH = re.compile(r"@[0-9a-f]{1,16}$")


def cases(*, dirty: bool) -> list[object]:
    return [
        pytest.param(all_checks()[code], case, id=f"{code}-{case.name}")
        for code, found in CASES.items()
        for case in found
        if bool(case.expect) == dirty
    ]


@pytest.mark.parametrize("code", all_checks())
def test_a_check_has_cases_of_both_sides_in_a_file_of_its_name(code: str):
    found = CASES.get(code, ())
    dirty = sum(bool(case.expect) for case in found)
    assert min(dirty, len(found) - dirty) >= 2, f"{code}: at least two clean and two dirty cases"
    assert len({case.name for case in found}) == len(found)
    assert type(all_checks()[code]).__module__.rpartition(".")[2] in FILES


def test_every_case_belongs_to_a_check():
    assert CASES.keys() <= all_checks().keys()


# What decoding itself fills is always there: only columns of the picture need declaring.
PICTURE_COLUMNS = {column.name for column in FEATURES}


def leave_out(store: Store, columns: Iterable[str]) -> None:
    """Drop columns of `features`; the views over them that are no business of a check stay."""
    for view in ("effective_sizes", "pictures"):
        store.execute(f"CREATE TABLE copied AS SELECT * FROM {view}")
        store.execute(f"DROP VIEW {view}")
        store.execute(f"ALTER TABLE copied RENAME TO {view}")
    others = f"SELECT * EXCLUDE ({', '.join(columns)}) FROM features"
    store.execute(f"CREATE OR REPLACE TABLE features AS {others}")
    store.execute(IMAGES_VIEW)


Judged = tuple[list[Finding], str, dict[str, str | None]]
JUDGED: dict[int, Judged] = {}
KEPT = {id(case) for found in CASES.values() for case in found}


def judge(check: Check, case: Case) -> Judged:
    """Return findings, completeness and content hashes by id of a case, which is judged once.

    A dirty case is judged without the columns that its check does not declare: it needs no others.
    """
    if id(case) not in JUDGED or id(case) not in KEPT:
        with case_store(case) as store:
            params = make_params(check, case.params)
            if case.expect:
                leave_out(store, PICTURE_COLUMNS - set(check.features))
            findings = list(check.find(store, params))
            hashes = dict(store.query("SELECT sample_id, content_hash FROM features").iter_rows())
            JUDGED[id(case)] = findings, check.completeness(store, params), hashes
    return JUDGED[id(case)]


@pytest.mark.parametrize(("check", "case"), cases(dirty=False))
def test_clean_case_is_clean(check: Check, case: Case):
    findings, _, _ = judge(check, case)
    assert [f.message for f in findings] == []


@pytest.mark.parametrize(("check", "case"), cases(dirty=True))
def test_dirty_case_is_found(check: Check, case: Case):
    findings, completeness, hashes = judge(check, case)
    # A case names a sample by its id; the made-up content hash behind it is checked below.
    assert sorted(HASH.sub("", f.subject) for f in findings) == sorted(case.expect)
    assert len({f.fingerprint for f in findings}) == len(findings)
    for finding in findings:
        check_form(check, finding, hashes)
    for text in [f.message for f in findings] + ([completeness] if completeness else []):
        assert re.search(r"\d", text), text
        assert text.endswith("."), text
        assert not text.endswith(".."), text
        assert text[0].isupper() or text[0].isdigit(), text
        assert "\n" not in text
        assert "None" not in text.replace("None of", ""), text
        assert "nan" not in text.split(), text


def check_form(check: Check, finding: Finding, hashes: dict[str, str | None]) -> None:
    assert finding.code == check.code
    assert agreed(finding.message) == finding.message
    assert isinstance(finding.severity, Severity)
    assert isinstance(finding.action, Action)
    ids = list(finding.sample_ids)
    assert len(set(ids)) == len(ids)
    # Those of a group are in the order of `one_of_each_first`, which has its own test.
    assert ids == sorted(ids) or finding.subject.startswith("group:")
    assert set(finding.sample_ids) <= hashes.keys() or check.code == "FILE008"
    assert finding.evidence
    kinds = {type(value) for value in finding.evidence.values()}
    assert kinds <= {int, float, str}, finding.evidence
    assert finding.evidence_json()
    if not finding.subject.startswith(("group:", "class:", "split:", "dataset", "object:")):
        (sample,) = finding.sample_ids
        digest = hashes.get(sample)
        assert finding.subject == (f"{sample}@{digest[:16]}" if digest else sample)


def fails_without(check: Check, column: str) -> str:
    """What DuckDB says of the dirty cases where a column was not measured; "": nothing."""
    for case in (case for case in CASES[check.code] if case.expect):
        with case_store(case) as store:
            leave_out(store, [column])
            params = make_params(check, case.params)
            try:
                list(check.find(store, params))
                check.completeness(store, params)
            except duckdb.BinderException as error:
                return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("check", [pytest.param(c, id=code) for code, c in all_checks().items()])
def test_every_declared_column_is_read(check: Check):
    for column in check.features:
        assert column in fails_without(check, column), f"{column} is declared, and never read"


def test_no_finding_about_a_box_suggests_what_is_done_to_its_whole_picture():
    of_boxes = [(c, case) for c in CASES if c.startswith("BOX") for case in CASES[c] if case.expect]
    for code, case in of_boxes:
        for finding in judge(all_checks()[code], case)[0]:
            assert finding.action is Action.REVIEW
            of_file = finding.subject.startswith(("dataset:", "class:"))
            if finding.sample_ids and code not in ("BOX005", "BOX022"):  # of a picture's entry; all
                assert is_of_box(code) is not of_file


def of_every_check(case: Case) -> Iterator[tuple[str, list[Finding], str]]:
    """Yield code, findings and completeness of every check, asked of one store."""
    with case_store(case) as store:
        for code, check in all_checks().items():
            params = make_params(check, case.params)
            yield code, list(check.find(store, params)), check.completeness(store, params)


def test_an_empty_dataset_is_clean() -> None:
    for code, findings, completeness in of_every_check(Case("nothing", [])):
        assert findings == [], code
        assert completeness == "" or completeness.endswith("."), code


def test_unreadable_samples_have_no_features_and_break_nothing() -> None:
    """Rows as the scan writes them for files without a picture: every measured column is null."""
    nothing = {c.name: None for c in FEATURES} | {
        "status": "unreadable", "format": None, "width": None, "height": None, "mode": None,
        "bit_depth": None, "pixel_hash": None, "grey_tail": None, "frames": None, "animated": None,
        "orientation": None, "has_alpha": None, "trailing_bytes": None, "missing_end": None,
        "detected": None, "progressive": None,
    }  # fmt: skip
    rows = [{**nothing, "error_kind": kind} for kind in ("empty", "truncated", "bomb", None)]
    rows += [{**row, "label": None, "split": None, "content_hash": None} for row in rows]
    for code, findings, _ in of_every_check(Case("broken", rows * 8)):
        if code.startswith(("IMG", "DUP")):
            assert findings == [], code


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


@pytest.mark.slow
@pytest.mark.parametrize("code", all_checks())
def test_the_number_of_queries_does_not_grow_with_classes(
    code: str, of_few_and_many: tuple[dict[str, int], dict[str, int]]
) -> None:
    few, many = of_few_and_many
    assert few[code] == many[code] <= 8


def test_a_group_shows_one_image_of_each_split_before_the_second_of_any() -> None:
    ids, splits = ["a", "b", "c", "d", "e"], ["train", "train", "train", "test", "test"]
    assert one_of_each_first(ids, splits) == ("a", "d", "b", "e", "c")
    assert one_of_each_first(ids[::-1], splits[::-1]) == ("a", "d", "b", "e", "c")
    assert one_of_each_first(ids, ["train"] * 5) == tuple(ids)
