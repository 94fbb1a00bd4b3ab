"""One writer a run: the second one is refused at once, and readers never wait."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.decisions.decisions import decide_samples
from audit.errors import LockedError, RunError
from audit.records import Action
from audit.run.writer_lock import claim_run, hold_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress, ProgressCallback
from tests.audit.run.scanned import scan, value_of
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
PATIENCE_S = 300
HOLDER = """
import contextlib, sys, time
from pathlib import Path
from audit.run import run_version
from audit.run.store import Store
from audit.run.writer_lock import hold_run
run = Path(sys.argv[1])
held = hold_run(run, "scan") if sys.argv[2] == "the run" else contextlib.nullcontext()
with held:
    if sys.argv[2] == "its database":
        store = Store.create(run_version.building_folder(run) / run_version.MEASUREMENTS)
    print("held", flush=True)
    time.sleep(600)
"""


class Blocked:
    """A writer in a thread of its own that stops at a phase until it is let go."""

    def __init__(self, work: Callable[[ProgressCallback], object], phase: str) -> None:
        self.reached, self.go_on, self.phase = threading.Event(), threading.Event(), phase
        self.thread = threading.Thread(target=work, args=(self.stop,))

    def stop(self, state: Progress) -> None:
        if state.phase == self.phase and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)

    def __enter__(self) -> Blocked:
        self.thread.start()
        assert self.reached.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.thread.join()


@pytest.mark.parametrize("phase", ["list", "measure", "relate", "judge"])
def test_a_second_scan_is_refused_in_every_phase(tree: Path, tmp_path: Path, phase: str) -> None:
    run = tmp_path / "run"
    with (
        Blocked(lambda stop: scan(tree, run, progress=stop), phase),
        pytest.raises(LockedError, match=r"scan by process \d+ since 20"),
    ):
        scan(tree, run)
    assert value_of(run, "SELECT count(*) FROM images") == 24
    assert scan(tree, run).unchanged


def test_scan_and_recheck_exclude_each_other_and_readers_do_not_wait(
    tree: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    scan(tree, run)
    (tree / "train/cat/0.jpg").unlink()
    with Blocked(lambda stop: scan(tree, run, progress=stop), "judge"):
        with pytest.raises(LockedError, match="scan by process"):
            scanning.recheck(run)
        assert value_of(run, "SELECT count(*) FROM images") == 24
        decide_samples(run, ["train/dog/0.jpg"], Action.KEEP)
    with Blocked(lambda stop: scanning.recheck(run, progress=stop), "judge"):
        for writer in (lambda: scan(tree, run), lambda: scanning.recheck(run)):
            with pytest.raises(LockedError, match="recheck by process"):
                writer()
    assert value_of(run, "SELECT count(*) FROM images") == 23


@pytest.mark.parametrize(
    ("held", "by"), [("the run", "scan by process {} since"), ("its database", "process {}")]
)
def test_the_lock_ends_with_its_process(held: str, by: str, tree: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    claim_run(run)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run), held], stdout=subprocess.PIPE, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=by.format(other.pid)):
            scan(tree, run)
        other.kill()
    assert scan(tree, run).measured == 24  # the text of the dead writer stops nobody


def test_where_there_are_no_locks_the_sentence_names_the_option(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RunError, match=r"scan\.lock=false"):
        scan(tree, tmp_path / "run")
    assert scan(tree, tmp_path / "run", lock=False).measured == 24


def test_a_recheck_of_nothing_makes_no_folder_and_an_error_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run"):
        scanning.recheck(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ZeroDivisionError), hold_run(tmp_path / "run", "scan"):
        raise ZeroDivisionError
    with hold_run(tmp_path / "run", "scan"):
        pass
