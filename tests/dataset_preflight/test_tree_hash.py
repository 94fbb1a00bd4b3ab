"""The hashes change where data or code change, and nowhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dataset_preflight.foundation.tree_hash import hash_code, hash_data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: (data / "b.jpg").write_bytes(b"1"),
        lambda data: (data / "a.jpg").write_bytes(b"12"),
        lambda data: os.utime(data / "a.jpg", (1, 1)),
        lambda data: (data / "a.jpg").rename(data / "c.jpg"),
    ],
)
def test_a_change_of_the_data_changes_its_hash(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    data, run = tmp_path / "data", tmp_path / "data" / "out"
    run.mkdir(parents=True)
    (data / "a.jpg").write_bytes(b"1")
    before = hash_data([str(data)], str(run))
    (run / "result").write_bytes(b"1")
    assert hash_data([str(data)], str(run)) == before
    change(data)
    assert hash_data([str(data)], str(run)) != before


def test_an_address_has_no_hash(tmp_path: Path) -> None:
    assert hash_data(["s3://bucket/data"], "runs") == ""


def test_code_is_hashed_and_data_and_environments_are_not(tmp_path: Path) -> None:
    for name in ("train.py", "conf/a.yaml", "data/labels.json", "venv/lib/x.py", ".git/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")

    def hashed() -> str:
        return hash_code(str(tmp_path), [str(tmp_path / "data")], sys.executable)

    before = hashed()
    for name in ("data/labels.json", "venv/lib/x.py", ".git/y.py"):
        (tmp_path / name).write_text("2")
        assert hashed() == before, name
    for name in ("train.py", "conf/a.yaml"):
        (tmp_path / name).write_text("2")
        assert hashed() != before, name
        before = hashed()
