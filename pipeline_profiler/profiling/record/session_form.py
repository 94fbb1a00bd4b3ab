"""The form of a `profile/1` document: what every reader of a session may rely on.

Files are checked once when read, for what is computed or shown; unknown keys pass. A form is a
function of a value and its location that raises FormError. Standard library alone; format:
docs/profile.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from pipeline_profiler.profiling.record.arm import Arm

Form: TypeAlias = Callable[[Any, str], None]

LARGEST = 2**62  # beyond it sums of int64 columns would wrap around
DEEPEST = 40  # nested lists and objects: readers of a session walk it recursively
QUOTED = 40  # characters of a wrong value that a message repeats


class FormError(ValueError):
    """The text names the place and what was expected there."""


def refuse_form(at: str, expected: str, value: Any) -> FormError:
    """The error for a value that is something else."""
    kind = {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value))
    quoted = repr(value)[:QUOTED] if isinstance(value, (str, int, float)) else ""
    return FormError(f"{at} is {' '.join(filter(None, [kind, quoted]))}, not {expected}")


def simple(expected: str, holds: Callable[[Any], bool]) -> Form:
    """A value for which `holds`."""

    def check(value: Any, at: str) -> None:
        if not holds(value):
            raise refuse_form(at, expected, value)

    return check


def whole(least: int = -LARGEST, most: int = LARGEST) -> Form:
    """A whole number between two ends."""
    limits = "" if least == -LARGEST else f" from {least} to {most}"
    return simple(f"a whole number{limits}", lambda v: type(v) is int and least <= v <= most)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


number = simple("a number", _is_number)  # that can be computed with; true and false are none
above_zero = simple("a number above 0", lambda v: _is_number(v) and v > 1e-9)  # to divide by
text = simple("text", lambda v: isinstance(v, str))
flag = simple("true or false", lambda v: type(v) is bool)
WHOLE, COUNT = whole(), whole(0)


def name_or_number(value: Any, at: str) -> None:
    """A sample's key: its index or its name."""
    if not isinstance(value, str):
        WHOLE(value, at)


def maybe(form: Form) -> Form:
    """Null, or the form."""
    return lambda value, at: None if value is None else form(value, at)


def several(form: Form, length: int | None = None) -> Form:
    """A list of values of one form, of a fixed length where one is given."""

    def check(value: Any, at: str) -> None:
        if type(value) is not list:
            raise refuse_form(at, "a list", value)
        if length is not None and len(value) != length:
            raise FormError(f"{at} has {len(value)} entries, not {length}")
        for i, entry in enumerate(value):
            form(entry, f"{at}[{i}]")

    return check


def fields_of(table: Mapping[str, Form], others: Form | None = None) -> Form:
    """An object with these keys, several of one form in one text; those with `?` may be missing.

    Values of all other keys have the form `others`, and are `anything` where there is none.
    """
    forms = {key.strip("?"): form for keys, form in table.items() for key in keys.split()}
    needed = [key for keys in table for key in keys.split() if not key.endswith("?")]
    rest = others or anything

    def check(value: Any, at: str) -> None:
        if type(value) is not dict:
            raise refuse_form(at, "an object", value)
        missing = [key for key in needed if key not in value]
        if missing:
            raise FormError(f"{at} has no {missing[0]}")
        for key, entry in value.items():
            forms.get(key, rest)(entry, f"{at}.{key[:QUOTED]}" if at else key[:QUOTED])

    return check


def by_name(form: Form) -> Form:
    """An object whose values are all of one form."""
    return fields_of({}, form)


def anything(value: Any, at: str) -> None:
    """JSON that can be shown: finite numbers of a sane size, not nested too deeply."""
    waiting = [(value, 0)]
    while waiting:
        entry, depth = waiting.pop()
        if depth > DEEPEST:
            raise FormError(f"{at} is nested more than {DEEPEST} deep")
        if type(entry) is dict:
            waiting += [(inner, depth + 1) for inner in entry.values()]
        elif type(entry) is list:
            waiting += [(inner, depth + 1) for inner in entry]
        elif type(entry) in (int, float) and not abs(entry) < 2 * LARGEST:  # nor nan
            raise refuse_form(at, "a number that can be shown", entry)


NUMBER, COUNTED = maybe(number), maybe(COUNT)
PROBED = {
    "model precision status sentence loss_scale? peak_how?": text,
    "batch_size": whole(1),
    "losses": several(NUMBER),
    "scale?": NUMBER,
    "step_s? setup_s?": number,
    "peak_bytes?": COUNTED,
    "skipped?": COUNT,
}
SOURCE = {
    "model problem": text,
    "batch_size": whole(1),
    "preloaded in_flight?": COUNT,
    "kind": maybe(text),
    "workers prefetch epoch_batches?": COUNTED,
    "pin_memory": maybe(flag),
    "whole_epochs?": flag,
}
LARGEST_BATCH = {
    "model precision": text,
    "batch_size": COUNT,
    "limit_reached": flag,
    "trials": several(COUNT),
    "trouble?": several(text),
}
WINDOW = {
    "model precision loss_scale?": text,
    "batch_size": whole(1),
    "period_ms": several(number),
    "elapsed_ms begin_s?": number,
    "round steps warmup_skipped?": COUNT,
    "skipped?": several(COUNT),
}
PASSAGE = {
    "model precision loss_scale": text,
    "batch_size batches": whole(1),
    "workers round skipped?": COUNT,
    "elapsed_ms begin_s?": number,
    "start_ms?": NUMBER,
}
RECIPE = {"optimizer?": text, "lr?": number, "channels_last? compile?": flag, "seed?": WHOLE}
PRECISION = {
    "backend device device_name": text,
    "recipe": fields_of(RECIPE),
    "flags": by_name(by_name(anything)),
    "cells": several(fields_of(PROBED)),
    "sources": several(fields_of(SOURCE)),
    "largest": several(fields_of(LARGEST_BATCH)),
    "windows": several(fields_of(WINDOW)),
    "passages": several(fields_of(PASSAGE)),
    "cores?": COUNT,
}

SPAN_COLUMNS = ("stage", "batch", "worker", "start", "wall", "cpu", "queued", "count")
DELTA = frozenset({"batch", "start", "sent", "received"})  # columns stored as differences
BATCH_COLUMNS = (
    *("batch", "worker", "samples", "slow_ns", "read_bytes", "read_chars"),
    *("gc_ns", "process_cpu", "sent", "received"),
)
MAIN = -1  # worker number of the training process itself
_LETTERS = frozenset(Arm)
MOST_WORKERS, MOST_CORES = 4096, 65536

SHARE = fields_of({"share? low? high?": NUMBER})
CAUSE = {
    "code name cause next about?": text,
    "share low high": NUMBER,
    "evidence?": by_name(anything),
}
CUT_OFF = {
    "sentence where": text,
    "stacks": several(fields_of({"of": text, "frames": several(text)})),
    "seconds?": number,
}
PREDICTIONS = fields_of(
    {
        "steps": several(COUNT),
        "values": several(several(NUMBER)),
        "labels? samples?": several(WHOLE),
        "guesses?": several(several(WHOLE)),
        "ended?": text,
    }
)


def _predictions(value: Any, at: str) -> None:
    """What `watch --track-predictions` stores: a row of each step, as long as the others."""
    PREDICTIONS(value, at)
    tables = [value["values"], value.get("guesses", value["values"])]
    sizes = {len(row) for table in tables for row in table}
    sizes |= {len(value[key]) for key in ("labels", "samples") if key in value}
    if len(sizes) > 1 or {len(table) for table in tables} != {len(value["steps"])}:
        raise FormError(f"{at} has rows of unequal length")


STAGE = {"stage how at code advice": text, "ms share": NUMBER}
SWEEP = {"setting": text, "measured_ms wait_ms? wait_share?": number}
ARM = {"period_ms": above_zero, "repeats": COUNT}
ROWS = several(several(text))
RESULTS = {
    "verdict?": text,
    "predictions?": maybe(_predictions),
    "sentence? epoch_sentence? contention_sentence?": maybe(text),
    "contention? stall? stall_with_null?": maybe(SHARE),
    "together?": maybe(fields_of({"sentence": text, "share?": NUMBER})),
    "conditions?": maybe(several(fields_of({"name text": text}))),
    "loading?": maybe(fields_of({"sentence": text, "rows": several(fields_of(STAGE))})),
    "lowest_ms?": maybe(above_zero),
    "causes?": maybe(several(fields_of(CAUSE))),
    "failed_rules?": maybe(several(fields_of({"rule error text at": text}))),
    "arms?": maybe(by_name(maybe(fields_of(ARM)))),
    "parts?": maybe(by_name(SHARE)),
    "throughput?": maybe(fields_of({"sentence": text})),
    "recording_share? null_ms?": NUMBER,
    "more_repeats?": COUNTED,
    "sweep?": maybe(several(fields_of(SWEEP))),
    "precision?": maybe(fields_of(PRECISION)),
    "precision-script?": maybe(fields_of({"head lines": several(text), "rows": ROWS})),
    "cut_off?": maybe(fields_of(CUT_OFF)),
}
OPERATION = {"operation": text, "ms total_ms first_ms visits": number}
INTERVENTION = {
    "name why how": text,
    "baseline_ms period_ms": above_zero,
    "spread": number,
    "repeats?": COUNT,
    "gains?": several(number),
}
SLOW_SAMPLE = {
    "key": name_or_number,
    "seen": COUNT,
    "ms worst_ms stall_share?": number,
    "path? image?": text,
}
PLAN = {
    "arms? reasons?": several(text),
    "repeats? steps? warmup?": COUNT,
    "seconds?": number,
    "seed?": WHOLE,
    "alone_s? emulate_ms? batch_bytes? piped_bytes? recording_ns? loading_ns?": NUMBER,
    "unused_fields? delivered? promised?": maybe(by_name(number)),
    "prefixes?": maybe(several(fields_of(OPERATION))),
    "interventions?": maybe(several(fields_of(INTERVENTION))),
    "try?": maybe(by_name(anything)),
    "failed?": maybe(by_name(text)),
    "repeatable?": maybe(fields_of({"same?": flag, "bytes?": number, "samples?": COUNT})),
    "slow_samples?": maybe(several(fields_of(SLOW_SAMPLE))),
    "synchronising_lines?": maybe(several(fields_of({"at": text, "per_step": number}))),
    "utilisation_symptom?": NUMBER,
}
ENVIRONMENT = {"load? memory_bytes?": NUMBER, "cores?": maybe(whole(1, MOST_CORES))}
CONFIG = {
    "kind?": maybe(text),
    "workers? prefetch?": maybe(whole(0, MOST_WORKERS)),
    "batches?": COUNTED,
    "batch_size?": NUMBER,
}
SLOW = {"key": name_or_number, "wall_ns": COUNT}


# columns are left to `_check_run`, which looks at whole columns at once
COLUMNS = simple("an object of columns", lambda v: type(v) is dict)
RUN = fields_of(
    {
        "arm": text,
        "spans batches": COLUMNS,
        "block? warmup?": COUNT,
        "config?": fields_of(CONFIG),
        "slow_keys?": several(name_or_number),
        "slow?": several(fields_of(SLOW)),
        "gc_pauses?": several(several(WHOLE, 2)),
        "totals?": by_name(WHOLE),
        "stacks?": by_name(COUNT),
        "notes?": several(text),
    },
)


def _run(value: Any, at: str) -> None:
    """A run; one of an arm that a later version added is left out anyway."""
    arm = value.get("arm") if type(value) is dict else None
    if not isinstance(arm, str) or arm in _LETTERS:
        RUN(value, at)


DOCUMENT = fields_of(
    {
        **RESULTS,
        "schema created?": text,
        "environment?": fields_of(ENVIRONMENT),
        "plan?": maybe(fields_of(PLAN)),
        "notes?": several(text),
        "partial?": flag,
        "runs?": several(_run),
    }
)


def check_document(data: Mapping[str, Any]) -> None:
    """Raise FormError for the first thing in a document that no session has."""
    DOCUMENT(data, "")
    for i, run in enumerate(data.get("runs", ())):
        if run["arm"] in _LETTERS:
            _check_run(run, f"runs[{i}]")


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
    """Raise FormError unless steps follow each other, each after its next(); times may be equal."""
    rows: list[list[tuple[int, int]]] = [[] for _ in stages]  # (batch, start) in the trainer
    columns = (spans[name] for name in ("stage", "worker", "batch", "start"))
    for stage, worker, batch, start in zip(*columns, strict=True):
        if worker == MAIN:
            rows[stage].append((batch, start))
    waits, loops = (rows[stages.index(s)] if s in stages else [] for s in ("wait", "loop"))
    if any(now[1] < before[1] for before, now in pairwise(waits)):
        raise FormError(f"{at}.spans: the steps are not in order of time")
    for wait, loop in zip(waits, loops, strict=False):
        if wait[0] != loop[0] or loop[1] < wait[1]:
            raise FormError(f"{at}.spans: a step does not follow its next()")
