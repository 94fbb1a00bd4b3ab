"""Keys and buttons decide about what is shown, once each, however fast they are pressed."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from audit.decisions.store import Decision, DecisionStore
from audit.records import Action
from audit.results.label_review import review_labels
from audit.results.results import open_results
from audit.ui.queue import FIRST
from tests.browser.app import REVIEWER, VIEWER, Visitor
from tests.browser.conftest import Served

pytestmark = pytest.mark.slow
FAST_MS, KEYS = 100, 19  # of 21 findings: one more is decided, and one is left
WATCH = """() => {
    const seen = (node) => Boolean(node && node.getClientRects().length);
    globalThis.watch = () => {
        const strip = preflightQueue.fronts.findings.root;
        return {
            finding: strip.dataset.finding,
            own: seen(document.querySelector('.st-key-of-finding')),
            title: strip.querySelector('.title')?.textContent ?? '',
            pictures: [...strip.querySelectorAll('img')].filter((image) => image.src).length,
        };
    };
}"""


def test_keys_typed_fast_are_all_recorded_and_survive_a_reload(
    visitor: Visitor, app: Served
) -> None:
    run, page = app.runs["typed"], visitor.page
    visitor.open("findings?run=typed&code=IMG")
    strip = page.locator(".queue[data-finding]").first
    strip.wait_for()
    strip.evaluate("(node) => { node.isOfBefore = true; }")
    visitor.waits_for("preflightQueue.fronts.findings.data.lines.length > 15")
    # Before each key and after it: what the strip says that the key decides, and what is seen.
    page.evaluate(WATCH)
    seen = []
    for _ in range(KEYS):
        seen.append(page.evaluate("watch()"))
        page.keyboard.press("f")
        assert "saving" in strip.inner_text()
        page.wait_for_timeout(FAST_MS)
    visitor.saved()
    # Drawn in the place where it was: while it is taken away, no key is heard.
    assert strip.evaluate("(node) => Boolean(node.isOfBefore)")
    assert [d.subject for d in _since(run, 0)] == [before["finding"] for before in seen]
    assert len({before["finding"] for before in seen}) == KEYS
    for before, after in zip(seen, [*seen[1:], page.evaluate("watch()")], strict=True):
        assert after["finding"] != before["finding"]  # the next one is there before the next key
    for one in seen:  # one heading and picture: the page's own, or the strip's
        assert one["own"] != bool(one["title"])
        assert one["own"] or one["pictures"]
    page.wait_for_function("() => watch().own")  # the page follows, and is about the same
    assert "not recorded" not in strip.inner_text()
    # Left while it is saved: the browser asks, and what was typed is sent again, once.
    visitor.leaves = True
    last = strip.get_attribute("data-finding")
    page.evaluate("preflightQueue.fronts.findings.set = () => {}")  # it never reaches the server
    page.keyboard.press("f")
    page.reload()
    visitor.rest()
    strip.wait_for()
    visitor.saved()
    assert [d.subject for d in _since(run, KEYS)] == [last]


def test_keys_act_on_the_picture_in_front_and_not_behind_it(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["typed"], visitor.page
    before = len(DecisionStore(run).log())
    visitor.open("duplicates?run=typed&code=DUP003")
    page.locator(".gallery .card").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").wait_for()
    visitor.rest()
    shown = page.locator(".gallery .card").first.get_attribute("data-id")
    page.keyboard.press("k")
    page.get_by_role("dialog").get_by_text("Kept: 1 sample").wait_for()
    visitor.rest()
    done = DecisionStore(run).log()
    assert [(d.verb, d.subject) for d in done[: len(done) - before]] == [(Action.KEEP, shown)]
    page.keyboard.press("ArrowRight")
    page.get_by_role("dialog").get_by_text("Kept: 1 sample").wait_for(state="detached")
    visitor.press("u", "Undid")


def test_groups_are_decided_by_one_digit_each(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["grouped"], visitor.page
    before = len(DecisionStore(run).log())
    visitor.open("duplicates?run=grouped")
    shown: list[str] = []
    for _ in range(FIRST + 6):  # more than the browser holds at first
        shown.append(visitor.next_in_strip(shown))
        page.keyboard.press("1")
    visitor.saved()
    done = _since(run, before)
    kept = {d.subject for d in done if d.verb is Action.KEEP}
    dropped = {d.subject for d in done if d.verb is Action.DROP}
    assert len({d.batch for d in done}) == len(set(shown)) == FIRST + 6
    assert kept
    assert dropped
    assert not kept & dropped
    # What stands beside the list follows once no key is pressed.
    visitor.says(f"{len(kept | dropped)} samples decided")


def test_boxes_and_labels_are_decided_by_key(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["grouped"], visitor.page
    before = len(DecisionStore(run).log())
    visitor.open("findings?run=grouped&code=BOX002")
    strip = page.locator(".queue[data-finding]").first
    strip.get_by_text("X fixes it as shown").wait_for()
    page.get_by_text("-> dropped").wait_for()  # below the picture as the fix leaves it
    page.keyboard.press("d")
    strip.get_by_text("Press D again").wait_for()
    page.keyboard.press("x")
    visitor.saved()
    visitor.open("findings?run=grouped&code=BOX004")
    strip.wait_for()
    page.keyboard.press("r")
    visitor.saved()
    visitor.open("findings?run=grouped&code=BOX001")
    strip.wait_for()
    page.keyboard.press("d")
    page.keyboard.press("d")
    visitor.saved()
    done = _since(run, before)
    assert [(d.verb, d.kind) for d in done] == [
        (Action.FIX, "finding"), (Action.FIX, "finding"), (Action.DROP, "finding"),
        (Action.DROP, "sample"),
    ]  # fmt: skip
    visitor.open("labels?run=grouped")
    front = page.locator(".queue[data-labels]")
    front.get_by_text("fits better").wait_for()
    assert front.locator("figure").count() > 4  # nearest pictures of both classes
    typed = []
    for key in ("r", "k", "n", "1", "r"):
        typed.append((key, front.get_attribute("data-labels"), _suggested(front)))
        page.keyboard.press(key)
    visitor.saved()
    labelled = _since(run, before + len(done))
    assert [d.subject for d in labelled] == [name for key, name, _ in typed if key != "n"]
    assert (labelled[0].verb, labelled[0].value) == (Action.RELABEL, typed[0][2])
    assert labelled[1].verb is Action.KEEP
    assert (labelled[3].verb, labelled[3].value) == (Action.RELABEL, typed[4][2])
    page.get_by_role("heading", name="The next in the list").wait_for()


def _suggested(front: Any) -> str:
    found = re.search(r"; (\S+) fits better", front.inner_text())
    assert found
    return found[1]


def test_two_people_decide_at_once_and_each_takes_back_their_own(
    browser: Any, visitor: Visitor, app: Served
) -> None:
    run, each = app.runs["shared"], 12  # more than the browser holds at first
    there, looking = browser.new_context(), browser.new_context()
    bob = Visitor(there.new_page(), app.links[REVIEWER], "Bob")
    suspects = review_labels(open_results(run), 61).rows["id"].to_list()
    visitor.open(f"labels?run=shared&suspect={suspects[0]}")
    bob.open(f"labels?run=shared&suspect={suspects[60]}")
    for tab in (visitor, bob):
        tab.waits_for("preflightQueue.fronts.labels.data.lines.length > 8")
    for n in range(each):
        if n == each - 1:  # who looks on comes late: each decision draws all pages anew
            eve = Visitor(looking.new_page(), app.links[VIEWER], "Eve")
            eve.open("labels?run=shared")
        for tab in (visitor, bob):
            tab.next_label()
            tab.page.keyboard.press("k")
    for tab in (visitor, bob):
        tab.saved()
    made = Counter((d.by, d.verb) for d in DecisionStore(run).log())
    assert made == {("Ada", Action.KEEP): each, ("Bob", Action.KEEP): each}
    assert len({d.subject for d in DecisionStore(run).log()}) == 2 * each
    eve.says(f"{2 * each} samples decided")  # by itself
    eve.page.keyboard.press("k")
    eve.says("You can only look")
    bob.press("u", "Undid")
    eve.says(f"{2 * each - 1} samples decided")
    for _ in range(each + 1):
        visitor.page.keyboard.press("u")
    visitor.saved()
    visitor.says("You have no decision to undo")
    left = [d.by for d in DecisionStore(run).log() if not d.undone]
    assert left == ["Bob"] * (each - 1)
    assert len(DecisionStore(run).log()) == 2 * each
    for context, other in ((there, bob), (looking, eve)):
        assert other.errors == []
        context.close()


def test_a_page_is_one_entry_keeps_its_filters_and_lists_its_keys(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("findings?run=looked&severity=warning")
    visitor.turn_to("Explore")
    page.wait_for_function("document.title.startsWith('Explore · looked')")
    page.wait_for_function("location.search.includes('run=looked')")
    page.go_back()
    page.get_by_role("heading", level=1, name="Findings", exact=True).wait_for()
    page.wait_for_function("location.pathname === '/findings'")
    visitor.rest()
    visitor.turn_to("Decisions")
    visitor.turn_to("Findings")
    page.wait_for_function("location.search.includes('severity=warning')")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys of Findings").get_by_text("false positive").wait_for()


# ---- buttons and open pictures ----


def test_a_button_pressed_fast_decides_what_is_shown(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["clicked"], visitor.page
    before = len(DecisionStore(run).log())
    visitor.open("duplicates?run=clicked")
    strip = page.locator(".queue[data-finding]").first
    strip.wait_for()
    shown: list[str] = []
    for _ in range(4):
        shown.append(visitor.next_in_strip(shown))
        _click(page, ".st-key-waive-group button")
        assert "saving" in strip.inner_text()
        page.wait_for_timeout(FAST_MS)
    visitor.saved()
    done = _since(run, before)
    assert len({d.batch for d in done}) == len(set(shown)) == 4
    assert {d.subject for d in done} >= set(shown)
    # The button of the sidebar goes the same way: as many are undone as were pressed.
    for _ in range(4):
        _click(page, ".st-key-undo button")
    visitor.saved()
    assert all(d.undone for d in _since(run, before))


def test_an_open_picture_is_decided_as_fast_as_it_is_typed(visitor: Visitor, app: Served) -> None:
    run, page = app.runs["clicked"], visitor.page
    before = len(DecisionStore(run).log())
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
    before = len(DecisionStore(run).log())
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
    return list(reversed(DecisionStore(run).log()))[before:]
