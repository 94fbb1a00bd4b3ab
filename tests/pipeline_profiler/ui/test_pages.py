"""The pages of sessions, checks and runs, and what they draw, without a browser."""

import base64
import gzip
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.document import checks_file, checks_text, parse_checks
from pipeline_profiler.checks.runner import run_checks
from pipeline_profiler.profiling.diagnose import verdict
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.runs.row import RunRow
from pipeline_profiler.runs.table_file import append_row
from pipeline_profiler.ui import frames, sessions
from pipeline_profiler.ui.checks import answers_frame
from pipeline_profiler.ui.runs import runs_frame
from tests.audit.ui.pages import PATIENCE_S, html, text
from tests.browser.recorded import session
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import broken_rule, made_session, schedule

pytestmark = pytest.mark.slow
LOADING = {
    "ms": 32.0, "sentence": "Loading a batch takes 32.0 ms: 60% at data.py:9 `open(path)` (CPU).",
    "rows": [{"stage": "decode", "ms": 19.2, "share": 0.6, "how": "CPU", "at": "data.py:9",
              "code": "`open(path)`", "advice": "smaller copies of the files"}],
}  # fmt: skip


def opened(
    monkeypatch: pytest.MonkeyPatch, *paths: Path, page: str = "profiles", name: str = ""
) -> AppTest:
    monkeypatch.setattr(sys, "argv", ["app.py", *map(str, paths)])
    script = f"from pipeline_profiler.ui.{page} import page\npage()"
    at = AppTest.from_string(script, default_timeout=PATIENCE_S)
    if name:
        at.query_params["session"] = name
    return at.run()


def test_without_a_session_the_page_says_how_to_record_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # the page looks for sessions below the working folder
    assert "pipeline-profiler run" in text(opened(monkeypatch))


def test_a_session_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow, mended = (
        session(s).save(tmp_path / f"{n}.json") for n, s in (("slow", True), ("ok", False))
    )
    at = opened(monkeypatch, slow, mended)
    said = text(at)
    assert "input-bound high" in said
    assert "PIPE" in said
    assert re.search(r"1\. PIPE\d+ \S+: \d+\.\d% \(95% CI .+\) of the step", said)
    assert "Throughput (samples/s, 95% CI): with the step" in said
    assert "<b>nowhere" not in html(at)
    at.selectbox(key="session").set_value("ok").run()
    assert "not input-bound" in text(at)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": "profile/9"}', "newer pipeline-profiler"),
        ('{"schema": "profile/1", "runs": [', "not a readable session"),
        ('{"schema": "profile/1", "runs": []}', "no loader was iterated"),
        ('{"schema": "profile/1", "runs": [{"arm": "W", "spans": {}}]}', "is a damaged session"),
    ],
)
def test_what_is_no_session_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    assert said in text(opened(monkeypatch, path))


def test_a_link_names_a_known_session_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = session(True).save(tmp_path / "slow.json")
    (tmp_path / "far").mkdir()
    hidden = session(False).save(tmp_path / "far" / "hidden.json")
    assert "input-bound high" in text(opened(monkeypatch, known, name=str(hidden)))


def test_the_time_line_has_stalls_and_ready_depth() -> None:
    drawn = frames.time_line(session(True))
    assert drawn is not None
    assert drawn.stalls.height > 10
    assert set(drawn.stalls.columns) == {"start", "end", "ms", "cause", "batch", "worker"}
    assert drawn.stalls["start"].min() >= 0
    assert drawn.stalls["end"].max() <= drawn.total + 1e-6
    assert drawn.depth["ready"].min() == 0
    assert 1 <= drawn.depth["ready"].max() <= 4  # two workers that prefetch two batches
    short = frames.time_line(session(True), most=10)
    assert short is not None
    assert short.seconds < drawn.seconds == pytest.approx(drawn.total)
    healthy = frames.time_line(session(False))
    assert healthy is not None
    assert healthy.stalls["ms"].sum() < drawn.stalls["ms"].sum()
    assert healthy.depth["ready"].mean() > drawn.depth["ready"].mean()


def test_configurations_are_drawn_as_the_report_draws_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arms = dict(frames.periods_frame(session(True)).iter_rows())
    assert arms["resident batches"] == pytest.approx(10.0)
    assert arms["warm loader"] > 15
    at = opened(monkeypatch, session(True).save(tmp_path / "slow.json"))
    assert "Share of the step each cause is worth" in _drawn(at)
    at.query_params["profile"] = "Where the time goes"
    at.run()
    assert 'aria-label=\\"Step period by configuration\\"' in _drawn(at)


def _drawn(at: AppTest) -> str:
    return " ".join(one.proto.json for one in at.get("bidi_component"))


def test_slow_samples_are_joined_with_what_the_index_knows() -> None:
    def lookup(names: object) -> dict[str, dict[str, object]]:
        assert "train/fish/2664.jpg" in list(names)  # type: ignore[call-overload]
        return {"train/fish/2664.jpg": {"width": 158, "bytes": 10_100}}

    rows = {
        r["sample"]: r
        for r in frames.slow_samples_frame(session(True), lookup).iter_rows(named=True)
    }
    assert rows["train/fish/2664.jpg"]["width"] == 158
    assert rows["<b>nowhere</b>.jpg"]["width"] is None
    assert rows["train/fish/2664.jpg"]["worst ms"] == pytest.approx(70.0)


def test_uploads_are_read_as_files_are(tmp_path: Path) -> None:
    path = session(True).save(tmp_path / "slow.json")
    for data in (path.read_bytes(), gzip.compress(path.read_bytes())):
        assert Session.parse(data, "slow").runs
    for data in (b"{", b"[1]", b"\x1f\x8b broken"):
        with pytest.raises(ProfileError, match="session"):
            Session.parse(data, "x")


def test_a_failed_rule_is_on_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verdict, "COMPUTE_RULES", (broken_rule, *verdict.COMPUTE_RULES))
    path = session(True).save(tmp_path / "broken.json")
    assert "The rule broken_rule failed (ZeroDivisionError" in text(opened(monkeypatch, path))


def test_two_sessions_of_one_file_name_are_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = []
    for folder, slow in (("before", True), ("after", False)):
        (tmp_path / folder).mkdir()
        paths.append(session(slow).save(tmp_path / folder / "profile.json"))
    at = opened(monkeypatch, *paths)
    assert at.selectbox(key="session").options[:2] == ["profile", "after/profile"]
    at.selectbox(key="session").set_value("after/profile").run()
    assert "not input-bound" in text(at)


def test_an_uploaded_session_opens_and_can_be_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    there, sent = (
        session(s).save(tmp_path / f"{n}.json.gz") for n, s in (("slow", True), ("ok", False))
    )
    session(False, step_ms=290.0).save(tmp_path / "other.json")
    data = sent.read_bytes()
    sent.unlink()
    at = opened(monkeypatch, there)
    at.file_uploader(key="session file").upload("ok.json.gz", data).run()
    assert "not input-bound" in text(at)
    assert at.selectbox(key="session").value == "ok (uploaded)"
    at.selectbox(key="session").set_value("slow").run()
    at.query_params["profile"] = "Compare"
    at.run()
    at.selectbox(key="before").set_value("ok (uploaded)").run()
    assert "times slower than A" in text(at)
    assert at.query_params["before"] == "ok (uploaded)"  # a reload opens the same comparison
    at.selectbox(key="before").set_value("other").run()
    assert "takes 290.0 ms in A and 10.0 ms in B" in text(at)


@pytest.mark.parametrize("asked", ["Compare", "no such tab"])
def test_a_link_opens_its_tab_and_draws_that_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    monkeypatch.chdir(tmp_path)  # no sessions but these two
    paths = [session(slow).save(tmp_path / f"{slow}.json") for slow in (True, False)]
    at = opened(monkeypatch, *paths)
    at.query_params["profile"] = asked
    at.run()
    assert ("B is True." in text(at)) == (asked == "Compare")
    assert ("PIPE002" in text(at)) == (asked != "Compare")


def test_a_precision_session_opens_on_its_table_and_no_tab_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    at = opened(monkeypatch, ROOT / "sample_data" / "sessions" / "precision-cpu.json")
    assert [tab.label for tab in at.tabs] == ["Tables", "Conditions"]
    assert "Throughput by batch size" in _drawn(at)
    assert "precision" in at.dataframe[0].value.columns
    assert "precision" not in text(at).split("\n")[0].split()  # not the verdict as a bare word
    at = opened(monkeypatch, session(True).save(tmp_path / "slow.json"))
    assert [tab.label for tab in at.tabs] == [
        *("Causes", "Where the time goes", "Time line", "Slow samples", "Conditions", "Tables")
    ]
    rows = [{k: v for k, v in row.items() if k != "fetch"} for row in
            schedule(80, 0, 0, 10.0, lambda j: 5.0)]  # fmt: skip
    # an iterable tells of no sample and of no batch that is ready
    at = opened(monkeypatch, made_session(rows, 10.0).save(tmp_path / "plain.json"))
    assert "Slow samples" not in [tab.label for tab in at.tabs]
    at.query_params["profile"] = "Time line"
    at.run()
    assert "input wait" in text(at)


def test_the_latest_session_of_the_folder_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["app.py"])
    paths = [session(False).save(tmp_path / f"{name}.json") for name in "abc"]
    for path, second in zip(paths, (100, 300, 200), strict=True):
        os.utime(path, (second, second))
    assert list(sessions.nearby()) == ["b", "c", "a"]
    monkeypatch.setattr(sys, "argv", ["app.py", str(paths[0])])
    assert list(sessions.nearby()) == ["a", "b", "c"]


def test_the_page_shows_title_step_loading_and_conditions_of_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = session(True)
    made.environment["command"] = {"loader": "train.py:make_loader"}
    made.environment["packages"] = {"long": "x " * 40}
    at = opened(monkeypatch, made.save(tmp_path / "slow.json"))
    assert text(at).split("\n")[0].strip().startswith("Pipeline profile of train.py:make_loader")
    assert "One step of 19.56 ms" in _drawn(at)
    at.query_params["profile"] = "Where the time goes"
    at.run()
    assert "Loading time a batch by stage" in _drawn(at)
    assert "Loading a batch takes " in text(at)  # judged anew, as every session is
    at.query_params["profile"] = "Conditions"
    at.run()
    assert "x x x x" in text(at)  # a long cell folds
    assert "cores" in text(at)


# ---- checks and runs ----


BAD = "<b>nowhere</b> [x](http://y) \x1b[31m\u202e"


def document(**changes: Any) -> dict[str, Any]:
    def entry(code: str, verdict: str, **more: Any) -> dict[str, Any]:
        plain = {"name": "a-check", "sentence": f"{code} says {BAD}.", "causes": [BAD], "next": BAD}
        return {"code": code, "verdict": verdict, "evidence": {BAD: BAD}} | plain | more

    checks = [
        entry("TRAIN001", "passed"),
        entry("TRAIN002", "passed"),
        entry("TRAIN016", "failed"),
        entry("TRAIN010", "failed"),
        entry("TRAIN020", "inconclusive"),
    ]
    made = {"schema": "checks/1", "subject": BAD, "checks": checks, "ended": ""}
    return made | {"failed": ["TRAIN016", "TRAIN010"]} | changes


def test_checks_are_a_table_first_and_failed_ones_in_detail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "check" in text(opened(monkeypatch, page="checks"))
    path = tmp_path / "checks.json"
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    grid = base64.b64encode(picture.getvalue()).decode()
    path.write_text(json.dumps(document(grid=grid)))
    at = opened(monkeypatch, page="checks")
    assert not at.exception
    assert "Images as the model gets them" in [h.value for h in at.header]
    assert "2 failed, 2 passed, 1 inconclusive, 0 not applicable, 0 skipped" in text(at)
    shown = text(at)
    assert shown.index("TRAIN016") < shown.index("TRAIN010")  # causes before symptoms
    assert "Likely:" in shown
    assert "Next:" in shown
    assert "<b>nowhere" not in html(at)
    assert "\x1b" not in html(at)
    assert "\u202e" not in html(at)


def test_a_document_is_read_with_failed_checks_first() -> None:
    made = parse_checks(json.dumps(document()).encode(), "x.json")
    assert [a["code"] for a in made["checks"][:3]] == ["TRAIN016", "TRAIN010", "TRAIN020"]
    assert answers_frame(made).height == 5
    assert "\x1b" not in "".join(answers_frame(made)["sentence"])
    page = base64.b64encode(b"<script>").decode()
    assert parse_checks(json.dumps(document(grid=page)).encode(), "x")["grid"] is None
    odd = json.dumps(document(checks=[1, {"code": 3, "verdict": "x", "evidence": [1]}])).encode()
    for blob in (b"{", b"[]", b'{"schema": "profile/1"}', odd):
        with pytest.raises(ProfileError, match="document"):
            parse_checks(blob, "x.json")


def test_runs_are_a_table_with_all_of_one_run_below(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "runs.sqlite"
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(table))
    assert "No run is recorded yet" in text(opened(monkeypatch, page="runs"))
    for number in range(2):
        diff = f"-a\n+{BAD} {number}\n"
        append_row(
            table, RunRow("2026-01-02T03:04:05Z", "run", note=BAD, verdict="v", git_diff=diff)
        )
    at = opened(monkeypatch, page="runs")
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
        assert place.name in str(opened(monkeypatch, place, page="runs").dataframe[0].value)
    assert opened(monkeypatch, tmp_path / "run" / "x.json", page="runs").dataframe
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(table))
    table.write_text("no table")
    assert "no table of runs" in text(opened(monkeypatch, page="runs"))


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
    at = opened(monkeypatch, page="checks")
    assert counts in text(at)
    listed = at.dataframe[0].value["verdict"]
    assert list(dict.fromkeys(listed)) == states
    assert {state: list(listed).count(state) for state in states} == summary
