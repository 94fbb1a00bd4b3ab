"""The saved profile: exact round trips, size and refusals."""

import itertools
import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan, Probes, Reason
from pipeline_profiler.profiling.record.session import (
    BATCH_COLUMNS,
    MAIN,
    ProfileError,
    Run,
    Session,
    Span,
    SpanTable,
)


def test_spans_come_back_as_they_went_in(tmp_path: Path) -> None:
    spans = [Span("read", 3, 1, 10**15 + 7, 500, 40, 3, 8), Span("wait", 4, MAIN, 5, 9)]
    session = Session(
        runs=[Run(Arm.WARM, block=2, spans=SpanTable(spans))], notes=["n"], created="t"
    )
    again = Session.load(session.save(tmp_path / "s.json"))
    assert list(again.runs[0].spans) == spans
    assert again.to_json() == session.to_json()
    assert (again.runs[0].arm, again.runs[0].block, again.notes) == (Arm.WARM, 2, ["n"])


def test_results_stand_at_the_top_level_of_a_readable_text_and_come_back(tmp_path: Path) -> None:
    session = Session(results={"verdict": "not input-bound", "causes": []})
    path = session.save(tmp_path / "s.json")
    assert path.read_text().startswith('{"schema":"profile/1"')
    assert json.loads(path.read_text())["verdict"] == "not input-bound"
    assert Session.load(path).results == session.results


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


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="record one with `run"):
        Session.load(tmp_path / "none.json")


def test_a_file_holds_the_letters_of_0_1(tmp_path: Path) -> None:
    runs = [Run(arm) for arm in Arm]
    document = json.loads(Session(runs=runs).save(tmp_path / "s.json").read_text())
    assert "".join(run["arm"] for run in document["runs"]) == "DHXWCZBNPSATK"
    assert [run.arm for run in Session.from_json(document).runs] == list(Arm)


def test_runs_of_an_arm_of_a_later_version_are_left_out() -> None:
    document = Session(runs=[Run(Arm.WARM)]).to_json()
    document["runs"] += [document["runs"][0] | {"arm": "later"}]
    assert [run.arm for run in Session.from_json(document).runs] == [Arm.WARM]


def test_plan_and_probes_share_one_place_in_the_file(tmp_path: Path) -> None:
    plan = Plan((Arm.RESIDENT, Arm.WARM), 3, 60, 20, 25.0, (Reason("why", (Arm.WARM,)),), seed=7)
    probes = Probes(unused_fields={"depth": 8}, change={"workers": 2}, slow_samples=[])
    path = Session(plan=plan, probes=probes).save(tmp_path / "s.json")
    held = json.loads(path.read_text())["plan"]
    assert (held["arms"], held["reasons"], held["try"]) == (["D", "W"], ["why"], {"workers": 2})
    assert "synchronising_lines" not in held  # not probed is not None
    again = Session.load(path)
    assert again.probes == probes
    assert again.plan == replace(plan, reasons=(Reason("why"),))


def test_device_rows_that_were_probed_and_unknown_stay_apart(tmp_path: Path) -> None:
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
    depths=st.lists(st.lists(INTEGERS, min_size=3, max_size=3), max_size=3),
    gc_pauses=st.lists(st.lists(INTEGERS, min_size=2, max_size=2), max_size=3),
    totals=st.dictionaries(TEXT, INTEGERS, max_size=3),
    stacks=st.dictionaries(TEXT, COUNTS, max_size=3),
    notes=st.lists(TEXT, max_size=2),
)
RESERVED = {"schema", *Session.__dataclass_fields__}
PLANS = st.builds(
    Plan,
    arms=st.lists(st.sampled_from(Arm), min_size=1, unique=True).map(tuple),
    reasons=st.lists(st.builds(Reason, TEXT), max_size=3).map(tuple),
    files=st.lists(TEXT, max_size=3).map(tuple),
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
