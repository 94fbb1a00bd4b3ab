"""Buttons and open pictures: pressed fast, each press is recorded about what was shown."""

from __future__ import annotations

from typing import Any

import pytest

from audit.records import Action
from audit.review.ledger import Decision, Ledger
from tests.browser.app import Visitor
from tests.browser.conftest import Served

pytestmark = pytest.mark.slow
FAST_MS = 100


@pytest.mark.parametrize(
    ("link", "key"), [("findings?run=clicked&code=IMG", "waive"),
                      ("duplicates?run=clicked", "waive-group")],
)  # fmt: skip
def test_a_button_pressed_fast_decides_what_is_shown(
    visitor: Visitor, app: Served, link: str, key: str
) -> None:
    run, page = app.runs["clicked"], visitor.page
    before = len(Ledger(run).log())
    visitor.open(link)
    strip = page.locator(".queue[data-finding]").first
    strip.wait_for()
    shown: list[str] = []
    for _ in range(4):
        shown.append(visitor.next_in_strip(shown))
        _click(page, f".st-key-{key} button")
        assert "saving" in strip.inner_text()
        page.wait_for_timeout(FAST_MS)
    visitor.saved()
    done = _since(run, before)
    assert len({d.batch for d in done}) == len(set(shown)) == 4
    assert {d.subject for d in done} >= set(shown)
    # The button of the sidebar goes the same way: as many are taken back as were pressed.
    for _ in range(4):
        _click(page, ".st-key-undo button")
    visitor.saved()
    assert all(d.undone for d in _since(run, before))


def test_an_open_picture_is_decided_as_fast_as_it_is_typed(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["clicked"], visitor.page
    before = len(Ledger(run).log())
    visitor.open("explore?run=clicked&labelling=yes")
    front = _open_first(visitor)
    typed: list[tuple[str | None, Action]] = []
    for _ in range(3):
        typed.append((front.get_attribute("data-picture"), Action.DROP))
        page.keyboard.press("d")
        page.keyboard.press("ArrowRight")
    for _ in range(2):  # by the buttons: the page below may still show an earlier picture
        typed.append((front.get_attribute("data-picture"), Action.KEEP))
        _click(page, ".st-key-image-Keep button")
        _click(page, ".st-key-image-Next button")
    visitor.saved()
    assert [(d.subject, d.verb) for d in _since(run, before)] == typed
    assert len({name for name, _ in typed}) == 5
    last = front.get_attribute("data-picture")
    page.get_by_role("dialog").get_by_text(str(last), exact=True).first.wait_for()
    visitor.rest()
    labelled = []
    for digit in ("1", "2", "1"):
        labelled.append(front.get_attribute("data-picture"))
        page.keyboard.press(digit)
    visitor.saved()
    done = _since(run, before)[len(typed) :]
    assert [d.subject for d in done] == labelled
    assert len(set(labelled)) == 3
    first, second = (page.locator(f".st-key-class-{n} button").inner_text() for n in (1, 2))
    for decision, digit_name in zip(done, (first, second, first), strict=True):
        assert decision.verb is Action.KEEP or digit_name.startswith(str(decision.value))


def test_selected_cards_are_decided_by_each_press(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["clicked"], visitor.page
    before = len(Ledger(run).log())
    visitor.open("explore?run=clicked")
    card = page.locator(".gallery .card").first
    name = card.get_attribute("data-id")
    card.focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Drop 1 selected").wait_for()
    visitor.rest()
    _click(page, ".st-key-grid-keep button")
    page.wait_for_timeout(FAST_MS)
    _click(page, ".st-key-grid-drop button")
    visitor.saved()
    done = _since(run, before)
    assert [(d.subject, d.verb) for d in done] == [(name, Action.KEEP), (name, Action.DROP)]
    visitor.rest()  # what is said is gone with the next run, which may be here by now
    page.keyboard.press("u")
    page.keyboard.press("u")
    visitor.saved()
    assert all(d.undone for d in _since(run, before))


def _open_first(visitor: Visitor) -> Any:
    """Open the first card; returns what shows the picture that a press is about."""
    visitor.page.locator(".gallery .card").first.click()
    front = visitor.page.locator(".queue[data-picture]")
    front.wait_for(state="attached")
    visitor.rest()
    return front


def _click(page: Any, selector: str) -> None:
    """Click at once: a locator's own click waits until the page rests."""
    page.locator(selector).first.evaluate("(button) => button.click()")


def _since(run: Any, before: int) -> list[Decision]:
    """The decisions after the first so many, in their order."""
    return list(reversed(Ledger(run).log()))[before:]
