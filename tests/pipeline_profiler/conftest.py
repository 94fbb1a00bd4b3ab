"""A folder on a disk: of /dev, where memory is, the checks hold nothing back and own all files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DISK


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty folder, on a disk."""
    with tempfile.TemporaryDirectory(dir=DISK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
