"""The real app in headless Chromium, used as a person would: pages, keys, downloads, links.

Every test waits for what the page says, never for a time. Whatever the console complains of, and
any request to another server, fails the test that caused it.
"""

from __future__ import annotations

import csv
import re

import pytest

from audit.decisions.store import DecisionStore
from tests.browser.app import PATIENCE_MS, Visitor
from tests.browser.conftest import LABEL, NAME, Served

pytestmark = pytest.mark.slow

PAGES = (
    "Preflight", "Overview", "Findings", "Duplicates", "Labels", "Explore", "Changes", "Decisions",
    "Subset designer",
    "Profiles", "Checks", "Runs", "Start",
)  # fmt: skip
ERROR = ".notice.error"
ZOOMED = """(where) => [...document.querySelectorAll('*')]
  .flatMap((e) => [...(e.shadowRoot?.querySelectorAll(where) ?? [])])
  .some((e) => Number(e.dataset.zoom) > 1)"""
FLICKER = """(wanted) => [...document.querySelectorAll('*')]
  .flatMap((e) => [...(e.shadowRoot?.querySelectorAll('.viewer .stage img:nth-child(2)') ?? [])])
  .some((e) => (e.style.visibility || 'visible') === wanted)"""
WIDTHS = (1440, 1024, 720, 400)  # 720: 1440 px at 200 %
# Both themes have the same elements: of the dark one axe-core is asked about colours alone.
THEMES = {1440: ("light", ()), 400: ("dark", ("color-contrast", "link-in-text-block"))}
CUT = """() => [...document.querySelectorAll('h1, h2, h3, [data-testid=stMetricLabel] *')]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow !== 'visible')
  .map((e) => e.innerText)"""


def test_every_page_opens_without_a_complaint_at_each_width_and_in_each_theme(
    visitor: Visitor,
) -> None:
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    page, frames = visitor.page, list[bytes]()
    page.on("websocket", lambda ws: ws.on("framereceived", lambda data: frames.append(data)))
    visitor.open("?run=looked")
    page.add_style_tag(content="*, *::before { transition: none !important; }")  # at once
    beside: tuple[str, ...] = ()
    for title in PAGES:
        visitor.turn_to(title)
        assert visitor.texts(ERROR) == [], title
        assert page.get_by_test_id("stException").count() == 0, title
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not wide, f"{title} is wider than {width} px"
            # the bar that brings the sidebar back lies over what is above it
            if width <= 720:
                page.get_by_test_id("stExpandSidebarButton").wait_for()
                head = page.get_by_role("heading", level=1).first.bounding_box()
                bar = page.get_by_test_id("stHeader").bounding_box()
                assert head["y"] >= bar["y"] + bar["height"], (title, width)
            assert page.evaluate(CUT) == [], (title, width)
            if width in THEMES:
                theme, rules = THEMES[width]
                page.emulate_media(color_scheme=theme)
                assert visitor.barriers(rules, beside) == [], (title, width, theme)
        beside = ('[data-testid="stSidebar"]',)  # which all pages have, and was looked at
        page.set_viewport_size({"width": 1440, "height": 900})
    visitor.turn_to("Explore")  # again: what the browser has may be sent short
    # A message that refers to one that the browser has dropped would end the connection, after
    # clicks in quick succession, with "Cached ForwardMsg MISS".
    messages = [ForwardMsg.FromString(frame) for frame in frames]
    assert max(message.ByteSize() for message in messages) > 10_000  # Streamlit keeps such ones
    assert not any(message.HasField("ref_hash") for message in messages)


def test_a_group_is_decided_with_the_keyboard_taken_back_and_exported(
    visitor: Visitor, app: Served
) -> None:
    run = app.runs["decided"]
    visitor.open("duplicates?run=decided&code=DUP003")
    visitor.says("9 groups")
    visitor.page.locator(".gallery .card").nth(1).wait_for()
    strip = visitor.page.locator(".queue[data-finding]")
    first = strip.get_attribute("data-finding")
    visitor.press("a", "Keeper rule applied")
    visitor.says("8 groups")
    dropped = [d.subject for d in DecisionStore(run).log() if d.kind == "sample"]
    assert dropped
    visitor.press("u", "Undid")
    visitor.says("9 groups")
    assert all(d.undone for d in DecisionStore(run).log())
    visitor.page.locator(f'.queue[data-finding="{first}"]').wait_for()  # a key is about this one
    visitor.press("a", "Keeper rule applied")
    visitor.says("8 groups")
    visitor.turn_to("Decisions")
    visitor.page.get_by_label("Folder to write").fill(str(app.folder / "out"))
    visitor.page.get_by_label("Folder to write").press("Enter")
    visitor.rest()
    visitor.page.get_by_role("button", name="Export", exact=True).click()
    visitor.says("Exported to")
    with (app.folder / "out" / "quarantine.csv").open() as file:
        assert {row["id"] for row in csv.DictReader(file)} == set(dropped)
    with (app.folder / "out" / "manifest.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 307 - len(dropped)


def test_filters_page_and_image_survive_a_reload(visitor: Visitor) -> None:
    visitor.open("explore?run=looked&sort=sharpness&order=descending")
    visitor.says("307 files")
    visitor.page.get_by_label("split", exact=True).click()
    visitor.page.get_by_role("option", name="train", exact=True).click()
    visitor.says("206 files, page 1")
    visitor.page.keyboard.press("Escape")
    visitor.page.get_by_role("button", name=re.compile("Next page")).click()
    visitor.says("206 files, page 2")
    first = visitor.page.locator(".gallery .card .title").first
    first.wait_for()
    names = visitor.texts(".gallery .card .title")
    assert len(names) >= 24
    visitor.page.reload()
    visitor.says("206 files, page 2")
    first.wait_for()
    assert visitor.texts(".gallery .card .title") == names
    visitor.page.locator(".gallery .card").last.click()
    visitor.page.get_by_role("dialog").wait_for()
    assert "image=" in visitor.page.url
    visitor.page.reload()
    visitor.page.get_by_role("dialog").get_by_text("Everything measured").wait_for()


def test_a_note_and_a_class_stay_until_the_finding_is_relabelled(
    visitor: Visitor, app: Served
) -> None:
    run = app.runs["walked"]
    visitor.open("findings?run=walked&code=IMG005")
    from playwright.sync_api import expect

    page = visitor.page
    visitor.says("2 findings")
    search = page.get_by_label("Search")
    search.click()
    search.press_sequentially("kdfnpu")  # no keys of the page
    search.press("Enter")
    visitor.says("No finding fits these filters")
    assert not DecisionStore(run).log()
    search.fill("")
    search.press("Enter")
    visitor.says("2 findings")
    page.get_by_role("heading", level=1).first.click()
    for key, row in (("n", 2), ("p", 1), ("n", 2)):
        visitor.press_for(key, f".listing tbody tr:nth-child({row}).current")
        visitor.rest()
    page.get_by_text("Relabel, move, note").click()
    visitor.choose("New class", "fish")
    relabel = page.get_by_role("button", name="Relabel", exact=True)
    expect(relabel).to_be_enabled(timeout=PATIENCE_MS)
    page.get_by_label("Note, kept with the decision").fill("seen by hand")
    page.get_by_label("Note, kept with the decision").press("Enter")
    relabel.click()
    visitor.says("Relabelled to fish")
    last = DecisionStore(run).log()[0]  # the newest first
    assert (last.verb.value, last.value, last.note) == ("relabel", "fish", "seen by hand")
    visitor.press("u", "Undid")


def test_after_a_turned_page_a_decision_still_redraws_the_rest(
    visitor: Visitor, app: Served
) -> None:
    run = app.runs["walked"]
    visitor.open("explore?run=walked")
    visitor.says("307 files, page 1")
    before = len(DecisionStore(run).log())
    visitor.press("PageDown", "page 2")
    card = visitor.page.locator(".gallery").last.locator(".card").first  # below the extremes
    name = card.get_attribute("data-id")
    card.focus()
    visitor.page.keyboard.press("Space")
    visitor.page.get_by_role("button", name="Drop 1 selected").click()
    visitor.says("Dropped: 1 sample")
    visitor.says(f"Last: drop of {str(name).rsplit('/', 1)[-1]}")
    assert len(DecisionStore(run).log()) == before + 1
    assert DecisionStore(run).log()[0].verb.value == "drop"
    visitor.says("page 2")
    visitor.press("u", "Undid")


def test_a_lasso_fills_the_grid(visitor: Visitor) -> None:
    visitor.open("explore?run=looked&view=Scatter")
    canvas = visitor.page.locator(".scatter canvas")
    canvas.wait_for()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    mouse = visitor.page.mouse
    corners = [(0.05, 0.03), (0.98, 0.03), (0.98, 0.85), (0.06, 0.85), (0.06, 0.3)]
    points = [(box["x"] + a * box["width"], box["y"] + b * box["height"]) for a, b in corners]
    mouse.move(*points[0])
    mouse.down()
    for x, y in points[1:]:
        mouse.move(x, y, steps=4)
    mouse.up()
    visitor.says("The lasso holds")
    held = visitor.page.get_by_text("The lasso holds").inner_text()
    assert int(re.findall(r"holds ([\d,]+)", held)[0]) > 200
    assert "lasso=" in visitor.page.url


def test_pictures_are_found_seen_closely_and_compared(visitor: Visitor) -> None:
    from playwright.sync_api import expect

    page = visitor.page
    visitor.open("?run=looked")
    # the worst of each of the first three things, as far as they are about files
    page.locator("[class*=st-key-worst] .gallery .card img").nth(5).wait_for()
    visitor.open("explore?run=looked&view=Map&colour=label")
    canvas = page.locator(".scatter canvas")
    canvas.wait_for()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert float(canvas.get_attribute("data-zoom")) == 1
    page.mouse.wheel(0, -300)
    page.wait_for_function(ZOOMED, arg=".scatter canvas")
    page.get_by_role("button", name="Whole").click()
    # over the points, until one is asked for
    box, peek = canvas.bounding_box(), page.locator(".peek figure img")
    for place in range(20, 80):
        across, down = 20 + (place * 17) % 70, 10 + (place * 7) % 70
        page.mouse.move(
            box["x"] + box["width"] * across / 100, box["y"] + box["height"] * down / 100
        )
        page.wait_for_timeout(120)
        if page.locator(".peek").evaluate("(e) => e.wanted != null"):
            break
    peek.wait_for()
    assert peek.get_attribute("src").startswith("data:image/jpeg")
    page.mouse.move(5, 5)
    search = page.get_by_label("File name", exact=True)
    search.fill("2924")
    search.press("Enter")
    visitor.says("1 file")
    # the gallery of before holds more until the page is there: a click in it leads nowhere
    expect(page.locator(".gallery .card")).to_have_count(1, timeout=PATIENCE_MS)
    page.locator(".gallery .card").last.click()
    stage = page.get_by_role("dialog").locator(".viewer .stage")
    stage.locator("img").wait_for()
    stage.hover()
    page.mouse.wheel(0, -300)
    page.wait_for_function(ZOOMED, arg=".viewer .stage")
    assert visitor.barriers() == []
    visitor.open("duplicates?run=looked&code=DUP003")
    page.locator(".viewer .stage img").nth(1).wait_for()
    second = page.locator(".viewer .stage img").nth(1)
    page.locator(".viewer input[type=range]").fill("0")
    hidden = second.evaluate("(e) => parseFloat(e.style.clipPath.split(' ').at(-1))")
    assert hidden >= second.bounding_box()["width"] - 1
    page.locator(".viewer").get_by_role("button", name="Flicker").click()
    for state in ("hidden", "visible"):
        page.wait_for_function(FLICKER, arg=state)
    page.locator(".viewer").get_by_role("button", name="Stop").click()


def test_a_view_is_saved_by_name_and_two_scans_stand_side_by_side(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("explore?run=looked&sort=label.probability&order=ascending")
    visitor.says("label.probability 0.")
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Name for what is shown").fill("doubtful <b>labels</b>")
    page.get_by_label("Name for what is shown").press("Tab")
    visitor.rest()
    page.get_by_role("button", name="Save this view").click()
    visitor.says("Saved: the view")
    visitor.open("?run=looked")
    page.get_by_text("Views (1)").click()
    page.get_by_role("link", name="doubtful <b>labels</b>").click()
    visitor.says("label.probability 0.")
    visitor.open("changes?run=looked&earlier=nasty")
    visitor.says("Fixed since")
    for title in ("Fixed since", "New"):
        page.get_by_role("heading", name=title, exact=True).wait_for()
    assert page.locator(".listing").count() == 2
    page.locator(".gallery .card").first.wait_for()
    assert visitor.barriers() == []
    page.locator(".listing").last.locator("tbody tr").first.click()
    page.get_by_role("heading", level=1, name="Findings", exact=True).wait_for()


def test_a_profile_is_read_and_compared(visitor: Visitor) -> None:
    visitor.open("profiles?run=looked&session=slow")
    visitor.says("input-bound high")
    visitor.page.get_by_role("tab", name="Time line").click()
    visitor.says("batches ready")
    visitor.page.locator('[data-testid="stVegaLiteChart"] .marks:visible').first.wait_for()
    visitor.page.get_by_role("tab", name="Compare").click()
    visitor.rest()
    visitor.page.get_by_label("A, the one before").click()
    visitor.page.get_by_role("option", name="mended").click()
    visitor.says("times slower than A")


def test_names_labels_and_notes_are_never_markup(visitor: Visitor) -> None:
    visitor.open("?run=nasty")
    for title in ("Overview", "Findings", "Labels", "Explore", "Decisions"):
        visitor.turn_to(title)
        assert visitor.page.locator('img[src="x"], script:text("alert(1)")').count() == 0
        assert visitor.page.locator('a[href^="javascript"]').count() == 0
    visitor.open("findings?run=nasty&code=IMG001")
    visitor.says("IMG001")
    card = visitor.page.locator(".gallery .card .title").first
    assert card.text_content() == NAME
    assert LABEL in visitor.page.locator(".gallery .card .line").first.inner_text()
