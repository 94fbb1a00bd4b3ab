"""Loaders that hang end at the limit, with what was measured and with where they hang."""

from pathlib import Path

import pytest

from pipeline_profiler.record.session import Session
from tests.pipeline_profiler.cli.loaders import (
    FAST,
    SOURCE,
    TORCH_SOURCE,
    interrupt_when,
    profile,
    write_source,
)

pytestmark = pytest.mark.slow
LIMIT = ("--limit", "2")


def cut_off(folder: Path) -> dict[str, object]:
    session = Session.load(folder / "s.json")
    assert session.partial
    return session.results["cut_off"]


@pytest.mark.parametrize(
    ("loader", "line"),
    [
        ("hang_in_next", "sleep_for_ever: time.sleep(1000)"),
        ("hang_at_once", "sleep_for_ever: time.sleep(1000)"),
        ("hang_deaf", "swallow_all: time.sleep(1000)"),
        ("hang_in_close", "__iter__: time.sleep(1000)"),
    ],
)
def test_a_loader_that_hangs_is_ended_with_where_it_hangs(
    tmp_path: Path, loader: str, line: str
) -> None:
    train = write_source(tmp_path, SOURCE)
    done = profile("run", f"{train}:{loader}", *FAST, *LIMIT, "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Nothing happened for" in done.stderr
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert cut_off(tmp_path)["stacks"]
    report = profile("report", "s.json", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "This session is partial" in report.stdout
    assert line in report.stdout


def test_c_code_that_keeps_the_interpreter_is_ended_from_outside(tmp_path: Path) -> None:
    train = write_source(tmp_path, SOURCE)
    done = profile("run", f"{train}:hang_in_c", *FAST, "--limit", "1", "-o", "s.json", cwd=tmp_path)
    assert done.returncode == -9, done.stderr
    assert "hold_the_interpreter" in done.stderr
    assert cut_off(tmp_path)["where"] == "uninterruptible"
    report = profile("report", "s.json", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert "hold_the_interpreter" in report.stdout


@pytest.mark.parametrize(
    ("loader", "line"), [("make_loader", "load_slowly"), ("make_stuck", "wait_at_start")]
)
def test_the_stack_of_a_worker_that_hangs_is_shown(tmp_path: Path, loader: str, line: str) -> None:
    train = write_source(tmp_path, TORCH_SOURCE)
    done = profile("run", f"{train}:{loader}", *FAST, "--limit", "5", "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"{line}: time.sleep(1000)" in done.stderr
    assert "Traceback" not in done.stderr
    stacks = cut_off(tmp_path)["stacks"]
    assert [s["of"].partition(" process")[0] for s in stacks] == ["the training", "worker"]


def test_ctrl_c_in_a_hanging_loader_keeps_what_there_is(tmp_path: Path) -> None:
    train = write_source(tmp_path, SOURCE)
    code, said = interrupt_when(
        tmp_path, "block 1", "run", f"{train}:hang_in_next", *FAST, "-o", "s.json"
    )
    assert code == 130
    assert "The partial session is saved in s.json" in said
    assert "Traceback" not in said
    assert Session.load(tmp_path / "s.json").partial


def test_a_loader_that_leaves_the_program_does_not_end_it(tmp_path: Path) -> None:
    train = write_source(tmp_path, SOURCE)
    done = profile("run", f"{train}:leave", *FAST, "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "raised SystemExit" in done.stderr
    assert Session.load(tmp_path / "s.json").partial


@pytest.mark.parametrize("command", ["replay", "tune", "sweep"])
def test_every_measuring_command_keeps_what_a_broken_loader_gave(
    tmp_path: Path, command: str
) -> None:
    train = write_source(tmp_path, SOURCE.replace("counted(60, fail)", "counted(3, fail)"))
    done = profile(command, f"{train}:broken", *FAST, "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback (most recent" not in done.stderr
    if command != "sweep":  # which refuses a loader without settings before it measures
        assert "raised OSError" in done.stderr
        assert Session.load(tmp_path / "s.json").partial
