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


def number(value: Any, at: str) -> None:
    """A finite number of a size that can be computed with; true and false are none."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise refuse_form(at, "a number", value)


def above_zero(value: Any, at: str) -> None:
    """A number that may be divided by."""
    number(value, at)
    if value <= 1e-9:
        raise refuse_form(at, "a number above 0", value)


def text(value: Any, at: str) -> None:
    """A string."""
    if not isinstance(value, str):
        raise refuse_form(at, "text", value)


def flag(value: Any, at: str) -> None:
    """True or false."""
    if type(value) is not bool:
        raise refuse_form(at, "true or false", value)


def name_or_number(value: Any, at: str) -> None:
    """A sample's key: its index or its name."""
    if not isinstance(value, str):
        whole()(value, at)


def whole(least: int = -LARGEST, most: int = LARGEST) -> Form:
    """A whole number between two ends."""

    def check(value: Any, at: str) -> None:
        if type(value) is not int or not least <= value <= most:
            limits = "" if least == -LARGEST else f" from {least} to {most}"
            raise refuse_form(at, f"a whole number{limits}", value)

    return check


def maybe(form: Form) -> Form:
    """Null, or the form."""

    def check(value: Any, at: str) -> None:
        if value is not None:
            form(value, at)

    return check


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


def by_name(form: Form) -> Form:
    """An object whose values are all of one form."""

    def check(value: Any, at: str) -> None:
        if type(value) is not dict:
            raise refuse_form(at, "an object", value)
        for key, entry in value.items():
            form(entry, f"{at}.{key[:QUOTED]}")

    return check


def fields_of(needed: Mapping[str, Form], known: Mapping[str, Form] | None = None) -> Form:
    """An object with these keys; those of `known` may be missing, others are only `anything`."""
    forms = {**needed, **(known or {})}

    def check(value: Any, at: str) -> None:
        if type(value) is not dict:
            raise refuse_form(at, "an object", value)
        missing = [key for key in needed if key not in value]
        if missing:
            raise FormError(f"{at} has no {missing[0]}")
        for key, entry in value.items():
            forms.get(key, anything)(entry, f"{at}.{key[:QUOTED]}" if at else key[:QUOTED])

    return check


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


COUNT = whole(0)
CELL: dict[str, Form] = {"model": text, "batch_size": whole(1), "precision": text}
SCALE: dict[str, Form] = {"loss_scale": text}
SOURCE: dict[str, Form] = {
    "model": text,
    "batch_size": whole(1),
    "preloaded": COUNT,
    "problem": text,
    "kind": maybe(text),
    **dict.fromkeys(("workers", "prefetch"), maybe(COUNT)),
    "pin_memory": maybe(flag),
}
EPOCH: dict[str, Form] = {"epoch_batches": maybe(COUNT), "in_flight": COUNT, "whole_epochs": flag}
PROBED = fields_of(
    {
        **CELL,
        **dict.fromkeys(("status", "sentence"), text),
        "losses": several(maybe(number)),
    },
    {
        **SCALE,
        "scale": maybe(number),
        **dict.fromkeys(("step_s", "setup_s"), number),
        "peak_bytes": maybe(COUNT),
        "peak_how": text,
        **dict.fromkeys(("skipped",), COUNT),
    },
)
PASSAGE = fields_of(
    {
        **dict.fromkeys(("model", "precision", "loss_scale"), text),
        "batch_size": whole(1),
        "batches": whole(1),
        **dict.fromkeys(("workers", "round"), COUNT),
        "elapsed_ms": number,
    },
    {"begin_s": number, "start_ms": maybe(number), "skipped": COUNT},
)
WINDOW = fields_of(
    {
        **CELL,
        "period_ms": several(number),
        "elapsed_ms": number,
        **dict.fromkeys(("round", "steps"), COUNT),
    },
    {
        **SCALE,
        "begin_s": number,
        "skipped": several(COUNT),
        "warmup_skipped": COUNT,
    },
)


PRECISION = fields_of(
    {
        **dict.fromkeys(("backend", "device", "device_name"), text),
        "recipe": fields_of(
            {},
            {
                "optimizer": text,
                "lr": number,
                "channels_last": flag,
                "compile": flag,
                "seed": whole(),
            },
        ),
        "flags": by_name(by_name(anything)),
        "cells": several(PROBED),
        "sources": several(fields_of(SOURCE, EPOCH)),
        "largest": several(
            fields_of(
                {**{k: CELL[k] for k in ("model", "precision")}, "batch_size": COUNT,
                 "limit_reached": flag, "trials": several(COUNT)},
                {"trouble": several(text)},
            )
        ),
        "windows": several(WINDOW),
        "passages": several(PASSAGE),
    },
    {"cores": COUNT},
)  # fmt: skip


SPAN_COLUMNS = ("stage", "batch", "worker", "start", "wall", "cpu", "queued", "count")
DELTA = frozenset({"batch", "start", "sent", "received"})  # columns stored as differences
BATCH_COLUMNS = (
    *("batch", "worker", "tag", "samples", "slow_ns", "slow_cpu", "read_bytes", "read_chars"),
    *("gc_ns", "process_cpu", "sent", "received"),
)
MAIN = -1  # worker number of the training process itself
_LETTERS = frozenset(Arm)
MOST_WORKERS, MOST_CORES = 4096, 65536

SHARE = fields_of({}, {"share": maybe(number), "low": maybe(number), "high": maybe(number)})
CAUSE = fields_of(
    {
        **dict.fromkeys(("code", "name", "cause", "next"), text),
        **dict.fromkeys(("share", "low", "high"), maybe(number)),
    },
    {"evidence": by_name(anything), "about": text},
)
SWEEP_POINT = fields_of(
    {"setting": text, "measured_ms": number}, dict.fromkeys(("wait_ms", "wait_share"), number)
)
STAGE = fields_of(
    {**dict.fromkeys(("stage", "how", "at", "code", "advice"), text),
     **dict.fromkeys(("ms", "share"), maybe(number))}
)  # fmt: skip
STACK = fields_of({"of": text, "frames": several(text)})
CUT_OFF = fields_of(
    {"sentence": text, "where": text, "stacks": several(STACK)}, {"seconds": number}
)
ROWS = several(several(maybe(number)))


def _predictions(value: Any, at: str) -> None:
    """What `watch --track-predictions` keeps: a row of each step, as long as the others."""
    optional = "labels", "samples"
    fields_of({"steps": several(COUNT), "values": ROWS},
              {**dict.fromkeys(optional, several(whole())),
               "guesses": several(several(whole())), "ended": text}
              )(value, at)  # fmt: skip
    rows = [*value["values"], *value.get("guesses", ())]
    sizes = {len(row) for row in rows} | {len(value[key]) for key in optional if key in value}
    whole_tables = {
        len(value["steps"]),
        len(value["values"]),
        len(value.get("guesses", value["steps"])),
    }
    if len(sizes) > 1 or len(whole_tables) > 1:
        raise FormError(f"{at} has rows of unequal length")


SCRIPT = fields_of({"head": several(text), "lines": several(text), "rows": several(several(text))})
RESULTS = {
    "predictions": maybe(_predictions),
    "verdict": text,
    **dict.fromkeys(("sentence", "epoch_sentence", "contention_sentence"), maybe(text)),
    **dict.fromkeys(("contention", "stall_alone"), maybe(SHARE)),
    "together": maybe(fields_of({"sentence": text}, {"share": maybe(number)})),
    "conditions": maybe(several(fields_of({"name": text, "text": text}))),
    "loading": maybe(fields_of({"sentence": text, "rows": several(STAGE)})),
    "lowest_ms": maybe(above_zero),
    "stall": maybe(SHARE),
    "causes": maybe(several(CAUSE)),
    "failed_rules": maybe(several(fields_of(dict.fromkeys(("rule", "error", "text", "at"), text)))),
    "arms": maybe(by_name(maybe(fields_of({"period_ms": above_zero, "repeats": COUNT})))),
    "parts": maybe(by_name(SHARE)),
    "throughput": maybe(fields_of({"sentence": text})),
    "recording_share": maybe(number),
    "null_ms": maybe(number),
    "stall_with_null": maybe(SHARE),
    "more_repeats": maybe(COUNT),
    "sweep": maybe(several(SWEEP_POINT)),
    "precision": maybe(PRECISION),
    "precision-script": maybe(SCRIPT),
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
    {"stall_share": number, "path": text, "image": text},
)
PLAN = fields_of(
    {},
    {
        "arms": several(text),
        "reasons": several(text),
        **dict.fromkeys(("repeats", "steps", "warmup"), COUNT),
        "seconds": number,
        "alone_s": maybe(number),
        "seed": whole(),
        "emulate_ms": maybe(number),
        "unused_fields": maybe(by_name(number)),
        "batch_bytes": maybe(number),
        "piped_bytes": maybe(number),
        "delivered": maybe(by_name(number)),
        **dict.fromkeys(("recording_ns", "loading_ns"), maybe(number)),
        "prefixes": maybe(several(OPERATION)),
        "interventions": maybe(several(INTERVENTION)),
        "try": maybe(by_name(anything)),
        "promised": maybe(by_name(number)),
        "failed": maybe(by_name(text)),
        "repeatable": maybe(fields_of({}, {"same": flag, "bytes": number, "samples": COUNT})),
        "slow_samples": maybe(several(SLOW_SAMPLE)),
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
