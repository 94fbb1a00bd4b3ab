"""Running one page without a browser, and reading what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest, local_script_runner

PATIENCE_S = 300
# Each AppTest asks the metadata of every installed package for components: none has any.
manifest_scanner.scan_component_manifests = list
_ask_each_ms = local_script_runner.require_widgets_deltas


def _wait(runner: Any, timeout: float) -> None:
    """Wait for the thread of a page: to ask each millisecond takes a tenth of its time."""
    runner._script_thread.join(timeout)
    _ask_each_ms(runner, 1.0 if runner.script_stopped() else 0.0)


local_script_runner.require_widgets_deltas = _wait
Show = Callable[..., AppTest]  # the fixture `show`


def shown(monkeypatch: pytest.MonkeyPatch, page: str, /, *words: Path, **link: str) -> AppTest:
    """A page of `audit.ui` as it opens from a link, for these runs and sessions."""
    monkeypatch.setattr(sys, "argv", ["app.py", *map(str, words)])
    at = AppTest.from_string(
        f"from audit.ui.{page} import page\nfrom audit.ui.opened import guarded\nguarded(page)()",
        default_timeout=PATIENCE_S,
    )
    for name, value in link.items():
        at.query_params[name] = value
    at.run()
    return at


def text(at: AppTest) -> str:
    """Everything the page says in paragraphs, tags taken off."""
    assert not at.exception, [e.value for e in at.exception]
    parts = [element.proto.body for element in at.get("html")]
    return unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", "\n".join(parts), flags=re.S))


def html(at: AppTest) -> str:
    """The HTML of the page's paragraphs."""
    return "\n".join(element.proto.body for element in at.get("html"))


def link_of(at: AppTest) -> dict[str, Any]:
    """The link, single values only."""
    return {k: v[0] if isinstance(v, list) and v else v for k, v in at.query_params.items()}
