"""Every screen says so where a run is not read at the version that CURRENT names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import audit
from audit.run import run_version
from tests.audit.conftest import Command

SAID = "CURRENT is missing. This is gen-0001/findings-0001.duckdb, the newest version that opens."
SAMPLE = "train/cat/0.jpg"


def one_line(text: str) -> str:
    return " ".join(text.replace("\\", "").split())


@pytest.fixture
def pointless(run: Path) -> Path:
    """A run whose CURRENT is gone."""
    (run / "CURRENT").unlink()
    return run


@pytest.mark.parametrize("form", ["txt", "md", "html", "json", "sarif"])
def test_a_report_says_it_in_every_format(
    form: str, pointless: Path, tmp_path: Path, command: Command
) -> None:
    path = tmp_path / f"report.{form}"
    command("report", pointless, "-o", path, "--no-images")
    assert one_line(path.read_text()).count(SAID) >= 1
    if form == "json":
        document = json.loads(path.read_text())
        assert document["notice"].startswith(SAID)
        assert document["completeness"][0] == document["notice"]


def test_a_report_of_a_whole_run_has_no_notice(run: Path, command: Command) -> None:
    _, out, err = command("report", run, "--json")
    assert json.loads(out)["notice"] == ""
    assert "newest version" not in out + err


@pytest.mark.parametrize(
    "line",
    [
        f"show RUN {SAMPLE}", "report RUN --section history", "report RUN --section decisions",
        "report RUN", "report RUN --section card", "sql RUN SELECT", "diff RUN RUN",
        f"decide RUN {SAMPLE} --as keep", "export RUN --out OUT", "recheck RUN --checks FILE001",
    ],
)  # fmt: skip
def test_a_command_says_it_once(
    line: str, pointless: Path, tmp_path: Path, command: Command
) -> None:
    places = {"RUN": pointless, "OUT": tmp_path / "out", "SELECT": "SELECT 1"}
    code, out, err = command(*(places.get(word, word) for word in line.split()))
    assert code in (0, 1), err
    said = one_line(out + err)
    recheck = line.startswith("recheck")
    assert ("CURRENT is missing: continued from gen-0001." if recheck else SAID) in said
    assert run_version.require(pointless).notice.startswith(SAID) != recheck, "reading writes none"


def test_python_reads_it(pointless: Path) -> None:
    assert audit.open(pointless).images.height
