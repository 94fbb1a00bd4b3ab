"""The precision sweep: every cell probed once, then timed in interleaved blocks, in one run.

Probe: the batch is checked, the first k losses are recorded from one seed (loss parity), memory is
read, the pace is learnt. Blocks: each repeat visits all cells in random order, and each visit
times the step on batches in hand and the step fed by the loader right after each other, so that
heat and other programs hit all rows alike and ratios are taken inside a block. A cell that runs out
of memory, or cannot be trained at all, becomes a row that says so; the sweep goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from pipeline_profiler.measure import environment
from pipeline_profiler.measure.stopping import Guard, StoppedError, kept_when_stopped
from pipeline_profiler.precision import budget
from pipeline_profiler.precision.batches import Batch, cycle_batches, full_batches
from pipeline_profiler.precision.budget import TINY_REPEATS, TINY_STEPS, WARM_STEPS
from pipeline_profiler.precision.cell import RESIDENT, WARM, Cell
from pipeline_profiler.precision.data_source import DataSource
from pipeline_profiler.precision.largest_batch import search_largest
from pipeline_profiler.precision.measurement import Measurement, ProbedCell, ProbeResult, Visit
from pipeline_profiler.precision.plan import ModelJob, SweepOptions, check_options, plan_cells
from pipeline_profiler.precision.probe import add_references, probe_cell
from pipeline_profiler.precision.summary import as_results, summarise
from pipeline_profiler.precision.sweep_state import ReportProgress, SweepState, run_guarded
from pipeline_profiler.precision.timing import TimedWindow, time_window, train_steps
from pipeline_profiler.precision.trainer import Backend, Trainer
from pipeline_profiler.record.plan import Plan, Reason
from pipeline_profiler.record.session import Session
from pipeline_profiler.record.stages import Clock


def _ignore_progress(done: int, total: int, text: str) -> None:
    """For callers that show no progress."""


def measure_precisions(
    backend: Backend,
    jobs: Sequence[ModelJob],
    options: SweepOptions,
    clock: Clock = time.perf_counter_ns,
    progress: ReportProgress = _ignore_progress,
    notes: Sequence[str] = (),
    guard: Guard | None = None,
    began: int | None = None,
) -> Session:
    """Run the sweep; returns a session whose results are of verdict "precision".

    `began` is the clock's reading when the time budget began, where that was earlier.
    Raises StoppedError with the partial session when something ends it early, ProfileError for
    options that no row could be made of.
    """
    check_options(options)
    guard = guard or Guard()
    began = clock() if began is None else began
    sweep = SweepState(backend, jobs, options, clock, progress, began=began, guard=guard)
    sweep.reasons += notes
    if options.memory_limit is not None:
        sweep.reasons.append(backend.limit_memory(options.memory_limit))
    session = Session(created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    session.environment = environment.describe()  # before: memory free at the start
    _fill_before_rescue(guard, sweep)
    try:
        with kept_when_stopped(session, guard):
            _run_sweep(sweep)
    except StoppedError:
        fill_session(session, sweep)
        raise
    finally:
        for source in sweep.sources.values():
            source.close()
    fill_session(session, sweep)
    return session


def _fill_before_rescue(guard: Guard, sweep: SweepState) -> None:
    """What ends the process saves the session: it must hold the rows by then."""
    rescue = guard.rescue
    if rescue is None:
        return

    def fill_and_rescue(session: Session) -> None:
        fill_session(session, sweep)
        rescue(session)

    guard.rescue = fill_and_rescue


# ---- measuring ----


def _run_sweep(sweep: SweepState) -> None:
    options = sweep.options
    cells, reasons = plan_cells(sweep.backend, sweep.jobs, options)
    sweep.reasons += reasons
    sweep.total = len(cells) * (1 + options.repeats)
    _probe_cells(sweep, cells)
    add_references(sweep)
    live = budget.drop_excess(sweep)
    budget.explain_start(sweep)
    steps, repeats = budget.fit_to_budget(sweep, live)
    sweep.done, sweep.total = len(cells), len(cells) + repeats * len(live)
    _time_blocks(sweep, steps, repeats)
    if sweep.searches_largest:
        search_largest(sweep, cells)
    sweep.progress(sweep.total, sweep.total, "done")


def _probe_cells(sweep: SweepState, cells: Sequence[Cell]) -> None:
    """Every cell once, as long as the budget has room for what is known to follow."""
    for number, cell in enumerate(cells):
        if number and not budget.has_room(sweep):
            budget.drop_unvisited(sweep, cells[number:])
            return
        sweep.announce(f"probing {cell.label}")
        sweep.probes[cell] = probe_cell(sweep, cell)


def _time_blocks(sweep: SweepState, steps: int, repeats: int) -> None:
    """Every live cell once per block, in random order; ends early where time runs out."""
    rng = random.Random(sweep.options.recipe.seed)
    begin = sweep.spent_s()
    for block in range(repeats):
        per_block = (sweep.spent_s() - begin) / max(1, block)
        if block and sweep.spent_s() + per_block > sweep.options.seconds:
            sweep.reasons.append(
                f"{block} repeats instead of {repeats}: steps got slower than at first, and the "
                f"{sweep.options.seconds:.0f} s would not hold one more."
            )
            return
        order = sweep.live_cells()
        if block >= TINY_REPEATS:
            order = [cell for cell in order if not sweep.is_tiny(cell)]
        for key in dict.fromkeys(cell.source for cell in order):
            sweep.visits.append(sweep.sources[key].time_loader(block, sweep.clock))
        # a fixed order would give each cell the heat that its neighbour leaves behind
        rng.shuffle(order)
        for cell in order:
            if not block and sweep.is_over():
                budget.drop_cell(sweep, cell)
                continue
            sweep.announce(f"block {block + 1} of {repeats}: {cell.label}")
            _visit_cell(sweep, cell, block, steps, rng)


def _visit_cell(sweep: SweepState, cell: Cell, block: int, steps: int, rng: random.Random) -> None:
    """Both arms of one cell, in random order, on one freshly made trainer."""

    def work() -> ProbeResult:
        source, trainer = sweep.open_source(cell), sweep.make_trainer(cell)
        tiny = sweep.is_tiny(cell)
        scale = sweep.probes[cell].scale
        if scale is not None:
            trainer.start_at(scale)
        device_batches = [trainer.place(batch) for batch in source.cached_batches]
        train_steps(trainer, device_batches, 1 if tiny else WARM_STEPS, sweep.clock)
        # which arm comes first is drawn, or the second would always have the warmer device
        for arm in rng.sample((RESIDENT, WARM), 2):
            before = trainer.graphs()
            window = _time_arm(sweep, arm, trainer, device_batches, source, steps, tiny)
            recompiled = trainer.graphs() - before
            sweep.visits.append(Visit(arm, block, cell, window.rounded(), recompiled))
        return sweep.probes[cell]

    result = run_guarded(sweep, cell, work)
    if result.status != "ok":
        sweep.mark_failed(cell, result)


def _time_arm(
    sweep: SweepState,
    arm: str,
    trainer: Trainer,
    device_batches: Sequence[Batch],
    source: DataSource,
    steps: int,
    tiny: bool,
) -> TimedWindow:
    """One window of one arm; a tiny row takes one step and no warm-up, or it would take minutes."""
    count = TINY_STEPS if tiny else steps
    if arm == RESIDENT:
        return time_window(
            trainer, cycle_batches(device_batches), count, 0 if tiny else 1, sweep.clock
        )
    batches = full_batches(source.loader, source.batch_size)
    return time_window(trainer, batches, count, 0 if tiny else source.warmup, sweep.clock)


# ---- results ----


def fill_session(session: Session, sweep: SweepState) -> None:
    """Everything measured so far, and what follows from it."""
    session.plan = Plan(reasons=tuple(map(Reason, dict.fromkeys(sweep.reasons))))
    session.results |= as_results(summarise(collect_measurement(sweep)))


def collect_measurement(sweep: SweepState) -> Measurement:
    """The sweep's records as one frozen value."""
    backend = sweep.backend
    precisions = [p for p in sweep.options.precisions if not backend.refusal(p)]
    return Measurement(
        backend.name,
        backend.device,
        backend.device_name,
        sweep.options.recipe,
        {precision: backend.flags(precision) for precision in precisions},
        [_collect_cell(sweep, cell, probe) for cell, probe in sweep.probes.items()],
        [source.describe() for source in sweep.sources.values()],
        sweep.largest,
        sweep.visits,
    )


def _collect_cell(sweep: SweepState, cell: Cell, probe: ProbeResult) -> ProbedCell:
    base = sweep.probes.get(Cell(cell.model, cell.batch_size, "fp32"))
    reference = base.losses if base else sweep.references.get(cell.source, ())
    floor = sweep.floors.get(cell.source, ())
    return ProbedCell(cell, probe, reference, floor, sweep.is_tiny(cell))
