"""The precision part of a saved session, to and from JSON types: the only place with its keys.

The keys are those of `profile/1` since version 0.1 (docs/precision.md lists them); names inside the
program may change, these may not. Reading takes unknown keys in its stride and turns a missing
interval back into an infinite one; writing gives every key, `null` where nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias, TypeVar

from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.precision.cell import LOADER_ONLY, Cell, Recipe
from pipeline_profiler.precision.measurement import (
    LargestBatch,
    LoaderPass,
    Measurement,
    ProbedCell,
    ProbeResult,
    SourceRecord,
    Visit,
)
from pipeline_profiler.precision.table import (
    Growth,
    LoaderRow,
    Parity,
    PrecisionTable,
    Rate,
    Row,
    Speedup,
    StepTimes,
)
from pipeline_profiler.precision.timing import TimedWindow

Document: TypeAlias = dict[str, Any]  # JSON types by key
T = TypeVar("T")


# ---- writing ----


def table_as_dict(table: PrecisionTable) -> Document:
    """The value of the session's key `precision`."""
    return {
        **measurement_as_dict(table.measurement),
        "rows": [_row_as_dict(row) for row in table.rows],
        "loaders": [_loader_as_dict(row) for row in table.loaders],
        "speedups": [_speedup_as_dict(speedup) for speedup in table.speedups],
        "growths": [_growth_as_dict(growth) for growth in table.growths],
        "sentences": list(table.sentences),
    }


def measurement_as_dict(measurement: Measurement) -> Document:
    """Only what was measured."""
    return {
        "backend": measurement.backend,
        "device": measurement.device,
        "device_name": measurement.device_name,
        "recipe": asdict(measurement.recipe),
        "flags": dict(measurement.flags),
        "cells": [_cell_as_dict(cell) for cell in measurement.cells],
        "feeds": [_source_as_dict(source) for source in measurement.sources],
        "largest": [asdict(largest) for largest in measurement.largest],
        "visits": [_visit_as_dict(visit) for visit in measurement.visits],
    }


def _cell_as_dict(probed: ProbedCell) -> Document:
    probe = asdict(probed.probe) | {"losses": list(probed.probe.losses)}
    probe["accuracies"] = list(probed.probe.accuracies)
    compared = {"reference": list(probed.reference), "floor": list(probed.floor)}
    return asdict(probed.cell) | probe | compared | {"tiny": probed.tiny}


def _source_as_dict(source: SourceRecord) -> Document:
    return {
        "model": source.model,
        "batch_size": source.batch_size,
        "kept": source.cached,
        "problem": source.problem,
        "kind": source.kind,
        "workers": source.workers,
        "prefetch": source.prefetch,
        "pin_memory": source.pin_memory,
    }


def _visit_as_dict(visit: Visit | LoaderPass) -> Document:
    if isinstance(visit, LoaderPass):
        return {"arm": LOADER_ONLY} | asdict(visit)
    window = visit.window
    lists = {key: list(getattr(window, key)) for key in ("period_ms", "wait_ms", "skipped")}
    head = {"arm": visit.arm, "block": visit.block, "cell": asdict(visit.cell)}
    return head | asdict(window) | lists | {"recompiled": visit.recompiled}


def _row_as_dict(row: Row) -> Document:
    parity = row.parity
    return {
        **asdict(row.cell),
        "status": row.status,
        "sentence": row.sentence,
        "tiny": row.tiny,
        "step": asdict(row.step) if row.step else None,
        "fed": asdict(row.fed) if row.fed else None,
        "synthetic_per_s": _rate_as_dict(row.synthetic_per_s),
        "loader_per_s": _rate_as_dict(row.loader_per_s),
        "stall": row.stall.as_dict() if row.stall else None,
        "peak_bytes": row.peak_bytes,
        "peak_how": row.peak_how,
        "skipped": row.skipped,
        "skipped_timed": row.skipped_timed,
        "loss_scale_end": row.loss_scale_end,
        "loss_steps": parity.steps,
        "loss_first": parity.first,
        "loss_last": parity.last,
        "loss_apart": parity.apart,
        "loss_apart_most": parity.apart_most,
        "loss_floor": parity.floor,
        "warmup_s": row.warmup_s,
        "graphs": row.graphs,
        "recompiled": row.recompiled,
        "reserved_bytes": row.reserved_bytes,
        "occupied_bytes": row.occupied_bytes,
    }


def _rate_as_dict(rate: Rate | None) -> Document | None:
    return asdict(rate) if rate else None


def _loader_as_dict(row: LoaderRow) -> Document:
    return _source_as_dict(row.source) | {"alone_per_s": _rate_as_dict(row.loader_only_per_s)}


def _speedup_as_dict(speedup: Speedup) -> Document:
    ratios = {"compute": speedup.compute.as_dict(), "run": speedup.run.as_dict()}
    return asdict(speedup.cell) | {"tiny": speedup.tiny} | ratios


def _growth_as_dict(growth: Growth) -> Document:
    return {
        "model": growth.model,
        "precision": growth.precision,
        "loss_scale": growth.loss_scale,
        "from": growth.smallest,
        "to": growth.largest,
        "compute": growth.compute.as_dict(),
        "run": growth.run.as_dict(),
    }


# ---- reading ----


def table_from_dict(data: Mapping[str, Any]) -> PrecisionTable:
    """Inverse of `table_as_dict`."""
    return PrecisionTable(
        measurement_from_dict(data),
        [_row(row) for row in data["rows"]],
        [LoaderRow(_source(row), _rate(row["alone_per_s"])) for row in data["loaders"]],
        [_speedup(speedup) for speedup in data["speedups"]],
        [_growth(growth) for growth in data["growths"]],
        data["sentences"],
    )


def measurement_from_dict(data: Mapping[str, Any]) -> Measurement:
    """Inverse of `measurement_as_dict`; also reads it out of a whole table."""
    return Measurement(
        data["backend"],
        data["device"],
        data["device_name"],
        _known(Recipe, data["recipe"]),
        data["flags"],
        [_probed_cell(cell) for cell in data["cells"]],
        [_source(source) for source in data["feeds"]],
        [_known(LargestBatch, largest) for largest in data["largest"]],
        [_visit(visit) for visit in data["visits"]],
    )


def _known(kind: type[T], data: Document) -> T:
    """A dataclass from the keys it has; keys of a later version are ignored."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in data.items() if key in names})


def _probed_cell(data: Document) -> ProbedCell:
    losses = {"losses": _losses(data["losses"])}
    return ProbedCell(
        _known(Cell, data),
        _known(ProbeResult, data | losses),
        _losses(data["reference"]),
        _losses(data["floor"]),
        data["tiny"],
    )


def _losses(saved: Sequence[float | None]) -> list[float]:
    """JSON has no NaN: a loss that was not a number is null in the file."""
    return [math.nan if loss is None else loss for loss in saved]


def _source(data: Document) -> SourceRecord:
    return _known(SourceRecord, data | {"cached": data["kept"]})


def _visit(data: Document) -> Visit | LoaderPass:
    if data["arm"] == LOADER_ONLY:
        return _known(LoaderPass, data)
    return Visit(
        data["arm"],
        data["block"],
        _known(Cell, data["cell"]),
        _known(TimedWindow, data),
        data["recompiled"],
    )


def _row(data: Document) -> Row:
    parity = {field.name: data[f"loss_{field.name}"] for field in fields(Parity)}
    own = {
        "cell": _known(Cell, data),
        "step": _known(StepTimes, data["step"]) if data["step"] else None,
        "fed": _known(StepTimes, data["fed"]) if data["fed"] else None,
        "synthetic_per_s": _rate(data["synthetic_per_s"]),
        "loader_per_s": _rate(data["loader_per_s"]),
        "stall": _interval(data["stall"]) if data["stall"] else None,
        "parity": Parity(**parity),
    }
    return _known(Row, data | own)


def _rate(data: Document | None) -> Rate | None:
    return _known(Rate, data) if data else None


def _interval(data: Document) -> Interval:
    """An end that was infinite is null in the file."""
    low, high = data["low"], data["high"]
    return Interval(
        math.nan if data["share"] is None else data["share"],
        -math.inf if low is None else low,
        math.inf if high is None else high,
        data["n"],
    )


def _speedup(data: Document) -> Speedup:
    return Speedup(
        _known(Cell, data), data["tiny"], _interval(data["compute"]), _interval(data["run"])
    )


def _growth(data: Document) -> Growth:
    return Growth(
        data["model"],
        data["precision"],
        data["loss_scale"],
        data["from"],
        data["to"],
        _interval(data["compute"]),
        _interval(data["run"]),
    )
