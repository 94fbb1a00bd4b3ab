"""Keys decide about what is shown, once each, however fast they are typed."""

from __future__ import annotations

import pytest

from audit.records import Action
from audit.review.ledger import Ledger
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
    recorded = [d.subject for d in reversed(Ledger(run).log())]
    assert recorded == shown
    assert len(set(shown)) == 4
    # Left while it is saved: the browser asks, and what was typed is sent again, once.
    visitor.leaves = True
    fifth = strip.get_attribute("data-finding")
    page.keyboard.press("f")
    page.reload()
    visitor.rest()
    strip.wait_for()
    visitor.saved()
    recorded = [d.subject for d in reversed(Ledger(run).log())]
    assert recorded == [*shown, fifth]


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


def test_twenty_groups_are_decided_by_one_digit_each(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["grouped"], visitor.page
    before = len(Ledger(run).log())
    visitor.open("duplicates?run=grouped")
    shown: list[str] = []
    for _ in range(20):
        shown.append(visitor.next_in_strip(shown))
        page.keyboard.press("1")
    visitor.saved()
    done = Ledger(run).log()[before:]
    kept = {d.subject for d in done if d.verb is Action.KEEP}
    dropped = {d.subject for d in done if d.verb is Action.DROP}
    assert len({d.batch for d in done}) == len(set(shown)) == 20
    assert kept
    assert dropped
    assert not kept & dropped
    # What stands beside the list follows once no key is pressed.
    visitor.says(f"{len(kept | dropped)} samples decided")


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
