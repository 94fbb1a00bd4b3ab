"""The keeper rule of the page Duplicates: which split gives way, asked once on top."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.ui.frame import PAGES
from tests.audit.ui.pages import link_of, shown

pytestmark = pytest.mark.slow


def test_the_split_that_gives_way_is_chosen_by_a_key(
    monkeypatch: pytest.MonkeyPatch, scanned: Path
) -> None:
    at = shown(monkeypatch, "duplicates", scanned, code="SPLIT001")
    assert at.button(key="next split").proto.shortcut == "s"
    assert "S" in dict(PAGES["duplicates"])
    chosen = []
    for _ in range(3):
        at.button(key="next split").click().run()
        chosen.append(link_of(at).get("from", ""))
        assert at.selectbox(key="choice from").value == chosen[-1]
        assert at.button(key="apply rule").disabled == (chosen[-1] == "")
    assert sorted(chosen) == ["", "test", "train"]
    assert chosen[-1] == ""
    behind = shown(monkeypatch, "duplicates", scanned, code="SPLIT001", image="train/cat/dark.jpg")
    assert not behind.button(key="next split").proto.shortcut
