"""A session of the recorder in the table of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_profiler import Recorder, Session
from pipeline_profiler.runs.table_file import read_row, read_rows
from tests.pipeline_profiler.fakes import FakeClock


def recorded(steps: int) -> Recorder:
    clock = FakeClock()
    rec = Recorder(clock, cpu=lambda: 0)
    for _ in rec.watch([0] * steps):
        clock.advance(2)
    return rec


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(path))
    return path


def test_a_saved_session_is_a_row(table: Path, tmp_path: Path) -> None:
    file = recorded(20).save(tmp_path / "a.json", study="width", note="64", config="conf.yaml")
    (row,) = read_rows(table)
    said = (row.command, row.study, row.note, row.config)
    assert said == ("recorder", "width", "64", "conf.yaml")
    assert row.file == str(file)
    assert (row.metric, row.trials) == ("stall share", 1)
    assert row.verdict not in ("", "no verdict")
    assert len(Session.load(file).runs) == 1


def test_a_short_session_is_a_row_without_a_verdict(table: Path, tmp_path: Path) -> None:
    recorded(2).save(tmp_path / "a.json")
    assert read_row(table, 1).verdict == "no verdict"


def test_no_row_where_recording_is_off(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "off")
    recorded(2).save(tmp_path / "a.json")
    assert not table.exists()


def test_a_table_that_takes_no_row_costs_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign").write_bytes(b"no database, but a text of some length " * 40)
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(tmp_path / "foreign"))
    with pytest.warns(UserWarning, match="not in the table of runs"):
        file = recorded(2).save(tmp_path / "a.json")
    assert Session.load(file).runs
