"""The Perfetto trace: the importer's rules, checked on every event."""

import gzip
import json
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.report import render, trace
from tests.pipeline_profiler.fakes import made_run, schedule

REQUIRED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "M": {"name", "pid", "tid", "args"},
    "C": {"name", "ts", "pid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "t": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"},
}


def rows(n: int = 40) -> list[dict[str, Any]]:
    """Two workers, each batch 30 ms, step 10 ms: every batch is waited for."""
    out: list[dict[str, Any]] = []
    for i in range(n):
        start = 30 * (i // 2) + 1 + i % 2
        got = max(start + 31, out[-1]["end"] if out else 0)
        entry = out[-1]["end"] if out else 1
        out.append(
            {"entry": entry, "got": got, "end": got + 10, "worker": i % 2, "start": start,
             "fetch": 30, "sent": start + 30.5, "pickle": 0.4, "received": start + 31,
             "stages": {"read": 12, "decode": 10, "collate": 4}}
        )  # fmt: skip
    out[0] |= {"first": True, "iter": 0}
    return out


def document(n: int = 40, **kwargs: Any) -> dict[str, Any]:
    run = made_run(rows(n), workers=2, prefetch=2)
    return trace.build(Session(runs=[run]), **kwargs)


def test_events_have_what_the_importer_reads_nest_and_are_paired(tmp_path: Path) -> None:
    session = Session(runs=[made_run(rows(), workers=2, prefetch=2)])
    path = render.write(session, str(tmp_path / "x.trace.json.gz"))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    tracks = defaultdict[Any, list[tuple[float, float]]](list)
    queued = defaultdict[Any, int](int)
    for e in events:
        assert REQUIRED[e["ph"]] <= set(e), e
        assert e.get("ts", 0) >= 0
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] in "be":
            queued[e["id"], e["name"]] += 1 if e["ph"] == "b" else -1
    assert set(queued.values()) == {0}
    for track in tracks.values():
        open_ends: list[float] = []
        for start, end in sorted(track, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start + 1e-6:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-3
            open_ends.append(end)
    for e in events:  # every joint of a flow lies in a slice
        if e["ph"] in "stf":
            assert any(a - 1e-6 <= e["ts"] <= b + 1e-6 for a, b in tracks[e["pid"], e["tid"]]), e
    counts = [e["args"]["ready"] for e in events if e["ph"] == "C"]
    assert min(counts) == counts[-1] == 0
    assert max(counts) >= 1


def flows_of(trace_document: dict[str, Any]) -> list[list[dict[str, Any]]]:
    flows = defaultdict(list)
    for e in trace_document["traceEvents"]:
        if e["ph"] in "stf":
            flows[e["id"]].append(e)
    return list(flows.values())


def test_each_batch_is_one_flow_from_dispatch_to_step_and_none_goes_back_in_time() -> None:
    flows = flows_of(document())
    assert len(flows) == 40
    for joints in flows:
        assert [j["ph"] for j in joints] == ["s", "t", "t", "t", "t", "f"]
        assert joints[-1]["bp"] == "e"
        assert len({j["pid"] for j in joints}) == 2  # trainer and worker
    # an index leaves while next() still runs: its worker begins before next() returns
    early = schedule(40, 2, 1, 20.0, lambda j: 15.0, overhead=0.5)
    for row in early[2:]:
        row["start"] -= 0.3
    run = made_run(early, workers=2, prefetch=1)
    for joints in [*flows, *flows_of(trace.build(Session(runs=[run])))]:
        assert [j["ts"] for j in joints] == sorted(j["ts"] for j in joints)


def test_the_trace_is_bounded_and_says_what_it_left_out() -> None:
    made = document(400, max_events=2_000)
    assert len(made["traceEvents"]) <= 2_000
    assert made["otherData"]["batches"] == 400
    assert made["otherData"]["batches_shown"] < 400


def test_of_a_long_run_the_worst_window_is_kept() -> None:
    def loading(i: int) -> float:
        return 40.0 if 200 <= i < 220 else 5.0

    made = trace.build(
        Session(runs=[made_run(schedule(400, 1, 1, 10.0, loading), workers=1, prefetch=1)]),
        max_events=2_000,
    )
    first, shown = (made["otherData"][key] for key in ("first_batch_shown", "batches_shown"))
    assert shown < 80
    assert first <= 200 < 219 < first + shown
    stalled = [e["args"]["batch"] for e in made["traceEvents"] if e["name"].startswith("stall")]
    assert {*range(201, 219)} <= set(stalled) <= {*range(198, 223)}


def test_stalls_are_named_by_the_longest_stage_and_a_loop_without_waits_has_none() -> None:
    stalls = [e for e in document()["traceEvents"] if e["name"].startswith("stall")]
    assert {e["name"] for e in stalls} == {"stall: read"}
    assert all(e["args"]["share of the step"] >= 0.05 for e in stalls)
    calm = made_run(schedule(40, 2, 2, 20.0, lambda i: 1.0), workers=2, prefetch=2)
    names = [e["name"] for e in trace.build(Session(runs=[calm]))["traceEvents"]]
    assert not [n for n in names[30:] if n.startswith("stall")]


def test_causes_and_arms_are_slices_with_names() -> None:
    run = made_run(rows(), workers=2, prefetch=2)
    session = Session(runs=[run, made_run(rows(), Arm.RESIDENT)])
    session.results["causes"] = [
        {"code": "PIPE004", "name": "decode", "cause": "decoding is slow", "next": "cache"}
    ]
    found = [e for e in trace.build(session)["traceEvents"] if e["ph"] == "X"]
    (cause,) = [e for e in found if e["name"] == "PIPE004 decode"]
    assert cause["args"]["next"] == "cache"
    assert {"warm, block 0", "resident, block 0"} <= {e["name"] for e in found}


def test_a_session_without_a_loop_is_a_sentence() -> None:
    with pytest.raises(ProfileError, match="no recorded loop to trace"):
        trace.build(Session())


def test_a_real_trace_processor_loads_it(tmp_path: Path) -> None:
    api = pytest.importorskip("perfetto.trace_processor")
    binary = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    if binary is None:
        pytest.skip("the package downloads trace_processor_shell: put one on PATH to run this")
    session = Session(runs=[made_run(rows(), workers=2, prefetch=2)])
    path = render.write(session, str(tmp_path / "x.trace.json.gz"))
    config = api.TraceProcessorConfig(bin_path=binary)
    with api.TraceProcessor(trace=str(path), config=config) as processor:
        errors = processor.query("select count(*) n from stats where severity='error' and value>0")
        assert next(iter(errors)).n == 0
        assert next(iter(processor.query("select count(*) n from flow"))).n >= 40
