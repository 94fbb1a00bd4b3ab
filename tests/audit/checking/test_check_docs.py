"""The checks' own documentation: sections, names, thresholds, and pages that render."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest

from audit.checking.cases import case_store
from audit.checking.check import CODE, NAME, SECTIONS, Check, all_checks, make_params, page
from audit.picture.features import FEATURES
from audit.run.store import Store
from audit.run.tables import IMAGES_VIEW

CHECKS = [pytest.param(check, id=code) for code, check in all_checks().items()]


def sections(check: Check) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", inspect.cleandoc(type(check).__doc__ or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


@pytest.mark.parametrize("check", CHECKS)
def test_sections_are_complete_and_in_order(check: Check):
    found = sections(check)
    assert tuple(found) == SECTIONS
    for name, text in found.items():
        assert len(text) >= 30, f"{check.code}: section {name} says too little"
        assert text.endswith((".", "?", ")", '"')), f"{check.code}: {name} ends without a full stop"
        assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize("check", CHECKS)
def test_first_line_is_one_sentence(check: Check):
    first = inspect.cleandoc(type(check).__doc__ or "").split("\n\n")[0]
    assert first.endswith(".")
    assert "##" not in first


@pytest.mark.parametrize("check", CHECKS)
def test_code_and_name_follow_the_law(check: Check):
    assert CODE.match(check.code)
    assert NAME.match(check.name)
    # A name is the defect, not an instruction.
    assert not check.name.startswith(("no-", "check-", "find-", "disallow-"))


def test_names_are_unique():
    names = [check.name for check in all_checks().values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("check", CHECKS)
def test_every_threshold_is_documented_and_used(check: Check):
    doc = check.Params.__doc__ or ""
    source = inspect.getsource(inspect.getmodule(type(check)) or type(check))
    documented = re.findall(r"^\s+(\w+): \S.+$", doc, re.MULTILINE)
    fields = [field.name for field in dataclasses.fields(check.Params)]
    assert documented == fields
    assert check.Params.__dataclass_params__.frozen
    for name in fields:
        assert f"params.{name}" in source, f"{check.code}: {name} changes nothing"
    assert make_params(check, {}) == check.Params()


@pytest.mark.parametrize("check", CHECKS)
def test_thresholds_named_in_the_text_exist(check: Check):
    text = sections(check)["What it does"] + sections(check)["Limits"]
    fields = {field.name for field in dataclasses.fields(check.Params)}
    for word in re.findall(r"`((?:min|max)_\w+)`", text):
        assert word in fields, f"{check.code}: no threshold {word}"


# What decoding itself fills is always there: only columns of the picture need declaring.
PICTURE_COLUMNS = {column.name for column in FEATURES}


def fails_without(check: Check, columns: Iterable[str]) -> str:
    """What DuckDB says of the dirty cases where `columns` were not measured; "": nothing."""
    for case in check.DIRTY:
        with case_store(case) as store:
            leave_out(store, columns)
            params = make_params(check, case.params)
            try:
                list(check.find(store, params))
                check.completeness(store, params)
            except duckdb.BinderException as error:
                return str(error)
    return ""


def leave_out(store: Store, columns: Iterable[str]) -> None:
    """Drop columns of `features`; the views over them that are no business of a check stay."""
    for view in ("effective_sizes", "pictures"):
        store.execute(f"CREATE TABLE copied AS SELECT * FROM {view}")
        store.execute(f"DROP VIEW {view}")
        store.execute(f"ALTER TABLE copied RENAME TO {view}")
    others = f"SELECT * EXCLUDE ({', '.join(columns)}) FROM features"
    store.execute(f"CREATE OR REPLACE TABLE features AS {others}")
    store.execute(IMAGES_VIEW)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_every_column_that_its_sql_reads_is_declared(check: Check):
    assert fails_without(check, PICTURE_COLUMNS - set(check.features)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_every_declared_column_is_read(check: Check):
    for column in check.features:
        assert column in fails_without(check, [column]), f"{column} is declared, and never read"


@pytest.mark.parametrize("check", CHECKS)
def test_page_shows_everything(check: Check):
    text = page(check)
    assert text.startswith(f"# {check.code} {check.name} ({check.severity})")
    for name in SECTIONS:
        assert f"## {name}" in text
    for field in dataclasses.fields(check.Params):
        assert re.search(rf"- `{field.name} = .+`: \S", text)


@pytest.mark.parametrize("check", CHECKS)
def test_cases_are_several_and_named(check: Check):
    names = [case.name for case in (*check.CLEAN, *check.DIRTY)]
    assert len(check.CLEAN) >= 2
    assert len(check.DIRTY) >= 2
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("check", CHECKS)
def test_module_opens_with_its_code(check: Check):
    module = inspect.getmodule(type(check))
    assert module is not None
    assert (module.__doc__ or "").startswith(f"{check.code}: ")
    assert Path(module.__file__ or "").name.split("_")[0] == check.code.rstrip("0123456789").lower()
