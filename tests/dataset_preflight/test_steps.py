"""Steps run one after another; a failure costs one of them, and what is current is not repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dataset_preflight.foundation.steps import (
    LATE,
    Outcome,
    Step,
    read_outcomes,
    run_step,
    run_steps,
    write_outcomes,
)


def silent(text: str) -> None:
    return


def step(folder: Path, name: str, code: str, **more: object) -> Step:
    values = {"limit_s": 0.0, "inputs": "a", "result": folder / f"{name}.json"} | more
    return Step(name, [sys.executable, "-c", code], **values)  # type: ignore[arg-type]


def test_a_step_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    outcomes: dict[str, Outcome] = {}
    written: list[int] = []
    steps = [step(tmp_path, "bad", "raise SystemExit(3)"), step(tmp_path, "good", "print('x')")]
    assert not run_steps(steps, {}, outcomes, silent, lambda: written.append(len(outcomes)))
    assert [o.code for o in outcomes.values()] == [3, 0]
    assert outcomes["good"].output == "x\n"
    assert written == [1, 2]


def test_only_steps_with_other_inputs_run_again(tmp_path: Path) -> None:
    before = {"same": Outcome(0, 1.0, "kept", "a"), "other": Outcome(0, 1.0, "old", "b")}
    before["unknown"] = Outcome(0, 1.0, "old", "")
    steps = [step(tmp_path, name, "print('new')") for name in ("same", "other")]
    steps.append(step(tmp_path, "unknown", "print('new')", inputs=""))
    outcomes: dict[str, Outcome] = {}
    run_steps(steps, before, outcomes, silent, lambda: None)
    assert [o.output for o in outcomes.values()] == ["kept", "new\n", "new\n"]


def test_a_step_that_needs_a_failed_one_ends_as_that_did(tmp_path: Path) -> None:
    first = step(tmp_path, "first", "raise SystemExit('no module')")
    outcomes: dict[str, Outcome] = {}
    steps = [first, step(tmp_path, "second", "print('ran')", needs=first)]
    run_steps(steps, {}, outcomes, silent, lambda: None)
    assert outcomes["second"].output == outcomes["first"].output == "no module\n"


def test_a_result_of_an_earlier_run_is_no_result_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("old")
    run_step(step(tmp_path, "x", "raise SystemExit(1)"), silent)
    assert not (tmp_path / "x.json").exists()


CHILD = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '61.5']); time.sleep(60)"


def test_a_step_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    outcome = run_step(step(tmp_path, "x", CHILD, limit_s=2.0), silent)
    assert outcome.code == LATE
    assert "61.5" not in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout


def test_ctrl_c_ends_the_step_and_keeps_what_there_is(tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    outcomes: dict[str, Outcome] = {}
    steps = [step(tmp_path, "a", "print(1)"), step(tmp_path, "b", CHILD), step(tmp_path, "c", "")]
    assert run_steps(steps, {}, outcomes, interrupt, lambda: None)
    assert list(outcomes) == ["a"]


def test_standard_input_from_a_file_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("yes\n")
    code = (
        "from pathlib import Path; from dataset_preflight.foundation.steps import *; import sys; "
        "s = Step('x', [sys.executable, '-c', 'print(input())'], 0, '', Path('none')); "
        "print([run_step(s, print).output for _ in range(2)])"
    )
    with (tmp_path / "answers").open() as file:
        done = subprocess.run(
            [sys.executable, "-c", code], stdin=file, capture_output=True, text=True, check=True
        )
    assert done.stdout.strip() == "['yes\\n', 'yes\\n']"


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": {"code": 1}}'])
def test_a_damaged_record_repeats_every_step(tmp_path: Path, text: str) -> None:
    (tmp_path / "steps.json").write_text(text)
    assert read_outcomes(tmp_path) == {}
    write_outcomes(tmp_path, {"a": Outcome(0, 1.0, "x", "y")})
    assert read_outcomes(tmp_path) == {"a": Outcome(0, 1.0, "x", "y")}
