"""The app behind its link, in a browser: everything works with it, and nothing without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.app import PATIENCE_MS, REVIEWER, VIEWER, Visitor
from tests.browser.conftest import Served

pytestmark = pytest.mark.slow


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab of a browser that never was at the app."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    context.close()


def enter(tab: Any, link: str, name: str) -> None:
    """Open a link as a person does who was never here: a name is asked for first."""
    tab.goto(link)
    tab.get_by_role("heading", name="Who are you?").wait_for()
    tab.get_by_label("Your name").fill(name)
    tab.get_by_role("button", name="Continue").click()


def test_the_link_asks_for_a_name_once_and_its_token_leaves_the_address(
    tab: Any, app: Served, visitor: Visitor
) -> None:
    link = app.links[REVIEWER]
    token = link.partition("token=")[2]
    enter(tab, link.replace("/?", "/explore?run=looked&"), "Grace")
    tab.get_by_role("heading", level=1, name="Explore", exact=True).wait_for()
    assert token not in tab.url
    assert "run=looked" in tab.url
    side = tab.get_by_test_id("stSidebar")
    side.get_by_text("Grace", exact=True).wait_for()
    tab.locator('[data-testid="stVegaLiteChart"] .marks:visible').first.wait_for()
    tab.reload()
    tab.get_by_role("heading", level=1, name="Explore", exact=True).wait_for()
    ours = [c for c in tab.context.cookies() if c["name"].startswith("audit-app-")]
    assert {(c["httpOnly"], c["sameSite"]) for c in ours} == {(True, "Strict")}
    # changed, refused where it is another's, and remembered by the next link
    side.get_by_role("link", name="Change the name").click()
    tab.get_by_label("Your name").fill(visitor.name.lower())
    tab.get_by_role("button", name="Continue").click()
    tab.get_by_role("alert").get_by_text(f"The name {visitor.name.lower()} is taken").wait_for()
    tab.get_by_label("Your name").fill("Grace H")
    tab.get_by_role("button", name="Continue").click()
    side.get_by_text("Grace H", exact=True).wait_for()
    tab.goto(app.links[VIEWER])
    side.get_by_text("Grace H", exact=True).wait_for()
    side.get_by_text("looks on").wait_for()


def test_the_file_that_opens_a_browser_leads_into_the_app(
    tab: Any, app: Served, tmp_path: Path
) -> None:
    """Its redirect comes from another origin, whose cookies are not those of the app."""
    page, link = tmp_path / "open.html", app.links[REVIEWER]
    page.write_text(f'<meta http-equiv="refresh" content="0;url={link}">')
    enter(tab, page.as_uri(), "Opened")
    tab.get_by_test_id("stSidebar").get_by_text("Opened", exact=True).wait_for()
    assert "token" not in tab.url


def test_another_page_cannot_frame_or_ask_it(tab: Any, app: Served, tmp_path: Path) -> None:
    enter(tab, app.links[REVIEWER], "Framed")
    address = app.links[REVIEWER].partition("/?")[0]
    other = tab.context.new_page()
    foreign = tmp_path / "foreign.html"
    foreign.write_text(f"<iframe src='{address}/'></iframe>")
    other.goto(foreign.as_uri())
    opened = other.evaluate(
        """address => new Promise(done => {
            const one = new WebSocket(address.replace('http', 'ws') + '/_stcore/stream');
            one.onopen = () => done('open'); one.onerror = () => done('refused');
        })""",
        address,
    )
    assert opened == "refused"
    framed = [f for f in other.frames if f.url.startswith(address)]
    assert not any("stApp" in frame.content() for frame in framed)
