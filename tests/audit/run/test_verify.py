"""`audit verify`: every part of a run, damaged in every way, is reported and made again."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from audit.decisions.store import COPY, DATABASE, DecisionStore
from audit.errors import RunError
from audit.machine.executors import Serial
from audit.results.history import HISTORY
from audit.results.report_data import KEPT_NEEDS
from audit.results.saved_views import FILE as VIEWS
from audit.results.saved_views import save_view
from audit.run.run_version import MEASUREMENTS, open_run
from audit.run.store import Store
from audit.run.writer_lock import MARKER
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.scanning.verifying import verify_run
from audit.sources import open_source
from tests.audit.conftest import Command, Undisturbed
from tests.audit.run.scanned import N_FILES, assert_index, recheck_run, scan_tree

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def complete(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every part that a run can have: two versions, two findings, documents."""
    run = tmp_path_factory.mktemp("complete") / "run"
    smaller = open_source([str(undisturbed.tree)], exclude=["train/dog/0.jpg"])
    scanning.scan(smaller, run, executor=Serial())
    shutil.copy(undisturbed.run / DATABASE, run / DATABASE)
    shutil.copy(undisturbed.run / COPY, run / COPY)
    scan_tree(undisturbed.tree, run)
    recheck_run(run)
    (run / KEPT_NEEDS).write_text("{}")
    save_view(run, "mine", "findings", {"code": "DUP001"})
    return run


def flip(path: Path) -> None:
    """Flip a bit of every block that a database has in use, of another file one bit."""
    content = bytearray(path.read_bytes())
    places = [random.Random(f"{path.name} 4").randrange(len(content))]
    if path.suffix == ".duckdb":
        places = list(range(3 * 4096 + 1000, len(content), 256 << 10))
    for place in places:
        content[place] ^= 1 << 4
    path.write_bytes(content)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").write_text("somebody's")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "gone": Path.unlink,
    "a folder": replace_by_folder,
}
FILES = (
    "CURRENT", "gen-0001/measurements.duckdb", "gen-0001/findings-0001.duckdb",
    "gen-0002/measurements.duckdb", "gen-0002/findings-0001.duckdb",
    "gen-0002/findings-0002.duckdb", "signatures", KEPT_NEEDS, VIEWS, "decisions.sqlite",
    "decisions.jsonl",
)  # fmt: skip
NAMED = ("gen-0002/measurements.duckdb", "gen-0002/findings-0002.duckdb")  # by CURRENT
MADE_BY_A_SCAN = ("CURRENT", *NAMED, "signatures")
CASES = [
    (damage, name)
    for name in (*MADE_BY_A_SCAN, "gen-0001/measurements.duckdb", KEPT_NEEDS)
    for damage in DAMAGES
    if name != KEPT_NEEDS or damage in ("cut", "empty")
]


def files_of(run: Path) -> set[str]:
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    apart = {"lock", HISTORY, MARKER}
    return {"signatures" if name.startswith("signatures") else name for name in found} - apart


@pytest.fixture
def run(complete: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(complete, tmp_path / "run"))


def test_every_file_of_a_run_is_in_the_list(run: Path) -> None:
    assert files_of(run) == set(FILES)
    parts = verify_run(run).parts
    assert {part.name for part in parts} == {*FILES, HISTORY}
    assert {part.state for part in parts} == {"sound"}


@pytest.mark.parametrize(("damage", "name"), CASES)
def test_damage_is_reported_and_made_again(
    damage: str, name: str, run: Path, undisturbed: Undisturbed
) -> None:
    log, path = DecisionStore(run).log(), run / name
    path = path if path.is_file() else next(p for p in sorted(path.rglob("*")) if p.is_file())
    DAMAGES[damage](path)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    found = verify_run(run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before, "it only reads"
    reported = [part.name for part in found.damaged]
    if name == "signatures" and damage == "gone":
        assert reported == ["signatures"]
    else:
        pointed = name in NAMED and "CURRENT" in reported
        is_listed = (name, damage) != (NAMED[1], "gone")  # findings have numbers, none is due
        assert reported == ["CURRENT"] * pointed + [name] * is_listed
    assert {(part.lost, bool(part.remade)) for part in found.damaged} == {("nothing", True)}
    is_older = name.startswith("gen-0001")
    assert ("audit diff" in found.damaged[-1].remade) == is_older
    read = scan_tree(undisturbed.tree, run)
    if name == "signatures":
        assert len(read) in (1, N_FILES - 1), "the images of one of the two parts"
    else:
        assert len(read) == (name == NAMED[0]), "the older version lacks one"
    assert_index(run, undisturbed.index)
    assert DecisionStore(run).log() == log
    left = [part.name for part in verify_run(run).damaged]
    assert left == ([name] if is_older or name == KEPT_NEEDS else [])


def test_a_damaged_line_of_the_history_is_no_damage_and_saved_views_are_lost(run: Path) -> None:
    with (run / HISTORY).open("a") as file:
        file.write('{"at": "2026-')
    (run / VIEWS).write_text("{")
    parts = {part.name: part for part in verify_run(run).parts}
    assert (parts[HISTORY].state, parts[HISTORY].detail) == (
        "unfinished", "1 of 4 lines cannot be read and are skipped",
    )  # fmt: skip
    assert (parts[VIEWS].state, parts[VIEWS].lost) == ("damaged", "the saved views of the app")


@pytest.mark.parametrize("damage", ["cut", "empty", "gone"])
def test_both_versions_damaged_are_measured_again(
    damage: str, run: Path, undisturbed: Undisturbed
) -> None:
    for number in (1, 2):
        DAMAGES[damage](run / f"gen-{number:04d}" / MEASUREMENTS)
    log = DecisionStore(run).log()
    with pytest.raises(RunError, match="and no version opens"):
        open_run(run)
    assert len(scan_tree(undisturbed.tree, run)) == N_FILES
    assert_index(run, undisturbed.index)
    assert DecisionStore(run).log() == log
    assert verify_run(run).damaged == []
    assert [path.name for path in run.glob("gen-*")] == ["gen-0003"]


def test_a_damaged_build_is_reported_and_removed_and_an_unfinished_one_is_no_damage(
    run: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    (run / "building").mkdir()
    (run / "building" / MEASUREMENTS).write_bytes(b"")
    assert [part.name for part in verify_run(run).damaged] == ["building"]
    assert scan_tree(undisturbed.tree, run) == []
    assert not (run / "building").exists()

    def stop(step: Progress) -> None:
        if step.phase == "relate":
            raise KeyboardInterrupt

    run = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        scan_tree(undisturbed.tree, run, progress=stop)
    states = {part.name: part.state for part in verify_run(run).parts}
    assert states["building"] == "unfinished"
    assert states["CURRENT"] == "absent"
    assert not verify_run(run).damaged
    assert scan_tree(undisturbed.tree, run) == []


# ---- the command ----


def test_the_command_prints_a_table_and_its_exit_code_is_the_verdict(
    run: Path, command: Command, tmp_path: Path
) -> None:
    code, out, _ = command("verify", run)
    assert code == 0
    assert out.splitlines()[0].split() == ["part", "state"]
    assert out.splitlines()[-1] == f"{run} has no damage."
    os.truncate(run / "gen-0002" / MEASUREMENTS, 100)
    code, out, _ = command("verify", run)
    assert code == 1
    assert "gen-0002/measurements.duckdb: lost: nothing; made again by the next `audit scan`" in out
    assert out.splitlines()[-1] == "2 parts are damaged."
    code, out, _ = command("verify", run, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["sound"]) == (1, "audit-verify/1", False)
    assert {part["state"] for part in document["parts"]} == {"sound", "damaged"}
    assert command("verify", tmp_path / "none")[0] == 2
    assert "There is no run at" in command("verify", tmp_path)[2]


@pytest.mark.parametrize(("schema", "said"), [(99, "upgrade"), (3, "--decisions-from")])
def test_a_run_of_another_schema_is_refused(
    schema: int, said: str, run: Path, command: Command
) -> None:
    (run / "CURRENT").write_text(json.dumps({"schema": schema, "generation": "gen-0002"}))
    code, _, refused = command("verify", run)
    assert (code, said in refused, len(refused.splitlines())) == (2, True, 1)


def test_what_the_machine_cannot_read_is_no_damage(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Store.scalar

    def fail(store: Store, sql: str) -> object:
        if "hash(t)" in sql:
            raise duckdb.IOException("IO Error: Could not read from file: Input/output error")
        return read(store, sql)

    monkeypatch.setattr(Store, "scalar", fail)
    code, out, said = command("verify", run)
    assert (code, out) == (4, "")
    assert "could not be read (IO Error: Could not read from file: Input/output error)" in said


def test_a_folder_with_names_of_a_run_is_none(tmp_path: Path) -> None:
    (tmp_path / "building").mkdir()
    (tmp_path / "building" / "plan.txt").write_text("mine")
    with pytest.raises(RunError, match="There is no run at"):
        verify_run(tmp_path)
