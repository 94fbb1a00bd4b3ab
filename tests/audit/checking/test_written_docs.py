"""The house's rules about text hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.conftest import ROOT

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
