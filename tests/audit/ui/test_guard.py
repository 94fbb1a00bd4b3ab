"""A page, a fragment or a part of the sidebar that fails is one sentence; all else is drawn."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from audit.decisions.decisions import parse_verb
from audit.errors import UsageError
from audit.records import Action
from audit.ui import server
from audit.ui.opened import failure
from tests.audit.ui.pages import PATIENCE_S, html, shown, text
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def broken(*_: object, **__: object) -> None:
    raise KeyError("<b>no such column</b>")


def app(monkeypatch: pytest.MonkeyPatch, *words: Path) -> AppTest:
    """The whole app, as `audit app` starts it."""
    monkeypatch.setattr(sys, "argv", ["app.py", *map(str, words)])
    return AppTest.from_file(str(server.SCRIPT), default_timeout=PATIENCE_S).run()


def test_a_page_that_fails_says_type_and_place_and_that_the_others_work(
    monkeypatch: pytest.MonkeyPatch, scanned: Path
) -> None:
    monkeypatch.setattr("audit.ui.overview.page", broken)
    at = app(monkeypatch, scanned)
    said = text(at)  # fails where Streamlit shows an exception of its own
    assert re.search(r"failed with KeyError at audit/ui/opened.py:\d+ ", said)
    assert "The other pages work." in said
    assert "Traceback" not in said
    assert "<b>no such" not in html(at)
    assert any(box.label == "Run" for box in at.sidebar.selectbox), "the sidebar is there"


def test_an_error_that_a_user_can_fix_is_its_own_sentence(
    monkeypatch: pytest.MonkeyPatch, scanned: Path
) -> None:
    def page() -> None:
        raise UsageError("Choose another column.")

    monkeypatch.setattr("audit.ui.overview.page", page)
    said = text(app(monkeypatch, scanned))
    assert "Choose another column." in said
    assert "failed with" not in said


@pytest.mark.parametrize(
    ("page", "part"),
    [
        ("findings", "audit.ui.findings.list_of_link"),
        ("duplicates", "audit.ui.duplicates.rule_for_all"),
        ("explore", "audit.ui.explore._bar"),
    ],
)
def test_a_fragment_that_fails_leaves_its_page(
    monkeypatch: pytest.MonkeyPatch, scanned: Path, page: str, part: str
) -> None:
    monkeypatch.setattr(part, broken)
    code = {"code": "DUP001"} if page == "duplicates" else {}
    at = shown(monkeypatch, page, scanned, **code)
    assert f"failed with KeyError at audit/ui/{page}.py:" in text(at)
    assert at.title[0].value == page.capitalize()
    assert len(at.selectbox) > 2, "the filters are there"


def test_a_part_of_the_sidebar_that_fails_leaves_the_page(
    monkeypatch: pytest.MonkeyPatch, scanned: Path
) -> None:
    monkeypatch.setattr("audit.ui.frame.known_runs", broken)
    at = app(monkeypatch, scanned)
    assert "failed with KeyError" in text(at)
    assert at.title[0].value == "Overview"


def test_the_place_is_the_innermost_line_of_ours() -> None:
    with pytest.raises(ValueError) as raised:
        Action("maybe")
    assert "at an unknown place ('maybe' is not" in failure(raised.value)
    with pytest.raises(UsageError) as refused:
        parse_verb("maybe")
    assert re.search(r"UsageError at audit/decisions/decisions.py:\d+ ", failure(refused.value))
    assert "at an unknown place (no text)" in failure(ValueError())


def test_what_fails_after_an_upgrade_says_to_start_the_app_again(
    monkeypatch: pytest.MonkeyPatch, scanned: Path, tmp_path: Path
) -> None:
    def page() -> None:
        raise ImportError("cannot import name 'of_the_next_version' from 'audit.decisions'")

    monkeypatch.setattr("audit.ui.overview.page", page)
    monkeypatch.setattr("audit.ui.opened.OURS", ("audit",))
    (tmp_path / "audit").mkdir()
    monkeypatch.setattr("audit.ui.opened.ROOT", tmp_path)
    assert "failed with ImportError" in (said := text(app(monkeypatch, scanned)))
    assert "start the app again" not in said
    (tmp_path / "audit/x.py").touch()
    assert "replaced under this app: start the app again" in text(app(monkeypatch, scanned))


@pytest.mark.parametrize("path", sorted((ROOT / "audit" / "ui").glob("*.py")), ids=lambda p: p.stem)
def test_every_fragment_and_dialogue_is_drawn_safely(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
            if "st.fragment" in marks or "st.dialog" in marks:
                assert "safely(" in ast.unparse(node.body[-1]), f"{path.name}: {node.name}"


def test_every_page_of_the_app_is_guarded() -> None:
    calls = [n for n in ast.walk(ast.parse(server.SCRIPT.read_text())) if isinstance(n, ast.Call)]
    pages = [call for call in calls if ast.unparse(call.func) == "st.Page"]
    assert [ast.unparse(call.args[0]) for call in pages] == ["guarded(page)"]
