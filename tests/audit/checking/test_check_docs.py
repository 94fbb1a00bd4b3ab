"""The documentation of checks, and the house's rules about text."""

import dataclasses
import inspect
import os
import re
from pathlib import Path

import pytest

from audit.checking.check import SECTIONS, Check, all_checks, make_params, page
from tests.conftest import ROOT
from tests.dataset_preflight.pages import page_faults, page_sections


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


# Folders that are no part of the project, wherever they lie below its root.
FOREIGN = {".git", ".venv", "runs", "build", "dist", "shared", "node_modules", "__pycache__"}
WRITTEN_HERE = {".py", ".md", ".toml", ".js", ".css", ".txt", ".sh"}
LEFT_OPEN = re.compile(
    r"\bTO" + r"DO\b|\bFIX" + r"ME\b|NotImplemented" + r"Error|/work" + r"/main|/home/\w"
)


def written_files(root: Path) -> list[Path]:
    """The text files that people wrote, without asking git: an unpacked archive has none."""
    paths: list[Path] = []
    for folder, folders, names in os.walk(root):
        ours = set(folders) - FOREIGN
        folders[:] = [name for name in ours if not name.endswith((".egg-info", "_cache"))]
        written = (n for n in names if Path(n).suffix in WRITTEN_HERE or n in ("Makefile", "run"))
        paths += [Path(folder, name) for name in written]
    return paths


def test_no_machine_paths_and_nothing_left_open() -> None:
    paths = written_files(ROOT)
    names = {path.relative_to(ROOT).as_posix() for path in paths}
    some = {"README.md", "Makefile", "pyproject.toml", ".ci/run", "audit/scanning/scanning.py"}
    assert some <= names
    marked = {str(path): LEFT_OPEN.search(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: match for name, match in marked.items() if match} == {}


def test_what_is_left_open_is_seen(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "notes.md").write_text("see /home" + "/anna/data")
    (path,) = written_files(tmp_path)
    assert LEFT_OPEN.search(path.read_text())
