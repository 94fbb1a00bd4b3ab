"""The options that every command has, and settings files."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.settings import SettingsError, assign, global_options_first, read_settings

KEYS = ("scan.lock", "scan.exclude", "plan.power")


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        ("scan x", "scan x"),
        ("scan x --trace", "--trace scan x"),
        ("scan --set a.b=1 x --config f", "--set a.b=1 --config f scan x"),
        ("scan x --config=f --set=a.b=1", "--config=f --set=a.b=1 scan x"),
        ("watch -- train.py --config f --trace", "watch -- train.py --config f --trace"),
        ("scan x --set", "--set scan x"),
    ],
)
def test_options_of_the_program_come_first(words: str, ordered: str) -> None:
    assert global_options_first(words.split()) == ordered.split()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("scan.lock=false", False),
        ("plan.power=0.9", 0.9),
        ("plan.power=.9", 0.9),
        ('scan.exclude=["a", "b"]', ["a", "b"]),
        ("scan.exclude = plain text", "plain text"),
    ],
)
def test_a_value_is_toml_or_else_text(text: str, value: object) -> None:
    document: dict[str, object] = {"scan": {"lock": True}}
    assign(document, [text], KEYS)
    table, key = text.partition("=")[0].strip().split(".")
    assert document[table][key] == value  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scan.loc=1", "Did you mean 'scan.lock'"),
        ("scan.lock", "write KEY=VALUE"),
    ],
)
def test_a_wrong_assignment_is_refused_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        assign({}, [text], KEYS)
    with pytest.raises(SettingsError, match="write it as a table"):
        assign({"scan": 3}, ["scan.lock=true"], KEYS)


def test_a_file_is_read_from_the_working_folder_or_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings(None, "audit.toml")[0] == {}
    (tmp_path / "audit.toml").write_text("[scan]\nlock = false\n")
    assert read_settings(None, "audit.toml")[0] == {"scan": {"lock": False}}
    for name, content, message in (
        ("absent.toml", None, "does not exist"),
        ("bad.toml", b"[scan", "cannot be read as TOML"),
        ("latin.toml", b"a = '\xff'", "not UTF-8"),
    ):
        if content is not None:
            Path(name).write_bytes(content)
        with pytest.raises(SettingsError, match=message):
            read_settings(Path(name), "audit.toml")
