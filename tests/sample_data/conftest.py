"""Datasets of several seeds, each made once for all tests: making one takes ten seconds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, make_once

SAMPLE_DATA = ROOT / "sample_data"
COMMITTED = 7  # the seed of the dataset in the repository
MADE = ("train", "val", "test", "annotations")
TABLES = ("manifest.csv", "answer_key.csv", "answer_key_manifest.csv")
Dataset = Callable[[int], Path]


def make(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run make.py as a person does."""
    command = [sys.executable, "-B", str(SAMPLE_DATA / "make.py"), *map(str, arguments)]
    return subprocess.run(command, text=True, capture_output=True)


def make_dataset(seed: int, out: Path) -> None:
    done = make("--seed", seed, "--out", out)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The folder of the dataset of a seed, not to be changed."""

    def folder(seed: int) -> Path:
        return make_once(tmp_path_factory, f"seed{seed}", lambda out: make_dataset(seed, out))

    return folder


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make.py --seed 7` leaves of the committed dataset after somebody was at it: a file too
    many, one changed, one gone, and a folder that is none of its business.
    """
    root = tmp_path_factory.mktemp("again")
    for name in MADE:
        shutil.copytree(SAMPLE_DATA / name, root / name)
    for name in TABLES:
        shutil.copy2(SAMPLE_DATA / name, root / name)
    (root / "train" / "stray.txt").write_text("from an older version")
    changed, gone = sorted(root.glob("val/*/*.jpg"))[:2]
    changed.write_bytes(b"changed")
    gone.unlink()
    (root / "sessions").mkdir()
    (root / "sessions" / "kept.json").write_text("{}")
    make_dataset(COMMITTED, root)
    return root
