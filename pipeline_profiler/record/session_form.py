"""The form of a `profile/1` document: what every reader of a session may rely on.

A session file may come from anywhere. What is wrong with one is found here, once, when it is read;
renderers and rules then need no guard of their own. The form asks for what is computed with and
shown, and lets everything else pass. Docs: docs/profiler-session.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any

from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.form import (
    LARGEST,
    FormError,
    above_zero,
    anything,
    by_name,
    fields_of,
    flag,
    maybe,
    name_or_number,
    number,
    refuse_form,
    several,
    text,
    whole,
)
from pipeline_profiler.record.precision_form import PRECISION

SPAN_COLUMNS = ("stage", "batch", "worker", "start", "wall", "cpu", "queued", "count")
DELTA = frozenset({"batch", "start", "sent", "received"})  # columns stored as differences
BATCH_COLUMNS = (
    *("batch", "worker", "tag", "samples", "slow_ns", "slow_cpu", "read_bytes", "read_chars"),
    *("gc_ns", "process_cpu", "sent", "received"),
)
MAIN = -1  # worker number of the training process itself
_LETTERS = frozenset(Arm)
MOST_WORKERS, MOST_CORES = 4096, 65536

COUNT = whole(0)
SHARE = fields_of({}, {"share": maybe(number), "low": maybe(number), "high": maybe(number)})
CAUSE = fields_of(
    {
        **dict.fromkeys(("code", "name", "cause", "next"), text),
        **dict.fromkeys(("share", "low", "high"), maybe(number)),
    },
    {"evidence": by_name(anything), "about": text},
)
FAILED_RULE = fields_of(dict.fromkeys(("rule", "error", "text", "at"), text))
SWEEP_POINT = fields_of(
    {
        "setting": text,
        **dict.fromkeys(("measured_ms", "predicted_ms", "error", "fluid_error"), number),
        "extrapolated": maybe(text),
    },
    dict.fromkeys(("low_ms", "high_ms", "fluid_ms"), number),
)
TRIAL = fields_of(
    {"predicted": number, **dict.fromkeys(("change", "measured", "decision", "why"), text)},
    {"speedup": SHARE},
)
STACK = fields_of({"of": text, "frames": several(text)})
CUT_OFF = fields_of(
    {"sentence": text, "where": text, "stacks": several(STACK)}, {"seconds": number}
)
RESULTS = {
    "verdict": text,
    "sentence": maybe(text),
    "kept_sentence": maybe(text),
    "sweep_sentence": text,
    "stall": maybe(SHARE),
    "causes": maybe(several(CAUSE)),
    "failed_rules": maybe(several(FAILED_RULE)),
    "arms": maybe(by_name(maybe(fields_of({"period_ms": above_zero, "repeats": COUNT})))),
    "parts": maybe(by_name(SHARE)),
    "recording_share": maybe(number),
    "null_ms": maybe(number),
    "more_repeats": maybe(COUNT),
    "sweep": maybe(several(SWEEP_POINT)),
    "trials": maybe(several(TRIAL)),
    "precision": maybe(PRECISION),
    "cut_off": maybe(CUT_OFF),
}

OPERATION = fields_of(
    {"operation": text, **dict.fromkeys(("ms", "total_ms", "first_ms", "visits"), number)}
)
INTERVENTION = fields_of(
    {
        **dict.fromkeys(("name", "why", "how"), text),
        **dict.fromkeys(("baseline_ms", "period_ms"), above_zero),
        "spread": number,
    },
    {"op": text, "repeats": COUNT, "gains": several(number)},
)
SLOW_SAMPLE = fields_of(
    {"key": name_or_number, "seen": COUNT, "ms": number, "worst_ms": number},
    {"stall_share": number, "path": text},
)
PLAN = fields_of(
    {},
    {
        "arms": several(text),
        "reasons": several(text),
        "files": several(text),
        **dict.fromkeys(("repeats", "steps", "warmup"), COUNT),
        "seconds": number,
        "lean": flag,
        "seed": whole(),
        "emulate_ms": maybe(number),
        "unused_fields": maybe(by_name(number)),
        "batch_bytes": maybe(number),
        "piped_bytes": maybe(number),
        "recording_ns": maybe(number),
        "prefixes": maybe(several(OPERATION)),
        "interventions": maybe(several(INTERVENTION)),
        "try": maybe(by_name(anything)),
        "repeatable": maybe(fields_of({}, {"same": flag, "bytes": number, "samples": COUNT})),
        "slow_samples": maybe(several(SLOW_SAMPLE)),
        "starvation": maybe(number),
        "synchronising_lines": maybe(several(fields_of({"at": text, "per_step": number}))),
        "utilisation_symptom": maybe(number),
    },
)
ENVIRONMENT = fields_of(
    {}, {"load": maybe(number), "cores": maybe(whole(1, MOST_CORES)), "memory_bytes": maybe(number)}
)
CONFIG = fields_of(
    {},
    {
        "kind": maybe(text),
        **dict.fromkeys(("workers", "prefetch"), maybe(whole(0, MOST_WORKERS))),
        "batches": maybe(COUNT),
        "batch_size": maybe(number),
    },
)
SLOW = fields_of({"key": name_or_number, "wall_ns": COUNT}, {"cpu_ns": whole(), "batch": whole()})


def _columns(value: Any, at: str) -> None:
    """Left to `check_tables`, which looks at whole columns at once."""
    if type(value) is not dict:
        raise refuse_form(at, "an object of columns", value)


RUN = fields_of(
    {"arm": text, "spans": _columns, "batches": _columns},
    {
        "block": COUNT,
        "config": CONFIG,
        "warmup": COUNT,
        "slow_keys": several(name_or_number),
        "slow": several(SLOW),
        "depths": several(several(whole(), 3)),
        "gc_pauses": several(several(whole(), 2)),
        "totals": by_name(whole()),
        "stacks": by_name(COUNT),
        "notes": several(text),
    },
)


def _run(value: Any, at: str) -> None:
    """A run; one of an arm that a later version added is left out anyway."""
    arm = value.get("arm") if type(value) is dict else None
    if not isinstance(arm, str) or arm in _LETTERS:
        RUN(value, at)


DOCUMENT = fields_of(
    {"schema": text},
    {
        **RESULTS,
        "environment": ENVIRONMENT,
        "plan": maybe(PLAN),
        "notes": several(text),
        "created": text,
        "partial": flag,
        "runs": several(_run),
    },
)


def check_document(data: Mapping[str, Any]) -> None:
    """Raise FormError for the first thing in a document that no session has."""
    DOCUMENT(data, "")
    for i, run in enumerate(data.get("runs", ())):
        if run["arm"] in _LETTERS:
            _check_run(run, f"runs[{i}]")


# ---- the columns ----


def read_columns(
    data: Mapping[str, Any], names: Iterable[str], at: str = "columns"
) -> dict[str, array[int]]:
    """Columns as they are in memory: differences added up; FormError where they are not sound."""
    columns = {name: _read_column(data, name, f"{at}.{name}") for name in names}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise FormError(f"{at} has columns of {min(lengths)} and of {max(lengths)} rows")
    return columns


def _read_column(data: Mapping[str, Any], name: str, at: str) -> array[int]:
    values = data.get(name)
    if type(values) is not list:
        raise refuse_form(at, "a list of whole numbers", values)
    try:
        column = array("q", values)
        column = array("q", accumulate(column)) if name in DELTA else column
    except (TypeError, OverflowError):
        raise FormError(f"{at} holds something else than whole numbers of 64 bits") from None
    # sums over a column are computed in 64 bits
    large = (max(map(abs, column)) if name in DELTA else sum(map(abs, column))) if column else 0
    if large > LARGEST:
        raise FormError(f"{at} holds numbers too large to be times or counts")
    return column


def _check_run(run: Mapping[str, Any], at: str) -> None:
    stages = run["spans"].get("stages")
    several(text)(stages, f"{at}.spans.stages")
    spans = read_columns(run["spans"], SPAN_COLUMNS, f"{at}.spans")
    batches = read_columns(run["batches"], BATCH_COLUMNS, f"{at}.batches")
    _check_ends(spans["stage"], f"{at}.spans.stage", 0, len(stages) - 1)
    for table, name in ((spans, "spans"), (batches, "batches")):
        _check_ends(table["worker"], f"{at}.{name}.worker", MAIN, LARGEST)
        _check_ends(table["batch"], f"{at}.{name}.batch", 0, LARGEST)
    _check_ends(spans["wall"], f"{at}.spans.wall", 0, LARGEST)
    _check_steps(spans, stages, at)
    keys = run.get("slow_keys", [])
    if len(batches["batch"]) and len(keys) != len(batches["batch"]):
        raise FormError(f"{at}.slow_keys has {len(keys)} rows, not {len(batches['batch'])}")


def _check_ends(column: array[int], at: str, least: int, most: int) -> None:
    if len(column) and not (least <= min(column) and max(column) <= most):
        raise FormError(f"{at} holds numbers outside {least} to {most}")


def _check_steps(spans: Mapping[str, array[int]], stages: list[str], at: str) -> None:
    """Steps follow each other: no next() begins before the one before, and its step after it.

    Equal times are sound: a clock may be coarse.
    """
    waits, loops = (_main_rows(spans, stages, name) for name in ("wait", "loop"))
    if any(now[1] < before[1] for before, now in pairwise(waits)):
        raise FormError(f"{at}.spans: the steps are not in order of time")
    for wait, loop in zip(waits, loops, strict=False):
        if wait[0] != loop[0] or loop[1] < wait[1]:
            raise FormError(f"{at}.spans: a step does not follow its next()")


def _main_rows(
    spans: Mapping[str, array[int]], stages: list[str], name: str
) -> list[tuple[int, int, int]]:
    """(batch, start, wall) of one stage in the training process."""
    if name not in stages:
        return []
    code = stages.index(name)
    columns = (spans[k] for k in ("stage", "worker", "batch", "start", "wall"))
    return [
        (batch, start, wall)
        for stage, worker, batch, start, wall in zip(*columns, strict=True)
        if stage == code and worker == MAIN
    ]
