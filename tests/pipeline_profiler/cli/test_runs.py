"""The table of runs as a user meets it: rows come by themselves, and never cost a measurement."""

import argparse
import io
import json
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import checks, runs
from pipeline_profiler.cli.main import command_line
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.runs import entry
from pipeline_profiler.runs.entry import Code, outcome_of_session
from tests.conftest import ROOT


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(tmp_path / "runs.sqlite"))
    return tmp_path / "runs.sqlite"


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert command_line(["runs", "--json", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "runs/1"
    return list(document["runs"])


def record(*keys: str) -> list[str]:
    """Options that set keys of `[record]`."""
    return [word for key in keys for word in ("--set", f"record.{key}")]


def make_log(folder: Path, name: str, last: str = "0.1") -> str:
    rows = [f"{i},{1 / (i + 1)}\n" for i in range(30)]
    (folder / name).write_text("step,loss\n" + "".join(rows) + f"30,{last}\n")
    return name


def test_checks_add_rows_that_can_be_chosen_sorted_and_noted(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = make_log(table.parent, "good.csv"), make_log(table.parent, "bad.csv", "nan")
    assert command_line(["runs"]) == 0
    assert "No run is recorded yet" in capsys.readouterr().out
    secret = "hf_abcdefghijklmnop"
    assert command_line(["check", good, *record("study=birds", f"configuration=u?k={secret}")]) == 0
    assert command_line(["check", bad]) == 1
    assert command_line(["runs", "2", "--note", "after <b>lunch</b>"]) == 0
    assert command_line(["check", good, *record("enabled=false")]) == 0
    assert command_line(["check", "absent.csv"]) == 2  # nothing was examined: no row
    rows = listed(capsys)
    assert [row["verdict"] for row in rows] == ["passed", "failed"]
    first, second = rows
    assert first["study"] == "birds"
    assert first["config"] == "u?k=***"
    assert second["study"] == table.parent.name
    assert [r["id"] for r in listed(capsys, "--word", "BIRDS")] == [1]
    assert [r["id"] for r in listed(capsys, "--word", "lunch")] == [2]
    assert [r["id"] for r in listed(capsys, "--sort", "value", "--reverse")] == [2, 1]
    assert command_line(["runs", "1", "--note", "the one to keep"]) == 0
    assert "the one to keep" in capsys.readouterr().out
    assert command_line(["runs"]) == 0
    out = capsys.readouterr().out
    assert "birds" in out
    assert "failed checks 1" in out
    losses = [1 / (i + 1) for i in range(20)] + [0.5]
    lines = "".join(f"{i},{loss}\n" for i, loss in enumerate(losses))
    (table.parent / "held.csv").write_text(f"step,val_loss\n{lines}")
    assert command_line(["check", "held.csv", "--only", "LOG005"]) == 0
    *_, held = listed(capsys)  # its best evaluation
    assert (held["metric"], held["value"]) == ("val_loss", 0.05)


def test_a_table_that_cannot_be_written_costs_a_sentence_and_nothing_else(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text("my diary")
    log = make_log(table.parent, "good.csv")
    assert command_line(["check", log]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Checks of log ")
    assert "is not in the table of runs" in said.err
    assert table.read_text() == "my diary"
    assert command_line(["runs"]) == 2
    assert "no table of runs" in capsys.readouterr().err


def test_what_is_pushed_has_code_and_paths_only_when_asked(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a measurement of `run` takes seconds: the row of another command goes the same way

    def add(p: argparse.ArgumentParser) -> None:
        runs.record_command(p)
        runs.add_push_options(p)

    monkeypatch.setattr(checks, "record_command", add)
    sent: list[urllib.request.Request] = []

    def take(request: urllib.request.Request, timeout: float) -> Any:
        sent.append(request)
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", take)
    monkeypatch.setattr(entry, "read_code", lambda folder: Code("c" * 40, "+x = 1", ""))
    monkeypatch.setenv("PREFLIGHT_TOKEN", "secret-token")
    call = ["check", make_log(table.parent, "good.csv"), *record("configuration=here/c.yaml")]
    call += ["--push", "https://here/logs/"]
    told = {}
    for name, more in {
        "none": [], "dry": ["--dry-run"], "unkept": record("enabled=false"),
        "code": ["--with-code"], "paths": ["--with-paths"], "both": ["--with-code", "--with-paths"],
    }.items():  # fmt: skip
        assert command_line([*call, *more]) == 0
        told[name] = capsys.readouterr().err
    assert len(sent) == 5
    assert len(listed(capsys)) == 5  # record.enabled=false adds no row
    assert "would leave for https://here/logs/" in told["dry"]
    assert {one.full_url for one in sent} == {"https://here/api/v1/profiles"}
    assert sent[0].headers["Authorization"] == "Bearer secret-token"
    assert not any("secret-token" in one for one in told.values())
    bodies = [json.loads(one.data) for one in sent]  # type: ignore[arg-type]
    assert {body["name"] for body in bodies} == {"logs"}
    keys = [set(body["profile"]) for body in bodies]
    assert keys[0] == keys[1] >= {"command", "verdict", "time"}
    for word in ("c.yaml", "x = 1", str(table.parent)):
        assert word not in json.dumps(bodies[0])
        assert not any(word in line for line in told["none"].splitlines() if line[:2] == "  ")
    assert keys[2] - keys[0] == {"git_diff"}
    assert keys[3] - keys[0] == {"config"}
    assert keys[4] == keys[2] | keys[3]

    body = io.BytesIO(b'{"error": "This needs the role reviewer."}')
    for error, said in (
        (OSError("no route"), "no route."),
        (urllib.error.HTTPError("", 403, "Forbidden", Message(), body), "needs the role reviewer."),
        (urllib.error.HTTPError("", 502, "Bad", Message(), io.BytesIO(b"<html>")), "502: Bad."),
    ):

        def refuse(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(urllib.request, "urlopen", refuse)
        assert command_line(call) == 0
        told_so = capsys.readouterr().err
        assert "Not pushed to https://here/logs/: " in told_so
        assert said in told_so
    assert len(listed(capsys)) == 8, "each is in the table of runs"
    monkeypatch.setenv("PREFLIGHT_TOKEN", "")
    for url, why in (("https://here", "https://HOST/NAME"), ("https://here/logs", "the token")):
        assert command_line([*call[:-1], url]) == 2
        assert why in capsys.readouterr().err
    assert len(listed(capsys)) == 8, "nothing was measured"


@pytest.mark.parametrize(
    "words", [["--sort", "x"], ["--last", "0"], ["--note", "x"], ["7"], ["7", "--note", "x"]]
)
def test_a_wrong_call_is_a_sentence(
    table: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["runs", *words]) == 2
    assert capsys.readouterr().err.startswith("pipeline-profiler: ")


@pytest.mark.parametrize(
    ("name", "verdict", "metric", "trials"),
    [
        ("precision-cpu.json", "precision", "samples/s", 4),
        ("torch-input-bound.json.gz", "input-bound high", "stall share", 1),
    ],
)
def test_a_session_says_its_best_figure(name: str, verdict: str, metric: str, trials: int) -> None:
    outcome = outcome_of_session(Session.load(ROOT / "sample_data" / "sessions" / name))
    assert (outcome.verdict, outcome.metric, outcome.trials) == (verdict, metric, trials)
    assert outcome.value is not None
    assert outcome.value > 0
    # the best of a sweep is the shortest step
    sweep = Session(results={"verdict": "sweep", "sweep": [{"measured_ms": 5}, {"measured_ms": 3}]})
    assert outcome_of_session(sweep).value == 3
