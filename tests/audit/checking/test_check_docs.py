"""The checks' own documentation: sections, names, thresholds, and pages that render."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from audit.checking.check import SECTIONS, Check, all_checks, make_params, page
from tests.preflight.pages import page_faults, page_sections


@pytest.mark.parametrize("check", [pytest.param(c, id=code) for code, c in all_checks().items()])
def test_a_check_has_a_sound_page_and_thresholds_that_are_used(check: Check):
    assert list(page_faults(check, SECTIONS)) == []
    # no instruction; that code and name have their form is asked when checks are found
    assert not check.name.startswith(("no-", "check-", "find-", "disallow-"))
    text, sections = page(check), page_sections(check)
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
    for word in re.findall(r"`((?:min|max)_\w+)`", sections["What it does"] + sections["Limits"]):
        assert word in fields, f"{check.code}: no threshold {word}"
    module = inspect.getmodule(type(check))
    assert module is not None
    codes = (module.__doc__ or "").split(":")[0].split(", ")
    assert check.code in codes
    # a file of several checks has the name of the first one's family
    assert Path(module.__file__ or "").name.split("_")[0] == codes[0].rstrip("0123456789").lower()


def test_names_are_unique():
    names = [check.name for check in all_checks().values()]
    assert len(set(names)) == len(names)
