"""What a person sees: help, settings, options, and how long a phase still takes."""

from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from audit.cli import help as audit_help
from audit.cli.main import app
from dataset_preflight.foundation.progress import Pace, left_text
from dataset_preflight.foundation.settings import (
    SettingsError,
    assign,
    global_options_first,
    read_settings,
)
from dataset_preflight.foundation.terminal import nearest_name, nearest_path
from pipeline_profiler.cli import main as profiler

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


def test_the_rate_counts_from_the_first_finished_items() -> None:
    pace = Pace(first=0)
    assert pace.advance(0, 100.0) == 0
    assert pace.advance(10, 130.0) == 0  # 30 s of starting up
    assert pace.advance(12, 130.1) == 0  # too short to tell
    assert pace.advance(30, 132.0) == pytest.approx(10)


@pytest.mark.parametrize(
    ("items", "rate", "text"),
    [
        (50, 10.0, ""), (0, 10.0, ""), (100, 0.0, ""), (-100, 10.0, ""),
        (120, 10.0, "about 12 s left"), (6_000, 10.0, "about 10 min left"),
    ],
)  # fmt: skip
def test_more_than_five_seconds_have_an_estimate(items: int, rate: float, text: str) -> None:
    assert left_text(items, rate) == text
