"""The app without a run: what it says, and the way to a first one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser.app import REVIEWER, Visitor, served
from tests.conftest import picture

pytestmark = pytest.mark.slow


def test_an_empty_folder_leads_to_a_scan(profile: Any, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "pets" / "train" / label).mkdir(parents=True)
        for seed in range(2):
            file = tmp_path / "pets" / "train" / label / f"{seed}.png"
            Image.fromarray(picture(seed + 10 * (label == "dog"))).save(file)
    (tmp_path / "empty").mkdir()
    with served(tmp_path / "empty") as links:
        tab = Visitor(profile.new_page(), links[REVIEWER])
        tab.open()
        tab.says("finds what is wrong with an image dataset")
        tab.says("There is no run here yet")
        field = tab.page.get_by_label("Folder or manifest")
        field.press_sequentially(str(tmp_path / "pets"))
        field.press("Tab")
        tab.rest()
        assert field.input_value() == str(tmp_path / "pets")
        out = tab.page.get_by_label("Run directory").first
        out.fill(str(tmp_path / "empty" / "runs" / "named"))
        out.press("Enter")
        tab.rest()
        tab.page.get_by_role("button", name="Scan", exact=True).click()
        tab.says("4 files read")
        tab.page.get_by_role("button", name="Open this run").click()
        tab.says("Now looking at")
        tab.page.get_by_role("heading", level=1, name="Overview", exact=True).wait_for()
        tab.page.get_by_test_id("stMetricValue").get_by_text("4", exact=True).first.wait_for()
        assert (tmp_path / "empty" / "runs" / "named" / "CURRENT").is_file()
        tab.page.close()
        assert tab.errors == []
