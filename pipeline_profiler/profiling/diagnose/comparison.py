"""Compare two sessions of one pipeline, before and after a change of the loader."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from pipeline_profiler.profiling.diagnose.intervals import difference_interval
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Session

MAX_STEP_RATIO = 2.0  # of the steps on preloaded batches, in time
SAME_STEP_RATIO = 1.25  # two runs of one step on one machine
MAX_BYTES_RATIO = 2.0  # of samples by loaders of two files
MAX_TYPE_RATIO = 8.0  # bytes of float64 for one of uint8
NOTES = (  # the first ratio above its bound is a part of the sentence
    ("batch_size", 1.0, "batch size {} -> {}: compared per sample"),
    ("sample_bytes", MAX_BYTES_RATIO, "bytes of a sample {:,.0f} -> {:,.0f}"),
    ("step_ms", SAME_STEP_RATIO, "step on preloaded batches {:,.1f} -> {:,.1f} ms"),
)


def compare(first: Session, second: Session) -> dict[str, Any]:
    """Return the speed-up of B over A with its 95% CI; raise ProfileError for other workloads."""
    a, b = _workload(first), _workload(second)
    scale = b["batch_size"] / a["batch_size"] if a["batch_size"] and b["batch_size"] else 1.0
    if reason := _refusal(a, b, scale):
        raise ProfileError(f"A and B are not comparable: {reason}.")
    new = [math.log(ns / scale) for ns in b["periods"]]
    logs = difference_interval([math.log(ns) for ns in a["periods"]], new)
    low, high = math.exp(logs.low), math.exp(logs.high)
    if low <= 1 <= high:
        sentence = f"inconclusive: B is {low:.2f} to {high:.2f} times as fast as A (95% CI)"
    else:
        word, least, most = ("faster", low, high) if low > 1 else ("slower", 1 / high, 1 / low)
        sentence = f"B is {least:.2f} to {most:.2f} times {word} than A (95% CI)"
    notes = [text.format(a[k], b[k]) for k, bound, text in NOTES if _ratio(a[k], b[k]) > bound][:1]
    notes += [f"{k} {a[k]} -> {b[k]}" for k in ("loader", "step") if a[k] and b[k] and a[k] != b[k]]
    return {
        "schema": "profile-compare/1",
        "sentence": "; ".join([sentence, *notes]),
        "speedup": {"value": math.exp(logs.value), "low": low, "high": high},
        "stall": {"a": first.results.get("stall"), "b": second.results.get("stall")},
    }


def _workload(session: Session) -> dict[str, Any]:
    """Return what a session trained on; "" or 0 where the session does not contain it."""
    runs, command = session.arm(Arm.WARM), session.environment.get("command") or {}
    periods = [ns for run in runs if (ns := Window.of(run).epoch_period_ns) > 0]
    if len(periods) < 2:
        raise ProfileError("A comparison needs two repeats a session: --set measure.repeats=3.")
    config, probes = runs[0].config, session.probes
    size = int(config.get("batch_size") or 0)
    steps = [Window.of(run).period_ns / 1e6 for run in session.arm(Arm.RESIDENT)]
    return {
        "periods": periods,
        "framework": "TensorFlow" if config.get("kind") == "tf" else "PyTorch or Python",
        "loader": command.get("loader") or "",
        "step": "an emulated step" if session.plan.emulate_ms else command.get("step") or "",
        "batch_size": size,
        "samples": (probes.repeatable or {}).get("samples") or (config.get("batches") or 0) * size,
        "step_ms": fmean(steps) if steps else 0.0,
        "sample_bytes": (probes.batch_bytes or 0) / max(size, 1),
    }


def _refusal(a: dict[str, Any], b: dict[str, Any], scale: float) -> str:
    """Return why the speed-up of B over A has no meaning, "" if it has a meaning."""
    named, sized = a["loader"] and b["loader"], a["samples"] and b["samples"]
    # a step may take as long for a larger batch, or longer in proportion to it
    step = min(_ratio(a["step_ms"], b["step_ms"]), _ratio(a["step_ms"] * scale, b["step_ms"]))
    same_file = named and a["loader"].rpartition(":")[0] == b["loader"].rpartition(":")[0]
    same_name = a["step"].rpartition(":")[2] == b["step"].rpartition(":")[2]
    same_step = a["step"] == b["step"] or (same_name and sized and step < SAME_STEP_RATIO)
    max_bytes = math.inf if same_file else MAX_BYTES_RATIO if named else MAX_TYPE_RATIO
    whole_batch = max(a["batch_size"], b["batch_size"], 1)  # the last batch may be incomplete
    reasons = (
        (sized and abs(a["samples"] - b["samples"]) >= whole_batch, "samples",
         "the dataset has {:,} samples in A and {:,} in B"),
        (step > MAX_STEP_RATIO, "step_ms",
         "the step on preloaded batches takes {:,.1f} ms in A and {:,.1f} ms in B"),
        (a["framework"] != b["framework"], "framework", "the framework is {} in A and {} in B"),
        (a["step"] and b["step"] and not same_step, "step", "the step is {} in A and {} in B"),
        (_ratio(a["sample_bytes"], b["sample_bytes"]) > max_bytes, "sample_bytes",
         "a sample has {:,.0f} bytes in A and {:,.0f} in B"),
    )  # fmt: skip
    return next((text.format(a[k], b[k]) for wrong, k, text in reasons if wrong), "")


def _ratio(a: float, b: float) -> float:
    return max(a, b) / min(a, b) if a > 0 and b > 0 else 1.0  # 1: unknown
