"""Keys and buttons decide about what is shown, once each, however fast they are pressed."""

from __future__ import annotations

from typing import Any

import pytest

from audit.decisions.ledger import Decision, Ledger
from audit.records import Action
from audit.ui.queue import AHEAD
from tests.browser.app import Visitor
from tests.browser.conftest import Served

pytestmark = pytest.mark.slow
FAST_MS = 100


def test_keys_typed_fast_are_all_recorded_and_survive_a_reload(
    visitor: Visitor, app: Served
) -> None:
    run, page = app.runs["typed"], visitor.page
    visitor.open("findings?run=typed&code=IMG")
    strip = page.locator(".queue[data-finding]").first
    strip.wait_for()
    strip.evaluate("(node) => { node.isOfBefore = true; }")
    shown = []
    for _ in range(4):
        shown.append(strip.get_attribute("data-finding"))
        page.keyboard.press("f")
        assert "saving" in strip.inner_text()
        page.wait_for_timeout(FAST_MS)
    visitor.saved()
    # Drawn in the place where it was: while it is taken away, no key is heard.
    assert strip.evaluate("(node) => Boolean(node.isOfBefore)")
    assert [d.subject for d in _since(run, 0)] == shown
    assert len(set(shown)) == 4
    # Left while it is saved: the browser asks, and what was typed is sent again, once.
    visitor.leaves = True
    fifth = strip.get_attribute("data-finding")
    page.evaluate("preflightQueue.fronts.findings.set = () => {}")  # it never reaches the server
    page.keyboard.press("f")
    page.reload()
    visitor.rest()
    strip.wait_for()
    visitor.saved()
    assert [d.subject for d in _since(run, 0)] == [*shown, fifth]


def test_keys_act_on_the_picture_in_front_and_not_behind_it(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["typed"], visitor.page
    for link in ("findings?run=typed&code=DUP003", "duplicates?run=typed&code=DUP003"):
        before = len(Ledger(run).log())
        visitor.open(link)
        page.locator(".gallery .card").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Keep").wait_for()
        visitor.rest()
        shown = page.locator(".gallery .card").first.get_attribute("data-id")
        page.keyboard.press("k")
        page.get_by_role("dialog").get_by_text("Kept: 1 sample").wait_for()
        visitor.rest()
        done = Ledger(run).log()
        assert [(d.verb, d.subject) for d in done[: len(done) - before]] == [(Action.KEEP, shown)]
        page.keyboard.press("ArrowRight")
        page.get_by_role("dialog").get_by_text("Kept: 1 sample").wait_for(state="detached")
        visitor.press("u", "Taken back")


def test_groups_are_decided_by_one_digit_each(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["grouped"], visitor.page
    before = len(Ledger(run).log())
    visitor.open("duplicates?run=grouped")
    shown: list[str] = []
    for _ in range(AHEAD + 4):  # more than the browser holds at a time
        shown.append(visitor.next_in_strip(shown))
        page.keyboard.press("1")
    visitor.saved()
    done = _since(run, before)
    kept = {d.subject for d in done if d.verb is Action.KEEP}
    dropped = {d.subject for d in done if d.verb is Action.DROP}
    assert len({d.batch for d in done}) == len(set(shown)) == AHEAD + 4
    assert kept
    assert dropped
    assert not kept & dropped
    # What stands beside the list follows once no key is pressed.
    visitor.says(f"{len(kept | dropped)} samples decided")


def test_a_key_drops_no_picture_for_one_of_its_boxes(visitor: Visitor, app: Served) -> None:
    run = app.runs["looked"]
    before = len(Ledger(run).log())
    visitor.open("findings?run=looked&code=BOX002")
    visitor.page.locator(".queue[data-finding]").wait_for()
    strip = visitor.page.locator(".queue[data-finding] .what")
    visitor.page.keyboard.press("d")
    strip.get_by_text("about one box, so D records nothing here").wait_for()
    visitor.saved()
    assert len(Ledger(run).log()) == before


def test_a_page_is_one_entry_keeps_its_filters_and_lists_its_keys(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("findings?run=looked&severity=warning")
    visitor.turn_to("Explore")
    page.wait_for_function("document.title.startsWith('Explore · looked')")
    page.wait_for_function("location.search.includes('run=looked')")
    page.go_back()
    page.get_by_role("heading", level=1, name="Findings", exact=True).wait_for()
    visitor.turn_to("Decisions")
    visitor.turn_to("Findings")
    page.wait_for_function("location.search.includes('severity=warning')")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys of Findings").get_by_text("false positive").wait_for()


# ---- buttons and open pictures ----


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
