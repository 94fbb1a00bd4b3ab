"""A full disk is the machine's turn, exit code 4, in whatever a command was about to write."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest

from audit.cli.ending import exit_code_of
from audit.decisions.label_sample import write_drawn
from audit.decisions.store import DecisionStore
from audit.errors import UsageError
from audit.exports import annotation_export
from audit.report import output
from audit.run import run_version, writer_lock

FRAME = pl.DataFrame({"a": [1]})


def _decisions(folder: Path) -> None:
    with DecisionStore(folder)._open("rwc"):
        raise sqlite3.OperationalError("database or disk is full")


def _locked(folder: Path) -> None:
    with writer_lock.hold_run(folder, "scan"):
        pass


WRITERS: dict[str, Callable[[Path], Any]] = {
    "decisions": _decisions,
    "a table": lambda folder: output.write_whole(folder / "x.csv", lambda part: part.touch()),
    "a report": lambda folder: output._write_pieces(folder / "x.html", lambda: iter(["x"])),
    "labels to review": lambda folder: write_drawn(FRAME, folder / "x.csv"),
    "a subset as CSV": lambda folder: output.write_table(folder / "x.csv", FRAME),
    "a subset as Parquet": lambda folder: output.write_table(folder / "x.parquet", FRAME),
    "a generation": run_version.building_folder,
    "a lock": _locked,
    "annotations": lambda folder: annotation_export._move_to_place(
        folder, folder, {}, replace=True
    ),
}


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 4), (errno.EDQUOT, 4), (errno.EROFS, 2)]
)
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_the_machines_turn(
    write: Callable[[Path], Any], number: int, code: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "x")

    for owner, name in (
        (os, "replace"), (os, "open"), (Path, "open"), (Path, "mkdir"), (pl.DataFrame, "write_csv"),
        (pl.DataFrame, "write_parquet"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, fail)
    if write is _decisions and code == 2:
        return
    assert exit_code_of(lambda: write(tmp_path)) == code
    said = capsys.readouterr().err
    assert said.startswith("audit: ")
    assert said.count("\n") == 1


def test_the_callers_own_mistake_stays_theirs() -> None:
    def wrong() -> NoReturn:
        raise UsageError("no such column")

    assert exit_code_of(wrong) == 2


def test_tables_are_written_to_paths_that_are_not_utf8(tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet"):
        output.write_table(path := tmp_path / f"x\udcff{suffix}", FRAME)
        assert path.stat().st_size
    write_drawn(FRAME, path := tmp_path / "l\udcff.csv")
    assert path.read_text().split() == ["a", "1"]


def test_a_disk_that_fills_up_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(_: object, file: Any, *__: object) -> NoReturn:
        file.write(b"a")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(pl.DataFrame, "write_csv", fill_up)
    for write in (output.write_table, lambda path, frame: write_drawn(frame, path)):
        with pytest.raises(UsageError, match="No space left"):
            write(tmp_path / "x.csv", FRAME)
        assert list(tmp_path.iterdir()) == []
