"""One scan of the sample data, one app and one browser for all tests here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.record.session import Session
from tests.browser.app import FLAGS, Visitor, chromium, served, without
from tests.browser.nasty import nasty_run
from tests.browser.recorded import session

RUNS = ("looked", "decided", "walked", "doomed", "typed", "grouped", "clicked")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; the tests are skipped, with the reason, where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        without("no Playwright: pip install 'dataset-preflight[dev]'")
    try:
        import streamlit  # noqa: F401
    except ImportError:
        without("no Streamlit: pip install 'dataset-preflight[app]'")
    with sync_playwright() as playwright:
        path = chromium(playwright)
        if path is None:
            without("no Chromium: python -m playwright install chromium")
        opened = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two sessions made by hand: slow, and mended; and one of a newer version."""
    folder = tmp_path_factory.mktemp("sessions")
    paths = [
        session(slow).save(folder / f"{name}.json")
        for name, slow in (("slow", True), ("mended", False))
    ]
    newer = folder / "newer.json"
    newer.write_text(paths[0].read_text().replace('"profile/1"', '"profile/9"', 1))
    assert isinstance(Session.load(paths[0]), Session)
    return [*paths, newer]


@dataclass(frozen=True)
class Served:
    """The app at `address`, started in `folder`; `runs` by name are copies of one scan."""

    address: str
    folder: Path
    runs: dict[str, Path]


@pytest.fixture(scope="session")
def app(
    browser: Any,
    sample_data_run: Path,
    sessions: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """One app for all tests; each test that changes a run has one of its own."""
    folder = tmp_path_factory.mktemp("app")
    runs = {name: Path(shutil.copytree(sample_data_run, folder / name)) for name in RUNS}
    runs["nasty"] = nasty_run(folder)
    with served(folder, *runs.values(), *sessions) as address:
        yield Served(address, folder, runs)
    assert "Traceback" not in (folder / "app.log").read_text()


@pytest.fixture
def visitor(browser: Any, app: Served) -> Iterator[Visitor]:
    """A tab at the app; at the end nothing may have complained or asked another server."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    tab = Visitor(context.new_page(), app.address)
    yield tab
    context.close()
    assert tab.errors == []
    assert tab.outside == []
