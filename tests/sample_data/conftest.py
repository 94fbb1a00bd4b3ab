"""Datasets of several seeds, each made once for all tests: making one takes half a minute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

SAMPLE_DATA = ROOT / "sample_data"
COMMITTED = 7  # the seed of the dataset in the repository
MADE = ("train", "val", "test", "annotations")
TABLES = ("manifest.csv", "answer_key.csv", "answer_key_manifest.csv")
Dataset = Callable[[int], Path]


def start_making(seed: int, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-B", str(SAMPLE_DATA / "make.py"), "--seed", str(seed)]
    return subprocess.Popen(
        [*command, "--out", str(out)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.fixture(scope="session")
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dataset]:
    """The folder of the dataset of a seed, not to be changed.

    All seeds that the chosen tests of datasets name in their parameters are made side by side; with
    several workers each makes what it needs, since the cores are busy already.
    """
    making: dict[int, tuple[Path, subprocess.Popen[str]]] = {}

    def start(seed: int) -> None:
        out = tmp_path_factory.mktemp(f"seed{seed}")
        making[seed] = (out, start_making(seed, out))

    def folder(seed: int) -> Path:
        items = [item for item in request.session.items if "dataset" in item.fixturenames]
        named = [item.callspec.params for item in items if hasattr(item, "callspec")]
        seeds = [parameters["seed"] for parameters in named if "seed" in parameters]
        several_workers = "PYTEST_XDIST_WORKER" in os.environ
        for one in dict.fromkeys([seed] if several_workers else [seed, *seeds]):
            if one not in (COMMITTED, *making):
                start(one)
        out, process = making[seed]
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        return out

    yield folder
    for _, process in making.values():
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def made_again(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    process = start_making(7, root)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return root
