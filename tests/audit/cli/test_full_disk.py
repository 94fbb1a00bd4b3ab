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
from audit.cli.subset import write_rows
from audit.decisions.label_sample import write_drawn
from audit.decisions.ledger import Ledger
from audit.errors import UsageError
from audit.exports import annotation_export
from audit.report import output
from audit.run import generations, writer_lock

FRAME = pl.DataFrame({"a": [1]})


def _ledger(folder: Path) -> None:
    with Ledger(folder)._open("rwc"):
        raise sqlite3.OperationalError("database or disk is full")


def _locked(folder: Path) -> None:
    with writer_lock.hold_run(folder, "scan"):
        pass


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a ledger": _ledger,
    "a table": lambda folder: output.write_whole(folder / "x.csv", lambda part: part.touch()),
    "a report": lambda folder: output._write_pieces(folder / "x.html", lambda: iter(["x"])),
    "labels to review": lambda folder: write_drawn(FRAME, folder / "x.csv"),
    "a subset as CSV": lambda folder: write_rows(FRAME, folder / "x.csv"),
    "a subset as Parquet": lambda folder: write_rows(FRAME, folder / "x.parquet"),
    "a generation": generations.building,
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
    if write is _ledger and code == 2:
        return
    assert exit_code_of(lambda: write(tmp_path)) == code
    said = capsys.readouterr().err
    assert said.startswith("audit: ")
    assert said.count("\n") == 1


def test_the_callers_own_mistake_stays_theirs() -> None:
    def wrong() -> NoReturn:
        raise UsageError("no such column")

    assert exit_code_of(wrong) == 2
