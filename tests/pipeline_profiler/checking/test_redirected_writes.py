"""What code under examination writes lies beside: nothing of the user's changes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from pipeline_profiler.checking.redirected_writes import redirect_writes  # noqa: E402


def test_files_stay_as_they_are_and_are_read_back(tmp_path: Path) -> None:
    log, made, weights = tmp_path / "log.csv", tmp_path / "new.txt", tmp_path / "weights.pt"
    log.write_text("step,loss\n")
    paths: list[str] = []
    with redirect_writes(paths):
        with log.open("a") as file:
            file.write("1,2.3\n")
        assert log.read_text() == "step,loss\n1,2.3\n"
        made.write_text("anything")
        torch.save({"a": torch.ones(2)}, weights)
        assert torch.load(weights)["a"].tolist() == [1, 1]
        handler = logging.FileHandler(tmp_path / "run.log")
        handler.emit(logging.makeLogRecord({"msg": "said"}))
        handler.close()
    assert log.read_text() == "step,loss\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv"]
    assert {Path(path).name for path in paths} == {"log.csv", "new.txt", "weights.pt", "run.log"}


def test_reading_is_not_noted(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("7")
    paths: list[str] = []
    with redirect_writes(paths):
        assert (tmp_path / "data.txt").read_text() == "7"
    assert paths == []
