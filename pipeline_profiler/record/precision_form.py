"""The form of a session's key `precision`, as `pipeline-profiler precision` writes it.

The keys themselves are made and read in precision/document.py; here stands what each must look
like in a file that comes from anywhere.
"""

from __future__ import annotations

from pipeline_profiler.record.form import (
    Form,
    anything,
    by_name,
    fields_of,
    flag,
    maybe,
    number,
    several,
    text,
    whole,
)

COUNT = whole(0)
INTERVAL = fields_of(
    {"share": maybe(number), "low": maybe(number), "high": maybe(number), "n": COUNT}
)
RATE = maybe(fields_of({"value": number, "low": maybe(number), "high": maybe(number), "n": COUNT}))
CELL: dict[str, Form] = {"model": text, "batch_size": whole(1), "precision": text}
SCALE: dict[str, Form] = {"loss_scale": text}
STEP = maybe(
    fields_of(
        {
            "mean_ms": number,
            **dict.fromkeys(("p50_ms", "p95_ms", "low_ms", "high_ms"), maybe(number)),
            "repeats": COUNT,
            "steps": COUNT,
        }
    )
)
SOURCE: dict[str, Form] = {
    "model": text,
    "batch_size": whole(1),
    "kept": COUNT,
    "problem": text,
    "kind": maybe(text),
    "workers": maybe(COUNT),
    "prefetch": maybe(COUNT),
    "pin_memory": maybe(flag),
}
LOSSES = several(maybe(number))
PROBED = fields_of(
    {
        **CELL,
        "status": text,
        "sentence": text,
        **dict.fromkeys(("losses", "reference", "floor"), LOSSES),
        "tiny": flag,
    },
    {
        **SCALE,
        "skipped": COUNT,
        "scale": maybe(number),
        "step_s": number,
        "seconds": number,
        "peak_bytes": maybe(COUNT),
        "peak_how": text,
        "graphs": COUNT,
    },
)
ROW = fields_of(
    {
        **CELL,
        "status": text,
        "sentence": text,
        "tiny": flag,
        "step": STEP,
        "fed": STEP,
        "synthetic_per_s": RATE,
        "loader_per_s": RATE,
        "stall": maybe(INTERVAL),
        "peak_bytes": maybe(COUNT),
        "peak_how": text,
        "skipped": maybe(COUNT),
        "skipped_timed": COUNT,
        "loss_scale_end": maybe(number),
        "loss_steps": COUNT,
        **dict.fromkeys(
            ("loss_first", "loss_last", "loss_apart", "loss_apart_most", "loss_floor"),
            maybe(number),
        ),
        "warmup_s": number,
        "graphs": COUNT,
        "recompiled": COUNT,
    },
    SCALE,
)
PASS = fields_of(
    {"block": COUNT, "model": text, "batch_size": whole(1), "batches": COUNT, "elapsed_ms": number}
)
WINDOW = fields_of(
    {
        "arm": text,
        "block": COUNT,
        "cell": fields_of(CELL, SCALE),
        "period_ms": several(number),
        "wait_ms": several(number),
        "elapsed_ms": number,
        "steps": COUNT,
        "recompiled": COUNT,
    },
    {"skipped": several(COUNT), "warmup_skipped": COUNT, "warmup_s": number},
)


def _visit(value: object, at: str) -> None:
    """A window of a cell, or (arm L) a pass over a loader alone."""
    form = PASS if isinstance(value, dict) and value.get("arm") == "L" else WINDOW
    form(value, at)


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
        "feeds": several(fields_of(SOURCE)),
        "largest": several(
            fields_of(
                {**{k: CELL[k] for k in ("model", "precision")}, "batch_size": COUNT,
                 "limit_reached": flag, "trials": several(COUNT)},
                {"trouble": several(text)},
            )
        ),
        "visits": several(_visit),
        "rows": several(ROW),
        "loaders": several(fields_of({**SOURCE, "alone_per_s": RATE})),
        "speedups": several(
            fields_of({**CELL, "tiny": flag, "compute": INTERVAL, "run": INTERVAL}, SCALE)
        ),
        "growths": several(
            fields_of(
                {"model": text, "precision": text, "loss_scale": text, "from": whole(1),
                 "to": whole(1), "compute": INTERVAL, "run": INTERVAL}
            )
        ),
        "sentences": several(text),
    }
)  # fmt: skip
