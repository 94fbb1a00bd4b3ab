"""The app without a run, and with a damaged one: what it says, and the way out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser.app import Visitor, served
from tests.conftest import picture

pytestmark = pytest.mark.slow


def first_link(started: Any) -> str:
    """The link, or the first of several: that of who may decide."""
    return str(started if isinstance(started, str) else started[0])


def test_an_empty_folder_and_a_damaged_run_lead_to_a_scan(profile: Any, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "pets" / "train" / label).mkdir(parents=True)
        for seed in range(2):
            file = tmp_path / "pets" / "train" / label / f"{seed}.png"
            Image.fromarray(picture(seed + 10 * (label == "dog"))).save(file)
    (tmp_path / "empty").mkdir()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "CURRENT").write_text("?")
    with served(tmp_path / "empty") as started:
        tab = Visitor(profile.new_page(), first_link(started))
        tab.open()
        tab.says("finds what is wrong with an image dataset")
        tab.says("There is no run here yet")
        field = tab.page.get_by_label("Folder or manifest")
        field.press_sequentially(str(tmp_path / "pets"))
        field.press("Tab")
        tab.rest()
        assert field.input_value() == str(tmp_path / "pets")
        tab.page.get_by_role("button", name="Scan", exact=True).click()
        tab.says("4 files read")
        tab.page.get_by_role("button", name="Open this run").click()
        tab.page.get_by_role("heading", level=1, name="Overview", exact=True).wait_for()
        assert (tmp_path / "empty" / "runs" / "pets" / "CURRENT").is_file()
        tab.page.close()
        assert tab.errors == []
    with served(tmp_path / "empty", damaged) as started:
        tab = Visitor(profile.new_page(), first_link(started))
        tab.open("?run=damaged")
        tab.says("No run is open")
        assert "damaged" in tab.page.locator(".notice.error").first.inner_text()
        # a link to a run that this app does not know shows no other in its place
        tab.open("findings?run=elsewhere")
        tab.says("which this app was not started with")
        assert tab.page.locator(".listing").count() == 0
        tab.page.get_by_role("button", name="Scan a folder, or open a run").click()
        tab.page.get_by_label("Folder or manifest").wait_for()
        tab.page.close()
        assert tab.errors == []
