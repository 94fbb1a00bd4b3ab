"""The way of a newcomer: every step is a command that the one before it printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from audit.cli.main import app
from tests.conftest import make_tree

pytestmark = pytest.mark.slow
COMMAND = re.compile(r"audit (?:show|report|app|explain|decide|export) [^;`]+?(?=  |$|`|\n)", re.M)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def commands(text: str) -> list[list[str]]:
    """The commands that a text tells, as words."""
    return [shlex.split(found)[1:] for found in COMMAND.findall(text)]


def one(text: str, name: str) -> list[str]:
    (first, *_) = (words for words in commands(text) if words[0] == name)
    return first


def test_from_a_folder_to_the_set_that_stays_by_printed_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path / "my pets")
    # copies between splits, and one file cut short: what comes first has an example
    whole = tmp_path / "my pets/train/cat/0.jpg"
    (tmp_path / "my pets/test/cat/twin.jpg").write_bytes(whole.read_bytes())
    (tmp_path / "my pets/train/cat/cut.jpg").write_bytes(whole.read_bytes()[:600])
    scanned = run("scan", "my pets", "--out", "runs/my pets", "--jobs", "1")
    assert scanned.exit_code == 1
    screen = scanned.output.partition("Errors\n")[0]
    printed = commands(screen)
    assert {words[0] for words in printed} >= {"report", "show", "app"}
    for words in printed:
        if words[0] == "app":  # would serve; its run exists
            assert (tmp_path / words[1] / "CURRENT").exists()
        else:
            assert run(*words).exit_code == 0, words
    listed = run(*next(words for words in printed if "--list" in words))
    assert re.search(r"^\S+ (?:SPLIT|FILE)\d{3} .+ \[[0-9a-f]{16}\]$", listed.output, re.M)
    shown = run(*one(screen, "show"))
    assert run(*one(shown.output, "explain")).output.startswith("# ")
    decided = run(*one(shown.output, "decide"))
    assert decided.exit_code == 0
    told = decided.output + decided.stderr
    exported = run(*one(told, "export"))
    assert exported.exit_code == 0, exported.output
    kept = (tmp_path / "kept/manifest.csv").read_text()
    (dropped,) = (word for word in one(shown.output, "decide")[2:3])
    assert dropped not in kept
    assert "train/cat/1.jpg" in kept


def test_what_is_given_by_mistake_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"https://example.invalid/{name}.jpg?key=1,{name}" for name in ("a", "b")]
    Path("urls.csv").write_text("\n".join(["url,label", *rows]) + "\n")
    screen = " ".join(run("scan", "urls.csv", "--out", "r", "--jobs", "1").output.split())
    assert "This image could not be downloaded" in screen
    assert "https://example.invalid/a.jpg has a query, which may contain a key" in screen
    assert "key=1" not in screen
    assert "damaged" not in screen
    again = run("scan", "r", "--out", "s")
    assert "is a run of a scan, not a dataset" in str(again.exception)
    make_tree(tmp_path / "pets")
    no_place = run("scan", "pets", "--out", "urls.csv")
    assert "urls.csv is a file: choose another path for the run." in str(no_place.exception)
