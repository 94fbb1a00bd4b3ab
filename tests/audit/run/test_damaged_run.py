"""Damage in a run: readers take the newest version that opens and say so; a scan makes it again."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from audit.decisions.store import DecisionStore
from audit.errors import DamagedError, RunError
from audit.run import run_version
from audit.run.run_version import MEASUREMENTS, open_run, remove_rests
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION
from audit.run.writer_lock import claim_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from tests.audit.conftest import Command, Undisturbed
from tests.audit.run.scanned import (
    CHECKS,
    N_FILES,
    QUICK,
    as_nobody,
    assert_index,
    read_index,
    recheck_run,
    scan,
    scan_tree,
)  # fmt: skip

pytestmark = pytest.mark.slow
FIX = "scan its source again into this run. Decisions are kept."


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def every_block(path: Path) -> None:
    """Change bytes of each block that holds tables: the first blocks of a file are its headers."""
    with path.open("r+b") as file:
        for start in range(3 * 4096, path.stat().st_size, 256 << 10):
            file.seek(start + 1000)
            file.write(random.Random(start).randbytes(64))


DAMAGES = [truncate, every_block]
LOSSES = [*DAMAGES, Path.unlink]


def named(function: Callable[[Path], None] | None) -> str:
    return function.__name__ if function else "whole"


def stop_at(phase: str) -> Callable[[Progress], None]:
    def stop(step: Progress) -> None:
        if step.phase == phase:
            raise KeyboardInterrupt

    return stop


# ---- building ----


@pytest.fixture(scope="session")
def interrupted(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A first scan that was interrupted after it had measured everything."""
    run = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        scan_tree(undisturbed.tree, run, progress=stop_at("relate"))
    return run


@pytest.mark.parametrize("damage", [None, *DAMAGES], ids=named)
def test_a_build_is_gone_on_with_and_a_damaged_one_thrown_away(
    damage: Callable[[Path], None] | None, undisturbed: Undisturbed, interrupted: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    if damage:
        damage(run / "building" / MEASUREMENTS)
    assert len(scan_tree(undisturbed.tree, run)) == (N_FILES if damage else 0)
    assert_index(run, undisturbed.index)
    assert not (run / "building").exists()


@pytest.mark.parametrize("kind", ["file", "link", "folder for the database"])
def test_what_is_no_build_makes_room_for_one(
    kind: str, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    claim_run(run)
    if kind == "file":
        (run / "building").write_text("no folder")
    elif kind == "link":
        (run / "building").symlink_to(tmp_path / "nowhere")
    else:
        (run / "building" / MEASUREMENTS).mkdir(parents=True)
    assert len(scan_tree(undisturbed.tree, run)) == N_FILES
    assert_index(run, undisturbed.index)


def test_a_build_that_may_not_be_opened_is_kept(
    undisturbed: Undisturbed, interrupted: Path
) -> None:
    """A missing permission is no damage."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(interrupted, Path(folder) / "run"))
        database = run / "building" / MEASUREMENTS
        for path in (Path(folder), run, run / "building"):
            path.chmod(0o777)
        database.chmod(0)
        with as_nobody(), pytest.raises(RunError, match="Permission denied") as refused:
            remove_rests(run)
        assert not isinstance(refused.value, DamagedError)
        database.chmod(0o644)
        assert scan_tree(undisturbed.tree, run) == [], "it is all still there"


# ---- CURRENT ----


def pointer(**said: object) -> bytes:
    """What CURRENT holds, with these values in place of its own."""
    own = {"schema": SCHEMA_VERSION, "generation": "gen-0001", "findings": "findings-0001.duckdb"}
    return json.dumps(own | said).encode()


POINTERS: dict[str, bytes | None] = {
    "empty": b"",
    "no UTF-8": b'\xff\xfe{"schema": 2}',
    "a number": b"7",
    "a cut text": pointer()[:-9],
    "missing keys": json.dumps({"schema": SCHEMA_VERSION}).encode(),
    "wrong types": pointer(generation=7, findings=None),
    "infinite": pointer(schema=math.inf),
    "outside": pointer(generation="../run"),
    "no such findings": pointer(findings="findings-0009.duckdb"),
    "no such generation": pointer(generation="gen-0009"),
    "gone": None,
}


def put_pointer(run: Path, content: bytes | None) -> None:
    if content is None:
        (run / "CURRENT").unlink()
    else:
        (run / "CURRENT").write_bytes(content)


@pytest.mark.parametrize("damage", POINTERS)
def test_current_is_found_again(damage: str, undisturbed: Undisturbed, run: Path) -> None:
    put_pointer(run, POINTERS[damage])
    assert_index(run, undisturbed.index)
    notice = run_version.require(run).notice
    assert "This is gen-0001/findings-0001.duckdb, the newest version that opens." in notice
    assert str(run) not in notice
    if POINTERS[damage] is not None:
        assert (run / "CURRENT").read_bytes() == POINTERS[damage], "a reader writes nothing"
    done = scan(undisturbed.tree, run)
    assert (done.measured, done.unchanged) == (0, True)
    assert done.notice.endswith(": continued from gen-0001.")
    assert run_version.require(run).notice == ""
    found = run_version.read_pointer(run)
    assert found is not None
    assert (found.path.name, found.findings.name) == ("gen-0001", "findings-0001.duckdb")
    assert_index(run, undisturbed.index)


def test_current_that_is_a_folder_is_replaced(undisturbed: Undisturbed, run: Path) -> None:
    (run / "CURRENT").unlink()
    (run / "CURRENT").mkdir()
    assert_index(run, undisturbed.index)
    assert "CURRENT is damaged (Is a directory)" in run_version.require(run).notice
    recheck_run(run)
    assert_index(run, undisturbed.index)
    assert (run / "CURRENT").is_file()


@pytest.mark.parametrize("damage", ["empty", "no such generation"])
def test_current_is_not_found_where_no_generation_is_whole(
    damage: str, undisturbed: Undisturbed, run: Path
) -> None:
    put_pointer(run, POINTERS[damage])
    truncate(run / "gen-0001" / MEASUREMENTS)
    for use in (open_run, scanning.recheck):
        with pytest.raises(RunError, match=FIX):
            use(run)
    assert len(scan_tree(undisturbed.tree, run)) == N_FILES
    assert_index(run, undisturbed.index)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (99, "newer version .*upgrade"),
        (SCHEMA_VERSION - 1, "older version .*a new run; `audit scan --decisions-from .*/run`"),
    ],
)
def test_a_pointer_of_another_version_is_no_damage(
    schema: int, said: str, undisturbed: Undisturbed, run: Path
) -> None:
    text = json.dumps({"schema": schema, "generation": "x", "findings": "y", "digest": "z"})
    (run / "CURRENT").write_text(text)
    for use in (open_run, scanning.recheck, lambda run: scan_tree(undisturbed.tree, run)):
        with pytest.raises(RunError, match=said):
            use(run)
    assert (run / "CURRENT").read_text() == text


# ---- generations ----


@pytest.mark.parametrize("damage", LOSSES, ids=named)
def test_a_damaged_only_generation_is_measured_again(
    damage: Callable[[Path], None], undisturbed: Undisturbed, run: Path
) -> None:
    damage(run / "gen-0001" / MEASUREMENTS)
    decisions = DecisionStore(run).log()
    for use in (read_index, recheck_run):
        with pytest.raises(RunError, match=FIX):
            use(run)
    done = scan(undisturbed.tree, run)
    assert done.measured == N_FILES
    assert done.notice.endswith(": every file is read again.")
    assert_index(run, undisturbed.index)
    assert [path.name for path in run.glob("gen-*")] == ["gen-0002"]
    assert DecisionStore(run).log() == decisions
    assert scan_tree(undisturbed.tree, run) == []


@pytest.mark.parametrize("damage", [every_block, Path.unlink], ids=named)
def test_damaged_findings_are_made_again_by_scan_and_by_recheck(
    damage: Callable[[Path], None], undisturbed: Undisturbed, run: Path, tmp_path: Path
) -> None:
    damage(run / "gen-0001" / "findings-0001.duckdb")
    other = Path(shutil.copytree(run, tmp_path / "other"))
    assert scan_tree(undisturbed.tree, run) == []
    assert list((run / "gen-0001").glob("findings-*")) == [run_version.require(run).findings]
    recheck_run(other)
    for remade in (run, other):
        assert_index(remade, undisturbed.index)
        assert run_version.require(remade).path.name == "gen-0001"


@pytest.mark.parametrize("damaged", [False, True], ids=["removed", "damaged"])
def test_a_version_that_does_not_open_gives_way_to_the_version_before(
    damaged: bool, undisturbed: Undisturbed, run: Path, tmp_path: Path
) -> None:
    tree = Path(shutil.copytree(undisturbed.tree, tmp_path / "pets"))  # other times: all read again
    scan_tree(tree, run)
    if damaged:
        truncate(run / "gen-0002" / MEASUREMENTS)
        with pytest.raises(RunError, match=FIX):  # its findings would be about another state
            scanning.recheck(run)
    else:
        shutil.rmtree(run / "gen-0002")
        other = Path(shutil.copytree(run, tmp_path / "other"))
        said = scanning.recheck(other, checks=CHECKS, config=QUICK)
        assert said.endswith("gen-0002/measurements.duckdb is missing: continued from gen-0001.")
    assert_index(run, undisturbed.index)
    notice = run_version.require(run).notice
    assert notice.startswith("gen-0002/measurements.duckdb is ")
    assert "This is gen-0001/findings-0001.duckdb, the newest version that opens." in notice
    assert scan_tree(undisturbed.tree, run) == [], "the rows of the older version are taken over"
    assert_index(run, undisturbed.index)
    assert [path.name for path in run.glob("gen-*")] == ["gen-0001"]


def test_a_version_that_opens_and_does_not_read_to_its_end_is_not_taken_over(
    undisturbed: Undisturbed, run: Path
) -> None:
    database = run / "gen-0001" / MEASUREMENTS
    with database.open("r+b") as file:  # the block that has the rows of one table
        file.seek(3 * 4096 + block_of(database, "features") * (256 << 10) + 1000)
        file.write(b"damage")
    assert run_version.require(run).notice == "", "its tables are listed"
    with pytest.raises(DamagedError, match=FIX):
        read_index(run)
    done = scan(undisturbed.tree, run)
    assert done.measured == N_FILES
    assert "checksum" in done.notice
    assert_index(run, undisturbed.index)


def block_of(database: Path, table: str) -> int:
    """The number of a block of the database in which only rows of a table are."""
    with Store.open(database) as store:
        sql = f"SELECT block_id FROM pragma_storage_info('{table}') WHERE block_id >= 0 ORDER BY 1"
        return int(store.scalar(sql))


# ---- what is no damage ----


@pytest.mark.parametrize("options", [[], ["--set", "scan.lock=false"]], ids=["lock", "no-lock"])
def test_a_recheck_of_a_read_only_run_is_one_sentence(
    options: list[str], run: Path, command: Command
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copied = Path(shutil.copytree(run, Path(folder) / "run"))
        for path in [copied, *copied.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        for target in (run, copied):  # the first loads what nobody may not read
            with as_nobody() if target == copied else nullcontext():
                code, out, err = command("recheck", target, *options)
        for path in [copied, *copied.rglob("*")]:
            path.chmod(0o755)
    assert (code, out) == (2, ""), err
    (line,) = err.strip().splitlines()
    assert str(copied) in line
    assert "Permission denied" in line


# ---- killed ----


class Stop(BaseException):
    """Ends a writer, as signal 9 would: publishing has nothing to clean up."""


def stop(*_: object) -> None:
    raise Stop


def publish(run: Path, what: str, count: int) -> int | None:
    """Publish what is built, until before the call number `count` that changes or syncs the disk.

    Returns the calls that publishing took; None where it was stopped.
    """
    calls = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if calls == count:
                raise Stop
            calls += 1
            return original(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for owner, name in (
            (os, "replace"), (os, "rename"), (os, "fsync"), (os, "unlink"), (shutil, "rmtree"),
        ):  # fmt: skip
            patched.setattr(owner, name, counted(getattr(owner, name)))
        try:
            if what == "scan":
                run_version.publish(run, "findings-0001.duckdb")
            else:
                generation = run_version.require(run)
                name = run_version.next_findings(generation)
                built = generation.path / f"{name}.building"
                run_version.publish_findings(run, generation, built, name)
        except Stop:
            return None
    return calls


@pytest.fixture(scope="module")
def built(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that are built and not published: a first scan, a third one, and a re-check."""
    folder = tmp_path_factory.mktemp("built")
    runs = {name: folder / name for name in ("first", "third", "recheck")}
    other = Path(shutil.copytree(undisturbed.tree, folder / "pets"))
    shutil.copytree(undisturbed.run, runs["recheck"])
    recheck_run(runs["recheck"])
    scan_tree(other, runs["third"])
    (other / "train/cat/0.jpg").unlink()
    scan_tree(other, runs["third"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_version, "publish", stop)
        patched.setattr(run_version, "publish_findings", stop)
        for name in ("first", "third"):
            with pytest.raises(Stop):
                scan_tree(undisturbed.tree, runs[name])
        with pytest.raises(Stop):
            recheck_run(runs["recheck"])
    return runs


def killed_runs(built: Path, what: str, folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield (call, run) for every call before which publishing can be killed.

    A sync changes nothing that a later scan reads, so a run left as by the call before is not
    yielded again.
    """
    whole = publish(Path(shutil.copytree(built, folder / "whole")), what, 10_000)
    assert whole is not None
    assert whole >= 8
    left: dict[Path, bytes] = {}
    for count in range(whole):
        run = Path(shutil.copytree(built, folder / f"killed-{count}"))
        assert publish(run, what, count) is None
        files = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file()}
        if files != left:
            yield count, run
        left = files
        shutil.rmtree(run)


@pytest.mark.parametrize("start", ["first", "third"])
def test_a_killed_scan_is_gone_on_with_and_its_version_made_once(
    start: str, built: dict[str, Path], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    for count, run in killed_runs(built[start], "scan", tmp_path):
        assert scan_tree(undisturbed.tree, run) == [], f"killed before call {count}"
        assert_index(run, undisturbed.index)
        assert not (run / "building").exists()
        assert not list(run.rglob("*.new"))
        number = 1 if start == "first" else 3
        version = run_version.require(run)
        assert (version.path.name, version.notice) == (f"gen-{number:04d}", ""), f"call {count}"


def test_a_killed_recheck_leaves_findings_that_open(
    built: dict[str, Path], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    for count, run in killed_runs(built["recheck"], "recheck", tmp_path):
        assert run_version.require(run).notice == "", f"killed before call {count}"
        assert scan_tree(undisturbed.tree, run) == []
        assert_index(run, undisturbed.index)
        version = run_version.require(run)
        assert version.findings.name in ("findings-0002.duckdb", "findings-0003.duckdb")
        assert version.notice == ""
        assert not list(run.rglob("*.building*"))


def test_readers_see_the_version_before_until_the_next_is_named(
    built: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(built["third"], tmp_path / "run"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_version, "make_current", stop)
        with pytest.raises(Stop):
            run_version.publish(run, "findings-0001.duckdb")
    assert (run / "gen-0003").is_dir()
    assert run_version.require(run).path.name == "gen-0002"
    recheck_run(run)
    assert run_version.require(run).path.name == "gen-0003"
