"""The checks' own documentation: sections, names, thresholds, and pages that render."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from audit.checking.check import SECTIONS, Check, all_checks, make_params, page
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
