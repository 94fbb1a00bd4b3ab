"""The precision sweep: every cell probed once, then timed in interleaved blocks, in one run.

Each repeat visits all cells in random order and times the step with preloaded batches, then with
the loader. A cell that fails becomes a row. The largest batch is found by trials of two steps,
doubling, then bisection.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline_profiler.precision.data_source import LOADER_ONLY_BATCHES, LOADER_ONLY_S, DataSource
from pipeline_profiler.precision.plan import (
    ModelJob,
    ReportProgress,
    SweepOptions,
    SweepState,
    check_options,
    plan_cells,
    run_guarded,
)
from pipeline_profiler.precision.summary import as_results, summarise
from pipeline_profiler.precision.table import (
    LargestBatch,
    Measurement,
    ProbedCell,
    ProbeResult,
    Visit,
)
from pipeline_profiler.precision.trainer import (
    RESIDENT,
    WARM,
    Backend,
    Batch,
    Cell,
    Trainer,
    full_batches,
    label_problem,
    shape_problem,
    time_window,
    train_steps,
)
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.stopping import Guard, StoppedError, kept_when_stopped
from pipeline_profiler.profiling.record.plan import Plan, Reason
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.profiling.record.stages import Clock

# Steps are cut first, then repeats down to three, because the interval comes from them, then the
# last rows of the command line. Every cut is a reason that the session prints.

TINY_STEPS, TINY_REPEATS = 1, 3  # a step of FP16 on a CPU takes seconds
FEWEST_REPEATS = 3  # below three an interval is a guess
WARM_STEPS = 2
PROBE_SHARE = 0.25  # of the budget: the first visit of one row ends there, after two steps at least
LARGEST_SHARE = 0.2  # of the budget: kept for the search of the largest batch where there is one
MARGIN = 0.9  # of the time left is planned with: a busy machine makes later steps slower


@dataclass(frozen=True)
class Cost:
    """Seconds: for each timed step of both arms, and fixed for each block."""

    once: float
    fixed: float

    def of(self, repeats: int, steps: int) -> float:
        """Seconds of so many blocks."""
        return repeats * (self.fixed + steps * self.once)


def visit_cost(sweep: SweepState, cell: Cell) -> Cost:
    """What one block spends on one cell; a tiny one takes a fixed number of steps."""
    probe, source = sweep.probes[cell], sweep.sources[cell.source]
    # workers load while the step runs, so the slower one sets the pace; without workers the
    # loader runs between the steps and both times add up
    parallel = max(probe.step_s, source.batch_s)
    fed = parallel if source.workers else probe.step_s + source.batch_s
    begin = probe.setup_s + source.restart_s
    if sweep.is_tiny(cell):
        return Cost(0.0, begin + (1 + TINY_STEPS) * probe.step_s + TINY_STEPS * fed)
    warm = (WARM_STEPS + 1) * probe.step_s + source.warmup * fed
    return Cost(probe.step_s + fed, begin + warm)


def loader_cost(source: DataSource) -> float:
    """Seconds of one pass over the loader with no step beside it."""
    counted = min(LOADER_ONLY_BATCHES * source.batch_s, LOADER_ONLY_S + source.batch_s)
    return source.restart_s + source.warmup * source.batch_s + counted


def blocks_cost(sweep: SweepState, cells: Sequence[Cell]) -> Cost:
    """Seconds of one block over all cells, the tiny ones as if they were in every block."""
    costs = [visit_cost(sweep, cell) for cell in cells]
    passes = sum(loader_cost(sweep.sources[key]) for key in {cell.source for cell in cells})
    return Cost(sum(c.once for c in costs), passes + sum(c.fixed for c in costs))


def least_s(sweep: SweepState, cells: Sequence[Cell]) -> float:
    """Seconds that these cells take with the fewest repeats of the fewest steps."""
    return blocks_cost(sweep, cells).of(*_fewest(sweep.options))


def _fewest(options: SweepOptions) -> tuple[int, int]:
    """The repeats and steps that the budget leaves at least."""
    return min(FEWEST_REPEATS, options.repeats), min(options.fewest_steps, options.steps)


def left_s(sweep: SweepState) -> float:
    """Seconds left for the blocks, a margin and the search of the largest batch taken off."""
    options = sweep.options
    kept = LARGEST_SHARE * options.seconds if sweep.searches_largest else 0.0
    return MARGIN * (options.seconds - kept - sweep.spent_s())


def has_room(sweep: SweepState) -> bool:
    """Whether another cell can be probed and timed beside those that were probed already."""
    live = sweep.live_cells()
    if not live:
        return left_s(sweep) > 0
    # the next cell costs about as much as the last: nothing else is known of it
    last, probe = live[-1], sweep.probes[live[-1]]
    probe_s = probe.setup_s + probe.step_s * (1 + len(probe.losses))
    return least_s(sweep, [*live, last]) + probe_s <= left_s(sweep)


def drop_excess(sweep: SweepState) -> list[Cell]:
    """The cells that fit the time left; ProfileError where not even the first does."""
    live = sweep.live_cells()
    while live and least_s(sweep, live) > left_s(sweep):
        if len(live) == 1:
            raise ProfileError(_explain_least(sweep, live[0]))
        drop_cell(sweep, live.pop())
    return live


def drop_cell(sweep: SweepState, cell: Cell) -> None:
    """No time for this one: what was learnt of it, losses and memory, stays in its row."""
    sentence = (
        f"dropped to end within {sweep.options.seconds:.0f} s: give --seconds for more, or fewer "
        "--batch-sizes and --precisions."
    )
    sweep.mark_failed(cell, ProbeResult("dropped", sentence))


def _explain_least(sweep: SweepState, cell: Cell) -> str:
    options = sweep.options
    repeats, steps = _fewest(options)
    took = options.seconds - left_s(sweep) / MARGIN
    needed = took + least_s(sweep, [cell]) / MARGIN
    return (
        f"{options.seconds:.0f} s are too short: {cell.label} alone needs about "
        f"{math.ceil(needed)} s here ({took:.0f} s of start-up and first steps, then {repeats} "
        f"repeats of {steps} steps at {sweep.probes[cell].step_s:.2g} s). Give --seconds "
        f"{math.ceil(1.2 * needed)}, or a smaller batch."
    )


def fit_to_budget(sweep: SweepState, live: Sequence[Cell]) -> tuple[int, int]:
    """(timed steps per window, repeats) that fit the time left; adds the reasons for cuts."""
    options, left = sweep.options, left_s(sweep)
    cost = blocks_cost(sweep, [cell for cell in live if not sweep.is_tiny(cell)])
    # tiny cells have a number of steps and blocks of their own: they come off the top
    tiny = [cell for cell in live if sweep.is_tiny(cell)]
    left -= blocks_cost(sweep, tiny).of(min(TINY_REPEATS, options.repeats), 0)
    fewest = min(options.fewest_steps, options.steps)
    repeats = options.repeats
    while repeats > FEWEST_REPEATS and cost.of(repeats, fewest) > left:
        repeats -= 1
    # solved for the steps: repeats * (fixed + steps * once) = left
    affordable = int((left / repeats - cost.fixed) / cost.once) if cost.once else options.steps
    steps = max(min(options.steps, affordable), fewest)
    end = f"all rows must end within {options.seconds:.0f} s"
    if repeats < options.repeats:
        sweep.reasons.append(
            f"{repeats} repeats instead of {options.repeats}: {end}; give --seconds for more."
        )
    if steps < options.steps:
        sweep.reasons.append(f"{steps} timed steps per window instead of {options.steps}: {end}.")
    return steps, repeats


def explain_start(sweep: SweepState) -> None:
    """A reason: what of the budget went by before the first timed window."""
    loaders = sum(source.open_s for source in sweep.sources.values())
    models = max(0.0, sum(probe.seconds for probe in sweep.probes.values()) - loaders)
    rest = max(0.0, sweep.spent_s() - loaders - models)
    sweep.reasons.append(
        f"start-up took {sweep.spent_s():.1f} s of the {sweep.options.seconds:.0f} s: loaders "
        f"opened and read {loaders:.1f} s, models made and their first steps {models:.1f} s, "
        f"imports and the losses of second runs {rest:.1f} s."
    )


TINY_PARITY = 3  # FP16 on a CPU takes seconds per step


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
    wanted = sweep.options.parity_steps
    wanted = min(TINY_PARITY, wanted) if sweep.is_tiny(cell) else wanted
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
        # before anything was learnt
        advice = (
            "FP16 overflows above 65,504: scale the inputs down, or use bf16."
            if cell.precision == "fp16"
            else "check the inputs for NaN and the loss for a logarithm of 0."
        )
        return ProbeResult("refused", f"the loss is NaN at step 0: {advice}")
    # memory comes after the losses: its extra step must not change them
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
    """Return what is wrong with outputs or labels, before a step can fail on the device."""
    shape = trainer.outputs(source.cached_batches[0])
    if shape is None:  # a loss of the user's own knows better
        return ""
    wrong = shape_problem(shape, source.batch_size)
    return wrong or (label_problem(*source.labels, shape[1]) if source.labels else "")


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

    def train(size: int) -> ProbeResult:
        trainer = sweep.make_trainer(replace(cell, batch_size=size))
        device_batch = trainer.place(sweep.backend.resized(batch, size))
        train_steps(trainer, [device_batch], TRIAL_STEPS, sweep.clock)
        return ProbeResult()

    def fits(size: int) -> bool:
        if sweep.is_over():
            trouble.append(
                f"the search ended at the {sweep.options.seconds:.0f} s: it is at least this"
            )
            return False
        trials.append(size)
        after = run_guarded(sweep, replace(cell, batch_size=size), lambda: train(size))
        # another failure counts as "does not fit", or the search would not end; it is reported
        if after.status not in ("ok", "oom"):
            trouble.append(f"at {size}: {after.sentence}")
        return after.status == "ok"

    limit = sweep.options.largest_limit
    trained = [
        probed.batch_size
        for probed in sweep.live_cells()
        if (probed.model, probed.precision) == (cell.model, cell.precision)
    ]
    size = bisect_largest(fits, max(trained, default=1), limit)
    return LargestBatch(cell.model, cell.precision, size, size == limit, trials, trouble[:1])


def bisect_largest(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """Return the largest batch size up to `limit` that `fits` (monotone), to 1 in 64; or 0."""
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
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def measure_precisions(
    backend: Backend,
    jobs: Sequence[ModelJob],
    options: SweepOptions,
    clock: Clock = time.perf_counter_ns,
    progress: ReportProgress = lambda done, total, text: None,
    notes: Sequence[str] = (),
    guard: Guard | None = None,
    began: int | None = None,
) -> Session:
    """Run the sweep; return a session with verdict "precision".

    `began`: clock at the start of the budget. Raises StoppedError with the partial session, and
    ProfileError for options without a row.
    """
    check_options(options)
    guard = guard or Guard()
    began = clock() if began is None else began
    sweep = SweepState(backend, jobs, options, clock, progress, began=began, guard=guard)
    sweep.reasons += notes
    if options.memory_limit is not None:
        sweep.reasons.append(backend.limit_memory(options.memory_limit))
    session = Session(created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    # now: the memory that is free at the start
    session.environment = environment.describe(gpu=backend.device == "cuda")
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
    if rescue := guard.rescue:

        def fill_and_rescue(session: Session) -> None:
            fill_session(session, sweep)
            rescue(session)

        guard.rescue = fill_and_rescue


def _run_sweep(sweep: SweepState) -> None:
    options = sweep.options
    cells, reasons = plan_cells(sweep.backend, sweep.jobs, options)
    sweep.reasons += reasons
    sweep.total = len(cells) * (1 + options.repeats)
    _probe_cells(sweep, cells)
    live = drop_excess(sweep)
    explain_start(sweep)
    steps, repeats = fit_to_budget(sweep, live)
    sweep.done, sweep.total = len(cells), len(cells) + repeats * len(live)
    _time_blocks(sweep, steps, repeats)
    if sweep.searches_largest:
        search_largest(sweep, cells)
    sweep.progress(sweep.total, sweep.total, "done")


def _probe_cells(sweep: SweepState, cells: Sequence[Cell]) -> None:
    """Every cell once, as long as the budget has room for what is known to follow."""
    for number, cell in enumerate(cells):
        if number and not has_room(sweep):
            for left in cells[number:]:
                drop_cell(sweep, left)
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
                drop_cell(sweep, cell)
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
            batches: Iterator[Batch] = itertools.cycle(device_batches)
            if arm == WARM:
                batches = full_batches(source.loader, source.batch_size)
            warmup = source.warmup if arm == WARM else 1
            # a tiny row takes one step and no warm-up, or it would take minutes
            count, warmup = (TINY_STEPS, 0) if tiny else (steps, warmup)
            window = time_window(trainer, batches, count, warmup, sweep.clock)
            recompiled = trainer.graphs() - before
            sweep.visits.append(Visit(arm, block, cell, window.rounded(), recompiled))
        return sweep.probes[cell]

    result = run_guarded(sweep, cell, work)
    if result.status != "ok":
        sweep.mark_failed(cell, result)


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
        [ProbedCell(cell, probe, sweep.is_tiny(cell)) for cell, probe in sweep.probes.items()],
        [source.describe() for source in sweep.sources.values()],
        sweep.largest,
        sweep.visits,
    )
