"""How far is the estimated GPU memory from what was measured? Every stored row of an H100.

    python benchmarks/precision_memory.py errors

Each cell of `pipeline_profiler/on_a_gpu.json` with a peak is estimated as `precision --gpu h100`
does, without a GPU: shipped networks, 32x32 images, SGD with momentum, allocated memory of torch.
The rows were seen while the estimate was developed. They gave two of its constants: the memory of
CUDA's context, and the share of the rest that tensors can use.

Target: a mean absolute error of at most 10 %. The largest batches are compared at the limit of
21 GiB under which the file was recorded; searches that ended early are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from bench import ROOT, Document, hall, measures, told

from pipeline_profiler.precision.memory import estimate_peak, estimate_table, memory_room
from pipeline_profiler.precision.models import SHIPPED
from pipeline_profiler.precision.plan import ModelJob, SweepOptions
from pipeline_profiler.precision.trainer import Cell, Recipe

app = hall(__doc__)
STORED = ROOT / "pipeline_profiler" / "on_a_gpu.json"
LIMIT, TARGET = 21 << 30, 0.10
SAMPLE = torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.long)


def peak_error(cell: Mapping[str, Any]) -> Document:
    """Return the estimate of a stored cell beside its measured peak."""
    names = ("model", "batch_size", "precision", "loss_scale")
    known = Cell(*(cell[name] for name in names))
    estimate = estimate_peak(partial(SHIPPED[known.model], 10), known, Recipe(), SAMPLE, "h100")
    stored = cell["peak_bytes"]
    return {name: cell[name] for name in names} | {
        "stored_mb": round(stored / 1e6), "estimated_mb": round(estimate / 1e6),
        "error": estimate / stored - 1,
    }  # fmt: skip


def largest_error(found: Mapping[str, Any]) -> Document:
    """Return the estimate of the largest batch beside the one that the search found."""
    job = ModelJob(found["model"], partial(SHIPPED[found["model"]], 10), lambda size: [])
    options = SweepOptions(batch_sizes=(64,), precisions=(found["precision"],))
    (row,) = estimate_table(job, options, SAMPLE, memory_room(None, LIMIT), "h100")
    error = row.largest_batch / found["batch_size"] - 1
    return {"model": row.model, "precision": row.precision, "stored_batch": found["batch_size"],
            "estimated_batch": row.largest_batch, "error": error}  # fmt: skip


@measures(app)
def errors() -> tuple[Document, bool]:
    """Print a line for each stored row, then the mean and the worst error by precision."""
    stored = json.loads(STORED.read_text())["precision"]
    rows = [peak_error(cell) for cell in stored["cells"] if cell["peak_bytes"]]
    batches = [largest_error(found) for found in stored["largest"] if not found["trouble"]]
    for row in rows + batches:
        print(told(row))
    summary = {
        name: [round(float(f([abs(row["error"]) for row in group])), 4) for f in (np.mean, np.max)]
        for name in ("all", "fp32", "tf32", "fp16", "bf16")
        if (group := [row for row in rows if name in ("all", row["precision"])])
    }
    return {"rows": len(rows), "mean and worst": summary}, summary["all"][0] <= TARGET


@app.callback()
def main() -> None:
    """Keep `errors` a command: the benchmarks are called alike."""


if __name__ == "__main__":
    app()
