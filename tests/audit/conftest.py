"""What many tests share: a scanned dataset to decide about, commands, and drawn scenes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import audit
from audit.cli.main import command_line
from audit.decisions.decisions import decide_samples
from audit.kernels.library import PATH_VARIABLE, load_kernels
from audit.records import Action
from tests.audit.reviewed import reviewed_dataset, scan
from tests.audit.run.scanned import read_index, scan_tree
from tests.audit.scenes import Picture, draw_scene
from tests.conftest import make_once, make_tree

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `audit ...` in this process: (exit code, stdout, stderr)."""

    def audit(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            command_line()
        said = capsys.readouterr()
        return int(stopped.value.code or 0), said.out, said.err

    return audit


@pytest.fixture(scope="session")
def reviewed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `reviewed_dataset` with no decisions; neither it nor its files may be changed."""

    def make(folder: Path) -> None:
        scan(reviewed_dataset(folder / "pets"), folder / "pets-run")

    return make_once(tmp_path_factory, "reviewed", make) / "pets-run"


@pytest.fixture
def run(reviewed_run: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be decided about."""
    return Path(shutil.copytree(reviewed_run, tmp_path / "run"))


@pytest.fixture
def own(run: Path) -> audit.Run:
    """The same, opened."""
    return audit.open(run)


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


@pytest.fixture(scope="session")
def scene() -> Callable[..., Picture]:
    """Give the tests `draw_scene`."""
    return draw_scene


@pytest.fixture(scope="session")
def scenes() -> list[Picture]:
    """Sixty different scenes."""
    return [draw_scene(seed) for seed in range(60)]


@pytest.fixture
def plain_forms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """There is no library of kernels: the plain forms run."""
    monkeypatch.setenv(PATH_VARIABLE, "off")
    load_kernels.cache_clear()
    yield
    monkeypatch.undo()
    load_kernels.cache_clear()
