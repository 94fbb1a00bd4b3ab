"""A folder becomes a run by its marker; only there, and only files of this program are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.errors import RunError
from audit.run import run_version
from audit.run.synced_files import DRAFT
from audit.run.writer_lock import MARKER, claim_run, hold_run
from audit.scanning.scanning import recheck


def _write(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)


@pytest.mark.parametrize("lock", [True, False])
def test_a_folder_with_files_that_is_no_run_is_refused_and_stays(
    tmp_path: Path, lock: bool
) -> None:
    mine = [tmp_path / n for n in ("lock", "notes.new", "CURRENT", "gen-0001/a", "building/a.txt")]
    _write(*mine)
    refused = pytest.raises(RunError, match=r"contains CURRENT, building, gen-0001, \.\.\..*--out")
    with refused, hold_run(tmp_path, "scan", enabled=lock):
        pass
    assert all(path.read_text() == path.name for path in mine)
    assert not (tmp_path / MARKER).exists()


def test_a_marked_run_loses_only_files_with_names_of_this_program(tmp_path: Path) -> None:
    claim_run(tmp_path)
    mine = [tmp_path / n for n in (
        "notes.new", "gen-0001/notes.new", "gen-0001/x.building", "signatures/a.new",
        "building/notes.txt", "gen-0001/a.txt",
    )]  # fmt: skip
    made = [tmp_path / n for n in (
        f".CURRENT{DRAFT}", f"vectors/model/.part.parquet{DRAFT}",
        "gen-0001/findings-0002.duckdb.building", "building/measurements.duckdb",
    )]  # fmt: skip
    _write(*mine, *made)
    run_version.remove_rests(tmp_path)
    assert [path.name for path in mine if not path.exists()] == []
    assert [path.name for path in made if path.exists()] == []
    run_version.remove_version(tmp_path / "building")
    assert (tmp_path / "building/notes.txt").exists()


def test_a_run_without_a_marker_gets_it(run: Path) -> None:
    (run / MARKER).unlink(missing_ok=True)
    with hold_run(run, "recheck"):
        assert (run / MARKER).is_file()
    recheck(run, checks=["FILE001"])
