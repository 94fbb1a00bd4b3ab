"""The first visit of a cell: check the batch, record the first losses, read memory, learn the pace.

Nothing that goes wrong here ends the sweep: it becomes the cell's row, with a sentence that says
what to do. Losses are taken from one seed on the same batches at every precision (loss parity), and
FP32 is run once more from nudged weights to show how far chance alone carries a loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pipeline_profiler.precision.batches import label_problem, shape_problem
from pipeline_profiler.precision.budget import PROBE_SHARE, least_s, left_s, train_again_s
from pipeline_profiler.precision.cell import Cell
from pipeline_profiler.precision.data_source import DataSource
from pipeline_profiler.precision.measurement import ProbeResult
from pipeline_profiler.precision.sweep_state import SweepState, run_guarded
from pipeline_profiler.precision.timing import train_steps
from pipeline_profiler.precision.trainer import Trainer

TINY_PARITY = 3  # FP16 on a CPU takes seconds per step
NUDGE = 1e-6  # some roundings of FP32 (2^-24 is 6e-8): the least change that cannot vanish


def probe_cell(sweep: SweepState, cell: Cell) -> ProbeResult:
    """The first visit with the seconds it took, or why there is none."""
    started = sweep.clock()
    refusal = sweep.backend.refusal(cell.precision)
    if refusal:
        result = ProbeResult("refused", refusal)
    else:
        result = run_guarded(sweep, cell, lambda: _visit_first(sweep, cell))
    return replace(result, seconds=(sweep.clock() - started) / 1e9)


def _visit_first(sweep: SweepState, cell: Cell) -> ProbeResult:
    source = sweep.open_source(cell)
    if not sweep.probes:
        # the first optimizer of a process imports for seconds: no later visit pays that again
        sweep.make_trainer(cell)
    begin = sweep.clock()
    trainer = sweep.make_trainer(cell)
    setup_s = (sweep.clock() - begin) / 1e9
    # torch counts graphs in the whole process: only the difference belongs to this cell
    compiled = trainer.graphs()
    problem = find_misfit(trainer, source)
    if problem:
        return ProbeResult("refused", problem)
    trainer.count_correct()
    wanted = _parity_steps(sweep, cell)
    limit_s = PROBE_SHARE * sweep.options.seconds
    step_s = train_steps(trainer, source.cached_batches, wanted, sweep.clock, limit_s)
    losses, skipped = trainer.losses(), trainer.skipped()
    accuracies = trainer.accuracies()
    if 0 < len(losses) < wanted:
        sweep.reasons.append(
            f"{cell.label}: the losses of {len(losses)} steps instead of {wanted}, because a step "
            f"takes {step_s:.2g} s."
        )
    if losses and math.isnan(losses[0]):
        return ProbeResult("refused", explain_nan(cell))
    # memory comes after the losses: its extra step must not change what parity compares
    peak = trainer.peak_memory(trainer.place(source.cached_batches[0]))
    return ProbeResult(
        losses=losses,
        accuracies=accuracies,
        skipped=len(skipped),
        scale=trainer.scale(),
        step_s=step_s,
        setup_s=setup_s,
        peak_bytes=peak.allocated,
        peak_how=peak.how,
        reserved_bytes=peak.reserved,
        occupied_bytes=peak.occupied,
        graphs=trainer.graphs() - compiled,
    )


def find_misfit(trainer: Trainer, source: DataSource) -> str:
    """What is wrong with outputs or labels, asked on the host before the first step.

    On a GPU a label out of range ends in a device assertion that no later cell survives.
    """
    shape = trainer.outputs(source.cached_batches[0])
    if shape is None:  # a loss of the user's own knows better
        return ""
    wrong = shape_problem(shape, source.batch_size)
    if wrong or source.labels is None:
        return wrong
    return label_problem(*source.labels, shape[1])


def explain_nan(cell: Cell) -> str:
    """The loss is not a number before anything was learnt."""
    advice = (
        "FP16 overflows above 65,504: scale the inputs down, or use bf16."
        if cell.precision == "fp16"
        else "check the inputs for NaN and the loss for a logarithm of 0."
    )
    return f"the loss is NaN at step 0: {advice}"


def _parity_steps(sweep: SweepState, cell: Cell) -> int:
    wanted = sweep.options.parity_steps
    return min(TINY_PARITY, wanted) if sweep.is_tiny(cell) else wanted


def add_references(sweep: SweepState) -> None:
    """FP32 losses where no row has them, and FP32 from nudged weights: what chance alone does.

    Training magnifies any difference; a precision is suspicious only beyond that.
    """
    live = sweep.live_cells()
    compared = dict.fromkeys(cell.source for cell in live if cell.precision != "fp32")
    for model, size in compared:
        base = Cell(model, size, "fp32")
        costs = max(
            train_again_s(sweep.probes[cell]) for cell in live if cell.source == (model, size)
        )
        nudged = not sweep.is_tiny(base)
        needed_s = least_s(sweep, live) + costs * (nudged + (base not in sweep.probes))
        if needed_s > left_s(sweep):
            sweep.reasons.append(
                f"{model}, batch {size}: no loss of a second FP32 run beside the others, because "
                f"the {sweep.options.seconds:.0f} s have no room for it."
            )
            continue
        if base not in sweep.probes:
            sweep.references[model, size] = _train_again(sweep, base, 0.0)
        if nudged:
            sweep.floors[model, size] = _train_again(sweep, base, NUDGE)


def _train_again(sweep: SweepState, cell: Cell, nudge: float) -> Sequence[float]:
    """The first losses of one more training run; none where it fails."""

    def work() -> ProbeResult:
        trainer, source = sweep.make_trainer(cell), sweep.open_source(cell)
        if nudge and not trainer.nudge(nudge):
            return ProbeResult()
        train_steps(trainer, source.cached_batches, sweep.options.parity_steps, sweep.clock)
        return ProbeResult(losses=trainer.losses())

    return run_guarded(sweep, cell, work).losses
