"""The queue of decisions by key: each press is recorded once, whatever the browser sends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from audit.records import Action
from audit.review.ledger import Ledger
from audit.ui import deciding, link, opened, queue
from audit.ui.queue import may_drop, queued_in, sent_about
from tests.audit.reviewed import findings
from tests.audit.ui.pages import PATIENCE_S

# The browser sends again what was not answered.
SENT_TWICE = """
from audit.ui import link, queue
from audit.ui.opened import open_chosen_run
import streamlit as st
run, gone_on = open_chosen_run(), st.session_state.setdefault("gone on", [])
def then(finding):
    gone_on.append(finding)
    link.put(finding="the next one")
for _ in range(3):
    try:
        queue.record_queue(run, [queue.QueuedDecision("1", "keep", {!r})], then)
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


# The browser answers with the link that it had when it sent.
SENT_FROM_BEFORE = """
from audit.ui import link, queue
from audit.ui.opened import open_chosen_run
import streamlit as st
run, st.session_state["stood"] = open_chosen_run(), []
first, second = {!r}
pressed = [queue.QueuedDecision("1", "keep", first), queue.QueuedDecision("2", "keep", second)]
undo = queue.QueuedDecision("3", "undo", "")
def then(finding):
    link.put(finding={{first: second, second: "the third"}}[finding])
for entries in (pressed, pressed, [*pressed, undo]):
    link.put(finding=second)
    queue.record_queue(run, entries, then)
    st.session_state["stood"].append(link.get("finding"))
"""


def test_a_queue_that_is_sent_again_with_an_older_link_leaves_what_is_decided(
    monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["app.py", str(run)])
    two = list(findings(run, "DUP001") | findings(run, "IMG001"))[:2]
    at = AppTest.from_string(SENT_FROM_BEFORE.format(two), default_timeout=PATIENCE_S).run()
    assert not at.exception
    # after the undo the page is at what is open again
    assert at.session_state["stood"] == ["the third", "the third", two[1]]


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


# A page that was drawn once, and presses that arrive faster than it is drawn again.
PICTURE = "train/cat/dark.jpg"
TYPED = """
from audit.records import Action
from audit.review import decisions
from audit.ui import queue
from audit.ui.opened import open_chosen_run
import streamlit as st
run = open_chosen_run()
for number, (verb, value) in enumerate({!r}):
    if verb == "another tab":
        decisions.decide_samples(run.run, [{!r}], Action.KEEP)
        continue
    samples = () if verb == "nothing" else ({!r},)
    one = queue.QueuedDecision(str(number), "keep" if verb == "nothing" else verb, "", samples,
                               value=value)
    queue.record_queue(run, [one], None)
st.session_state["told"] = st.session_state.get("said")
"""


def _typed(monkeypatch: pytest.MonkeyPatch, run: Path, *typed: tuple[str, str]) -> tuple[str, str]:
    """What was said in the end, as a sentence and its kind."""
    monkeypatch.setattr(sys, "argv", ["app.py", str(run)])
    script = TYPED.format(typed, PICTURE, PICTURE)
    at = AppTest.from_string(script, default_timeout=PATIENCE_S).run()
    assert not at.exception
    said: tuple[str, str] = at.session_state["told"]
    return said


def test_a_picture_is_decided_again_before_the_page_is_drawn(
    monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    typed = [("keep", ""), ("drop", ""), ("undo", ""), ("relabel", "dog"), ("label", "cat")]
    said, kind = _typed(monkeypatch, run, *typed)
    assert (said, kind) == ("Kept: 1 sample. U takes it back.", "good")  # it is a cat already
    done = [(d.subject, d.verb, d.value, d.undone) for d in reversed(Ledger(run).log())]
    assert done == [
        (PICTURE, Action.KEEP, None, False),
        (PICTURE, Action.DROP, None, True),
        (PICTURE, Action.RELABEL, "dog", False),
        (PICTURE, Action.KEEP, None, False),
    ]


def test_what_somebody_else_decided_is_not_decided_by_a_press(
    monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    said, kind = _typed(monkeypatch, run, ("drop", ""), ("another tab", ""), ("drop", ""))
    assert "decided meanwhile" in said
    assert kind == "error"
    assert [d.verb for d in Ledger(run).log()] == [Action.KEEP, Action.DROP]


@pytest.mark.parametrize("verb", ["nothing", "keeper", "rule", "false-positive", "label"])
def test_what_no_picture_can_be_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, run: Path, verb: str
) -> None:
    said, kind = _typed(monkeypatch, run, (verb, ""))
    assert kind == "error"
    assert "failed with" not in said
    assert not Ledger(run).log()


def test_taking_back_nothing_is_said_in_the_words_of_the_app(
    monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    said, kind = _typed(monkeypatch, run, ("undo", ""))
    assert (said, kind) == ("There is no decision to take back.", "good")
    said, _ = _typed(monkeypatch, run, ("keep", ""), ("undo", ""), ("undo", ""))
    assert said == "There is no decision to take back."


def test_what_was_sent_about_another_run_is_left() -> None:
    sent = {"run": "pets", "entries": []}
    assert sent_about("pets", sent) == sent
    assert sent_about("cars", sent) == sent_about("pets", [1]) == {}
