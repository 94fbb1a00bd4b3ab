"""The `audit` command as a user runs it: exit codes, one JSON document, sentences for mistakes."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audit import scanning
from audit.checking.check import all_checks
from audit.cli import main
from audit.cli.exit_codes import ExitCode, strongest
from tests.conftest import ROOT
from tests.warm import warm_audit

pytestmark = pytest.mark.slow


def audit(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return warm_audit(*arguments, folder=cwd)


def test_scan_prints_a_summary_and_its_exit_code_follows_fail_on(
    tree: Path, tmp_path: Path
) -> None:
    (tree / "train/cat/broken.jpg").write_bytes(b"<html>oops</html>")
    first = audit("scan", tree, "--out", tmp_path / "run", "--jobs", 1)
    assert first.returncode == 1, first.stderr
    assert "split/class/file" in first.stderr
    assert "FILE001" in first.stdout
    assert "25 files read" in first.stderr
    again = audit("scan", tree, "--out", tmp_path / "run", "--fail-on", "never")
    assert again.returncode == 0
    assert "Nothing changed" in again.stderr


def test_json_is_one_document_of_the_contract(tree: Path, tmp_path: Path) -> None:
    (tree / "test/cat/copy.jpg").write_bytes((tree / "train/cat/0.jpg").read_bytes())
    done = audit("scan", tree, "--out", tmp_path / "run", "--json", "--fail-on", "never")
    document = json.loads(done.stdout)
    assert document["schema"] == "audit-report/1"
    assert set(document["summary"]) == {"error", "warning", "info", "failed_checks"}
    assert document["failed_checks"] == document["failed_readers"] == []
    finding = next(f for f in document["findings"] if f["code"] == "DUP001")
    assert finding["sample_ids"] == ["test/cat/copy.jpg", "train/cat/0.jpg"]
    assert set(finding) == {
        "code", "name", "severity", "sample_ids", "message", "evidence", "action", "fingerprint",
    }  # fmt: skip
    assert document["completeness"]


def in_process(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The command in this process, where a check can be made to fail; returns the exit code."""
    monkeypatch.setattr(sys, "argv", ["audit", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main.command_line()
    return int(ended.value.code or 0)


def test_a_failed_check_stands_in_front_and_ends_with_3(
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find(*_: object) -> object:
        raise ZeroDivisionError("half of nothing")

    monkeypatch.setattr(type(all_checks()["IMG003"]), "find", find)
    (tree / "train/cat/broken.jpg").write_bytes(b"<html>oops</html>")  # findings alone would be 1
    run = tmp_path / "run"
    assert in_process(monkeypatch, "scan", tree, "--out", run, "--jobs", 1, "--json") == 3
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["failed_checks"] == 1
    (failed,) = document["failed_checks"]
    assert (failed["code"], failed["error"]) == ("IMG003", "ZeroDivisionError: half of nothing")
    assert "FILE001" in {finding["code"] for finding in document["findings"]}
    assert in_process(monkeypatch, "recheck", run, "--fail-on", "never", "--trace") == 3
    told = capsys.readouterr()
    headline = " ".join(told.out.split("Dataset")[0].split())
    assert (
        "1 check failed, so this audit is not complete. The check IMG003 blurry-image" in headline
    )
    assert f"({failed['place']})" in headline
    assert "Traceback (most recent call last)" in told.err
    for kind in ("txt", "md", "html", "json", "sarif"):
        target = tmp_path / f"report.{kind}"
        assert in_process(monkeypatch, "report", run, "-o", target) == 3
        assert "half of nothing" in target.read_text()
    assert "Traceback" not in capsys.readouterr().err


def test_a_failure_of_the_program_is_one_sentence_and_4(
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise TypeError("unexpected None")

    monkeypatch.setattr(scanning, "scan", fail)
    assert in_process(monkeypatch, "scan", tree, "--out", tmp_path / "run") == 4
    told = capsys.readouterr().err
    assert "TypeError: unexpected None (test_main.py:" in told
    assert "Traceback" not in told


def test_the_strongest_code_wins() -> None:
    order = [ExitCode.CLEAN, ExitCode.FINDINGS, ExitCode.BROKEN_PART, ExitCode.USAGE]
    order += [ExitCode.NO_RESULT, ExitCode.INTERRUPTED]
    for lower, higher in itertools.pairwise(order):
        assert strongest(lower, higher) == strongest(higher, lower) == higher
    assert [int(code) for code in order] == [0, 1, 3, 2, 4, 130]


def test_the_default_run_is_named_after_the_dataset(tree: Path, tmp_path: Path) -> None:
    assert audit("scan", tree, "--jobs", 1, cwd=tmp_path).returncode in (0, 1)
    assert (tmp_path / "runs" / "pets" / "CURRENT").exists()


def test_report_show_sql_recheck_explain_checks(tree: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    audit("scan", tree, "--out", run, "--jobs", 1)
    for kind in ("txt", "md", "html", "json", "sarif"):
        target = tmp_path / f"report.{kind}"
        assert audit("report", run, "-o", target).returncode == 0
        assert target.stat().st_size > 200
    shown = audit("show", run, "train/cat/0.jpg")
    assert "brightness" in shown.stdout
    table = audit("sql", run, "SELECT label, count(*) AS n FROM images GROUP BY 1 ORDER BY 1")
    assert "owl" in table.stdout
    as_json = audit("sql", run, "SELECT count(*) AS n FROM images", "--json")
    assert json.loads(as_json.stdout) == [{"n": 24}]
    assert audit("recheck", run, "--checks", "IMG", "--fail-on", "never").returncode == 0
    assert "## What it does" in audit("explain", "IMG001").stdout
    assert "IMG001" in audit("checks").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["scan", "no/such/folder"], "no/such/folder"),
        (["report", "no-run"], "audit scan"),
        (["explain", "XYZ999"], "audit checks"),
        (["sql", "no-run", "SELECT 1"], "audit scan"),
        (["recheck", "no-run"], "audit scan"),
        (["scan", ".", "--config", "none.toml"], "none.toml"),
        (["scan", ".", "--root", "nonsense"], "OLD=NEW"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_two(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = audit(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_settings_are_refused(tree: Path, tmp_path: Path) -> None:
    for text, says in (
        ("[checks.IMG001]\nmax_p9 = 0.2\n", "max_p9"),
        ("[checks.IMG999]\n", "IMG999"),
        ("[scan]\nspeed = 3\n", "speed"),
        ("[checks.IMG001]\nmax_p99 = 'much'\n", "max_p99"),
        ("= broken", "TOML"),
    ):
        (tmp_path / "audit.toml").write_text(text)
        done = audit("scan", tree, cwd=tmp_path)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr


# `audit scan` that stays at its first batch of pictures for as long as nobody stops it.
STAYING = """
import pathlib, runpy, sys, time
from audit.progress import ProgressBar

marker = pathlib.Path(sys.argv.pop(1))
show = ProgressBar.__call__

def stay(bar, step):
    show(bar, step)
    if step.phase == "measure" and step.done:
        marker.touch()
        time.sleep(600)

ProgressBar.__call__ = stay
if __name__ == "__main__":
    runpy.run_module("audit.cli.main", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_says_how_to_go_on(jobs: int, tree: Path, tmp_path: Path) -> None:
    script, marker, run = tmp_path / "staying.py", tmp_path / "reached", tmp_path / "run"
    script.write_text(STAYING)
    line = [sys.executable, script, marker, "scan", tree, "--out", run, "--jobs", jobs]
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
    stopped = re.search(r"Stopped\. Nothing is lost: `(.+)` goes on from here\.", said)
    assert stopped, said
    again = audit(*shlex.split(stopped[1])[1:], "--jobs", 1, "--fail-on", "never")
    assert again.returncode == 0
    assert "24 resumed from an unfinished scan" in again.stderr


def test_every_command_has_help_and_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in main.app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        assert (command.callback.__doc__ or "").strip(), name
        assert f"audit {name}" in readme, f"`audit {name}` is not in the README"
