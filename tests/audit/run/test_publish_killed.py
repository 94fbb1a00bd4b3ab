"""Processes killed (signal 9) before every system call that publishes: nothing is read again."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from audit.run import generations
from tests.audit.run.conftest import Undisturbed
from tests.audit.run.scanned import assert_index, recheck_run, scan_tree
from tests.warm import warm_line

pytestmark = pytest.mark.slow

# Publishes what is built, and kills itself before the n-th call that changes or syncs the disk.
PUBLISHING = """
import os, shutil, signal, sys
from pathlib import Path
from audit.run import generations
run, what, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0

def counted(original):
    def call(*args, **options):
        global calls
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return original(*args, **options)
    return call

for owner, name in (
    (os, "replace"), (os, "rename"), (os, "fsync"), (os, "unlink"), (shutil, "rmtree"),
):
    setattr(owner, name, counted(getattr(owner, name)))
if what == "scan":
    generations.publish(run, "findings-0001.duckdb")
else:
    generation = generations.require(run)
    name = generations.next_findings(generation)
    built = generation.path / f"{name}.building"
    generations.publish_findings(run, generation, built, name)
print(calls)
"""


def publish(run: Path, what: str, count: int) -> int | None:
    """The calls that publishing took; None: it was killed before it made so many."""
    line = [*warm_line("python"), PUBLISHING, str(run), what, str(count)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


class Stop(BaseException):
    """Ends a scan where it would publish."""


def stop(*_: object) -> None:
    raise Stop


@pytest.fixture(scope="module")
def built(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that are built and not published: a first scan, a third one, and a re-check."""
    folder = tmp_path_factory.mktemp("built")
    runs = {name: folder / name for name in ("first", "third", "recheck")}
    other = Path(shutil.copytree(undisturbed.tree, folder / "pets"))
    shutil.copytree(undisturbed.run, runs["recheck"])
    for _ in range(1):
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


@pytest.mark.parametrize("start", ["first", "third"])
def test_a_generation_is_never_made_twice(
    start: str, built: dict[str, Path], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    whole = publish(Path(shutil.copytree(built[start], tmp_path / "whole")), "scan", 10_000)
    assert whole is not None
    assert whole >= 10
    for count in range(whole):
        run = Path(shutil.copytree(built[start], tmp_path / f"killed-{count}"))
        assert publish(run, "scan", count) is None
        assert scan_tree(undisturbed.tree, run) == [], f"killed before call {count}"
        assert_index(run, undisturbed.index)
        assert not (run / "building").exists()
        assert not list(run.rglob("*.new"))
        number = 1 if start == "first" else 3
        assert generations.require(run).path.name == f"gen-{number:04d}", f"call {count}"
        shutil.rmtree(run)


def test_findings_of_a_killed_recheck_are_named_or_made_again(
    built: dict[str, Path], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    whole = publish(Path(shutil.copytree(built["recheck"], tmp_path / "whole")), "recheck", 10_000)
    assert whole is not None
    for count in range(whole):
        run = Path(shutil.copytree(built["recheck"], tmp_path / f"killed-{count}"))
        assert publish(run, "recheck", count) is None
        finished = (run / "gen-0001" / "findings-0003.duckdb").exists()
        assert scan_tree(undisturbed.tree, run) == []
        assert_index(run, undisturbed.index)
        name = "findings-0003.duckdb" if finished else "findings-0002.duckdb"
        assert generations.require(run).findings.name == name, f"killed before call {count}"
        assert not list(run.rglob("*.building*"))
        shutil.rmtree(run)


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
