"""One scan of the sample data, one app and one browser for all tests here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from audit.decisions.decisions import decide_samples
from audit.records import Action
from audit.scanning import scanning
from audit.sources import open_source
from tests.browser.app import FLAGS, REVIEWER, Visitor, chromium, served, without_chromium
from tests.browser.recorded import session
from tests.conftest import picture

# A dataset whose names try to be HTML, Markdown and a formula.
NAME = "<img src=x onerror=alert(1)>**bold** [x](javascript:alert(1)) $x^2$ :red[y].jpg"
LABEL = "<b>cat _em_ `x`"
NOTE = "<script>alert(1)</script> **note**"
RUNS = ("looked", "decided", "walked", "typed", "grouped", "clicked", "shared")


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Headless Chromium; the tests are skipped where there is none.

    Closed when the tests of this folder have ended: its driver ends with its pipe, and a process
    that a later test forks and leaves behind would hold that open, for which the end would wait.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = chromium(playwright)
        if path is None:
            without_chromium()
        opened = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two sessions made by hand: slow, and mended."""
    folder = tmp_path_factory.mktemp("sessions")
    return [
        session(slow).save(folder / f"{name}.json")
        for name, slow in (("slow", True), ("mended", False))
    ]


@dataclass(frozen=True)
class Served:
    """The app with its links, started in `folder`; `runs` by name are copies of one scan."""

    links: list[str]
    folder: Path
    runs: dict[str, Path]


def nasty_run(folder: Path) -> Path:
    """Scan the nasty dataset into `folder`/nasty, with a decision whose note is nasty too."""
    for split in ("train", "test"):
        for label in (LABEL, "dog"):
            (folder / "names" / split / label).mkdir(parents=True)
            for seed in range(3):
                path = folder / "names" / split / label / f"{seed}.jpg"
                Image.fromarray(picture(seed + 10 * (label == "dog"))).save(path)
    dark = folder / "names" / "train" / LABEL / NAME
    Image.fromarray(picture(50) // 12).save(dark)
    run = folder / "nasty"
    scanning.scan(open_source([str(folder / "names")]), run, jobs=1)
    decide_samples(run, [f"test/{LABEL}/0.jpg"], Action.DROP, note=NOTE)
    return run


@pytest.fixture(scope="package")
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
    with served(folder, *runs.values(), *sessions) as links:
        yield Served(links, folder, runs)
    assert "Traceback" not in (folder / "app.log").read_text()


@pytest.fixture(scope="package")
def profile(browser: Any) -> Iterator[Any]:
    """What all tabs share: the cookie, and the app's own files, which are loaded once."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture(scope="package")
def ada(profile: Any, app: Served) -> Visitor:
    """The one tab of most tests: a page in a new one is read, compiled and drawn from nothing."""
    return Visitor(profile.new_page(), app.links[REVIEWER])


@pytest.fixture
def visitor(ada: Visitor) -> Iterator[Visitor]:
    """A person at the app; at the end nothing may have complained or asked another server."""
    ada.errors, ada.outside, ada.leaves = [], [], False
    ada.page.set_viewport_size({"width": 1440, "height": 900})
    ada.page.emulate_media(color_scheme="light")
    yield ada
    assert ada.errors == []
    assert ada.outside == []
