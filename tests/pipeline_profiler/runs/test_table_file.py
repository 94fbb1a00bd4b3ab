"""The file of the table of runs: many writers, kills, files that are none, values of any kind."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs import table_file
from pipeline_profiler.runs.row import RunRow, default_file
from pipeline_profiler.runs.table_file import append_note, append_row, read_row, read_rows
from tests.conftest import ROOT

ROW = RunRow("2026-01-02T03:04:05Z", "run", study="birds", verdict="fine", value=0.5, trials=3)
WRITER = """
import sys
from pathlib import Path
from pipeline_profiler.runs.row import RunRow
from pipeline_profiler.runs.table_file import append_row
for number in range(8):
    append_row(Path(sys.argv[1]), RunRow("t", "run", note=f"{sys.argv[2]} {number}"))
"""
KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for number in range(200):
    connection.execute("INSERT INTO runs (command, note) VALUES ('half', ?)", ("x" * 5000,))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_row_reads_back_and_takes_notes(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "runs.sqlite"
    assert read_rows(path) == []
    assert append_row(path, ROW) == 1
    assert read_rows(path) == [replace(ROW, id=1)]
    append_note(path, 1, "first")
    noted = append_note(path, 1, "second")
    assert noted == read_row(path, 1) == replace(ROW, id=1, note="first\nsecond")
    assert next(iter(noted.as_dict().items())) == ("id", 1)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ProfileError, match="has no run 9"):
        append_note(path, 9, "x")


def test_a_list_has_no_diffs_and_a_word_is_found_in_them(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    append_row(path, replace(ROW, git_diff="-rate = 1\n+rate = 2\n"))
    append_row(path, ROW)
    (row,) = read_rows(path, "RATE = 2")
    assert (row.id, row.git_diff, row.git_diff_lines) == (1, "", 2)
    assert read_row(path, 1).git_diff.endswith("+rate = 2\n")


def test_values_that_a_database_does_not_take_are_changed_so_that_it_does(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    append_row(path, replace(ROW, value=float("nan"), note="\ud800 and \0", study="x" * 2_000_000))
    (row,) = read_rows(path, "AND")
    assert read_rows(path, "absent") == []
    assert row.value is None
    assert row.note.startswith("\\ud800")
    assert len(row.study) == 1_000_000


@pytest.mark.slow
def test_many_writers_lose_nothing_and_a_killed_one_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n)], cwd=ROOT)
        for n in range(3)
    ]
    assert [w.wait() for w in writers] == [0, 0, 0]
    assert len({row.note for row in read_rows(path)}) == 24
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert (tmp_path / "runs.sqlite-journal").exists()  # it was killed with pages on disk
    assert append_row(path, ROW) == 25
    assert [row.command for row in read_rows(path)] == ["run"] * 25


def test_a_locked_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.sqlite"
    append_row(path, ROW)
    monkeypatch.setattr(table_file, "BUSY_S", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ProfileError, match="is locked by another process"):
        append_row(path, ROW)
    other.close()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"x" * 200]
)
def test_a_file_that_is_no_table_is_a_sentence_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for call in (lambda: append_row(path, ROW), lambda: read_rows(path)):
        with pytest.raises(ProfileError, match="no table of runs"):
            call()
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE runs (a)")
    theirs.close()
    with pytest.raises(ProfileError, match="of another program"):
        append_row(path, ROW)
    with pytest.raises(ProfileError, match="cannot be opened"):
        append_row(tmp_path, ROW)  # a folder
    newer = tmp_path / "newer.sqlite"
    append_row(newer, ROW)
    with sqlite3.connect(newer) as file:
        file.execute("PRAGMA user_version = 7")
    file.close()
    with pytest.raises(ProfileError, match="newer pipeline-profiler"):
        read_rows(newer)


def test_what_a_stranger_put_into_columns_is_read_as_what_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    append_row(path, ROW)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE runs SET value = 'much', trials = x'00', study = NULL, note = 3")
    file.close()
    (row,) = read_rows(path)
    assert (row.value, row.trials, row.study, row.note) == (None, None, "", "3")


def test_the_place_is_for_the_user_to_choose() -> None:
    assert default_file({"PIPELINE_PROFILER_RUNS": "off"}) is None
    assert default_file({"PIPELINE_PROFILER_RUNS": "a/b.sqlite"}) == Path("a/b.sqlite")
    assert default_file({"XDG_DATA_HOME": "/d"}) == Path("/d/pipeline-profiler/runs.sqlite")
    assert str(default_file({})).endswith(".local/share/pipeline-profiler/runs.sqlite")
