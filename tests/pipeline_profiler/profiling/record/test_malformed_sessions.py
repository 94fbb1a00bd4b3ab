"""Damaged session files: one sentence that names the file and what is wrong, or a session."""

import copy
import functools
import gzip
import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from pipeline_profiler.profiling.record import session as session_module
from pipeline_profiler.profiling.record.session import ProfileError, Session
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import made_session, schedule
from tests.pipeline_profiler.profiling.record.damaged_sessions import (
    damaged_files,
    documents,
    exercise,
)

Document = dict[str, Any]
SAVED_BY_0_1 = sorted((ROOT / "sample_data" / "sessions").iterdir())


@pytest.fixture(scope="module")
def document() -> Document:
    rows = schedule(30, 2, 2, 5.0, lambda j: 8.0)
    session = made_session(rows, 5.0, repeats=2, workers=2, prefetch=2)
    return session.to_json()


# ---- bytes that are no session ----

HEAD = b'{"schema":"profile/1","runs":[]'
DAMAGED_BYTES = {
    "nothing": b"",
    "zero bytes": b"\0" * 4000,
    "text": b"hello",
    "a list": b"[1, 2]",
    "a number": b"3",
    "a string": b'"profile/1"',
    "null": b"null",
    "not closed": HEAD,
    "two documents": HEAD + b"}{}",
    "no UTF-8": HEAD + b',"notes":["\xff\xfe"]}',
    "UTF-16 without a mark": HEAD.decode().encode("utf-16-le") + b"}",
    "NaN": HEAD + b',"null_ms":NaN}',
    "infinity": HEAD + b',"null_ms":-Infinity}',
    "a float out of range": HEAD + b',"null_ms":1e999}',
    "a number of 5000 digits": HEAD + b',"null_ms":' + b"9" * 5000 + b"}",
    "a number of 400 digits": HEAD + b',"x":' + b"9" * 400 + b"}",
    "deep lists": HEAD + b',"x":' + b"[" * 900 + b"]" * 900 + b"}",
    "deeper lists": HEAD + b',"x":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    "deep objects": HEAD + b',"environment":' + b'{"a":' * 300 + b"1" + b"}" * 301,
    "another schema": b'{"schema":"audit-report/1"}',
    "a newer schema": b'{"schema":"profile/2"}',
    "no schema": b"{}",
    "a schema that is a list": b'{"schema":["profile/1"]}',
    "a schema of megabytes": b'{"schema":"' + b"x" * 2_000_000 + b'"}',
    "gzip cut off": gzip.compress(HEAD + b"}", mtime=0)[:-9],
    "gzip cut in its head": gzip.compress(HEAD + b"}", mtime=0)[:5],
    "gzip with a wrong sum": gzip.compress(HEAD + b"}", mtime=0)[:-8] + b"\0" * 8,
    "gzip of nothing": gzip.compress(b"", mtime=0),
    "gzip, then other bytes": gzip.compress(HEAD + b"}", mtime=0) + b"rest",
    "gzip in gzip": gzip.compress(gzip.compress(HEAD + b"}", mtime=0), mtime=0),
}


SAID = {
    "text": "not a readable session",
    "a list": "not a session",
    "no schema": "not a profile session",
    "a newer schema": r"newer pipeline-profiler.*upgrade dataset-preflight",
    "gzip cut off": "not a readable session",
}


@pytest.mark.parametrize("kind", DAMAGED_BYTES)
def test_bytes_that_are_no_session_are_a_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(DAMAGED_BYTES[kind])
    assert re.search(SAID.get(kind, ""), check_refusal(path))


def check_refusal(path: Path) -> str:
    with pytest.raises(ProfileError) as raised:
        Session.load(path)
    text = str(raised.value)
    assert text.startswith(str(path))
    assert len(text) < len(str(path)) + 300
    assert "\n" not in text
    return text


# ---- documents with something wrong in them ----


def reach(document: Document, way: list[Any]) -> Any:
    return functools.reduce(operator.getitem, way, document)


def put(*place: Any) -> Callable[[Document], None]:
    """A change: the last argument is put where the others lead."""
    *way, key, value = place
    return lambda document: operator.setitem(reach(document, way), key, value)


def drop(*place: Any) -> Callable[[Document], None]:
    *way, key = place
    return lambda document: operator.delitem(reach(document, way), key)


def shorten(*way: Any) -> Callable[[Document], None]:
    return lambda document: reach(document, [*way]).pop()


WALLS, WORKERS = ("runs", 0, "spans", "wall"), ("runs", 1, "config", "workers")
DAMAGED_DOCUMENTS = {
    "runs is an object": (put("runs", {}), "runs"),
    "a run is a number": (put("runs", 0, 3), r"runs\[0\]"),
    "a run without an arm": (drop("runs", 0, "arm"), "no arm"),
    "an arm that is a number": (put("runs", 0, "arm", 7), r"runs\[0\].arm"),
    "an arm that is a list": (put("runs", 0, "arm", []), r"runs\[0\].arm"),
    "a run without spans": (drop("runs", 0, "spans"), "no spans"),
    "a run without batches": (drop("runs", 0, "batches"), "no batches"),
    "spans is a list": (put("runs", 0, "spans", []), "spans"),
    "spans without a column": (drop("runs", 0, "spans", "start"), "spans.start"),
    "a column is text": (put("runs", 0, "spans", "wall", "abc"), "spans.wall"),
    "a column of floats": (put(*WALLS, 0, 1.5), "spans.wall"),
    "a column with null": (put(*WALLS, 0, None), "spans.wall"),
    "a column with 128 bits": (put(*WALLS, 0, 2**100), "spans.wall"),
    "sums beyond 64 bits": (put(*WALLS, 0, 2**62), "spans.wall"),
    "times that run over": (put("runs", 0, "spans", "start", 1, 2**62), "spans.start"),
    "columns of unequal lengths": (shorten(*WALLS), "rows"),
    "batch columns of unequal lengths": (shorten("runs", 1, "batches", "sent"), "rows"),
    "fewer slow keys than batches": (shorten("runs", 1, "slow_keys"), "slow_keys"),
    "a stage that is not listed": (put("runs", 0, "spans", "stage", 0, 99), "stage"),
    "a stage below zero": (put("runs", 0, "spans", "stage", 0, -1), "stage"),
    "no stages": (drop("runs", 0, "spans", "stages"), "stages"),
    "a stage without a name": (put("runs", 0, "spans", "stages", 0, None), "stages"),
    "a negative time": (put(*WALLS, 0, -5), "spans.wall"),
    "a worker below the trainer": (put("runs", 0, "spans", "worker", 0, -9), "worker"),
    "steps out of order": (put("runs", 0, "spans", "start", 4, -(10**10)), "step"),
    "a million workers": (put(*WORKERS, 10**6), "workers"),
    "workers as text": (put(*WORKERS, "two"), "workers"),
    "workers true": (put(*WORKERS, True), "workers"),
    "warm-up as text": (put("runs", 0, "warmup", "x"), "warmup"),
    "a block below zero": (put("runs", 0, "block", -1), "block"),
    "totals with text": (put("runs", 0, "totals", {"steps": "x"}), "totals"),
    "stacks with text": (put("runs", 0, "stacks", {"a|b|c": "x"}), "stacks"),
    "depths of two": (put("runs", 0, "depths", [[1, 2]]), "depths"),
    "pauses of one": (put("runs", 0, "gc_pauses", [[1]]), "gc_pauses"),
    "a slow sample without a time": (put("runs", 1, "slow", 0, {"key": 1}), "wall_ns"),
    "notes as text": (put("notes", "x"), "notes"),
    "a note that is a number": (put("notes", [1]), "notes"),
    "partial as text": (put("partial", "yes"), "partial"),
    "created as a number": (put("created", 1), "created"),
    "environment as a list": (put("environment", []), "environment"),
    "no cores": (put("environment", "cores", 0), "cores"),
    "memory as text": (put("environment", "memory_bytes", "a lot"), "memory_bytes"),
    "plan as text": (put("plan", "x"), "plan"),
    "plan with arms as a number": (put("plan", "arms", 5), "plan.arms"),
    "slow samples without keys": (put("plan", "slow_samples", [{"ms": 1}]), "slow_samples"),
    "an intervention of no time": (
        put("plan", "interventions", [{"name": "n", "why": "w", "how": "h", "baseline_ms": 0,
                                       "period_ms": 1, "spread": 0}]),
        "baseline_ms",
    ),
    "a verdict that is a list": (put("verdict", []), "verdict"),
    "causes as an object": (put("causes", {"a": 1}), "causes"),
    "a cause without a code": (put("causes", [{"name": "x"}]), "code"),
    "a share as text": (put("stall", {"share": "5%"}), "stall.share"),
    "an arm without a period": (put("arms", {"W": {"repeats": 3}}), "period_ms"),
    "an arm of no time": (put("arms", {"W": {"period_ms": 0, "repeats": 3}}), "period_ms"),
    "a sweep of texts": (put("sweep", ["x"]), "sweep"),
    "a trial without a decision": (put("trials", [{"change": "x"}]), "trials"),
    "a failed rule as text": (put("failed_rules", ["x"]), "failed_rules"),
    "precision as a list": (put("precision", [1]), "precision"),
    "precision without rows": (put("precision", {"backend": "torch"}), "precision"),
    "predictions without values": (put("predictions", {"steps": [1]}), "predictions"),
    "predictions of unequal length": (
        put("predictions", {"steps": [0, 1], "values": [[0.1], [0.2, 0.3]]}),
        "predictions",
    ),
    "predictions with a label less": (
        put("predictions", {"steps": [0], "values": [[0.1]], "labels": [], "guesses": [[1]]}),
        "predictions",
    ),
    "where it hung as text": (put("cut_off", "x"), "cut_off"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED_DOCUMENTS)
def test_a_damaged_document_is_a_sentence_with_the_place(
    tmp_path: Path, document: Document, kind: str
) -> None:
    change, words = DAMAGED_DOCUMENTS[kind]
    damaged = copy.deepcopy(document)
    change(damaged)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(damaged))
    said = check_refusal(path)
    assert "is a damaged session" in said
    assert re.search(words, said)


def test_the_undamaged_document_is_a_session(tmp_path: Path, document: Document) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document))
    assert Session.load(path).to_json() == document


@pytest.mark.parametrize("path", SAVED_BY_0_1, ids=lambda path: path.name)
def test_sessions_of_0_1_load(path: Path) -> None:
    assert Session.load(path).results


# ---- limits ----


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 4_000_000))
    monkeypatch.setattr(session_module, "MOST_BYTES", 2_000_000)
    assert "more than 2 MB" in check_refusal(path)


@pytest.mark.parametrize(
    ("limit", "text", "words"),
    [
        ("MOST_VALUES", HEAD + b',"x":[' + b"0," * 50 + b"0]}", "values, and a session may have"),
        ("MOST_CONTAINERS", HEAD + b',"x":[' + b"[]," * 50 + b"0]}", "rows, and a session may"),
        ("MOST_BYTES", HEAD + b',"x":"' + b"a" * 50 + b'"}', "MB of text"),
    ],
)
def test_what_is_too_much_to_build_is_counted_first(
    limit: str, text: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(text)
    assert Session.load(path)
    monkeypatch.setattr(session_module, limit, 30)
    assert words in check_refusal(path)


def test_a_session_too_large_to_be_read_is_saved_without_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "MOST_BYTES", 20_000)
    session = made_session(schedule(200, 0, 0, 5.0, lambda j: 8.0), 5.0)
    session.results = {"verdict": "inconclusive"}
    again = Session.load(session.save(tmp_path / "s.json"))
    assert again.results["verdict"] == "inconclusive"
    assert not again.runs
    assert "runs are left out" in again.notes[-1]


def test_what_a_loader_says_of_itself_costs_no_session(tmp_path: Path) -> None:
    session = made_session(schedule(20, 0, 0, 5.0, lambda j: 8.0), 5.0, repeats=1)
    session.runs[0].config |= {"batch_size": 10**40, "type": Path("x"), "rate": float("nan")}
    session.environment["weird"] = {1, 2} and object
    assert Session.load(session.save(tmp_path / "s.json")).runs


# ---- found by fuzzing ----


@pytest.mark.slow
def test_damaged_files_through_every_reader() -> None:

    @seed(7)
    @settings(
        max_examples=40,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(blob=damaged_files())
    def read(blob: bytes) -> None:
        exercise(blob)

    read()


@pytest.mark.slow
def test_the_undamaged_ones_go_through_every_reader() -> None:
    for document in documents():
        assert exercise(json.dumps(document).encode()) == ""
