"""Traces of other profilers: two that torch records here, made ones of a GPU, damaged ones."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.report.foreign_trace import trace_lines

STEPS = 10


def slice_of(name: str, start: float, wall: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start, "dur": wall, "pid": 1, "tid": 1, **more}


def made(folder: Path, events: list[Any]) -> str:
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return str(path)


def torch_steps(wait: float, kernel: tuple[float, float] | None = None) -> list[dict[str, Any]]:
    """Steps of 100 us that begin with a wait; `kernel`: its start in the step and its length."""
    rows = []
    for i in range(STEPS):
        rows.append(slice_of(f"ProfilerStep#{i}", i * 100, 98))
        rows.append(slice_of("enumerate(DataLoader)#_Iter.__next__", i * 100, wait))
        if kernel:
            rows.append(slice_of("gemm", i * 100 + kernel[0], kernel[1], cat="kernel", tid=7))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load_s", "train_s", "marks", "verdict"),
    [(0.01, 0.0, "from mark to mark", "input-bound high"), (0.0, 0.02, "next()", "")],
    ids=["slow", "healthy"],
)
def test_a_trace_that_torch_recorded(
    load_s: float,
    train_s: float,
    marks: str,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, Dataset

    step_s, wait_s = [0.0], [0.0]  # the last: what is planted is longer, at any speed

    class Items(Dataset[Any]):
        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, i: int) -> torch.Tensor:
            time.sleep(load_s and load_s + 3 * step_s[0])
            return torch.zeros(2)

    path = str(tmp_path / "trace.json")
    every = schedule(wait=0, warmup=1, active=STEPS + 2) if "mark" in marks else None
    with profile(activities=[ProfilerActivity.CPU], schedule=every, acc_events=True) as profiler:
        ended = time.monotonic()
        for batch in DataLoader(Items()):
            began = time.monotonic()
            wait_s[0] = began - ended
            time.sleep(train_s and train_s + 10 * wait_s[0])
            del batch
            profiler.step()
            ended = time.monotonic()
            step_s[0] = ended - began
    profiler.export_chrome_trace(path)
    assert main.command_line(["report", path]) == 0
    told = capsys.readouterr().out
    assert told.startswith(verdict) if verdict else "input-bound high" not in told
    assert marks in told


def test_a_wait_in_which_the_device_computes_costs_nothing(tmp_path: Path) -> None:
    alone = trace_lines(made(tmp_path, torch_steps(50)))
    assert "input wait 50.0%" in alone[0]
    covered = trace_lines(made(tmp_path, torch_steps(50, (0, 100))))
    assert "device idle while the loader is waited for 0.0%" in covered[0]
    half = trace_lines(made(tmp_path, torch_steps(50, (25, 75))))
    assert "device idle while the loader is waited for 25.0%" in half[0]
    assert "device: kernels or copies in 75.0% of the time" in half


def test_gaps_and_copies_are_told(tmp_path: Path) -> None:
    copy = "Memcpy HtoD (Pageable -> Device)"
    rows = [slice_of(copy, i * 100 + 60, 10, cat="gpu_memcpy", tid=7) for i in range(STEPS)]
    lines = trace_lines(made(tmp_path, torch_steps(1) + rows))
    assert "gaps between the marks: 2.0% of the time, the longest 0.002 ms" in lines
    told = "host-to-device copies: 9, 10.0% of the time; 9 from pageable memory (pin_memory=True)"
    assert lines[-1] == told


def test_steps_of_jax_and_what_cannot_be_told(tmp_path: Path) -> None:
    steps = [slice_of("train", i * 100, 90, args={"step_num": str(i)}) for i in range(STEPS)]
    without = trace_lines(made(tmp_path, steps))
    assert without[0].startswith("cannot tell: no span of a loader")
    assert "gaps between the marks: 10.0% of the time, the longest 0.010 ms" in without
    drawn = [slice_of("IteratorGetNext", i * 100, 30, tid=4) for i in range(STEPS)]
    assert "input wait 30.0%" in trace_lines(made(tmp_path, steps + drawn))[0]
    assert trace_lines(made(tmp_path, drawn))[0].startswith("cannot tell: 0 step marks")


@pytest.mark.parametrize(
    "blob",
    [
        b'{"traceEvents": [{"ph": "X", "na',
        b'{"traceEvents": 7}',
        b'{"traceEvents": ' + b"[" * 100_000,
        gzip.compress(b'{"traceEvents": [' + b'{"ph": "X"},' * 9999)[:200],
    ],
    ids=["cut", "number", "deep", "cut-gz"],
)
def test_a_damaged_trace_is_one_sentence(blob: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(blob)
    with pytest.raises(ProfileError, match="cut or damaged"):
        trace_lines(str(path))


def test_odd_events_are_left_out(tmp_path: Path) -> None:
    odd = [
        7,
        {"ph": "X"},
        slice_of("x", float("nan"), 1),
        {"ph": "X", "name": 3, "ts": 1, "dur": 1},
    ]
    assert trace_lines(made(tmp_path, [*torch_steps(50), *odd]))[0].count("50.0%") == 3
    (tmp_path / "a.xplane.pb").write_bytes(b"\x00")
    assert main.command_line(["report", str(tmp_path / "a.xplane.pb")]) == 2
