"""The pages of checks and runs, without a browser: what they show, and of hostile files."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from pipeline_profiler.checks.check import (
    Answer,
    Check,
    absent,
    passed,
    skipped,
    unclear,
    wrong,
)
from pipeline_profiler.checks.document import checks_file, checks_text, parse_checks
from pipeline_profiler.checks.runner import run_checks
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs.row import RunRow
from pipeline_profiler.runs.table_file import append_row
from pipeline_profiler.ui.checks import answers_frame
from pipeline_profiler.ui.runs import runs_frame
from tests.audit.ui.pages import PATIENCE_S, html, text

pytestmark = pytest.mark.slow

BAD = "<b>nowhere</b> [x](http://y) \x1b[31m\u202e"


def document(**changes: Any) -> dict[str, Any]:
    def entry(code: str, verdict: str, **more: Any) -> dict[str, Any]:
        plain = {"name": "a-check", "sentence": f"{code} says {BAD}.", "causes": [BAD], "next": BAD}
        return {"code": code, "verdict": verdict, "evidence": {BAD: BAD}} | plain | more

    checks = [
        entry("TRAIN001", "passed"),
        entry("TRAIN002", "passed"),
        entry("TRAIN012", "failed"),
        entry("TRAIN010", "failed"),
        entry("TRAIN020", "inconclusive"),
    ]
    made = {"schema": "checks/1", "subject": BAD, "checks": checks, "ended": ""}
    return made | {"failed": ["TRAIN012", "TRAIN010"]} | changes


def opened(monkeypatch: pytest.MonkeyPatch, page: str, *paths: Path) -> AppTest:
    monkeypatch.setattr(sys, "argv", ["app.py", *map(str, paths)])
    script = f"from pipeline_profiler.ui.{page} import page\npage()"
    return AppTest.from_string(script, default_timeout=PATIENCE_S).run()


def test_checks_are_a_table_first_and_failed_ones_in_detail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "check" in text(opened(monkeypatch, "checks"))
    path = tmp_path / "checks.json"
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    grid = base64.b64encode(picture.getvalue()).decode()
    path.write_text(json.dumps(document(grid=grid)))
    at = opened(monkeypatch, "checks")
    assert not at.exception
    assert "Images as the model gets them" in [h.value for h in at.header]
    assert "2 failed, 2 passed, 1 inconclusive, 0 not applicable, 0 skipped" in text(at)
    shown = text(at)
    assert shown.index("TRAIN012") < shown.index("TRAIN010")  # causes before symptoms
    assert "Likely:" in shown
    assert "Next:" in shown
    assert "<b>nowhere" not in html(at)
    assert "\x1b" not in html(at)
    assert "\u202e" not in html(at)


def test_a_document_is_read_as_what_it_can_be() -> None:
    odd = document(checks=[1, {"code": 3, "verdict": "x", "evidence": [1], "causes": "y"}], grid=4)
    made = parse_checks(json.dumps(odd).encode(), "x.json")
    assert [a.verdict for a in made.answers] == ["inconclusive"]
    assert made.grid is None
    made = parse_checks(json.dumps(document()).encode(), "x.json")
    assert [a.code for a in made.answers[:3]] == ["TRAIN012", "TRAIN010", "TRAIN020"]
    assert answers_frame(made).height == 5
    assert "\x1b" not in "".join(answers_frame(made)["sentence"])
    page = base64.b64encode(b"<script>").decode()
    assert parse_checks(json.dumps(document(grid=page)).encode(), "x").grid is None
    for blob in (b"{", b"[]", b'{"schema": "profile/1"}'):
        with pytest.raises(ProfileError, match="document"):
            parse_checks(blob, "x.json")


def test_runs_are_a_table_with_all_of_one_run_below(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "runs.sqlite"
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(table))
    assert "No run is recorded yet" in text(opened(monkeypatch, "runs"))
    for number in range(2):
        diff = f"-a\n+{BAD} {number}\n"
        append_row(
            table, RunRow("2026-01-02T03:04:05Z", "run", note=BAD, verdict="v", git_diff=diff)
        )
    at = opened(monkeypatch, "runs")
    assert not at.exception
    assert at.selectbox(key="run number").options == ["2", "1"]
    assert "Uncommitted changes" in "".join(h.value for h in at.header)
    at.text_input(key="word").set_value("nowhere</b> [x](http://y) ").run()
    assert "\x1b" not in runs_frame([RunRow("t", "run", note=BAD)])["note"][0]
    # One that lies in the run of the app, or beside it, is found too.
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "off")
    for place in (tmp_path / "run", tmp_path / "beside"):
        place.mkdir()
        append_row(place / "runs.sqlite", RunRow("2026-01-02T03:04:05Z", "run", note=place.name))
        assert place.name in str(opened(monkeypatch, "runs", place).dataframe[0].value)
    assert opened(monkeypatch, "runs", tmp_path / "run" / "x.json").dataframe
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(table))
    table.write_text("no table")
    assert "no table of runs" in text(opened(monkeypatch, "runs"))


def test_the_states_of_checks_are_the_same_on_screen_report_json_and_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Subject:
        deadline = 0.0

    class Stated(Check):
        def __init__(self, number: int, answer: Answer) -> None:
            vars(self).update(code=f"LOAD9{number:02}", name=f"load9{number}", answer=answer)

        def run(self, subject: Any) -> Answer:
            return self.answer

    answers = [
        *[skipped("No second loader.", "Give it with --eval.")] * 5,
        *[absent("No ranks.")] * 4,
        *[unclear("Too few rows.")] * 3,
        *[passed("Good.")] * 2,
        wrong("Bad.", ["this"], "Do that."),
    ]
    report = run_checks([Stated(*row) for row in enumerate(answers)], Subject(), 10)
    counts = "1 failed, 2 passed, 3 inconclusive, 4 not applicable, 5 skipped"
    states = ["failed", "inconclusive", "passed", "not applicable", "skipped"]
    assert checks_text(report, "train.py").splitlines()[-1].startswith(counts)
    for name in ("x.html", "x.md"):
        written = checks_file(report, "train.py", name)
        assert counts in written
        places = [written.index(f"{state.capitalize()}\n") for state in states[1:]]
        assert sorted(places) == places
    path = tmp_path / "checks.json"
    path.write_text(checks_file(report, "train.py", path.name))
    summary = json.loads(path.read_text())["summary"]
    assert ", ".join(f"{n} {state}" for state, n in summary.items()) == counts
    monkeypatch.chdir(tmp_path)
    at = opened(monkeypatch, "checks")
    assert counts in text(at)
    listed = at.dataframe[0].value["verdict"]
    assert list(dict.fromkeys(listed)) == states
    assert {state: list(listed).count(state) for state in states} == summary
