"""The documents that both programs write, as a browser shows them: wide, narrow, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.report import PICTURED, collect_report, render
from audit.report.screen import the_rest
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.report.render import to_html
from tests.browser.app import serious
from tests.browser.recorded import session

pytestmark = pytest.mark.slow
MOST_BYTES = 1_000_000
LONGEST = 4500  # px, of what had 34,618


def test_documents_are_small_folded_and_readable_on_a_phone(
    browser: Any, sample_data_run: Path, tmp_path: Path
) -> None:
    report, profile = tmp_path / "report.html", tmp_path / "profile.html"
    found = collect_report(sample_data_run, worst=PICTURED)
    report.write_text("".join(render(found, "html")), "utf-8")
    assert report.stat().st_size < MOST_BYTES
    made = session(slow=True)
    made.results = diagnose_session(made).as_results()
    profile.write_text(to_html(made), "utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    for file in (report, profile):
        page.goto(file.as_uri())
        for width in (1280, 400):
            for theme in ("light", "dark"):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=theme)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert serious(page) == [], (file.name, width, theme)
    # a table of many columns is a list of its cells, each named, and a chart keeps its letters
    assert (
        page.locator("table.wide td").first.evaluate("(e) => getComputedStyle(e).display")
        == "block"
    )
    assert page.locator("figure svg").first.bounding_box()["width"] >= 640
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollHeight") < LONGEST
    # the first screen is that of the terminal, in the order of harm
    labels = [label for label, said in the_rest(found) if said]
    assert len(labels) >= 2
    for words in (page.locator("h2").first.inner_text(), *labels):
        assert page.get_by_text(words).first.bounding_box()["y"] < 900, words
    first = page.locator("ol.first a").first.inner_text()
    assert page.locator("details.check h3").first.inner_text().startswith(first)
    page.locator("ol.first a").first.click()
    page.locator(f"#{first} .example").first.wait_for(state="visible")
    page.close()
