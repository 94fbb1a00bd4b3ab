"""A copy of the undisturbed run for the tests that damage it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.audit.conftest import Undisturbed


@pytest.fixture
def run(undisturbed: Undisturbed, tmp_path: Path) -> Path:
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(undisturbed.run, tmp_path / "run"))
