"""Background jobs: what is reported of them, and that they end; and how the app is started."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from audit.decisions.decisions import decide_samples
from audit.errors import RunError
from audit.records import Action
from audit.run import run_version, writer_lock
from audit.service import work
from audit.service.work import Job, Stage
from audit.ui import server
from tests.conftest import ROOT

PATIENCE_S = 300


class Ended:
    """A process that has ended with a code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def wait(self, timeout: float | None = None) -> int:
        return self.code


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def job(code: int = 0) -> tuple[Job, Clock]:
    clock = Clock()
    process = cast("subprocess.Popen[str]", Ended(code))
    return Job("Scan of pets", Path("run"), process, clock=clock), clock


def line(**facts: Any) -> str:
    return json.dumps(facts)


def test_progress_has_a_rate_and_time_left_once_they_can_be_known() -> None:
    made, clock = job()
    made.hear({"phase": "measure", "done": 100, "total": 500, "errors": 0})
    assert made.stage == Stage("Reading images", 100, 500, 0, None, None)
    clock.now = 2.0
    made.hear({"phase": "measure", "done": 200, "total": 500, "errors": 3})
    assert made.stage == Stage("Reading images", 200, 500, 3, 50.0, 6.0)
    assert made.stage.share == pytest.approx(0.4)
    made.hear({"phase": "judge", "done": 0, "total": 30, "errors": 0})
    assert made.stage.rate is None  # another phase has another pace


@pytest.mark.parametrize(
    ("code", "last", "state", "said"),
    [
        (0, {"result": "24 files read."}, "done", "24 files read."),
        (2, {"error": "There is nothing at /x."}, "failed", "There is nothing at /x."),
        (-9, {"phase": "list", "done": 1, "total": 0, "errors": 0}, "failed", "code -9"),
    ],
)
def test_the_last_word_and_the_code_settle_a_job(
    code: int, last: dict[str, Any], state: str, said: str
) -> None:
    made, _ = job(code)
    made.follow(["not json\n", line(**last)])
    assert made.state == state
    assert said in made.said


@pytest.mark.slow
def test_a_real_worker_scans(tree: Path, tmp_path: Path) -> None:
    made = work.start_job("work", "scan", tmp_path / "run", [str(tree)])
    assert made.followed.wait(PATIENCE_S)
    assert (made.state, made.makes_run) == ("done", True)
    assert made.said.startswith("24 files read, in ")
    assert made.stage.phase == "Running checks"
    assert run_version.require(tmp_path / "run")


@pytest.mark.slow
def test_a_worker_ends_with_the_app_that_started_it(tree: Path, tmp_path: Path) -> None:
    with writer_lock.hold_run(tmp_path / "run", "scanned"):
        locked = work.start_job("work", "scan", tmp_path / "run", [str(tree)])
        assert locked.followed.wait(PATIENCE_S)
        assert (locked.state, locked.code) == ("failed", work.LOCKED)
    code = "import signal, time; from audit.service import work; "
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN); "  # as a shell does in the background
    code += "work.end_with_the_app(); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        process.communicate(timeout=PATIENCE_S)  # its input is closed, as by a kill
    assert process.returncode


def worked(capsys: pytest.CaptureFixture[str], *words: object) -> Job:
    """The job that followed a worker, which ran in this process."""
    code = work.main([str(word) for word in words])
    made, _ = job(code)
    made.follow(capsys.readouterr().out.splitlines())
    return made


@pytest.mark.slow
def test_a_worker_checks_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = worked(capsys, "recheck", run)
    assert made.said.startswith("The checks ran again")
    assert made.stage.phase == "Running checks"
    assert len(list(run_version.require(run).path.glob("findings-*.duckdb"))) == 2


@pytest.mark.slow
def test_a_worker_makes_the_folder_of_the_kept_set(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decide_samples(run, ["train/cat/dark.jpg"], Action.DROP)
    out = tmp_path / "clean"
    made = worked(capsys, "apply", run, out, "copy")
    assert (made.state, made.stage.phase) == ("done", "Making files")
    assert made.said.startswith("22 files made")  # the file that cannot be decoded stays out
    assert not (out / "train" / "cat" / "dark.jpg").exists()
    assert (out / "manifest.csv").is_file()
    assert "Traceback" not in worked(capsys, "apply", run, out, "hardlink").said


def test_a_mistake_of_the_caller_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = worked(capsys, "scan", tmp_path / "run", tmp_path / "nothing")
    assert made.state == "failed"
    assert str(tmp_path / "nothing") in made.said
    assert "Traceback" not in made.said


@pytest.mark.slow
def test_a_cancelled_scan_ends_and_publishes_nothing(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = work.start_job("work", "scan", tmp_path / "run", [str(tree)], makes=out)
    assert (made.target, made.makes_run) == (out, False)
    made.cancel()
    made.followed.wait(PATIENCE_S)
    assert made.state == "cancelled"
    assert "start again to resume" in made.said
    assert run_version.current(tmp_path / "run") is None
    made.cancel()  # twice does no harm


def test_the_app_serves_this_machine_alone_and_reports_to_nobody(tmp_path: Path) -> None:
    line = server.command([str(tmp_path)])
    assert line[:3] == [sys.executable, "-m", "audit.ui.server"]
    assert server.SCRIPT == ROOT / "dataset_preflight" / "app.py"
    said = json.loads(line[3])["options"]
    assert said["server.address"] == "127.0.0.1"
    assert said["browser.gatherUsageStats"] is False
    assert said["client.showErrorDetails"] == "none"
    with pytest.raises(RunError, match="There is nothing at"):
        server.command([str(tmp_path / "nothing")])


def test_streamlit_run_app_py_has_the_same_settings() -> None:
    """`streamlit run app.py` reads a file, `audit app` passes options: they must agree."""
    file = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())

    def flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in table.items():
            out |= (
                flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
            )
        return out

    passed = server.options()
    for name, value in flat(file).items():
        expected = json.dumps(value) if isinstance(value, list) else value
        assert passed[name] == expected, name


def test_a_worker_that_ends_without_a_result_has_failed() -> None:
    for lines, state in (([], "failed"), ([line(result="24 files read.")], "done")):
        made, _ = job(code=0)
        made.follow(lines)
        assert made.state == state
