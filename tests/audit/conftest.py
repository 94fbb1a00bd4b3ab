"""One scan of the dataset with something to decide about, for every test that only needs a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.reviewed import reviewed_dataset, scan


@pytest.fixture(scope="session")
def reviewed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `reviewed_dataset` with no decisions; neither it nor its files may be changed."""
    folder = tmp_path_factory.mktemp("reviewed")
    return scan(reviewed_dataset(folder / "pets"), folder / "pets-run")
