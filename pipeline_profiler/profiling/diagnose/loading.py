"""What loading a batch consists of: its stages with time, line and advice, whatever the verdict.

Hooks and stack samples divide the loading time. A row without a time is a fact about loading that
has advice but no cost of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataset_preflight.foundation.text import format_number
from pipeline_profiler.profiling.diagnose.evidence import Evidence
from pipeline_profiler.profiling.diagnose.rules.loader import late_hand_over
from pipeline_profiler.profiling.diagnose.rules.stages import describe_stage
from pipeline_profiler.profiling.diagnose.stalls import head_of_line_share

MIN_SHARE = 0.02  # of the loading time, for a row
MOSTLY = 0.5  # of a stage's time
MIN_REPEATED = 0.3  # of the loading time
MIN_BLOCKED = 0.25  # of the stalled time with another batch ready
SHOWN_CODE = 60  # characters of a source line


@dataclass(frozen=True, slots=True)
class LoadingRow:
    """A stage of loading a batch, or a fact about it (`ms` None)."""

    stage: str
    ms: float | None
    share: float | None  # of the loading time
    how: str  # CPU, blocked, waiting for a core, or ""
    at: str  # file.py:18, "" where unknown
    code: str  # the source line
    advice: str


@dataclass(frozen=True, slots=True)
class Loading:
    """Loading time of a batch (ms), one sentence, and the rows, largest first."""

    ms: float
    sentence: str
    rows: tuple[LoadingRow, ...]


def describe_loading(e: Evidence) -> Loading | None:
    """Return the table of loading; None where no batch was timed."""
    times = [float(case.fetch.mean() + case.lag.mean()) for case in e.cases if len(case.fetch)]
    if not times:
        return None
    stages = [_stage_row(e, name) for name, share in e.stage_shares.items() if share >= MIN_SHARE]
    facts: tuple[Callable[[Evidence], LoadingRow | None], ...] = (
        _late_hand_over,
        _in_order_delivery,
        _repeated_preprocessing,
    )
    rows = (*stages, *(row for fact in facts if (row := fact(e)) is not None))
    ms = float(np.mean(times)) / 1e6
    return Loading(ms, _sentence(e, ms, stages), rows)


def _stage_row(e: Evidence, name: str) -> LoadingRow:
    advice = describe_stage(e, name, e.stage_shares[name]).next
    at, code = split_place(e.labels.top_place(name))
    ms = float(np.mean([case.stages[name].mean() for case in e.cases if name in case.stages])) / 1e6
    return LoadingRow(name, ms, e.stage_shares[name], _how(e, name), at, code, advice)


def _how(e: Evidence, name: str) -> str:
    """Where the time of a stage goes: by its own CPU time if hooks timed most of it."""
    timed = [case.batches for case in e.cases if _has_cpu(case.batches, name)]
    cpu = sum(float(batches.stage_cpu[name].sum()) for batches in timed)
    wall = sum(float(batches.stages[name].sum()) for batches in timed)
    whole = sum(float(case.stages[name].sum()) for case in e.cases if name in case.stages)
    if wall > 0 and wall >= MOSTLY * whole:
        return "CPU" if cpu >= MOSTLY * wall else _waiting(e)
    shares = e.loading_shares()
    if not shares.known:
        return ""
    return "CPU" if shares.cpu >= max(shares.blocked, shares.queued) else _waiting(e)


def _has_cpu(batches: Any, name: str) -> bool:
    return name in batches.stage_cpu and bool((batches.stage_cpu[name] >= 0).all())


def _waiting(e: Evidence) -> str:
    shares = e.loading_shares()
    return "waiting for a core" if shares.queued > shares.blocked else "blocked"


def split_place(place: str) -> tuple[str, str]:
    """Return ('data.py:9', 'source line') of 'data.py:9 read: source line < caller'."""
    innermost = place.partition(" < ")[0]
    head, _, code = innermost.partition(": ")
    at = head.partition(" ")[0]
    return at, f"`{code.strip()[:SHOWN_CODE]}`" if code else ""


def _sentence(e: Evidence, ms: float, rows: list[LoadingRow]) -> str:
    head = f"Loading a batch takes {format_number(ms)} ms"
    lines = e.loading_lines
    place = max(lines, key=lambda line: lines[line], default="")
    if place:
        share, (at, code) = lines[place], split_place(place)
        how = next((row.how for row in rows if row.at == at), rows[0].how if rows else "")
        return f"{head}: {share:.0%} at {at}{f' {code}' * bool(code)}{f' ({how})' * bool(how)}."
    prefixes = e.session.probes.prefixes or []
    if prefixes:
        slowest = max(prefixes, key=lambda row: row["ms"])
        longest = f"{slowest['operation']} ({format_number(slowest['ms'])} ms)"
        return f"{head}: the slowest operation is {longest}."
    if not rows:
        return f"{head}."
    first = rows[0]
    return f"{head}: {first.share:.0%} is {first.stage}{f' ({first.how})' * bool(first.how)}."


def _late_hand_over(e: Evidence) -> LoadingRow | None:
    ms = late_hand_over(e)
    if ms is None:
        return None
    advice = (
        "the training process did not get a core, or another thread held the interpreter lock: "
        "end other programs and threads, then measure again"
    )
    return LoadingRow("late hand-over", ms, None, "waiting for a core", "", "", advice)


def _in_order_delivery(e: Evidence) -> LoadingRow | None:
    if e.workers < 2 or not all(case.in_order for case in e.cases):
        return None
    blocked = float(np.mean([head_of_line_share(case.window) for case in e.cases]))
    if blocked < MIN_BLOCKED:
        return None
    advice = (
        f"another batch was ready for {blocked:.0%} of the stalled time: in_order=False (check "
        "that order does not matter), or a larger prefetch_factor"
    )
    return LoadingRow("in-order delivery", None, None, "", "", "", advice)


def _repeated_preprocessing(e: Evidence) -> LoadingRow | None:
    repeatable = e.session.probes.repeatable or {}
    work = e.stage_shares.get("decode", 0.0) + e.stage_shares.get("transform", 0.0)
    if not repeatable.get("same") or work < MIN_REPEATED:
        return None
    gigabytes = repeatable["bytes"] * repeatable["samples"] / 1e9
    advice = (
        f"decode and transform ({work:.0%} of loading) give the same bytes every epoch: store the "
        f"prepared samples ({gigabytes:.2f} GB as np.save or a tar of arrays) and read those"
    )
    return LoadingRow("repeated preprocessing", None, None, "", "", "", advice)
