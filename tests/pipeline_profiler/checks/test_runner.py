"""Running checks: errors of users and of ours, budgets, interrupts, what is put back."""

import json
import random
import time
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.check import Check, Nearness, passed, select_checks, unclear, wrong
from pipeline_profiler.checks.document import checks_document, checks_json, checks_text
from pipeline_profiler.checks.runner import run_check, run_checks
from pipeline_profiler.checks.user_code import Patience, UsersError, call_with, users_code
from pipeline_profiler.profiling.record.errors import ProfileError


class Subject:
    deadline = 0.0


def made(code: str, run: Any, nearness: Nearness = Nearness.CAUSE) -> Check:
    class Made(Check):
        """No page."""

        def run(self, subject: Any) -> Any:
            return run()

    Made.code, Made.name, Made.nearness = code, code.lower(), nearness
    return Made()


def raising(error: BaseException) -> Any:
    def run() -> Any:
        raise error

    return run


GOOD = made("TRAIN901", lambda: passed("All is well.", count=np.int64(3)))
BAD = made("TRAIN902", lambda: wrong("It is bad.", ["this"], "Do that.", nan=float("nan")))
LATE = made("TRAIN900", lambda: wrong("It follows.", ["x"], "y."), Nearness.SYMPTOM)


def test_a_check_of_ours_that_breaks_does_not_stop_the_others() -> None:
    users = made("TRAIN900", raising(UsersError("make_model() failed.")))
    report = run_checks([made("TRAIN899", raising(KeyError("x"))), users, GOOD], Subject(), 10)
    assert [r.check.code for r in report.broken] == ["TRAIN899"]
    users_result = report.results[1]  # what the user's code raises is an answer, not our fault
    assert (users_result.broken, users_result.users) == ("", True)
    assert [r.answer.judgement for r in report.results[1:]] == ["inconclusive", "passed"]
    assert not report.failed
    late = run_checks([GOOD, BAD], Subject(), -1)  # the budget ends the run
    assert not late.results
    assert "TRAIN901, TRAIN902" in late.ended


def test_ctrl_c_keeps_the_answers_there_are() -> None:
    stop = made("TRAIN905", raising(KeyboardInterrupt()))
    report = run_checks([GOOD, stop, made("TRAIN906", lambda: passed("x."))], Subject(), 10)
    assert report.interrupted
    assert [r.check.code for r in report.results] == ["TRAIN901"]
    assert "TRAIN905" in checks_text(report, "train.py")


def test_a_call_that_hangs_is_ended() -> None:
    result = run_check(made("TRAIN907", lambda: time.sleep(600)), Subject(), limit_s=0.2)
    assert "hangs or is slow" in result.answer.sentence


def test_generators_are_put_back() -> None:
    def draw() -> Any:
        random.seed(1)
        np.random.seed(1)
        return unclear("Drawn.")

    before = random.getstate(), np.random.get_state()[1].tolist()
    run_check(made("TRAIN908", draw), Subject(), seed=7)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_failure_stands_first_with_its_line_and_the_rest_is_counted() -> None:
    doubt = made("TRAIN003", lambda: unclear("Nobody knows."))
    report = run_checks([LATE, GOOD, BAD, doubt], Subject(), 9)
    report.unreached = ("a second epoch",)
    report.places = {"optimizer": "/src/train.py:7:4-7:20"}
    lines = checks_text(report, "train.py").splitlines()
    assert lines[:2] == ["Checks of training train.py", ""]
    assert lines[2].startswith("TRAIN902 train902: ")  # causes before symptoms
    assert lines[3:5] == ["  Likely cause: this.", "  Next: Do that."]
    assert lines[10:] == [
        "Not reached by the script: a second epoch.",
        "Inconclusive",
        "  TRAIN003 train003: Nobody knows.",
        "",
        "2 failed, 1 passed, 1 inconclusive, 0 not applicable, 0 skipped (--full lists all checks)",
    ]
    document = json.loads(checks_json(report, "train.py"))
    assert document == checks_document(report, "train.py")
    assert list(document["summary"].values()) == [2, 1, 1, 0, 0]
    assert document["failed"] == ["TRAIN902", "TRAIN900"]
    by_code = {check["code"]: check for check in document["checks"]}
    assert by_code["TRAIN901"]["evidence"] == {"count": 3}
    assert by_code["TRAIN902"]["evidence"] == {"nan": "nan"}
    assert by_code["TRAIN003"]["place"] == "train.py:7"
    assert {check["location"] for check in document["checks"]} == {None}  # no such file


def test_checks_are_chosen_by_code_prefix_or_name() -> None:
    codes = [c.code for c in select_checks("LOAD", ["LOAD001", "input-scale"])]
    assert codes == ["LOAD001", "LOAD008"]
    assert "LOAD002" not in [c.code for c in select_checks("LOAD", skip=["LOAD002"])]
    with pytest.raises(ProfileError, match="No check of LOAD is called 'x'"):
        select_checks("LOAD", ["x"])


def test_known_errors_come_with_their_fix() -> None:
    with pytest.raises(UsersError, match="smaller batch"), users_code("make_model()"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")


def test_a_factory_gets_what_it_asks_for_by_name() -> None:
    offers = {"model": 1, "optimizer": 2}
    assert call_with(lambda: 0, offers, "f()") == 0
    assert call_with(lambda optimizer: optimizer, offers, "f()") == 2
    assert call_with(lambda net: net, offers, "f()") == 1
    assert call_with(lambda model, extra=5: (model, extra), offers, "f()") == (1, 5)
    with pytest.raises(UsersError, match=r"f\(\) takes the argument root"):
        call_with(lambda root: root, {}, "f()")


@pytest.mark.parametrize(
    ("clock", "work", "over", "left"),
    [
        (60, 30, False, 140),  # time that others use is no work
        (200, 20, False, 100),
        (301, 0, True, -1),
        (0, 200, False, 100),  # threads that share the work are not counted twice
    ],
)
def test_work_ends_it_and_the_rest_is_at_the_speed_there_was(
    clock: float, work: float, over: bool, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: clock)
    monkeypatch.setattr("time.process_time", lambda: work)
    patience = Patience(work=100, wall=300, began=(0, 0))
    assert (patience.over, patience.left) == (over, pytest.approx(left))
