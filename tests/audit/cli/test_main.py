"""The `audit` command as a user runs it: exit codes, one JSON document, sentences for mistakes."""

from __future__ import annotations

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

from audit.cli import main
from tests.conftest import ROOT


def audit(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "audit.cli.main", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


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
    assert set(document["summary"]) == {"error", "warning", "info"}
    finding = next(f for f in document["findings"] if f["code"] == "DUP001")
    assert finding["sample_ids"] == ["test/cat/copy.jpg", "train/cat/0.jpg"]
    assert set(finding) == {
        "code", "name", "severity", "sample_ids", "message", "evidence", "action", "fingerprint",
    }  # fmt: skip
    assert document["completeness"]


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
import pathlib, sys, time
from audit.cli import main
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
    main.main()
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
