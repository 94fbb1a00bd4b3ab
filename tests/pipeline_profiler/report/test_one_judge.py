"""Every face shows the results of one function, whatever a saved session states."""

from __future__ import annotations

import json
import sys
from html import unescape
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pipeline_profiler.cli.main import command_line
from pipeline_profiler.profiling.monitor.conclusion import judge_session
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report.render import to_screen
from pipeline_profiler.runs.entry import enter_session, outcome_of_session
from pipeline_profiler.runs.table_file import read_rows
from tests.audit.ui.pages import PATIENCE_S, text
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
SESSIONS = sorted((ROOT / "sample_data/sessions").iterdir())
STALE = {"verdict": "inconclusive", "sentence": "a sentence of other rules", "causes": []}


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name.split(".")[0])
def test_screen_report_page_runs_and_json_agree(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = Session.load(path)
    is_profile = session.results["verdict"] != "precision"
    session.results |= STALE if is_profile else {}
    session.save(saved := tmp_path / "stale.json")
    judge_session(session)
    results = session.results
    assert STALE["sentence"] != results["sentence"]
    first = [cause["code"] for cause in results.get("causes") or []][:1]

    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["pipeline-profiler", *words])
        assert command_line(list(words)) == 0
        return capsys.readouterr().out

    document = json.loads(said("report", str(saved), "--json"))
    assert document["verdict"] == results["verdict"]
    assert document["sentence"] == results["sentence"]
    assert [cause["code"] for cause in document.get("causes") or []][:1] == first
    said("report", str(saved), "-o", str(page := tmp_path / "page.html"))
    said("report", str(saved), "-o", str(markdown := tmp_path / "page.md"))
    monkeypatch.setattr(sys, "argv", ["app.py", str(saved)])
    script = "from pipeline_profiler.ui.profiles import page\npage()"
    shown = AppTest.from_string(script, default_timeout=PATIENCE_S).run()
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(table := tmp_path / "runs.sqlite"))
    enter_session(session, saved, 0.0)
    (row,) = read_rows(table)
    assert row.verdict == results["verdict"] == outcome_of_session(session).verdict
    faces = {
        "screen": to_screen(session), "report": said("report", str(saved)),
        "page": unescape(page.read_text()), "markdown": unescape(markdown.read_text()),
        "app": text(shown),
    }  # fmt: skip
    for face, words in faces.items():
        flat = " ".join(words.replace("\\", "").split())
        assert " ".join(results["sentence"].split())[:60] in flat, face
        assert all(code in flat for code in first), face
