"""Damage in a run: a scan heals what can be healed, and readers get a sentence that is true."""

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
from audit.run import digests, generations
from audit.run.generations import MEASUREMENTS, open_run
from audit.run.healing import heal_run
from audit.run.tables import SCHEMA_VERSION
from audit.run.writer_lock import claim_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from tests.audit.conftest import Command, Undisturbed
from tests.audit.run.scanned import (
    N_FILES,
    as_nobody,
    assert_index,
    read_index,
    recheck_run,
    scan_tree,
)  # fmt: skip

pytestmark = pytest.mark.slow
FIX = "scan its source again into this run. Decisions are kept."


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def random_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(random.Random(7).randbytes(8192))


def last_bit(path: Path) -> None:
    """Only the recorded digest tells: the bit lies where no table has a row."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES = [truncate, random_middle]
LOSSES = [*DAMAGES, Path.unlink, last_bit]


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
            heal_run(run)
        assert not isinstance(refused.value, DamagedError)
        database.chmod(0o644)
        assert scan_tree(undisturbed.tree, run) == [], "it is all still there"


# ---- CURRENT ----


def pointer(**said: object) -> bytes:
    """What CURRENT holds, whole by its digest, with these values in place of its own."""
    own = {"schema": SCHEMA_VERSION, "generation": "gen-0001", "findings": "findings-0001.duckdb"}
    return digests.document_text(own | said).encode()


POINTERS: dict[str, bytes | None] = {
    "empty": b"",
    "no UTF-8": b'\xff\xfe{"schema": 2}',
    "a number": b"7",
    "other than its digest": pointer().replace(b"gen-0001", b"gen-0000"),
    "missing keys": digests.document_text({"schema": SCHEMA_VERSION}).encode(),
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
    if POINTERS[damage] is not None:
        assert (run / "CURRENT").read_bytes() == POINTERS[damage], "a reader writes nothing"
    assert scan_tree(undisturbed.tree, run) == []
    found = generations.read_pointer(run)
    assert found is not None
    assert (found.path.name, found.findings.name) == ("gen-0001", "findings-0001.duckdb")
    assert_index(run, undisturbed.index)


def test_current_that_is_a_folder_is_moved_aside(undisturbed: Undisturbed, run: Path) -> None:
    (run / "CURRENT").unlink()
    (run / "CURRENT").mkdir()
    (run / "CURRENT" / "note").write_text("someone's")
    assert_index(run, undisturbed.index)
    recheck_run(run)
    assert_index(run, undisturbed.index)
    assert [path.read_text() for path in run.glob("damaged-*/CURRENT/note")] == ["someone's"]


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
    ("schema", "said"), [(99, "newer version .*upgrade"), (1, "older version .*a new run")]
)
def test_a_pointer_of_another_version_is_no_damage(
    schema: int, said: str, undisturbed: Undisturbed, run: Path
) -> None:
    text = digests.document_text({"schema": schema, "generation": "x", "findings": "y"})
    (run / "CURRENT").write_text(text)
    for use in (open_run, scanning.recheck, lambda run: scan_tree(undisturbed.tree, run)):
        with pytest.raises(RunError, match=said):
            use(run)
    assert (run / "CURRENT").read_text() == text


# ---- generations ----


def fix_of(read: Callable[[], object]) -> str:
    """What a reader says of the damage it meets; FIX where it meets none."""
    try:
        read()
    except DamagedError as error:
        return str(error)
    return FIX


@pytest.mark.parametrize("damage", LOSSES, ids=named)
def test_a_damaged_only_generation_is_measured_again(
    damage: Callable[[Path], None], undisturbed: Undisturbed, run: Path
) -> None:
    damage(run / "gen-0001" / MEASUREMENTS)
    decisions = DecisionStore(run).log()
    # it may lie where no row is
    assert fix_of(lambda: assert_index(run, undisturbed.index)).endswith(FIX)
    with pytest.raises(RunError, match=FIX):
        recheck_run(run)
    assert len(scan_tree(undisturbed.tree, run)) == N_FILES
    assert_index(run, undisturbed.index)
    assert generations.require(run).path.name == "gen-0002"
    assert DecisionStore(run).log() == decisions
    assert scan_tree(undisturbed.tree, run) == []


# What its digest tells: any change is alike.
@pytest.mark.parametrize("damage", [random_middle, Path.unlink], ids=named)
def test_damaged_findings_are_made_again_by_scan_and_by_recheck(
    damage: Callable[[Path], None], undisturbed: Undisturbed, run: Path, tmp_path: Path
) -> None:
    damage(run / "gen-0001" / "findings-0001.duckdb")
    other = Path(shutil.copytree(run, tmp_path / "other"))
    assert scan_tree(undisturbed.tree, run) == []
    recheck_run(other)
    for healed in (run, other):
        assert_index(healed, undisturbed.index)
        assert generations.require(healed).path.name == "gen-0001"


@pytest.mark.parametrize("damaged", [False, True], ids=["removed", "damaged"])
def test_a_generation_gives_way_to_the_one_before_a_damaged_one_for_its_rows_only(
    damaged: bool, undisturbed: Undisturbed, run: Path, tmp_path: Path
) -> None:
    tree = Path(shutil.copytree(undisturbed.tree, tmp_path / "pets"))  # other times: all read again
    scan_tree(tree, run)
    if damaged:
        truncate(run / "gen-0002" / MEASUREMENTS)
        for use in (read_index, scanning.recheck):
            with pytest.raises(RunError, match=FIX):
                use(run)
    else:
        shutil.rmtree(run / "gen-0002")
        assert_index(run, undisturbed.index)
    assert scan_tree(undisturbed.tree, run) == [], "the rows of the older one are taken over"
    assert_index(run, undisturbed.index)


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


def test_the_seal_holds_the_digests_of_all_databases(run: Path) -> None:
    recheck_run(run)
    recheck_run(run)
    sealed = json.loads((run / "gen-0001" / "generation.json").read_text())["files"]
    databases = sorted((run / "gen-0001").glob("*.duckdb"))
    assert sealed == {path.name: digests.file_digest(path) for path in databases}
    assert list(sealed) == ["findings-0002.duckdb", "findings-0003.duckdb", "measurements.duckdb"]


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
                generations.publish(run, "findings-0001.duckdb")
            else:
                generation = generations.require(run)
                name = generations.next_findings(generation)
                built = generation.path / f"{name}.building"
                generations.publish_findings(run, generation, built, name)
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
        patched.setattr(generations, "publish", stop)
        patched.setattr(generations, "publish_findings", stop)
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
    assert whole >= 10
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
def test_a_generation_is_never_made_twice(
    start: str, built: dict[str, Path], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    for count, run in killed_runs(built[start], "scan", tmp_path):
        assert scan_tree(undisturbed.tree, run) == [], f"killed before call {count}"
        assert_index(run, undisturbed.index)
        assert not (run / "building").exists()
        assert not list(run.rglob("*.new"))
        number = 1 if start == "first" else 3
        assert generations.require(run).path.name == f"gen-{number:04d}", f"call {count}"


def test_findings_of_a_killed_recheck_are_named_or_made_again(
    built: dict[str, Path], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    for count, run in killed_runs(built["recheck"], "recheck", tmp_path):
        finished = (run / "gen-0001" / "findings-0003.duckdb").exists()
        assert scan_tree(undisturbed.tree, run) == []
        assert_index(run, undisturbed.index)
        name = "findings-0003.duckdb" if finished else "findings-0002.duckdb"
        assert generations.require(run).findings.name == name, f"killed before call {count}"
        assert not list(run.rglob("*.building*"))


def test_readers_see_the_generation_before_until_the_next_one_is_named(
    built: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(built["third"], tmp_path / "run"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(generations, "make_current", stop)
        with pytest.raises(Stop):
            generations.publish(run, "findings-0001.duckdb")
    assert (run / "gen-0003").is_dir()
    assert generations.require(run).path.name == "gen-0002"
    recheck_run(run)
    assert generations.require(run).path.name == "gen-0003"
