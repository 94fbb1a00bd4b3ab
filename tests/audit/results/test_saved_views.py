"""Saved views: kept by name beside the run, and links that say no more than a person could type."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from audit.errors import RunError, UsageError
from audit.results import saved_views as views
from audit.results.saved_views import FILE, link_of, load_views, remove_view, save_view

WHERE = '[["label","in","<b>&\\u00e9"]]'


def test_views_are_saved_replaced_removed_and_linked(tmp_path: Path) -> None:
    assert load_views(tmp_path) == {}
    save_view(tmp_path, "  dark \n cats ", "explore", {"where": WHERE, "run": "other"})
    save_view(tmp_path, "first", "findings", {})
    save_view(tmp_path, "dark cats", "explore", {"where": WHERE})
    assert list(load_views(tmp_path)) == ["first", "dark cats"]
    link = urlsplit(link_of(load_views(tmp_path)["dark cats"], "my run"))
    assert link.path == "explore"
    assert parse_qs(link.query) == {"run": ["my run"], "where": [WHERE]}
    remove_view(tmp_path, "first")
    assert list(load_views(tmp_path)) == ["dark cats"]


def test_what_cannot_be_saved_or_read_is_one_sentence_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="name"):
        save_view(tmp_path, " ", "explore", {})
    monkeypatch.setattr(views, "MOST", 1)
    save_view(tmp_path, "a", "explore", {})
    with pytest.raises(UsageError, match="remove one"):
        save_view(tmp_path, "b", "explore", {})
    for damage in ("{", "[]", '{"a": 1}', "\ud800".encode("utf-8", "surrogatepass")):
        content = damage if isinstance(damage, bytes) else damage.encode()
        (tmp_path / FILE).write_bytes(content)
        assert load_views(tmp_path) == {}
    with pytest.raises(RunError, match="cannot be saved"):
        save_view(tmp_path / "gone", "a", "explore", {})
