"""Compare two sessions of one pipeline, before and after a change.

A fix changes settings and code of the loader, so those may differ. Sessions of another dataset,
step or amount of work are refused, because their speed-up has no meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.intervals import difference_interval
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Session

MAX_STEP_RATIO = 2.0  # of the steps on preloaded batches, in time
MAX_UNNAMED_RATIO = 1.5  # the same where a session does not name its loader
SAME_STEP_RATIO = 1.25  # two runs of one step on one machine
MAX_BYTES_RATIO = 2.0  # of batches by loaders of two files
MAX_TYPE_RATIO = 8.0  # bytes of float64 for one of uint8
SAME_BYTES_RATIO = 1.01
EMULATED = "an emulated step"


@dataclass(frozen=True)
class Workload:
    """What a session trained on; "" or 0 where it does not say."""

    kind: str
    loader: str
    step: str
    batch_size: int
    samples: int
    step_ms: float  # on preloaded batches
    batch_bytes: float

    @classmethod
    def of(cls, session: Session) -> Workload:
        """Return the workload of a session."""
        command = session.environment.get("command") or {}
        config = session.arm(Arm.WARM)[0].config
        size = int(config.get("batch_size") or 0)
        samples = (session.probes.repeatable or {}).get("samples")
        steps = [Window.of(run).period_ns / 1e6 for run in session.arm(Arm.RESIDENT)]
        return cls(
            kind=str(config.get("kind") or ""),
            loader=str(command.get("loader") or ""),
            step=EMULATED if session.plan.emulate_ms else str(command.get("step") or ""),
            batch_size=size,
            samples=int(samples or (config.get("batches") or 0) * size),
            step_ms=float(np.mean(steps)) if steps else 0.0,
            batch_bytes=float(session.probes.batch_bytes or 0),
        )


def compare(a: Session, b: Session) -> dict[str, Any]:
    """Return the speed-up of B over A by their warm loaders, with its 95% CI.

    Raise ProfileError if a session has too few repeats or the workloads differ.
    """
    first, second = (
        [ns for run in s.arm(Arm.WARM) if (ns := Window.of(run).epoch_period_ns) > 0]
        for s in (a, b)
    )
    if len(first) < 2 or len(second) < 2:
        raise ProfileError(
            "A comparison needs two repeats of the loader in each session: record them with "
            "--set measure.repeats=3."
        )
    before, after = Workload.of(a), Workload.of(b)
    if reason := refusal(before, after):
        raise ProfileError(f"A and B are not comparable: {reason}.")
    scale = after.batch_size / before.batch_size if before.batch_size and after.batch_size else 1.0
    logs = difference_interval(np.log(first).tolist(), (np.log(second) - math.log(scale)).tolist())
    low, high = math.exp(logs.low), math.exp(logs.high)
    if low > 1:
        sentence = f"B is {low:.2f} to {high:.2f} times faster than A (95% CI)"
    elif high < 1:
        sentence = f"B is {1 / high:.2f} to {1 / low:.2f} times slower than A (95% CI)"
    else:
        sentence = f"inconclusive: B is {low:.2f} to {high:.2f} times as fast as A (95% CI)"
    return {
        "schema": "profile-compare/1",
        "sentence": "; ".join([sentence, *differences(before, after)]),
        "speedup": {"value": math.exp(logs.value), "low": low, "high": high},
        "stall": {"a": a.results.get("stall"), "b": b.results.get("stall")},
    }


def refusal(a: Workload, b: Workload) -> str:
    """Return why the speed-up of B over A has no meaning, "" if it has one."""
    smallest_change = max(a.batch_size, b.batch_size, 1)  # an incomplete batch counts as a whole
    if a.samples and b.samples and abs(a.samples - b.samples) >= smallest_change:
        return f"the dataset has {a.samples:,} samples in A and {b.samples:,} in B"
    scale = b.batch_size / a.batch_size if a.batch_size and b.batch_size else 1.0
    # a step may take as long for a larger batch, or longer in proportion to it
    step = min(_ratio(a.step_ms, b.step_ms), _ratio(a.step_ms * scale, b.step_ms))
    named = bool(a.loader and b.loader)
    if step > (MAX_STEP_RATIO if named else MAX_UNNAMED_RATIO):
        times = f"{a.step_ms:,.1f} ms in A and {b.step_ms:,.1f} ms in B"
        return f"the step on preloaded batches takes {times}"
    if (a.kind == "tf") != (b.kind == "tf"):
        return f"the loader is of kind {a.kind} in A and {b.kind} in B"
    known = bool(a.samples and b.samples)
    if a.step and b.step and a.step != b.step:
        same = a.step_ms and b.step_ms and step < SAME_STEP_RATIO and known
        if not same or _function(a.step) != _function(b.step):
            return f"the step is {a.step} in A and {b.step} in B"
    if named and _file(a.loader) == _file(b.loader):
        return ""
    size = _ratio(a.batch_bytes * scale, b.batch_bytes)
    if size > (MAX_BYTES_RATIO if named else MAX_TYPE_RATIO):
        return f"a batch has {a.batch_bytes:,.0f} bytes in A and {b.batch_bytes:,.0f} in B"
    if known or (a.batch_bytes and b.batch_bytes and size < SAME_BYTES_RATIO):
        return ""
    if named:
        return f"the loader is {a.loader} in A and {b.loader} in B, and dataset sizes are unknown"
    return "nothing shows that they train on the same dataset; record both again with `run`"


def differences(a: Workload, b: Workload) -> Iterator[str]:
    """Yield what differs in workloads that are comparable."""
    if a.batch_size and b.batch_size and a.batch_size != b.batch_size:
        yield f"batch size {a.batch_size} -> {b.batch_size}: compared per sample"
    elif _ratio(a.batch_bytes, b.batch_bytes) > MAX_BYTES_RATIO:
        yield f"bytes of a batch {a.batch_bytes:,.0f} -> {b.batch_bytes:,.0f}"
    elif _ratio(a.step_ms, b.step_ms) > SAME_STEP_RATIO:
        yield f"step on preloaded batches {a.step_ms:,.1f} -> {b.step_ms:,.1f} ms"
    for name, old, new in (("loader", a.loader, b.loader), ("step", a.step, b.step)):
        if old and new and old != new:
            yield f"{name} {old} -> {new}"


def _ratio(a: float, b: float) -> float:
    """Return the larger by the smaller; 1 where either is unknown."""
    return max(a, b) / min(a, b) if a > 0 and b > 0 else 1.0


def _file(spec: str) -> str:
    return spec.rpartition(":")[0]


def _function(spec: str) -> str:
    return spec.rpartition(":")[2]
