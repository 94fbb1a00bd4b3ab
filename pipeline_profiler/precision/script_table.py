"""What the blocks of a script show: the answer, a row for each precision, how it was measured."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline_profiler.precision.estimate import (
    is_inconclusive,
    paired_ratio,
    window_mean,
    windows_to_settle,
)
from pipeline_profiler.precision.trainer import PRECISION_NAMES
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.diagnose.throughput import format_number

HEAD = ("precision", "step time", "speed-up", "without data wait", "samples/s", "peak memory")
HALVES = {"bf16": "bfloat16", "fp16": "float16"}  # autocast dtypes


@dataclass
class Kind:
    """A precision: medians of its blocks by round, ms; `wait_ms`: in next() of a loader."""

    name: str
    step_ms: dict[int, float] = field(default_factory=dict)
    wait_ms: dict[int, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    skipped: int = 0  # steps whose update the GradScaler dropped


@dataclass
class ScriptRun:
    """What was measured of a script; the first kind is its own precision."""

    kinds: list[Kind] = field(default_factory=lambda: [Kind("own")])
    own: str = "its own precision"
    casts: bool = False  # by an autocast of its own
    model: str = ""
    device: str = ""
    device_name: str = ""
    steps: int = 0
    block_steps: int = 0
    seconds: float = 0.0
    samples: int = 0  # of a step; 0 where no loader gives them
    in_flight: int = 0  # batches that the workers of the loader have ready or at work
    left_out: list[str] = field(default_factory=list)

    def ratio(self, kind: Kind) -> Interval:
        """Return how many times as fast as the script's own precision a kind is."""
        return paired_ratio(self.kinds[0].step_ms, kind.step_ms) or window_mean([])


def script_results(run: ScriptRun, script: str, seconds: float) -> dict[str, Any]:
    """Return the results of a session; `seconds`: the time budget."""
    ratios = {kind.name: run.ratio(kind) for kind in run.kinds[1:]}
    queue = f" ({run.in_flight} batches in flight)" if run.in_flight else ""
    skipped = sum(kind.skipped for kind in run.kinds)
    lines = [
        f"{script}: {run.model} on {run.device_name}, {run.steps} steps in {run.seconds:.0f} s, "
        f"{len(run.kinds[0].step_ms)} rounds.",
        f"End to end with the script's loader{queue}; a script has no preloaded batches.",
        *([f"FP16: {skipped} steps skipped by the GradScaler."] if "fp16" in ratios else []),
        *run.left_out,
    ]
    table = {"head": HEAD, "rows": [_row(run, kind) for kind in run.kinds], "lines": lines}
    speedups = {name: asdict(ratio) for name, ratio in ratios.items() if math.isfinite(ratio.high)}
    return {
        "verdict": "precision",
        "sentence": _answer(run, ratios, seconds),
        "precision-script": table | asdict(run) | {"speedups": speedups},
    }


def _answer(run: ScriptRun, ratios: dict[str, Interval], seconds: float) -> str:
    sound = {name: ratio for name, ratio in ratios.items() if not is_inconclusive(ratio)}
    if not sound:
        return _inconclusive(run, ratios, seconds)
    best = max(sound, key=lambda name: sound[name].value)
    ratio, name = sound[best], f"{PRECISION_NAMES[best]}{' (autocast)' if best in HALVES else ''}"
    subject, verb, base = name, "would make", run.own
    if run.casts:  # the gain of the autocast that it has, which is the inverse
        ratio = Interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.n)
        subject, verb, base = f"The script's own {run.own} autocast", "makes", name
    ends = f"95% CI {ratio.low:.2f} to {ratio.high:.2f}"
    if ratio.low <= 1 <= ratio.high:
        return f"{subject} is no faster than {base} beyond the noise: {ratio.value:.2f}x ({ends})."
    word = "" if ratio.low > 1 else "slower, "
    return f"{subject} {verb} this training {word}{ratio.value:.2f}x as fast as {base} ({ends})."


def _inconclusive(run: ScriptRun, ratios: dict[str, Interval], seconds: float) -> str:
    rounds = len(run.kinds[0].step_ms)
    if run.seconds < seconds:
        return f"Inconclusive: the script ended after {run.steps} steps. Let it train more epochs."
    more = max(map(windows_to_settle, ratios.values())) * run.seconds / rounds
    return (
        f"Inconclusive: {more:.0f} s more would settle it, so give --seconds {seconds + more:.0f}."
    )


def _row(run: ScriptRun, kind: Kind) -> tuple[str, ...]:
    own = run.kinds[0]
    if not kind.step_ms:
        return (PRECISION_NAMES.get(kind.name, run.own), "not measured", *[""] * (len(HEAD) - 2))
    before, after = ({n: ms - k.wait_ms[n] for n, ms in k.step_ms.items()} for k in (own, kind))
    step, alone = window_mean([*kind.step_ms.values()]), window_mean([*after.values()])
    gain = paired_ratio(before, after)
    times = f" {gain.value:.2f}x" if gain and kind is not own else ""
    return (
        f"{run.own} (own)" if kind is own else PRECISION_NAMES[kind.name],
        f"{format_number(step.value)} ms",
        _speedup(run.ratio(kind)) if times else "",
        f"{format_number(alone.value)} ms{times}" if run.samples else "not measured",
        f"{1e3 * run.samples / step.value:,.0f}" if run.samples else "",
        f"{kind.peak_bytes / 1e6:,.1f} MB" if kind.peak_bytes else "not measured",
    )


def _speedup(ratio: Interval) -> str:
    ends = f" ({ratio.low:.2f} to {ratio.high:.2f})" if math.isfinite(ratio.high) else ""
    return f"{ratio.value:.2f}x{ends}"
