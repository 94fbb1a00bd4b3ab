"""Files per second of sessions that the profiler itself saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.subset.goal import session_throughput
from pipeline_profiler import Recorder, Session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm

SESSIONS = Path("sample_data/sessions")


def by_the_profiler(path: Path) -> float:
    """Files per second from the profiler's own windows."""
    windows = [Window.of(run) for run in Session.load(path).arm(Arm.WARM)]
    samples = [n for window in windows for n in window.batches.samples]
    size = sum(samples) / len(samples)
    periods = sum(float(window.steps.period.sum()) for window in windows)
    return size * sum(map(len, windows)) / periods * 1e9


@pytest.mark.parametrize("name", ["torch-healthy", "torch-input-bound"])
def test_throughput_of_saved_sessions(name: str) -> None:
    path = SESSIONS / f"{name}.json.gz"
    assert session_throughput(path) == pytest.approx(by_the_profiler(path))


def test_throughput_of_recorded_loops(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")

    def saved(loader, name: str) -> Path:
        recorder = Recorder()
        for _ in range(2):
            for _ in recorder.watch(loader):
                pass
        return recorder.save(tmp_path / name)

    # the last of three batches has two samples: an epoch of 10 in 3 steps
    path = saved(data.DataLoader(list(range(10)), batch_size=4), "torch.json")
    assert sum(Session.load(path).runs[0].batches["samples"]) == 20
    assert session_throughput(path) == pytest.approx(by_the_profiler(path))
    # a loader of ready batches has no batch size: nothing counts its files
    for unsized in (data.DataLoader([[1, 2], [3]], batch_size=None), [[1, 2], [3, 4]]):
        with pytest.raises(UsageError, match="no timed step of the real loader with a batch size"):
            session_throughput(saved(unsized, "unsized.json"))


def test_sessions_without_a_throughput_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not hold the throughput"):
        session_throughput(SESSIONS / "precision-cpu.json")
    for runs in ([1], [{"arm": "W"}], [{"arm": "W", "spans": {}, "batches": {}}], 5):
        (path := tmp_path / "x.json").write_text(json.dumps({"schema": "profile/1", "runs": runs}))
        with pytest.raises(UsageError, match="damaged profiler session"):
            session_throughput(path)
