"""The command line end to end on real small loops; structure only, no times."""

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.cli.arguments import bound
from pipeline_profiler.profiling.diagnose import verdict
from pipeline_profiler.profiling.record.session import ProfileError, Session
from preflight.ending import ExitCode, strongest
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import broken_rule, made_session, schedule

pytestmark = pytest.mark.slow

TRAIN = """
import time

class Loader:
    def __iter__(self):
        for i in range(200):
            time.sleep(0.004)
            yield i

def make_loader():
    return Loader()

def make_step():
    return lambda batch: time.sleep(0.004)

def make_nothing():
    return 3

def make_none():
    return None

def make_broken():
    def rows():
        for i in range(12):
            yield i
        raise OSError("disk 3 is gone")
    class Broken:
        def __iter__(self):
            return rows()
    return Broken()
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"train_{abs(hash(str(tmp_path)))}.py"
    path = tmp_path / name
    path.write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return path


def run(*argv: Any) -> int:
    return main.command_line([str(a) for a in argv])


FAST = ("--quick", "--repeats", "3", "--steps", "20", "--seconds", "2")


def test_run_prints_one_document_and_saves_a_session(
    train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        "run",
        f"{train}:make_loader",
        "--step",
        f"{train}:make_step",
        *FAST,
        "--json",
        "-o",
        "s.json",
    )
    out = capsys.readouterr()
    document = json.loads(out.out)
    assert code == 0
    assert document["schema"] == "profile/1"
    assert {"verdict", "stall", "causes", "arms", "environment"} <= set(document)
    assert "repeats of the step" in out.err
    assert Session.load("s.json").results["verdict"] == document["verdict"]


def test_fail_on_is_an_exit_code(
    tmp_path: Path, train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    path = path.save(tmp_path / "stalled.json")
    assert run("report", path, "--fail-on", "stall>20%") == 1
    assert run("report", path, "--fail-on", "stall>99%") == 0
    made = (f"{train}:make_loader", "--emulate-step-ms", "4", *FAST)
    assert run("run", *made, "--fail-on", "stall>100%") == 0  # no interval lies above the whole
    assert "GPU starvation" not in capsys.readouterr().out


def test_a_failed_rule_is_exit_code_3_and_trace_shows_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verdict, "COMPUTE_RULES", (broken_rule, *verdict.COMPUTE_RULES))
    made = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    path = made.save(tmp_path / "unjudged.json")
    assert run("report", path) == 3
    out = capsys.readouterr()
    assert "The rule broken_rule failed (ZeroDivisionError: no batch at all" in out.out
    assert "Traceback" not in out.err
    assert run("report", path, "--fail-on", "stall>20%", "--trace") == 3  # 3 before 1
    assert "Traceback" in capsys.readouterr().err
    made.results = verdict.diagnose_session(made).as_results()
    path = made.save(tmp_path / "judged.json")
    assert run("report", path) == 3
    assert run("report", path, "--trace") == 3
    assert 'raise ZeroDivisionError("no batch at all")' in capsys.readouterr().err


def test_a_measurement_with_a_failed_rule_is_saved_and_exits_with_3(
    train: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verdict, "COMPUTE_RULES", (broken_rule, *verdict.COMPUTE_RULES))
    assert run("run", f"{train}:make_loader", "--emulate-step-ms", "4", *FAST, "--json") == 3
    document = json.loads(capsys.readouterr().out)
    assert [failed["rule"] for failed in document["failed_rules"]] == ["broken_rule"]
    assert Session.load("profile.json").results["failed_rules"] == document["failed_rules"]


@pytest.mark.parametrize(
    ("codes", "worst"),
    [((0, 1), 1), ((1, 3), 3), ((3, 2), 2), ((2, 4, 1), 4), ((4, 130), 130), ((0, 0), 0)],
)
def test_the_most_severe_exit_code_wins(codes: tuple[int, ...], worst: int) -> None:
    assert strongest(*map(ExitCode, codes)) == worst


def test_every_report_format(train: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("run", f"{train}:make_loader", "--emulate-step-ms", "4", *FAST)
    for name in ("r.html", "r.md", "r.txt", "r.json", "r.trace.json.gz"):
        assert run("report", "profile.json", "-o", name) == 0
        assert Path(name).stat().st_size > 100
    html = Path("r.html").read_text()
    assert "<svg" in html
    assert "<script" not in html
    assert "://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert json.loads(Path("r.json").read_text())["schema"] == "profile/1"
    assert run("report", "profile.json", "-o", "r.pdf") == 2
    assert "use .txt, .md" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("run", "--ceiling"), ("replay",)])
def test_the_ceiling_is_an_option_of_run(
    words: tuple[str, ...], train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, f"{train}:make_loader", "--emulate-step-ms", "4", *FAST) == 0
    assert "ceiling" in capsys.readouterr().out


def test_compare_of_a_session_with_itself_tells_no_difference(
    train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("run", f"{train}:make_loader", "--emulate-step-ms", "4", *FAST)
    capsys.readouterr()
    assert run("compare", "profile.json", "profile.json", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["speedup"]["low"] <= 1 <= result["speedup"]["high"]
    assert "no difference" in result["sentence"]


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        ("nothing.py:make", "is not FILE.py:FUNCTION"),
        ("{}:absent", "has no function absent"),
        ("{}:make_nothing", "No adapter knows how to iterate"),
        ("{}:make_none", "No adapter knows how to iterate"),
        ("{}", "is not FILE.py:FUNCTION"),
    ],
)
def test_wrong_loaders_are_one_sentence(
    train: Path, capsys: pytest.CaptureFixture[str], loader: str, words: str
) -> None:
    assert run("run", loader.format(train), "--emulate-step-ms", "4") == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_a_step_that_is_no_function(train: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("run", f"{train}:make_loader", "--step", f"{train}:make_nothing")
    assert code == 2
    assert "must return a function step(batch)" in capsys.readouterr().err


def test_a_missing_extra_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wants_torch_x.py"
    path.write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    assert run("run", f"{path}:make") == 2
    assert "pip install 'dataset-preflight[torch]'" in capsys.readouterr().err


def test_a_loader_that_cannot_be_made_saves_nothing(
    train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.write_text("def make(): raise RuntimeError('no such bucket')")
    assert run("run", f"{train}:make", "--emulate-step-ms", "1", *FAST) == 2
    assert "no such bucket" in capsys.readouterr().err
    assert not Path("profile.json").exists()


def test_a_loader_that_breaks_keeps_what_was_measured(
    train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", f"{train}:make_broken", "--emulate-step-ms", "1", *FAST) == 2
    err = capsys.readouterr().err
    assert "The loader raised OSError after 12 batches: disk 3 is gone" in err
    assert "partial session is saved in profile.json" in err
    assert Session.load("profile.json").partial


@pytest.mark.parametrize("text", ["stall", "wait>2%", "stall>x", "stall<3%"])
def test_wrong_bounds_are_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="stall>20%"):
        bound(text)


def test_bounds_are_read_with_and_without_percent() -> None:
    assert bound("stall>20%") == ("stall", 0.2)
    assert bound("stall > 0.2") == ("stall", 0.2)


def test_every_option_has_a_help_text() -> None:
    (commands,) = (a for a in main.parser()._actions if isinstance(a, argparse._SubParsersAction))
    silent = [
        f"{name} {action.dest}"
        for name, command in commands.choices.items()
        for action in command._actions
        if not action.help
    ]
    assert len(commands.choices) >= 7
    assert not silent


def test_help_loads_no_framework_and_no_numpy() -> None:
    code = textwrap.dedent(
        """
        import sys
        import pipeline_profiler.cli.main as cli
        try:
            cli.command_line(["--help"])
        except SystemExit as end:
            assert end.code == 0
        heavy = {"torch", "tensorflow", "numpy", "streamlit", "scipy"} & set(sys.modules)
        assert not heavy, heavy
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "COMMAND" in done.stdout


def test_the_recorder_needs_the_standard_library_only() -> None:
    code = (
        "import sys\nfrom pipeline_profiler import Recorder\n"
        "list(Recorder().watch([1, 2]))\n"
        "assert not {'numpy', 'torch', 'tensorflow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_saves_a_partial_session(train: Path) -> None:
    root = ROOT
    argv = [sys.executable, "-m", "pipeline_profiler", "run", f"{train}:make_loader"]
    argv += ["--emulate-step-ms", "20", "-o", "cut.json"]
    env = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "block 1" in line:
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=30) == 130
    assert "partial session is saved in cut.json" in rest
    assert Session.load("cut.json").partial
