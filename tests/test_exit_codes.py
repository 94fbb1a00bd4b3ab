"""Exit codes of both commands, in one table of real commands; no traceback in any of them.

0 clean; 1 a finding or bound; 2 the caller can fix it; 3 a part broke and the rest ran; 4 the
machine or the program failed; 130 interrupted. The streams are part of the table: stdout closed,
stdout full (/dev/full), a reader who is gone, and a working folder that was deleted.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, make_tree
from tests.pipeline_profiler.cli.loaders import FAST, interrupt_when, write_source
from tests.pipeline_profiler.fakes import made_session, schedule
from tests.warm import warm_shell

pytestmark = pytest.mark.slow
QUICK = " ".join(FAST)
TOOLS = {"audit": "audit", "profile": "pipeline_profiler"}


@dataclass(frozen=True)
class Row:
    """A shell line with TOOL, the code it ends with, and words that it says."""

    line: str
    code: int
    says: str = ""

    def __str__(self) -> str:
        return self.line


TABLE = (
    # ---- pipeline-profiler
    Row("profile --help", 0, "COMMAND"),
    Row("profile report sound.json", 0, "Verdict"),
    Row(f"profile run train.py:make_loader {QUICK} -o new.json", 0, "saved: new.json"),
    Row("profile report stalled.json --fail-on 'stall>20%'", 1),
    Row("profile", 0, "pipeline-profiler watch"),
    Row("profile dance", 2, "there is no 'dance'"),
    Row("profile run broken.py:make_loader", 2, "cannot be imported"),
    Row("profile report failed.json", 3, "The rule r failed"),
    Row("profile report sound.json >&-", 4, "stdout is closed"),
    Row("profile report sound.json > /dev/full", 4, "cannot be printed"),
    Row(
        "profile report stalled.json --against stalled.json --json > /dev/full",
        4,
        "cannot be printed",
    ),
    Row(f"profile run train.py:make_loader {QUICK} -o new.json >&-", 4, "stdout is closed"),
    Row(f"profile run train.py:make_loader {QUICK} -o new.json FULL_DISK", 4, "follows on stdout"),
    Row("profile report sound.json -o new.html FULL_DISK", 2, "cannot be written"),
    Row("profile report sound.json 2>&-", 0, "Verdict"),
    Row("profile report sound.json -o new.html >&-", 0),
    Row("profile report sound.json | true; exit ${PIPESTATUS[0]}", 0),
    Row("profile report absent.json 2> /dev/full", 2),
    Row("profile report HERE/sound.json IN_DELETED", 0, "Verdict"),
    Row("profile report sound.json IN_DELETED", 2, "No session at"),
    Row(f"profile run HERE/train.py:make_loader {QUICK} IN_DELETED", 2, "cannot be written"),
    # ---- audit: more in tests/audit/cli/test_hostile_calls.py
    Row("audit --help", 0, "usage"),
    Row("audit scan clean --out new-run --jobs 1 --fail-on never", 0),
    Row("audit scan marked --out new-run --jobs 1", 1),
    Row("audit scan clean --out new-run --jobs 1 --push http://127.0.0.1:9/pets", 2, "the token"),
    Row("audit scan clean --out new-run --jobs 1 --push https://host", 2, "https://HOST"),
    Row(
        "audit scan clean --out new-run --jobs 1 TO_NOBODY && ls new-run/CURRENT",
        0,
        "kept in new-run. Run the same command again to send it",
    ),
    Row(
        f"profile run train.py:make_loader {QUICK} -o new.json TO_NOBODY && ls new.json",
        0,
        "new.json; --push with the next run",
    ),
    Row("audit", 0, "audit scan FOLDER"),
)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sessions of each kind, loaders, small datasets and a run."""
    folder = tmp_path_factory.mktemp("workplace")
    write_source(folder).rename(folder / "train.py")
    (folder / "broken.py").write_text("def make_loader(:\n")
    sound = made_session(schedule(60, 0, 0, 20.0, lambda j: 0.1), 20.0)
    sound.save(folder / "sound.json")
    stalled = made_session(schedule(60, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    stalled.save(folder / "stalled.json")
    failed = {"rule": "r", "error": "E", "text": "t", "at": "a.py:1"}
    stall = {"share": 0.5, "low": 0.4, "high": 0.6, "n": 5}
    stalled.results = {"verdict": "input-bound high", "stall": stall, "failed_rules": [failed]}
    stalled.runs.clear()  # without windows the stored results stay
    stalled.save(folder / "failed.json")
    make_tree(folder / "clean")
    make_tree(folder / "marked")
    some = next((folder / "marked" / "train").rglob("*.jpg"))
    some.write_bytes(some.read_bytes()[:400])
    shell("audit scan clean --out run --jobs 1 --fail-on never", folder)
    return folder


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the table; its words in capitals say where and with which disk."""
    token = {"PREFLIGHT_TOKEN": "t"} if "TO_NOBODY" in line else {}
    for tool, module in TOOLS.items():
        # a start of its own: streams that it meets closed or full, and all of torch
        if "&-" in line or "2>" in line or line.startswith(f"{tool} run "):
            line = re.sub(f"^{tool}(?= |$)", f"{shlex.quote(sys.executable)} -m {module}", line)
        line = warm_shell(line, tool, module)
    line = line.replace("HERE", str(folder))
    line = line.replace("TO_NOBODY", "--push http://127.0.0.1:9/pets")  # where nothing answers
    if "FULL_DISK" in line:  # no file may grow: as on a disk without a free block
        line = f"ulimit -f 0; {line.replace('FULL_DISK', '')}"
    if "IN_DELETED" in line:
        line = f"mkdir gone && cd gone && rmdir ../gone && {line.replace('IN_DELETED', '')}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | token,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_command_ends_with_its_code_and_without_a_traceback(row: Row, workplace: Path) -> None:
    for name in ("new.json", "new.html", "profile.json"):
        (workplace / name).unlink(missing_ok=True)
    shutil.rmtree(workplace / "new-run", ignore_errors=True)
    line = row.line if " " in row.line else f"{row.line} "
    done = shell(line, workplace)
    said = done.stdout + done.stderr
    assert done.returncode == row.code, said
    assert row.says in said
    assert "Traceback (most recent call last)" not in said.replace(
        "Traceback of your code (most recent call last)", ""
    )
    assert "Exception ignored" not in said


def test_an_interrupted_measurement_is_130(workplace: Path) -> None:
    arguments = ["run", "train.py:make_loader", *FAST, "-o", "interrupted.json"]
    code, said = interrupt_when(workplace, "block 1", *arguments)
    assert code == 130
    assert "Traceback" not in said
