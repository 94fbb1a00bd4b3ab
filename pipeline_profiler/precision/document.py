"""The precision part of a saved session, to and from JSON types: the only place with its keys.

The keys are those of `profile/1` (docs/precision.md lists them); names inside the
program may change, these may not. Reading takes unknown keys in its stride and turns a missing
interval back into an infinite one; writing gives every key, `null` where nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

from pipeline_profiler.precision.cell import LOADER_ONLY, Recipe
from pipeline_profiler.precision.table import (
    Growth,
    LargestBatch,
    LoaderPass,
    LoaderRow,
    Measurement,
    Parity,
    PrecisionTable,
    ProbedCell,
    Row,
    SourceRecord,
    Speedup,
    Visit,
)
from pipeline_profiler.profiling.diagnose.intervals import Interval

Document: TypeAlias = dict[str, Any]  # JSON types by key
T = TypeVar("T")


# ---- writing ----


def table_as_dict(table: PrecisionTable) -> Document:
    """The value of the session's key `precision`."""
    return {
        **measurement_as_dict(table.measurement),
        "rows": [_row_as_dict(row) for row in table.rows],
        "loaders": [_plain(row, "source") for row in table.loaders],
        "speedups": [_plain(speedup, "cell") for speedup in table.speedups],
        "growths": [_growth_as_dict(growth) for growth in table.growths],
        "sentences": list(table.sentences),
    }


def measurement_as_dict(measurement: Measurement) -> Document:
    """Only what was measured."""
    cells = [_plain(cell, "cell", "probe") for cell in measurement.cells]
    visits = [
        _plain(visit, "window") if isinstance(visit, Visit) else {"arm": LOADER_ONLY, **vars(visit)}
        for visit in measurement.visits
    ]
    whole: Document = _plain(measurement)
    return whole | {"cells": cells, "visits": visits}


def _plain(value: Any, *beside: str) -> Any:
    """JSON types; the keys of the fields named in `beside` stand beside the other fields."""
    if isinstance(value, Interval):
        return value.as_dict()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if not is_dataclass(value):
        return value
    data = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    for name in beside:
        data |= data.pop(name)
    return data


def _row_as_dict(row: Row) -> Document:
    data: Document = _plain(row, "cell")
    parity = data.pop("parity")
    return data | {f"loss_{name}": value for name, value in parity.items()}


def _growth_as_dict(growth: Growth) -> Document:
    data: Document = _plain(growth)
    return data | {"from": data.pop("smallest"), "to": data.pop("largest")}


def table_from_dict(data: Mapping[str, Any]) -> PrecisionTable:
    """Inverse of `table_as_dict`."""
    growths = [one | {"smallest": one["from"], "largest": one["to"]} for one in data["growths"]]
    return PrecisionTable(
        measurement_from_dict(data),
        [_read(Row, row | {"parity": _parity(row)}) for row in data["rows"]],
        [_read(LoaderRow, row) for row in data["loaders"]],
        [_read(Speedup, speedup) for speedup in data["speedups"]],
        [_read(Growth, growth) for growth in growths],
        data["sentences"],
    )


def measurement_from_dict(data: Mapping[str, Any]) -> Measurement:
    """Inverse of `measurement_as_dict`; also reads it out of a whole table."""
    return Measurement(
        data["backend"],
        data["device"],
        data["device_name"],
        _read(Recipe, data["recipe"]),
        data["flags"],
        [_read(ProbedCell, cell | _losses(cell)) for cell in data["cells"]],
        [_read(SourceRecord, source) for source in data["feeds"]],
        [_read(LargestBatch, largest) for largest in data["largest"]],
        [
            _read(LoaderPass, v) if v["arm"] == LOADER_ONLY else _read(Visit, v)
            for v in data["visits"]
        ],
    )


def _read(kind: Callable[..., T], data: Mapping[str, Any]) -> T:
    """A dataclass from the keys it has, its parts under a key of theirs or beside the others.

    Keys of a later version are ignored.
    """
    made: Document = {}
    for name, part in _parts(kind).items():
        if part is None or data.get(name, data) is None:
            made |= {name: data[name]} if name in data else {}
        elif part is Interval:
            made[name] = _interval(data[name])
        else:
            made[name] = _read(part, data.get(name, data))
    return kind(**made)


@cache
def _parts(kind: Callable[..., Any]) -> dict[str, Any]:
    """The fields of a dataclass, each with the dataclass that it holds, if any."""
    hints = get_type_hints(kind)
    return {
        name: next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)
        for name, hint in hints.items()
    }


def _losses(cell: Document) -> dict[str, Sequence[float]]:
    """JSON has no NaN: a loss that was not a number is null in the file."""
    keys = ("losses", "reference", "floor")
    return {key: [math.nan if loss is None else loss for loss in cell[key]] for key in keys}


def _parity(row: Document) -> Document:
    return {field.name: row[f"loss_{field.name}"] for field in fields(Parity)}


def _interval(data: Document) -> Interval:
    """An end that was infinite is null in the file."""
    low, high = data["low"], data["high"]
    return Interval(
        math.nan if data["share"] is None else data["share"],
        -math.inf if low is None else low,
        math.inf if high is None else high,
        data["n"],
    )
