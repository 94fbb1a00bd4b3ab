"""The queue of decisions by key: each press is recorded once, whatever the browser sends."""

from __future__ import annotations

import pytest

from audit.ui.queue import Answered, may_drop, queued_in


def test_an_id_is_answered_once() -> None:
    known = Answered()
    assert [known.first(name) for name in ("a", "b", "a")] == [True, True, False]


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
