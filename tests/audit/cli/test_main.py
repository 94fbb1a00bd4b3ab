"""The `audit` command as a user runs it: exit codes, one JSON document, sentences for mistakes.

In this process, where a check can be made to fail; Ctrl-C goes to one of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from audit.checking.check import all_checks
from audit.cli import main
from audit.decisions.decisions import decide_samples
from audit.records import Action
from audit.scanning.scanning import ScanRequest
from tests.conftest import ROOT, make_tree

pytestmark = pytest.mark.slow
BROKEN = "train/cat/broken.jpg"
QUICK = ("--checks", "FILE,DUP,IMG003", "--jobs", "1")


@dataclass
class Answer:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`audit WORDS`."""

    def answer(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["audit", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.command_line()
        said = capsys.readouterr()
        assert "Traceback" not in said.err or "--trace" in words
        return Answer(int(ended.value.code or 0), said.out, said.err)

    return answer


SEEDED = {
    "subset": ("subset", "draw", "RUN", "--split", "all", "--n", 4, "-o", "drawn.csv"),
    "labels": ("decide", "RUN", "--draw-labels", 4, "-o", "labels.csv"),
    "choose": (
        "subset",
        "draw",
        "RUN",
        "--split",
        "all",
        "--n",
        2,
        "--choose",
        "coverage",
        "-o",
        "next.csv",
    ),
    "export": ("export", "RUN", "--plan", "plan.json", "--splits", "train=.5,val=.5", "--resplit"),
}


@pytest.mark.parametrize("seed", [-1, 2**63, 10**40])
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_is_any_integer(
    audit: Command, reviewed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
    seed: int,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = [reviewed_run if word == "RUN" else word for word in SEEDED[name]]
    said = audit(*words, "--seed", seed)
    assert said.code == 0, said.err
    made = Path(words[words.index("-o") + 1] if "-o" in words else "plan.json")
    first = made.read_bytes()
    made.unlink()
    assert audit(*words, "--seed", seed).code == 0
    assert made.read_bytes() == first
    if name == "labels":
        rows = pl.read_csv(made, infer_schema=False)
        rows.with_columns(wrong=pl.lit("no")).write_csv(made)
        assert audit("decide", reviewed_run, "--reviewed", made).code == 0


def test_every_command_shows_the_traceback_of_a_failure_of_the_program(
    audit: Command, reviewed_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.run.user_query.query_frame", lambda *_: 1 / 0)
    said = audit("sql", reviewed_run, "SELECT 1")
    assert (said.code, "`--trace` shows the traceback" in said.err) == (4, True)
    said = audit("sql", reviewed_run, "SELECT 1", "--trace")
    assert (said.code, "ZeroDivisionError" in said.err, "Traceback" in said.err) == (4, True, True)


def test_a_wrong_setting_names_the_nearest_and_is_2(audit: Command, reviewed_run: Path) -> None:
    for words in (
        ("--set", "scan.lok=false", "report", reviewed_run),
        ("report", reviewed_run, "--set", "scan.lok=false"),
    ):
        said = audit(*words)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert "there is no setting 'scan.lok'. Did you mean 'scan.lock'?" in said.err
    assert audit("report", reviewed_run, "--set", "scan.lock=maybe").code == 2


def test_the_options_of_the_program_are_in_its_help_alone(audit: Command) -> None:
    page = audit("--help").out
    assert all(one in page for one in ("--config FILE", "--set TABLE.KEY=VALUE", "--trace"))
    for command in ("scan", "find", "sql"):
        assert not re.search("--(?:config|set|trace)", audit(command, "--help").out)


def test_a_word_is_explained_by_the_checks_whose_pages_have_it(audit: Command) -> None:
    listed = audit("explain", "blurry")
    assert listed.code == 0
    assert listed.out.splitlines()[0].startswith("IMG003  ")
    whole = audit("explain", "blurry-image")
    assert whole.out.startswith("# IMG003")
    none = audit("explain", "zebras")
    assert (none.code, "audit explain" in none.err) == (2, True)


@pytest.mark.parametrize(
    ("section", "begins"),
    [
        ("history", "published, UTC"),
        ("decisions", "     1  "),
        ("expectations", "1 of 1 expectations are met."),
        ("card", "# Data card of pets"),
    ],
)
def test_a_section_of_a_report_is_printed_alone(
    section: str, begins: str, audit: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    Path("audit.toml").write_text('[expect]\nfiles = "> 1"\n')
    decide_samples(run, ["train/cat/0.jpg"], Action.DROP)
    said = audit("report", run, "--section", section)
    assert (said.code, said.err) == (0, "")
    assert said.out.removeprefix("<!-- audit-report/1 -->\n\n").startswith(begins)
    if section != "card":
        json.loads(audit("report", run, "--section", section, "--json").out)


def test_a_file_is_shown_by_its_name_without_an_extension(audit: Command, run: Path) -> None:
    said = audit("show", run, "cat/leak")
    assert said.code == 0
    assert "test/cat/leak.jpg" in said.out
    assert audit("show", run, "leak").out == said.out
    several = audit("show", run, "0")
    assert (several.code, "matches" in several.err) == (2, True)


@pytest.fixture(scope="module")
def broken_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset with a file that is none, and with a copy."""
    tree = make_tree(tmp_path_factory.mktemp("broken") / "pets")
    (tree / BROKEN).write_bytes(b"<html>oops</html>")
    shutil.copy(tree / "train/cat/0.jpg", tree / "test/cat/copy.jpg")
    return tree


def test_a_scan_is_reported_printed_again_and_asked(
    broken_tree: Path, tmp_path: Path, audit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = audit("scan", broken_tree, *QUICK)
    assert first.code == 1, first.err
    assert "split/class/file" in first.err
    assert "FILE001" in first.out
    assert "26 files read" in first.err
    run = tmp_path / "runs" / "pets"  # named after the dataset
    again = audit("scan", broken_tree, *QUICK, "--fail-on", "never", "--json")
    assert again.code == 0
    assert "Nothing changed" in again.err
    _check_document(json.loads(again.out))
    for kind in ("txt", "md", "html", "json", "sarif"):
        target = tmp_path / f"report.{kind}"
        assert audit("report", run, "-o", target).code == 0
        assert target.stat().st_size > 200
    assert "brightness" in audit("show", run, "train/cat/0.jpg").out
    sql = "SELECT label, count(*) AS n FROM images GROUP BY 1 ORDER BY 1"
    assert "owl" in audit("sql", run, sql).out
    assert json.loads(audit("sql", run, f"{sql} DESC", "--json").out)[0] == {"label": "owl", "n": 8}
    assert audit("recheck", run, "--checks", "IMG", "--fail-on", "never").code == 0
    assert "## What it does" in audit("explain", "IMG001").out
    assert audit("explain", "dist005").out.startswith("DIST005 was retired: use DIST004")
    assert "IMG001" in audit("explain").out


def _check_document(document: dict[str, object]) -> None:
    """Check the document against the contract `audit-report/1`."""
    assert document["schema"] == "audit-report/1"
    summary, findings = document["summary"], document["findings"]
    assert isinstance(summary, dict)
    assert isinstance(findings, list)
    assert set(summary) == {"error", "warning", "info", "failed_checks"}
    assert document["failed_checks"] == document["failed_readers"] == []
    finding = next(f for f in findings if f["code"] == "DUP001")
    assert finding["sample_ids"] == ["test/cat/copy.jpg", "train/cat/0.jpg"]
    assert set(finding) == {
        "code", "name", "severity", "sample_ids", "message", "evidence", "action", "fingerprint",
    }  # fmt: skip
    assert document["completeness"]


def test_a_failed_check_stands_in_front_and_ends_with_3(
    broken_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audit: Command
) -> None:
    def find(*_: object) -> object:
        raise ZeroDivisionError("half of nothing")

    monkeypatch.setattr(type(all_checks()["IMG003"]), "find", find)
    run = tmp_path / "run"
    told = audit("scan", broken_tree, "--out", run, *QUICK, "--json")  # findings alone would be 1
    assert told.code == 3
    document = json.loads(told.out)
    assert document["summary"]["failed_checks"] == 1
    (failed,) = document["failed_checks"]
    assert (failed["code"], failed["error"]) == ("IMG003", "ZeroDivisionError: half of nothing")
    assert "FILE001" in {finding["code"] for finding in document["findings"]}
    told = audit("recheck", run, "--fail-on", "never", "--trace", "--checks", "IMG")
    assert told.code == 3
    headline = " ".join(told.out.split("Dataset")[0].split())
    assert (
        "1 check failed, so this audit is not complete. The check IMG003 blurry-image" in headline
    )
    assert f"({failed['place']})" in headline
    assert "Traceback (most recent call last)" in told.err
    for kind in ("txt", "md", "html", "json", "sarif"):
        target = tmp_path / f"report.{kind}"
        assert audit("report", run, "-o", target).code == 3
        assert "half of nothing" in target.read_text()


def test_a_failure_of_the_program_is_one_sentence_and_4(
    broken_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audit: Command
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise TypeError("unexpected None")

    monkeypatch.setattr(ScanRequest, "carry_out", fail)
    told = audit("scan", broken_tree, "--out", tmp_path / "run")
    assert told.code == 4
    assert "TypeError: unexpected None (test_main.py:" in told.err


# `audit scan` that stays at its first batch of pictures for as long as nobody stops it.
STAYING = """
import pathlib, runpy, sys, time
from dataset_preflight.foundation.progress import ProgressBar

marker = pathlib.Path(sys.argv.pop(1))
show = ProgressBar.__call__

def stay(bar, step):
    show(bar, step)
    if step.phase == "measure" and step.done:
        marker.touch()
        for _ in range(6000):  # a signal just before a sleep is heard after it
            time.sleep(0.1)

ProgressBar.__call__ = stay
if __name__ == "__main__":
    runpy.run_module("audit.cli.main", run_name="__main__")
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_says_how_to_go_on(jobs: int, tree: Path, tmp_path: Path, audit: Command) -> None:
    script, marker, run = tmp_path / "staying.py", tmp_path / "reached", tmp_path / "run"
    script.write_text(STAYING)
    line = [
        sys.executable,
        script,
        marker,
        "scan",
        tree,
        "--out",
        run,
        "--jobs",
        jobs,
        "--checks",
        "FILE",
    ]
    with subprocess.Popen(
        [str(word) for word in line], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
    ) as process:  # fmt: skip
        while not marker.exists():
            assert process.poll() is None, "the scan ended before it was stopped"
            time.sleep(0.02)
        # As a terminal does: every process of the group hears of it.
        os.killpg(process.pid, signal.SIGINT)
        printed, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert printed == ""
    stopped = re.search(r"Nothing is lost: `(.+)` continues\.\n\nStopped\.$", said)
    assert stopped is not None, said
    again = audit(*shlex.split(stopped[1])[1:], *QUICK, "--fail-on", "never")
    assert again.code == 0
    assert "24 resumed from an unfinished scan" in again.err


def test_ctrl_c_anywhere_else_says_that_it_stopped(
    audit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("audit.checking.check.all_checks", interrupted)
    ended = audit("explain", "FILE001")
    assert (ended.code, ended.out, ended.err) == (130, "", "\nStopped.\n")


def test_every_command_has_help_and_is_on_its_page() -> None:
    pages = (ROOT / "docs" / "commands.md").read_text()
    for command in main.app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        assert (command.callback.__doc__ or "").strip(), name
        assert f"audit {name}" in pages, f"`audit {name}` is not in docs/commands.md"


def test_only_the_named_command_is_made() -> None:
    assert [c.name for c in main.only_named(["scan", "app"]).registered_commands] == ["scan"]
    assert not main.only_named(["subset", "plan"]).registered_commands
    for words in ([], ["scam", "sql"], ["--trace", "scan"]):
        assert main.only_named(words) is main.app
