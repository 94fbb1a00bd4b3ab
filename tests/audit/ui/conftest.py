"""A small scanned dataset for the pages, one for all tests that only look."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def scanned(reviewed_run: Path) -> Path:
    """A run of the reviewed dataset, with no decisions; not to be changed."""
    return reviewed_run


@pytest.fixture
def run(scanned: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may decide about, delete or damage."""
    return Path(shutil.copytree(scanned, tmp_path / "pets-run"))


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a page from a link, for some runs and sessions."""
    from tests.audit.ui.pages import shown

    return partial(shown, monkeypatch)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder: the app looks for ./runs."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
