"""The queue of decisions by key: each press is recorded once, whatever the browser sends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from audit.review.ledger import Ledger
from audit.ui import deciding, link, opened, queue
from audit.ui.queue import may_drop, queued_in
from tests.audit.reviewed import findings
from tests.audit.ui.pages import PATIENCE_S

# The browser sends again what was not answered.
SENT_TWICE = """
from audit.ui import queue
from audit.ui.opened import open_chosen_run
import streamlit as st
run, gone_on = open_chosen_run(), st.session_state.setdefault("gone on", [])
for _ in range(3):
    try:
        queue.record_queue(run, [queue.QueuedDecision("1", "keep", {!r})], gone_on.append)
    except KeyboardInterrupt:  # as Streamlit begins a script anew: past every `except Exception`
        pass
"""


@pytest.mark.parametrize("early", [True, False])
def test_a_press_that_was_interrupted_is_recorded_once_when_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, run: Path, early: bool
) -> None:
    """Before the ledger has it (the link is written first), and after."""
    monkeypatch.setattr(sys, "argv", ["app.py", str(run)])
    if early:
        own = SimpleNamespace(put=_interrupted(link.put), get=link.get)
        monkeypatch.setattr(queue, "link", own)
    else:
        # the ledger has it by then, and the page has not gone on
        monkeypatch.setattr(deciding, "say", _interrupted(opened.say))
    finding, members = next(iter(findings(run, "DUP001").items()))
    at = AppTest.from_string(SENT_TWICE.format(finding), default_timeout=PATIENCE_S).run()
    assert not at.exception
    assert sorted(d.subject for d in Ledger(run).log()) == sorted([finding, *members])
    assert at.session_state["gone on"] == [finding]


def _interrupted(act: Callable[..., None]) -> Callable[..., None]:
    """The same, interrupted at its first call."""
    times: list[int] = []

    def once(*args: Any, **named: Any) -> None:
        times.append(1)
        if len(times) == 1:
            raise KeyboardInterrupt
        act(*args, **named)

    return once


@pytest.mark.parametrize(
    "sent",
    [None, 3, "x", [], {"entries": 3}, {"entries": [1, None, {"verb": "format"}, {"id": "a"}]},
     {"entries": [{"verb": ["drop"]}]}],
)  # fmt: skip
def test_what_is_no_queue_is_an_empty_one(sent: object) -> None:
    assert queued_in(sent) == []


def test_an_entry_comes_through_with_texts_only() -> None:
    entry = {"id": "a", "verb": "drop", "finding": "f", "samples": ["x.jpg", 3, None]}
    (one,) = queued_in({"count": 1, "entries": [entry]})
    assert (one.id, one.verb, one.finding, one.samples) == ("a", "drop", "f", ("x.jpg",))


def test_copies_are_never_offered_to_be_dropped_whole() -> None:
    assert not may_drop("DUP001", 2)
    assert not may_drop("SPLIT001", 2)
    assert not may_drop("DIST001", 0)
    assert may_drop("IMG001", 1)
