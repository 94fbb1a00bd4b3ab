"""The largest batch that fits, for each model and precision: doubling, then bisection.

Each trial makes the model anew and takes two steps (the optimizer's state comes with the first),
on a real batch whose samples are repeated: memory asks for shapes only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline_profiler.precision.probe import Probe, Sweep, guarded, make_trainer, train
from pipeline_profiler.precision.trainer import Cell, largest_batch


def find_largest(sweep: Sweep, planned: list[Cell]) -> None:
    """The largest batch that fits, for each model and precision, by doubling and bisection."""
    for cell in planned:
        seen = [row for row in sweep.largest if _same(row, cell)]
        if seen or sweep.probes[cell].status not in ("ok", "oom"):
            continue
        sweep.progress(sweep.total, sweep.total, f"largest batch of {cell.model} {cell.precision}")
        sweep.largest.append(_largest_of(sweep, cell))


def _same(row: dict[str, Any], cell: Cell) -> bool:
    return (row["model"], row["precision"]) == (cell.model, cell.precision)


def _largest_of(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    feeds = [f for (model, _), f in sweep.feeds.items() if model == cell.model and f.kept]
    batch = feeds[0].kept[0]
    trials: list[int] = []
    trouble: list[str] = []

    def fits(size: int) -> bool:
        trials.append(size)

        def work() -> Probe:
            trainer = make_trainer(sweep, replace(cell, batch_size=size))
            placed = trainer.place(sweep.backend.resized(batch, size))
            train(trainer, [placed], 2, sweep.clock)  # the optimizer's state comes with the first
            return Probe()

        after = guarded(sweep, replace(cell, batch_size=size), work)
        if after.status not in ("ok", "oom"):
            trouble.append(f"at {size}: {after.sentence}")
        return after.status == "ok"

    limit = sweep.options.largest_limit
    found = largest_batch(fits, 1, limit)
    return {
        "model": cell.model,
        "precision": cell.precision,
        "batch_size": found,
        "limit_reached": found == limit,
        "trials": trials,
        "trouble": trouble[:1],
    }
