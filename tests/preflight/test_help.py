"""Help on one screen, what a program alone says, and the nearest right name."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from audit.cli import help as audit_help
from audit.cli.main import app
from pipeline_profiler.cli import main as profiler
from preflight.terminal import nearest_name, nearest_path

ROWS = {"audit": 28, "pipeline-profiler": 24}


def test_every_command_stands_in_one_group() -> None:
    group = typer.main.get_command(app)
    shown = [n for n, c in group.commands.items() if not c.hidden]  # type: ignore[attr-defined]
    listed = [name for names in audit_help.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(shown)
    (commands,) = (a for a in profiler.parser()._actions if a.dest == "==SUPPRESS==" or a.choices)
    said = {action.dest for action in commands._choices_actions}  # type: ignore[attr-defined]
    listed = [name for names in profiler.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(said)


def test_help_fits_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    with pytest.raises(SystemExit):
        profiler.command_line(["--help"])
    for name, page in zip(ROWS, (text, capsys.readouterr().out), strict=True):
        assert len(page.splitlines()) <= ROWS[name]
        assert max(map(len, page.splitlines())) <= 96


def test_an_option_of_the_program_stands_before_or_after_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = ["--set", "measure.repeats=none"]
    for words in ([*wrong, "runs"], ["runs", *wrong]):
        assert profiler.command_line(words) == 2
        assert "measure.repeats is 'none': write a whole number" in capsys.readouterr().err
    words = ["watch", "-o", "x.json", "--", "python", "train.py", "--config", "y"]
    args = profiler.parse(words)
    assert (args.script, args.config) == (words[4:], None)


def test_a_program_alone_says_what_is_next_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "audit scan FOLDER" in CliRunner().invoke(app, []).output
    (tmp_path / "runs" / "my pets").mkdir(parents=True)
    (tmp_path / "runs" / "my pets" / "CURRENT").write_text("x")
    assert "audit report 'runs/my pets'" in CliRunner().invoke(app, []).output
    assert profiler.command_line([]) == 0
    assert "pipeline-profiler watch -- python train.py" in capsys.readouterr().out
    (tmp_path / "profile.json").write_text('{"schema": "profile/1"}')
    (tmp_path / "profile-of-chrome.json").write_text("[1]")
    profiler.command_line([])
    said = capsys.readouterr().out
    assert "pipeline-profiler report profile.json" in said
    assert "chrome" not in said
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "profile-of-chrome.json", "profile.json", "runs",
    ]  # fmt: skip


def test_a_wrong_name_has_the_nearest_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nearest_name("dup01", ["DUP001", "FILE001"]) == " Did you mean 'DUP001'?"
    assert nearest_name("zebra", ["DUP001", "FILE001"]) == ""
    (tmp_path / "pictures").mkdir()
    assert nearest_path(tmp_path / "pictres/") == f" Did you mean {str(tmp_path / 'pictures')!r}?"
    assert nearest_path(tmp_path / "none" / "pictres") == ""
    with pytest.raises(SystemExit):
        profiler.command_line(["wacth"])
    assert "Did you mean 'watch'?" in capsys.readouterr().err
