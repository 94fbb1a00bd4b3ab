"""The app behind its link, in a browser: everything works with it, and nothing without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.app import Visitor, guarded
from tests.browser.conftest import Served

pytestmark = pytest.mark.slow


def test_the_link_opens_the_app_and_its_token_leaves_the_address(
    browser: Any, app: Served, tmp_path: Path
) -> None:
    with guarded(tmp_path, app.runs["looked"]) as link:
        address = link.partition("/?")[0]
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        tab = Visitor(context.new_page(), address)
        tab.open(link.removeprefix(f"{address}/"))
        assert "secret" not in tab.page.url
        tab.turn_to("Findings")
        tab.turn_to("Explore")
        tab.page.locator('[data-testid="stVegaLiteChart"] .marks:visible').first.wait_for()
        tab.page.reload()
        tab.page.get_by_role("heading", level=1, name="Explore", exact=True).wait_for()
        (cookie,) = [c for c in context.cookies() if c["name"].startswith("audit-app-")]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert (tab.errors, tab.outside) == ([], [])
        stranger = browser.new_context().new_page()
        answer = stranger.goto(f"{address}/findings")
        assert answer.status == 403
        assert "open to whoever has its link" in stranger.content()
        stranger.context.close()
        context.close()
    assert "Traceback" not in (tmp_path / "guarded.log").read_text()


def test_the_file_that_opens_a_browser_leads_into_the_app(
    browser: Any, app: Served, tmp_path: Path
) -> None:
    """Its redirect comes from another origin, whose cookies are not those of the app."""
    with guarded(tmp_path, app.runs["looked"]) as link:
        page = tmp_path / "open.html"
        page.write_text(f'<meta http-equiv="refresh" content="0;url={link}">')
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(page.as_uri())
        tab.get_by_role("heading", level=1).first.wait_for(timeout=60_000)
        assert "secret" not in tab.url
        context.close()


def test_another_page_cannot_frame_or_ask_it(browser: Any, app: Served, tmp_path: Path) -> None:
    with guarded(tmp_path, app.runs["looked"]) as link:
        address = link.partition("/?")[0]
        context = browser.new_context()
        own = context.new_page()
        own.goto(link)
        other = context.new_page()
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
        context.close()
