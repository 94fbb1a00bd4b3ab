"""The speed-up between two sessions, and which pairs have none."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline_profiler import ProfileError
from pipeline_profiler.profiling.diagnose.comparison import compare
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import made_session, schedule


def session(cost: float = 60.0, step: float = 20.0, **facts: Any) -> Session:
    """A session of a loader of `cost` ms a batch; `facts`: loader, step, samples, size, bytes."""
    rows = schedule(60, 1, 2, step, lambda j: cost)
    config = {"workers": 1, "prefetch": 2, "batch_size": facts.get("size", 8)}
    made: Session = made_session(rows, step, jitter=0.05, **config)
    made.environment["command"] = {
        "loader": facts.get("loader", "train.py:make_loader"),
        "step": facts.get("step_name", "train.py:make_step"),
    }
    made.probes.repeatable = {"samples": facts.get("samples", 4000)}
    made.probes.batch_bytes = facts.get("bytes", 1000)
    return made


def older(made: Session) -> Session:
    """The session as an earlier version saved it, without its command."""
    del made.environment["command"]
    return made


def test_compare_states_how_many_times_faster_with_an_interval() -> None:
    result = compare(session(60.0), session(40.0))
    assert result["speedup"]["low"] < 1.5 < result["speedup"]["high"]
    assert result["sentence"].endswith("times faster than A (95% CI)")
    assert "times slower than A" in compare(session(40.0), session(60.0))["sentence"]


def test_compare_needs_repeats() -> None:
    with pytest.raises(ProfileError, match=r"measure\.repeats=3"):
        compare(Session(), Session())


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"samples": 1600}, "the dataset has 4,000 samples in A and 1,600 in B"),
        ({"step_name": "train.py:make_large_step"}, "the step is train.py:make_step in A and"),
        ({"step_name": "b.py:make_step", "step": 28.0}, "the step is train.py:make_step in A"),
        ({"step": 90.0}, "takes 20.0 ms in A and 90.0 ms in B"),
        ({"loader": "b.py:make_loader", "bytes": 2500}, "125 bytes in A and 312 in B"),
    ],
    ids=["dataset", "step", "step of a file", "time", "bytes"],
)
def test_another_workload_is_refused_with_what_differs(facts: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProfileError, match=f"not comparable: .*{reason}"):
        compare(session(), session(**facts))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, ""),
        ({"loader": "train.py:make_fast_loader"}, "loader train.py:make_loader -> train.py:make_f"),
        ({"loader": "fixed.py:make_loader"}, "loader train.py:make_loader -> fixed.py:make_loader"),
        ({"step_name": "fixed.py:make_step"}, "step train.py:make_step -> fixed.py:make_step"),
        ({"bytes": 250}, "bytes of a sample 125 -> 31"),
        ({"step": 28.0}, "step on preloaded batches 20.0 -> 28.0 ms"),
        ({"samples": 4005}, ""),  # the last batch
    ],
)
def test_what_a_fix_changes_is_named_and_compared(facts: dict[str, Any], said: str) -> None:
    assert said in compare(session(), session(40.0, **facts))["sentence"]


def test_other_batch_sizes_are_compared_per_sample() -> None:
    result = compare(session(60.0, size=8), session(120.0, step=40.0, size=16, bytes=2000))
    assert result["speedup"]["value"] == pytest.approx(1.0, abs=0.01)
    assert "batch size 8 -> 16: compared per sample" in result["sentence"]


def test_sessions_without_a_command_are_compared_by_what_they_have() -> None:
    assert "faster than A" in compare(older(session()), older(session(40.0)))["sentence"]
    assert "faster than A" in compare(older(session()), session(40.0, bytes=250))["sentence"]
    with pytest.raises(ProfileError, match="125 bytes in A and 11,250 in B"):
        compare(older(session()), session(40.0, bytes=90_000))
    with pytest.raises(ProfileError, match="1,600 in B"):
        compare(older(session()), older(session(samples=1600)))
    with pytest.raises(ProfileError, match=r"takes 20\.0 ms in A and 44\.0 ms in B"):
        compare(older(session()), older(session(step=44.0)))


def test_tf_data_is_not_compared_with_another_loader() -> None:
    tf = session()
    for run in tf.runs:
        run.config["kind"] = "tf"
    with pytest.raises(ProfileError, match=r"framework is .* in A and TensorFlow in B"):
        compare(session(), tf)


def test_an_emulated_step_is_no_real_one() -> None:
    emulated = session()
    emulated.plan = replace(emulated.plan, emulate_ms=20.0)
    with pytest.raises(ProfileError, match="the step is an emulated step in A"):
        compare(emulated, session())
