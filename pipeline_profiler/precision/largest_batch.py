"""The largest batch that fits, for each model and precision: doubling, then bisection.

Memory cannot be predicted from a small batch (workspaces and fragmentation grow in steps), so each
size is tried. A trial makes a new model and takes two steps (the optimizer's state comes with the
first), on a real batch whose samples are repeated: memory depends on shapes only. It costs about
2 log2(answer) trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline_profiler.precision.batches import Batch
from pipeline_profiler.precision.cell import Cell
from pipeline_profiler.precision.measurement import LargestBatch, ProbeResult
from pipeline_profiler.precision.sweep_state import SweepState, run_guarded
from pipeline_profiler.precision.timing import train_steps

TRIAL_STEPS = 2  # the optimizer allocates its state in the first, so only the second has it all


def search_largest(sweep: SweepState, cells: Sequence[Cell]) -> None:
    """Find the largest batch of each model and precision that can train at all."""
    for cell in cells:
        kinds = {(row.model, row.precision) for row in sweep.largest}
        # a cell without memory is searched too: its model may fit at a smaller batch
        if (cell.model, cell.precision) in kinds or sweep.probes[cell].status not in ("ok", "oom"):
            continue
        if sweep.is_over():
            sweep.reasons.append(
                f"{cell.model}, {cell.name}: the largest batch was not looked for, because the "
                f"{sweep.options.seconds:.0f} s are over; give --seconds for more."
            )
            continue
        sweep.progress(sweep.total, sweep.total, f"largest batch of {cell.model} {cell.precision}")
        sweep.largest.append(_search_cell(sweep, cell))


def _search_cell(sweep: SweepState, cell: Cell) -> LargestBatch:
    batch = next(
        source.cached_batches[0]
        for (model, _), source in sweep.sources.items()
        if model == cell.model and source.cached_batches
    )
    trials: list[int] = []
    trouble: list[str] = []

    def fits(size: int) -> bool:
        if sweep.is_over():
            trouble.append(
                f"the search ended at the {sweep.options.seconds:.0f} s: it is at least this"
            )
            return False
        trials.append(size)
        after = _try_size(sweep, replace(cell, batch_size=size), batch)
        # another failure counts as "does not fit", or the search would not end; it is reported
        if after.status not in ("ok", "oom"):
            trouble.append(f"at {size}: {after.sentence}")
        return after.status == "ok"

    limit = sweep.options.largest_limit
    size = bisect_largest(fits, 1, limit)
    return LargestBatch(cell.model, cell.precision, size, size == limit, trials, trouble[:1])


def _try_size(sweep: SweepState, cell: Cell, batch: Batch) -> ProbeResult:
    def work() -> ProbeResult:
        trainer = sweep.make_trainer(cell)
        device_batch = trainer.place(sweep.backend.resized(batch, cell.batch_size))
        train_steps(trainer, [device_batch], TRIAL_STEPS, sweep.clock)
        return ProbeResult()

    return run_guarded(sweep, cell, work)


def bisect_largest(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """The largest batch size up to `limit` for which `fits` holds; 0 where not even one does.

    `fits` must be monotone, as memory is.
    """
    # invariant: `low` fits (or is 0) and, once the doubling has ended, `high` does not
    low, high = 0, max(1, start)
    # doubling first: the answer may be 1 or 65,536, and a trial above it costs no more than one
    # below, because memory is refused before the step runs
    while high <= limit and fits(high):
        low, high = high, high * 2
    if high > limit:
        # the last doubling passed the limit without a trial: ask for the limit itself
        if low == limit or fits(limit):
            return limit
        high = limit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
