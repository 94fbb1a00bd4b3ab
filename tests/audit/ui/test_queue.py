"""The queue of decisions by key: each press is recorded once, whatever the browser sends."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from audit.decisions import decisions
from audit.decisions.store import DecisionStore, Entry, whoami
from audit.records import Action
from audit.results.decision_summary import summarise_decisions
from audit.run import run_version
from audit.service.people import REVIEWER, VIEWER, Person
from audit.ui import deciding, link, opened, queue
from audit.ui.queue import queued_in, sent_about, why_stays
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree
from tests.audit.reviewed import findings
from tests.audit.ui.pages import PATIENCE_S, shown, text

pytestmark = pytest.mark.slow

Play = Callable[[str], AppTest]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, run: Path) -> Play:
    """Run a script as the app does, which was started for the run."""
    monkeypatch.setattr(sys, "argv", ["app.py", str(run)])

    def played(script: str) -> AppTest:
        at = AppTest.from_string(script, default_timeout=PATIENCE_S).run()
        assert not at.exception
        return at

    return played


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
    monkeypatch: pytest.MonkeyPatch, play: Play, run: Path, early: bool
) -> None:
    """Before the ledger has it (the link is written first), and after."""
    if early:
        own = SimpleNamespace(put=_interrupted(link.put), get=link.get)
        monkeypatch.setattr(queue, "link", own)
    else:
        # the ledger has it by then, and the page has not gone on
        monkeypatch.setattr(deciding, "say", _interrupted(opened.say))
    finding, members = next(iter(findings(run, "DUP001").items()))
    at = play(SENT_TWICE.format(finding))
    assert sorted(d.subject for d in DecisionStore(run).log()) == sorted([finding, *members])
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
    play: Play, run: Path
) -> None:
    two = list(findings(run, "DUP001") | findings(run, "IMG001"))[:2]
    at = play(SENT_FROM_BEFORE.format(two))
    # after the undo the page is at what is open again
    assert at.session_state["stood"] == ["the third", "the third", two[1]]


# What a command decides while this tab is refused is not what this tab pressed, nor known to it.
REFUSED = """
from audit.decisions import decisions
from audit.records import Action
from audit.ui import queue
from audit.ui.opened import open_chosen_run
import streamlit as st
run, first = open_chosen_run(), {!r}
one = queue.QueuedDecision("1", "keep", "", ("nowhere.jpg",))
two = queue.QueuedDecision("2", "drop", "", (first,))
st.session_state["stays"] = [queue.record_queue(run, [each], None) for each in (one, two)]
"""


def test_what_a_command_decides_meanwhile_is_no_answer_to_a_press(
    monkeypatch: pytest.MonkeyPatch, play: Play, run: Path
) -> None:
    refuse = deciding.record_here

    def late(path: Path, record: Callable[..., Any], *args: Any) -> Any:
        if args[0] == ("nowhere.jpg",):
            decisions.decide_samples(run, [PICTURE], Action.KEEP, by="Bob")
        return refuse(path, record, *args)

    monkeypatch.setattr(deciding, "record_here", late)
    at = play(REFUSED.format(PICTURE))
    assert at.session_state["stays"] == [True, True]  # both were refused, and the page is there
    assert [d.by for d in DecisionStore(run).log()] == ["Bob"]


# A browser asks with the address that it had: here the one from before the latest answer.
ASKED_BEFORE = """
from audit.ui import decisions, link, start
import streamlit as st
if (asks := st.session_state.pop("asks", None)) is None:
    link.turn_to("labels")
    run = st.session_state["run of before"] = decisions.open_chosen_run()
    st.session_state[decisions.SEEN] = run.decisions.revision
    if st.session_state.pop("answers", False):
        link.put(suspect="the next one", image="b.jpg")
    st.session_state["stands"] = link.get("suspect"), link.get("image")
elif asks == "decisions":
    decisions._summary(st.session_state["run of before"])
else:
    start._draw_running(None)
"""


@pytest.mark.parametrize("asks", ["decisions", "work"])
def test_what_a_browser_asks_by_itself_leads_to_nothing_that_was_decided(
    play: Play, run: Path, asks: str
) -> None:
    at = play(ASKED_BEFORE)
    at.query_params.update(suspect="the first", image="a.jpg")
    at.run()
    at.session_state["answers"] = True
    at.run()
    decisions.decide_samples(run, [PICTURE], Action.KEEP, by="Bob")
    at.query_params.update(suspect="the first", image="a.jpg")
    at.session_state["asks"] = asks
    assert not at.run().exception
    assert at.session_state["stands"] == ("the next one", "b.jpg")


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
    assert why_stays("DUP001", 2)
    assert why_stays("SPLIT001", 2)
    assert why_stays("DIST001", 0)
    assert not why_stays("IMG001", 1)


# A page that was drawn once, and presses that arrive faster than it is drawn again.
PICTURE = "train/cat/dark.jpg"
TYPED = """
from audit.records import Action
from audit.decisions import decisions
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


def _typed(play: Play, *typed: tuple[str, str]) -> tuple[str, str]:
    """What was said in the end, as a sentence and its kind."""
    said: tuple[str, str] = play(TYPED.format(typed, PICTURE, PICTURE)).session_state["told"]
    return said


def test_a_picture_is_decided_again_before_the_page_is_drawn(play: Play, run: Path) -> None:
    typed = [("keep", ""), ("drop", ""), ("undo", ""), ("relabel", "dog"), ("label", "cat")]
    said, kind = _typed(play, *typed)
    assert (said, kind) == ("Kept: 1 sample. U undoes it.", "good")  # it is a cat already
    done = [(d.subject, d.verb, d.value, d.undone) for d in reversed(DecisionStore(run).log())]
    assert done == [
        (PICTURE, Action.KEEP, None, False),
        (PICTURE, Action.DROP, None, True),
        (PICTURE, Action.RELABEL, "dog", False),
        (PICTURE, Action.KEEP, None, False),
    ]


def test_what_somebody_else_decided_is_not_decided_by_a_press(play: Play, run: Path) -> None:
    said, kind = _typed(play, ("drop", ""), ("another tab", ""), ("drop", ""))
    assert "has decided this already" in said
    assert kind == "error"
    assert [d.verb for d in DecisionStore(run).log()] == [Action.KEEP, Action.DROP]


@pytest.mark.parametrize("verb", ["nothing", "keeper", "rule", "false-positive", "label"])
def test_what_no_picture_can_be_is_one_sentence(play: Play, run: Path, verb: str) -> None:
    said, kind = _typed(play, (verb, ""))
    assert kind == "error"
    assert "failed with" not in said
    assert not DecisionStore(run).log()


def test_undo_of_nothing_is_reported_in_the_words_of_the_app(play: Play) -> None:
    said, kind = _typed(play, ("undo", ""))
    assert (said, kind) == ("There is no decision to undo.", "good")
    said, _ = _typed(play, ("keep", ""), ("undo", ""), ("undo", ""))
    assert said == "There is no decision to undo."


# One tab, at each run of the script: what it presses, and what is said after that.
TAB = """
from audit.ui import queue
from audit.ui.opened import open_chosen_run
import streamlit as st
for name, verb, finding, samples in st.session_state["presses"]:
    run = open_chosen_run()
    rule, value = ("largest" * (verb == "rule"), ""), "dog" * (verb == "relabel")
    one = queue.QueuedDecision(name, verb, finding, samples, rule, value)
    try:
        queue.record_queue(run, [one], None)
    except KeyboardInterrupt:
        pass
st.session_state["told"] = st.session_state.get("said")
"""
Tab = Callable[..., tuple[str, str]]
Tabs = Callable[..., Tab]


ADA, BOB = Person("Ada", REVIEWER), Person("Bob", REVIEWER)


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch, run: Path) -> Tabs:
    """Open a tab of somebody's browser: `press(verb, finding, samples)` says what is said then."""

    def new(of: Path = run, person: Person = ADA) -> Tab:
        monkeypatch.setattr(sys, "argv", ["app.py", str(of)])
        at = AppTest.from_string(TAB, default_timeout=PATIENCE_S)
        numbers = itertools.count()

        def press(verb: str, finding: str = "", *samples: str) -> tuple[str, str]:
            at.session_state["presses"] = [(f"{id(at)} {next(numbers)}", verb, finding, samples)]
            served = SimpleNamespace(person=lambda cookies, headers: person)
            monkeypatch.setattr(opened, "serving", lambda: served)
            at.run()
            assert not at.exception
            told: tuple[str, str] = at.session_state["told"]
            return told

        return press

    return new


def _undone(run: Path) -> list[bool]:
    return [d.undone for d in reversed(DecisionStore(run).log())]


def test_undo_is_of_ones_own_decisions_in_whichever_tab(tab: Tabs, run: Path) -> None:
    ada, bob, other = tab(), tab(person=BOB), tab()
    ada("drop", "", PICTURE)
    said, kind = bob("undo")
    assert said.startswith("You have no decision to undo.")
    assert kind == ""
    bob("keep", "", "train/cat/0.jpg")
    decisions.decide_samples(run, ["train/cat/1.jpg"], Action.KEEP)  # by a command
    other("keep", "", "train/cat/2.jpg")
    assert [d.by for d in reversed(DecisionStore(run).log())] == ["Ada", "Bob", whoami(), "Ada"]
    before = f"Before it: drop of 1 sample: {PICTURE}."
    said, kind = ada("undo")
    assert (said, kind) == (f"Undid: keep of 1 sample: train/cat/2.jpg. {before}", "good")
    assert other("undo") == (f"Undid: drop of 1 sample: {PICTURE}.", "good")
    assert ada("undo")[1] == ""
    assert _undone(run) == [True, False, False, True]
    bob("undo")
    assert _undone(run) == [True, True, False, True]


def test_who_looks_on_decides_nothing(tab: Tabs, run: Path) -> None:
    decisions.decide_samples(run, [PICTURE], Action.KEEP, by="Eve")
    for eve in (Person("Eve", VIEWER), Person("", REVIEWER)):
        press = tab(person=eve)
        for verb, finding, samples in (
            ("keep", "", [PICTURE]), ("false-positive", next(iter(findings(run, "IMG001"))), []),
            ("undo", "", []),
        ):  # fmt: skip
            assert press(verb, finding, *samples) == (deciding.LOOKING, "error")
    assert _undone(run) == [False]


def test_batches_are_undone_whole_the_latest_first_or_each_by_its_button(
    monkeypatch: pytest.MonkeyPatch, tab: Tabs, run: Path
) -> None:
    press = tab()
    five = [f"train/dog/{n}.jpg" for n in range(4)] + [PICTURE]
    press("relabel", "", PICTURE)
    press("keep", "", *five)
    press("drop", "", PICTURE)
    DecisionStore(run).undo(by="Ada")  # by a command: what is undone is passed over
    decisions.decide_samples(run, ["train/cat/0.jpg"], Action.KEEP, by="Bob")
    at = shown(monkeypatch, "decisions", run)
    named = "train/dog/0.jpg, train/dog/1.jpg, train/dog/2.jpg and 2 more"
    assert f"keep of 5 samples: {named}" in text(at)
    mine = [button for button in at.button if button.label == "Undo" and button.key != "undo"]
    assert len(mine) == 2  # and none for what another decided
    mine[1].click().run()
    assert f"Undid: relabel of 1 sample: {PICTURE}." in text(at)
    assert _undone(run) == [True] + [False] * 5 + [True, False]
    assert press("undo")[0] == f"Undid: keep of 5 samples: {named}."
    assert press("undo")[1] == ""


def test_what_a_finding_was_waived_with_is_named(tab: Tabs, run: Path) -> None:
    press = tab()
    press("false-positive", next(iter(findings(run, "IMG001"))))
    said, _ = press("undo")
    assert said == f"Undid: false-positive of 1 finding: {PICTURE}."


@pytest.mark.parametrize("verb", ["keep", "keeper", "rule"])
def test_what_was_interrupted_after_it_was_recorded_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, tab: Tabs, run: Path, verb: str
) -> None:
    """Streamlit may begin the script anew at any call of its own; the first is when it says so."""
    press = tab()
    monkeypatch.setattr(deciding, "say", _interrupted(opened.say))
    group = next(
        one for one, ids in findings(run, "DUP001").items()
        if all(name.startswith("train/cat") for name in ids)
    )  # fmt: skip
    chosen = {"keeper": ["train/cat/0.jpg"]}.get(verb, [])
    press(verb, group, *chosen)
    assert _undone(run)
    assert not any(_undone(run))
    press("undo")
    assert all(_undone(run))


def test_a_run_that_was_made_again_keeps_its_decisions(tab: Tabs, run: Path) -> None:
    press = tab()
    press("drop", "", PICTURE)
    for path in run.glob("decisions*"):
        path.unlink()
    later = datetime(2030, 1, 1, tzinfo=UTC)
    entry = Entry("sample", PICTURE, None, Action.KEEP, by="Bob")
    DecisionStore(run, lambda: later).record([entry])
    assert press("undo")[1] == ""
    assert _undone(run) == [False]


def test_no_picture_is_dropped_by_a_finding_about_a_box(
    monkeypatch: pytest.MonkeyPatch, tab: Tabs, tmp_path: Path
) -> None:
    document = coco(2, [(1, 5, 6, 0, 10), (1, 5, 6, 20, 10), (2, 5, 6, 20, 10)])
    document["images"][0] |= {"width": 48, "height": 64}
    run = annotated_run(coco_tree(tmp_path / "boxes", document, 2), tmp_path / "boxed-run")
    (degenerate,), (size,) = findings(run, "BOX002").items(), findings(run, "BOX005")
    found, (picture,) = degenerate
    press = tab(run)
    for picked in ((), (picture,)):
        assert press("drop", found, *picked) == (deciding.BOX_STAYS, "error")
    assert not DecisionStore(run).log()
    for code in ("BOX005", "BOX002"):
        at = shown(monkeypatch, "findings", run, code=code)
        keys = [button.key for button in at.button]
        assert ("remove box" in keys) == (code == "BOX002"), "which the queue takes"
    (strip,) = [c for c in at.get("bidi_component") if '"kind": "findings"' in c.proto.json]
    line = json.loads(strip.proto.json)["lines"][0]
    assert (line["box"], line["fixes"]) == (True, True)
    assert [caption for _, caption in line["images"]] == ["as it is", queue.FIXED]
    press("remove-box", found)
    (removed,) = DecisionStore(run).log()
    (fix,) = json.loads(removed.evidence or "")["fixes"]
    assert (removed.verb, fix["what"], fix["entry"], fix["after"]) == (Action.FIX, "drop", 0, None)
    press("undo")
    press("fix", found)
    assert [d.verb for d in DecisionStore(run).log()] == [Action.FIX] * 2
    press("undo")
    press("drop-picture", found)
    assert [(d.verb, d.kind) for d in DecisionStore(run).log()[:2]] == [
        (Action.DROP, "sample"), (Action.DROP, "finding"),
    ]  # fmt: skip
    press("drop", size)
    assert press("remove-box", next(iter(findings(run, "BOX005"))))[1] == "error"


def test_what_was_sent_about_another_run_is_left() -> None:
    sent = {"run": "pets", "entries": []}
    assert sent_about("pets", sent) == sent
    assert sent_about("cars", sent) == sent_about("pets", [1]) == {}


# On the page Labels, K says that the label is right; a picture that is kept elsewhere says nothing.
KEPT = """
from audit.ui import queue
from audit.ui.opened import open_chosen_run
run, one = open_chosen_run(), {!r}
queue.record_queue(run, [queue.QueuedDecision("1", {!r}, "", (one,))], None)
"""


@pytest.mark.parametrize(("verb", "labels"), [("right", {PICTURE: ""}), ("keep", {})])
def test_a_label_that_is_right_is_kept_as_a_review(
    play: Play, run: Path, verb: str, labels: dict[str, str]
) -> None:
    play(KEPT.format(PICTURE, verb))
    assert [d.verb for d in DecisionStore(run).log()] == [Action.KEEP]
    assert summarise_decisions(run, run_version.require(run)).labels == labels
