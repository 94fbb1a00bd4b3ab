"""What is started: a script, a module, or a program that this environment has."""

import sys
from pathlib import Path

import pytest

from pipeline_profiler.record.errors import ProfileError
from pipeline_profiler.watching.launch import command_of


def test_a_program_beside_this_python_is_found_without_the_shells_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    program = str(Path(sys.executable).parent / "torchrun")
    assert command_of(["torchrun", "--nproc-per-node", "2"]) == [program, "--nproc-per-node", "2"]


def test_a_script_and_a_module_run_with_this_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert command_of([str(script), "--lr", "1"]) == [sys.executable, str(script), "--lr", "1"]
    assert command_of(["-m", "job", "x"]) == [sys.executable, "-m", "job", "x"]


@pytest.mark.parametrize("name", ["absent.py", "no_such_program"])
def test_what_cannot_be_started_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="no script and no program"):
        command_of([name])
