"""A decision on all that fit: counted, shown, one batch, one undo."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.decisions.decisions import tagged_samples
from audit.decisions.ledger import Ledger
from audit.records import Action
from tests.audit.ui.pages import Show, link_of, text

pytestmark = pytest.mark.slow
DOGS = '[["label","in","dog"]]'


def test_all_that_fit_are_decided_at_once_and_taken_back_at_once(show: Show, run: Path) -> None:
    at = show("explore", run, where=DOGS)
    at.button(key="act on all").click().run()
    assert "11 files: label: dog." in text(at)
    assert not [b.key for b in at.button if b.proto.shortcut]  # no key acts behind the dialogue
    assert not Ledger(run).log()
    assert not [b for b in at.button if b.key == "bulk"]  # nothing is chosen unasked
    at.segmented_control(key="verb for all that fit").set_value("Drop").run()
    at.text_input(key="note of the decision").set_value("all dogs")
    at.button(key="bulk").click().run()
    done = Ledger(run).log()
    assert len(done) == 11
    assert len({d.batch for d in done}) == 1
    assert {(d.verb, d.note) for d in done} == {(Action.DROP, "all dogs")}
    assert "act" not in link_of(at)
    Ledger(run).undo()
    assert all(d.undone for d in Ledger(run).log())


def test_a_relabel_without_a_class_decides_nothing(show: Show, run: Path) -> None:
    at = show("explore", run, where=DOGS, act="all")
    at.segmented_control(key="verb for all that fit").set_value("Relabel").run()
    at.button(key="bulk").click().run()
    assert "is incomplete" in text(at)
    assert not Ledger(run).log()


def test_a_new_class_is_named_with_the_nearest(show: Show, run: Path) -> None:
    for verb, name, sure in (("Relabel", "dgo", False), ("Relabel", "cat", True)):
        at = show("explore", run, where=DOGS, act="all")
        at.segmented_control(key="verb for all that fit").set_value(verb).run()
        at.text_input(key="value for all that fit").set_value(name).run()
        at.button(key="bulk").click().run()
        assert ("has the class 'dgo' (the nearest is 'dog')" in text(at)) is not sure
        Ledger(run).undo()


def test_all_that_fit_are_tagged_and_a_tag_is_a_filter(show: Show, run: Path) -> None:
    at = show("explore", run, where=DOGS, act="all")
    assert not [b for b in at.selectbox if b.key == "choice tag"]  # nothing has a tag
    at.segmented_control(key="verb for all that fit").set_value("Tag").run()
    at.text_input(key="value for all that fit").set_value("four legs").run()
    at.button(key="bulk").click().run()
    assert "Tagged four legs: 11 samples" in text(at)
    assert tagged_samples(run).height == 11
    at = show("explore", run, tag="four legs")
    assert "11 files, page 1" in text(at)
    at = show("explore", run, tag="four legs", where='[["split","in","test"]]')
    assert "11 files, page 1" not in text(at)
    assert any("tagged four legs" in b.label for b in at.button)
    at = show("explore", run, tag="no such tag")
    assert not at.exception
    dog = tagged_samples(run)["id"][0]
    assert "four legs" in text(show("explore", run, image=dog))


def test_digits_are_classes_in_the_labelling_mode_alone(show: Show, run: Path) -> None:
    at = show("explore", run, image="train/cat/dark.jpg")
    assert "1" not in {b.proto.shortcut for b in at.button}
    at.toggle(key="toggle labelling").set_value(True).run()
    keys = {b.proto.shortcut: b.label for b in at.button if b.key and b.key.startswith("class ")}
    assert keys == {"1": "Cat", "2": "cat", "3": "dog"}
    at.button(key="class 3").click().run()
    at.button(key="class 2").click().run()  # the class that the file has
    done = [(d.subject, d.verb, d.value) for d in reversed(Ledger(run).log())]
    dark = "train/cat/dark.jpg"
    assert done == [(dark, Action.RELABEL, "dog"), (dark, Action.KEEP, None)]
