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
from audit.checking.check import SECTIONS, Check, all_checks, make_params, page
from audit.picture.features import FEATURES
from audit.run.store import Store
from audit.run.tables import IMAGES_VIEW
from preflight.check_contract import page_sections
from tests.preflight.pages import page_faults

CHECKS = [pytest.param(check, id=code) for code, check in all_checks().items()]


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_is_sound_and_the_name_is_the_defect(check: Check):
    assert list(page_faults(check, SECTIONS)) == []
    # no instruction; that code and name have their form is asked when checks are found
    assert not check.name.startswith(("no-", "check-", "find-", "disallow-"))


def test_names_are_unique():
    names = [check.name for check in all_checks().values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("check", CHECKS)
def test_every_threshold_is_documented_and_used(check: Check):
    text = page(check)
    assert text.startswith(f"# {check.code} {check.name} ({check.severity})")
    source = inspect.getsource(inspect.getmodule(type(check)) or type(check))
    documented = re.findall(r"^\s*(\w+): \S.+$", check.Params.__doc__ or "", re.MULTILINE)
    fields = [field.name for field in dataclasses.fields(check.Params)]
    assert documented == fields == re.findall(r"^- `(\w+) = .+`: \S", text, re.MULTILINE)
    assert check.Params.__dataclass_params__.frozen
    for name in fields:
        read = f"params.{name}" in source or f"${name}" in source
        assert read, f"{check.code}: {name} changes nothing"
    assert make_params(check, {}) == check.Params()


@pytest.mark.parametrize("check", CHECKS)
def test_thresholds_named_in_the_text_exist(check: Check):
    text = page_sections(check)["What it does"] + page_sections(check)["Limits"]
    fields = {field.name for field in dataclasses.fields(check.Params)}
    for word in re.findall(r"`((?:min|max)_\w+)`", text):
        assert word in fields, f"{check.code}: no threshold {word}"


# What decoding itself fills is always there: only columns of the picture need declaring.
PICTURE_COLUMNS = {column.name for column in FEATURES}


def fails_without(check: Check, columns: Iterable[str]) -> str:
    """What DuckDB says of the dirty cases where `columns` were not measured; "": nothing."""
    for case in (case for case in check.cases() if case.expect):
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
def test_cases_are_several_and_named(check: Check):
    found = list(check.cases())
    dirty = sum(bool(case.expect) for case in found)
    assert min(dirty, len(found) - dirty) >= 2
    assert len({case.name for case in found}) == len(found)


@pytest.mark.parametrize("check", CHECKS)
def test_module_opens_with_its_code(check: Check):
    module = inspect.getmodule(type(check))
    assert module is not None
    codes = (module.__doc__ or "").split(":")[0].split(", ")
    assert check.code in codes
    # a file of several checks has the name of the first one's family
    assert Path(module.__file__ or "").name.split("_")[0] == codes[0].rstrip("0123456789").lower()
