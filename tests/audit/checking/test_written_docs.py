"""Generated documents are current, and the house's rules about text hold."""

from __future__ import annotations

import re
import subprocess

from audit.checking import docs
from tests.conftest import ROOT


def test_generated_documents_are_current() -> None:
    for path, text in (
        (docs.checks_readme_path(), docs.checks_readme()),
        (docs.schema_path(), docs.schema_document()),
    ):
        assert path.read_text() == text, f"{path.name} is stale: run `make docs`"


def test_the_readme_holds_the_generated_table_of_checks() -> None:
    assert docs.checks_table() in (ROOT / "README.md").read_text(), "run `make docs`"


def test_no_machine_paths_and_nothing_left_open() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml", "Makefile"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    ).stdout.split()  # fmt: skip
    marks = re.compile(
        r"\bTO" + r"DO\b|\bFIX" + r"ME\b|NotImplemented" + r"Error|/work" + r"/main|/home/\w"
    )
    for name in tracked:
        found = marks.search((ROOT / name).read_text())
        assert found is None, f"{name}: {found}"
