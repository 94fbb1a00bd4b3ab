"""One undisturbed run for the tests that damage copies of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from audit.decisions.decisions import decide_samples
from audit.records import Action
from tests.audit.run.scanned import read_index, scan_tree
from tests.conftest import make_tree


@dataclass
class Undisturbed:
    """A dataset that no test changes, a run of it with a decision, and its index."""

    tree: Path
    run: Path
    index: dict[str, pl.DataFrame]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    tree, run = make_tree(folder / "pets"), folder / "run"
    scan_tree(tree, run)
    decide_samples(run, ["train/cat/0.jpg"], Action.DROP, note="blurred", by="anna")
    return Undisturbed(tree, run, read_index(run))


@pytest.fixture
def run(undisturbed: Undisturbed, tmp_path: Path) -> Path:
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(undisturbed.run, tmp_path / "run"))
