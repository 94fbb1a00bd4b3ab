"""What is started: a script, a module, or a program that this environment has."""

import sys
from pathlib import Path

import pytest

from pipeline_profiler.profiling.monitor.hook import sitecustomize
from pipeline_profiler.profiling.monitor.launch import command_of, script_of
from pipeline_profiler.profiling.record.errors import ProfileError


def test_a_program_beside_this_python_is_found_without_the_shells_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    program = str(Path(sys.executable).parent / "torchrun")
    assert command_of(["torchrun", "--nproc-per-node", "2"]) == [program, "--nproc-per-node", "2"]


def test_a_python_runs_scripts_and_modules_and_brings_its_programs(tmp_path: Path) -> None:
    script, other = tmp_path / "train.py", str(tmp_path / "bin" / "python")
    script.write_text("")
    (tmp_path / "bin").mkdir()
    for program in ("python", "torchrun"):
        (tmp_path / "bin" / program).touch(0o755)
    for named, python in (("", sys.executable), (other, other)):
        assert command_of([str(script), "x"], python=named) == [python, str(script), "x"]
        assert command_of(["-m", "job", "x"], python=named) == [python, "-m", "job", "x"]
    assert command_of(["python", str(script)], python=other) == [other, str(script)]
    beside = str(tmp_path / "bin" / "torchrun")
    assert command_of(["torchrun", "train.py"], python=other) == [beside, "train.py"]
    assert Path(command_of(["sh"], python=other)[0]).name == "sh"  # of the shell


def test_a_python_that_is_too_old_is_told_and_the_script_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sitecustomize, "OLDEST", (99, 1))
    sitecustomize._loaded("torch.utils.data.dataloader", None)
    runs = "{}.{}".format(*sys.version_info)
    assert capsys.readouterr().err == (
        "pipeline-profiler: this process is not watched: it needs Python 99.1 or newer, and runs "
        f"{runs}.\n"
    )


@pytest.mark.parametrize("name", ["absent.py", "no_such_program"])
def test_what_cannot_be_started_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="no script and no program"):
        command_of([name])


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["train.py", "--lr", "1"], "train.py"),
        (["python", "-u", "job/train.py"], "job/train.py"),
        (["-m", "job.train", "x"], "job.train"),
        (["python", "-m", "job", "y.py"], "job"),
        (["torchrun", "--nproc-per-node", "2"], "torchrun"),
    ],
)
def test_the_script_of_a_command_line_is_named(words: list[str], script: str) -> None:
    assert script_of(words) == script
