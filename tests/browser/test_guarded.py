"""The app behind its link, in a browser: everything works with it, and nothing without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.app import PATIENCE_MS, SECRET
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


def test_the_link_opens_the_app_and_its_token_leaves_the_address(tab: Any, app: Served) -> None:
    tab.goto(f"{app.address}/explore?run=looked&token={SECRET}")
    tab.get_by_role("heading", level=1, name="Explore", exact=True).wait_for()
    assert SECRET not in tab.url
    tab.locator('[data-testid="stVegaLiteChart"] .marks:visible').first.wait_for()
    tab.reload()
    tab.get_by_role("heading", level=1, name="Explore", exact=True).wait_for()
    (cookie,) = [c for c in tab.context.cookies() if c["name"].startswith("audit-app-")]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


def test_the_file_that_opens_a_browser_leads_into_the_app(
    tab: Any, app: Served, tmp_path: Path
) -> None:
    """Its redirect comes from another origin, whose cookies are not those of the app."""
    page = tmp_path / "open.html"
    link = f"{app.address}/?token={SECRET}"
    page.write_text(f'<meta http-equiv="refresh" content="0;url={link}">')
    tab.goto(page.as_uri())
    tab.get_by_role("heading", level=1).first.wait_for()
    assert SECRET not in tab.url


def test_another_page_cannot_frame_or_ask_it(tab: Any, app: Served, tmp_path: Path) -> None:
    tab.goto(f"{app.address}/?token={SECRET}")
    other = tab.context.new_page()
    foreign = tmp_path / "foreign.html"
    foreign.write_text(f"<iframe src='{app.address}/'></iframe>")
    other.goto(foreign.as_uri())
    opened = other.evaluate(
        """address => new Promise(done => {
            const one = new WebSocket(address.replace('http', 'ws') + '/_stcore/stream');
            one.onopen = () => done('open'); one.onerror = () => done('refused');
        })""",
        app.address,
    )
    assert opened == "refused"
    framed = [f for f in other.frames if f.url.startswith(app.address)]
    assert not any("stApp" in frame.content() for frame in framed)
