"""The saved profile: exact round trips, size and refusals."""

import copy
import functools
import gzip
import itertools
import json
import operator
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pipeline_profiler.profiling.monitor.conclusion import judge_session
from pipeline_profiler.profiling.record import session as session_module
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan, Probes
from pipeline_profiler.profiling.record.session import (
    BATCH_COLUMNS,
    MAIN,
    ProfileError,
    Run,
    Session,
    Span,
    SpanTable,
)
from pipeline_profiler.report import render
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import made_session, schedule
from tests.pipeline_profiler.profiling.record.damaged_sessions import (
    damaged_files,
    documents,
    exercise,
)


def test_results_stand_at_the_top_level_of_a_readable_text_and_come_back(tmp_path: Path) -> None:
    session = Session(results={"verdict": "not input-bound", "causes": []})
    path = session.save(tmp_path / "s.json")
    assert path.read_text().startswith('{"schema":"profile/1"')
    assert json.loads(path.read_text())["verdict"] == "not input-bound"
    assert Session.load(path).results == session.results
    with pytest.raises(ProfileError, match="record one with `run"):
        Session.load(tmp_path / "none.json")


def big_session() -> Session:
    """10,000 steps, 4 workers, 6 stages a fetch: 4 x 6 x 10,000 worker spans and the trainer's."""
    run = Run(Arm.WARM)
    stages = ("fetch", "read", "decode", "transform", "collate", "serialise")
    for i in range(10_000):
        at = 1_000_003 * i
        rows = [("wait", i, MAIN, at, 912_345, 4_567, -1, 1)]
        rows.append(("loop", i, MAIN, at + 912_345, 87_000, 5_001, -1, 1))
        for worker, (k, stage) in itertools.product(range(4), enumerate(stages)):
            start = at + 12_345 * worker + 777 * k
            rows.append((stage, i, worker, start, 123_456 + i % 977, 98_765 + i % 89, 55, 8))
        run.spans.extend(rows)
        for name in BATCH_COLUMNS:
            run.batches[name].append(i * 997 % 100_000)
        run.slow_keys.append(i)
    return Session(runs=[run])


@pytest.mark.slow
def test_a_large_session_is_gzipped_and_below_20_mb(tmp_path: Path) -> None:
    session = big_session()
    assert len(session.runs[0].spans) == 260_000
    path = session.save(tmp_path / "s.json")
    assert path.name == "s.json.gz"
    assert path.stat().st_size < 20_000_000
    assert Session.load(path).runs[0].spans.columns == session.runs[0].spans.columns


def test_a_file_holds_the_letters_of_0_1_and_those_of_a_later_version_are_left_out(
    tmp_path: Path,
) -> None:
    runs = [Run(arm) for arm in Arm]
    document = json.loads(Session(runs=runs).save(tmp_path / "s.json").read_text())
    assert "".join(run["arm"] for run in document["runs"]) == "DHXWZNPSTL"
    document["runs"] += [document["runs"][0] | {"arm": "later"}]
    assert [run.arm for run in Session.from_json(document).runs] == list(Arm)


def test_a_session_of_retired_trials_loads_and_prints_its_sentence() -> None:
    document = json.loads(json.dumps(Session(runs=[Run(Arm.WARM)]).to_json()))
    document["runs"] += [document["runs"][0] | {"arm": letter} for letter in "ABC"]
    sentence = "keep workers=2; then nothing recommended is worth more than the noise"
    trial = {"change": "workers=2", "predicted": 1.4, "measured": "1.3x", "decision": "kept"}
    document |= {"verdict": "tuned", "sentence": sentence, "trials": [trial]}
    session = Session.from_json(document)
    judge_session(session)
    assert [run.arm for run in session.runs] == [Arm.WARM]
    assert sentence in render.to_screen(session)
    assert sentence in render.to_text(session)


def test_plan_and_probes_share_one_place_in_the_file(tmp_path: Path) -> None:
    plan = Plan((Arm.RESIDENT, Arm.WARM), 3, 60, 20, 25.0, ("why",), seed=7)
    probes = Probes(unused_fields={"depth": 8}, change={"workers": 2}, slow_samples=[])
    path = Session(plan=plan, probes=probes).save(tmp_path / "s.json")
    held = json.loads(path.read_text())["plan"]
    assert (held["arms"], held["reasons"], held["try"]) == (["D", "W"], ["why"], {"workers": 2})
    assert "synchronising_lines" not in held  # not probed is not None
    again = Session.load(path)
    assert again.probes == probes
    assert again.plan == plan
    path.write_text(path.read_text().replace('"try":', '"reduced": {"side": 160.0}, "try":'))
    assert Session.load(path).probes == probes  # a key that this version does not know
    # what was probed on a device and is unknown is null
    path = Session(probes=Probes(on_device=True)).save(tmp_path / "s.json")
    assert json.loads(path.read_text())["plan"]["synchronising_lines"] is None
    assert Session.load(path).probes.on_device


# ---- whatever is saved comes back ----

# Text as it occurs in paths and keys: any character but a lone surrogate, which is in no UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTEGERS = st.integers(-(2**55), 2**55)
COUNTS = st.integers(0, 2**55)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(-1e18, 1e18) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, PLAIN, max_size=3)
SPANS = st.builds(
    Span, TEXT, st.integers(0, 2**40), st.integers(-1, 512), INTEGERS, COUNTS, *[INTEGERS] * 3
)
ROWS = st.lists(
    st.tuples(COUNTS, st.integers(-1, 512), *[INTEGERS] * (len(BATCH_COLUMNS) - 2)), max_size=5
)


def columns(rows: list[tuple[int, ...]]) -> dict[str, Any]:
    return {n: array("q", [row[i] for row in rows]) for i, n in enumerate(BATCH_COLUMNS)}


def whole_run(rows: list[tuple[int, ...]], keys: list[Any], **parts: Any) -> Run:
    """A run with as many slowest samples as batches, as recorders leave it."""
    return Run(batches=columns(rows), slow_keys=keys[: len(rows)], **parts)


RUNS = st.builds(
    whole_run,
    arm=st.sampled_from(Arm),
    block=st.integers(0, 99),
    config=OBJECTS,
    warmup=st.integers(0, 99),
    spans=st.lists(SPANS, max_size=8).map(SpanTable),
    rows=ROWS,
    keys=st.lists(TEXT | INTEGERS, min_size=5, max_size=5),
    slow=st.lists(st.fixed_dictionaries({"key": TEXT | INTEGERS, "wall_ns": COUNTS}), max_size=2),
    gc_pauses=st.lists(st.lists(INTEGERS, min_size=2, max_size=2), max_size=3),
    totals=st.dictionaries(TEXT, INTEGERS, max_size=3),
    stacks=st.dictionaries(TEXT, COUNTS, max_size=3),
    notes=st.lists(TEXT, max_size=2),
)
RESERVED = {"schema", *Session.__dataclass_fields__}
PLANS = st.builds(
    Plan,
    arms=st.lists(st.sampled_from(Arm), min_size=1, unique=True).map(tuple),
    reasons=st.lists(TEXT, max_size=3).map(tuple),
    seed=COUNTS,
)
PROBES = st.builds(
    Probes,
    unused_fields=st.none() | st.dictionaries(TEXT, INTEGERS, max_size=3),
    change=st.none() | st.dictionaries(TEXT, INTEGERS, max_size=2),
)
SESSIONS = st.builds(
    Session,
    runs=st.lists(RUNS, max_size=3),
    environment=OBJECTS,
    plan=PLANS,
    probes=PROBES,
    results=OBJECTS.map(lambda d: {k: v for k, v in d.items() if k not in RESERVED}),
    notes=st.lists(TEXT, max_size=2),
    created=TEXT,
    partial=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(session=SESSIONS, ending=st.sampled_from(["json", "json.gz"]))
def test_every_session_comes_back_as_it_was(
    session: Session, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = session.save(tmp_path_factory.getbasetemp() / f"any.{ending}")
    again = Session.load(path)
    assert [list(run.spans) for run in again.runs] == [list(run.spans) for run in session.runs]
    assert [run.batches for run in again.runs] == [run.batches for run in session.runs]
    for name in ("results", "environment", "plan", "probes", "notes", "created", "partial"):
        assert getattr(again, name) == getattr(session, name)
    for old, new in zip(session.runs, again.runs, strict=True):
        for name in old.__dict__.keys() - {"spans", "batches"}:
            assert getattr(new, name) == getattr(old, name), name


@seed(0)
@settings(max_examples=40)
@given(spans=st.lists(SPANS, max_size=8), cut=st.integers(0, 8))
def test_spans_given_in_two_parts_are_the_same_table(spans: list[Span], cut: int) -> None:
    table = SpanTable(spans[:cut])
    rows = [tuple(getattr(s, n) for n in Span.__slots__) for s in spans[cut:]]
    table.extend(rows)
    assert list(table) == spans
    assert list(SpanTable.from_json(json.loads(json.dumps(table.to_json())))) == spans


# ---- damaged session files: one sentence that names the file and what is wrong, or a session ----


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
@seed(7)
@settings(
    max_examples=40,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(blob=damaged_files())
def test_damaged_files_through_every_reader(blob: bytes) -> None:
    exercise(blob)


@pytest.mark.slow
def test_the_undamaged_ones_go_through_every_reader() -> None:
    for document in documents():
        assert exercise(json.dumps(document).encode()) == ""
