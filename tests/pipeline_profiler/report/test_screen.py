"""The end of a measurement on one screen: verdict, causes in order, what is not known."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report.render import to_screen
from pipeline_profiler.report.section import share_text
from pipeline_profiler.report.sections import split_causes
from tests.pipeline_profiler.fakes import made_session, schedule


@pytest.fixture(scope="module")
def session() -> Session:
    rows = schedule(80, 2, 2, 20.0, lambda j: 60.0, stages={"decode": 0.8, "getitem": 0.2})
    made: Session = made_session(rows, 20.0, workers=2, prefetch=2)
    made.results = diagnose_session(made).as_results()
    return made


def cause(code: str, share: float, low: float | None, high: float | None) -> dict[str, Any]:
    return {"code": code, "name": code.lower(), "share": share, "low": low, "high": high,
            "cause": f"what {code} is", "next": f"mend {code}"}  # fmt: skip


def having(session: Session, **results: Any) -> Session:
    other = copy.copy(session)
    other.results = {**session.results, **results}
    return other


def test_it_ends_with_verdict_cause_and_what_to_do(session: Session) -> None:
    text = to_screen(session)
    assert text.startswith("input-bound high: data stall 33.3% of the step")
    assert "A perfect loader would make it 1.50 times as fast" in text
    assert "slow-decode" in text
    assert "    -> " in text
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 96
    for word in ("AU", "HOL", "arm", "shadow", "serialise"):
        assert word not in text.split()


def test_causes_stand_in_the_order_of_what_they_cost_at_least() -> None:
    wide, sure = cause("A", 0.3, 0.05, 0.55), cause("B", 0.2, 0.15, 0.25)
    zero, wild = cause("C", 0.1, -0.02, 0.2), cause("D", 0.2, -3.0, 3.0)
    shown, unsure = split_causes([wide, sure, zero, wild])
    assert ([c["code"] for c in shown], [c["code"] for c in unsure]) == (["B", "A"], ["C", "D"])


def test_what_was_tried_comes_before_what_was_not_where_they_overlap() -> None:
    untried = cause("PIPE028", 0.30, 0.28, 0.32) | {"next": "name its parts (not tried)"}
    tried = cause("PIPE018", 0.29, 0.17, 0.41)
    small = cause("PIPE005", 0.05, 0.03, 0.07)
    shown, _ = split_causes([untried, small, tried])
    assert shown == [tried, untried, small]


def test_what_every_loader_costs_needs_no_explanation(session: Session) -> None:
    session = copy.deepcopy(session)
    session.results["causes"] = []
    assert "not explained" in to_screen(session)
    session.results["verdict"] = "not input-bound"
    assert "not explained" not in to_screen(session)


def test_that_the_step_is_all_there_is_comes_after_what_was_found() -> None:
    shown, _ = split_causes([cause("PIPE000", 0.97, 0.96, 0.98), cause("PIPE014", 0.5, 0.4, 0.6)])
    assert [c["code"] for c in shown] == ["PIPE014", "PIPE000"]


def test_a_cause_that_may_cost_nothing_stands_apart(session: Session) -> None:
    text = to_screen(having(session, causes=[cause("A", 0.1, -0.02, 0.2)]))
    assert "not shown to cost time: a" in text
    assert "mend A" not in text


def test_what_no_cause_explains_is_told(session: Session) -> None:
    stall = {"share": 0.33, "low": 0.31, "high": 0.36}
    some = having(session, stall=stall, causes=[cause("A", 0.1, 0.08, 0.12)])
    assert "not explained: at least 21.0% of the step" in to_screen(some)
    every = having(session, stall=stall, causes=[cause("A", 0.3, 0.28, 0.32)])
    assert "not explained" not in to_screen(every)


def test_an_interval_that_says_nothing_is_cannot_tell(session: Session) -> None:
    wild = {"share": -4.684, "low": -1075.7, "high": 0.97}
    assert share_text(wild) == "cannot tell, the repeats differ too much"
    text = to_screen(having(session, stall=wild, causes=[]))
    assert text.startswith("cannot tell whether the step waits for data")
    assert "--seconds 240" in " ".join(text.split())
    assert "1075" not in text
    assert "perfect loader" not in text
