"""`audit verify`: every part of a run, damaged in every way, is reported, repaired, made again."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.browse.images import Card
from audit.browse.pictures import FOLDER, ThumbnailCache, read_stored
from audit.compare.history import HISTORY
from audit.decisions.recovery import restore_decisions
from audit.decisions.store import COPY, DATABASE, DecisionStore
from audit.errors import LockedError, RunError
from audit.machine.executors import Serial
from audit.run.digests import write_document
from audit.run.generations import MEASUREMENTS, open_run
from audit.run.healing import heal_run
from audit.run.writer_lock import MARKER, hold_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.scanning.verifying import repair_run, verify_run
from audit.sources import open_source
from tests.audit.conftest import Command, Undisturbed
from tests.audit.run.scanned import N_FILES, assert_index, recheck_run, scan_tree

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def complete(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every part that a run can have: two generations, two findings, thumbnails."""
    run = tmp_path_factory.mktemp("complete") / "run"
    smaller = open_source([str(undisturbed.tree)], exclude=["train/dog/0.jpg"])
    scanning.scan(smaller, run, executor=Serial())
    shutil.copy(undisturbed.run / DATABASE, run / DATABASE)
    shutil.copy(undisturbed.run / COPY, run / COPY)
    scan_tree(undisturbed.tree, run)
    recheck_run(run)
    store_thumbnails(run)
    return run


def store_thumbnails(run: Path) -> None:
    with open_run(run) as store:
        rows = store.rows("SELECT * FROM images ORDER BY id LIMIT 3")
    known = Card.__dataclass_fields__
    cards = [Card(**{k: v for k, v in row.items() if k in known}) for row in rows]
    ThumbnailCache(run / FOLDER).many(cards)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[random.Random(f"{path.name} 4").randrange(len(content))] ^= 1 << 4
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
    "CURRENT", "gen-0001/generation.json", "gen-0001/measurements.duckdb",
    "gen-0001/findings-0001.duckdb", "gen-0002/generation.json", "gen-0002/measurements.duckdb",
    "gen-0002/findings-0001.duckdb", "gen-0002/findings-0002.duckdb", "signatures",
    "decisions.sqlite", "decisions.jsonl", FOLDER,
)  # fmt: skip
NAMED = ("gen-0002/measurements.duckdb", "gen-0002/findings-0002.duckdb")  # by CURRENT
# By their digest every change is alike, and so are both generations; what may be wrong with a
# document's text has its own tests (test_healing.py). The last four are read, each in its way.
CASES = [
    (damage, name) for name in FILES for damage in DAMAGES
    if damage == "a bit" or (name in FILES[-4:] and (damage != "empty" or name == DATABASE))
    or (damage == "gone" and not name.startswith("gen-0001"))
    or (damage == "a folder" and name in ("CURRENT", "gen-0002/generation.json", NAMED[0]))
]  # fmt: skip
# What verify need not report, and why it means nothing.
WITHOUT_MEANING = {
    ("gen-0002/generation.json", "gone"): "every table is read instead",
    (FOLDER, "gone"): "a cache: the app removes them itself",
    ("decisions.jsonl", "gone"): "as after a crash: the next decision writes it",
    ("decisions.jsonl", "cut"): "as after a crash: the next decision writes it",
}  # fmt: skip


def files_of(run: Path) -> set[str]:
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    folders = ("signatures", FOLDER)
    # a line of the history that is damaged is passed over, and nothing else is read from it
    apart = {"lock", HISTORY}
    return {next((f for f in folders if name.startswith(f)), name) for name in found} - apart


@pytest.fixture
def run(complete: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(complete, tmp_path / "run"))


def test_every_file_of_a_run_is_in_the_list(run: Path) -> None:
    assert files_of(run) == {*FILES, MARKER}
    assert verify_run(run).damaged == []


@pytest.mark.parametrize(("damage", "name"), CASES)
def test_damage_is_reported_repaired_and_made_again(
    damage: str, name: str, run: Path, undisturbed: Undisturbed
) -> None:
    log = DecisionStore(run).log()
    path = run / name
    path = path if path.is_file() else next(p for p in sorted(path.rglob("*")) if p.is_file())
    DAMAGES[damage](path)
    found = verify_run(run)
    reported = [part.name for part in found.damaged]
    if (name, damage) in WITHOUT_MEANING or (name == DATABASE and not reported):
        assert reported == []
    else:
        pointer = ["CURRENT"] if damage == "gone" and name in NAMED else []
        assert reported == [*pointer, name], found.damaged
        part = found.damaged[-1]
        assert part.lost == ("nothing" if "json" not in name else part.lost)
        assert part.remade
    if name == DATABASE and reported:
        restore_decisions(run, run / COPY)
    if name == COPY and path.exists():
        path.rename(run.parent / COPY)
    repaired = repair_run(run)
    assert [part.name for part in repaired.damaged if part.name != "signatures"] == []
    read = scan_tree(undisturbed.tree, run)
    if name == "signatures":
        assert len(read) in (1, N_FILES - 1), "the images of one of the two parts"
    else:
        assert len(read) == (name == NAMED[0]), "the older generation lacks one"
    assert_index(run, undisturbed.index)
    assert DecisionStore(run).log() == log
    assert verify_run(run).damaged == []


@pytest.mark.parametrize("damage", ["cut", "empty", "gone"])
def test_both_generations_damaged_are_measured_again(
    damage: str, run: Path, undisturbed: Undisturbed
) -> None:
    for number in (1, 2):
        DAMAGES[damage](run / f"gen-{number:04d}" / MEASUREMENTS)
    log = DecisionStore(run).log()
    repaired = repair_run(run)
    assert repaired.damaged == []
    assert len(list(run.glob("damaged-*/gen-*"))) == 2
    with pytest.raises(RunError, match="no finished scan yet"):
        open_run(run)
    assert len(scan_tree(undisturbed.tree, run)) == N_FILES
    assert_index(run, undisturbed.index)
    assert DecisionStore(run).log() == log


def test_a_damaged_build_is_reported_and_thrown_away_and_an_unfinished_one_is_no_damage(
    run: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    (run / "building").mkdir()
    (run / "building" / MEASUREMENTS).write_bytes(b"")
    assert [part.name for part in verify_run(run).damaged] == ["building"]
    assert repair_run(run).damaged == []
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


def test_a_sound_run_is_not_touched_and_a_held_one_not_repaired(run: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in run.rglob("*")}

    before = state()
    assert heal_run(run) == []
    assert repair_run(run).repaired == ()
    assert state() == before
    os.truncate(run / "CURRENT", 3)
    with hold_run(run, "scan"), pytest.raises(LockedError, match="scan by process"):
        repair_run(run)


def test_a_thumbnail_without_its_digest_or_with_another_is_damaged(run: Path) -> None:
    path, other, third = sorted((run / FOLDER).rglob("*.jpg"))
    data = read_stored(path)
    assert data is not None
    assert path.read_bytes().startswith(data)
    other.write_bytes(data)
    content = bytearray(third.read_bytes())
    content[500] ^= 1
    third.write_bytes(content)
    assert read_stored(path) == data
    (part,) = verify_run(run).damaged
    assert part.detail == "2 of 3 files"
    repair_run(run)
    assert sorted((run / FOLDER).rglob("*.jpg")) == [path]


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
    assert "gen-0002/measurements.duckdb: lost: nothing; rebuilt by the next `audit scan`" in out
    assert out.splitlines()[-1] == "1 part is damaged; `--repair` restores what it can."
    code, out, _ = command("verify", run, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["sound"]) == (1, "audit-verify/1", False)
    assert {part["state"] for part in document["parts"]} == {"sound", "damaged"}
    code, out, _ = command("verify", run, "--repair", "--json")
    assert (code, json.loads(out)["sound"]) == (0, True)
    assert "gen-0002 moved to damaged-" in json.loads(out)["repaired"][0]
    assert command("verify", tmp_path / "none")[0] == 2
    assert "There is no run at" in command("verify", tmp_path)[2]


def test_a_run_of_a_newer_version_is_told_so(run: Path, command: Command) -> None:
    write_document(run / "CURRENT", {"schema": 99, "generation": "x", "findings": "y"})
    code, _, said = command("verify", run)
    assert code == 2
    assert "upgrade" in said


def test_what_the_machine_cannot_read_is_no_damage(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OSError(5, "Input/output error", str(run / "gen-0002" / MEASUREMENTS))

    monkeypatch.setattr("audit.run.digests.file_digest", fail)
    code, out, said = command("verify", run)
    assert (code, out) == (4, "")
    assert "measurements.duckdb could not be read or written (Input/output error)" in said


def test_a_folder_with_names_of_a_run_is_none(tmp_path: Path) -> None:
    (tmp_path / "building").mkdir()
    (tmp_path / "building" / "plan.txt").write_text("mine")
    with pytest.raises(RunError, match="There is no run at"):
        verify_run(tmp_path)
