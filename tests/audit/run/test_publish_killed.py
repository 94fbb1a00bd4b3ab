"""A writer killed before every system call that publishes: nothing is read again.

Killed by an exception that nothing catches; `tests.audit.scanning.test_scanning` kills processes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.run import generations
from tests.audit.run.conftest import Undisturbed
from tests.audit.run.scanned import assert_index, recheck_run, scan_tree

pytestmark = pytest.mark.slow


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
