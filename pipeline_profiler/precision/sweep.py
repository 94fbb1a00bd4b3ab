"""The precision sweep: every cell probed once, then timed in rounds, in one run.

A round times a window of each cell on preloaded batches, in random order, and passages through the
loader. A cell is left out once its interval is narrow enough. A cell that fails becomes a row. The
largest batch is found by trials of two steps, doubling, then bisection.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

from dataset_preflight.foundation.cores import usable_cores
from pipeline_profiler.precision.data_source import DataSource
from pipeline_profiler.precision.estimate import (
    HALF_WIDTH,
    LOOKS,
    MIN_WINDOWS,
    is_settled,
    paired_ratio,
    relative_half_width,
    window_mean,
)
from pipeline_profiler.precision.image_data import EPOCHS_IN_FLIGHT
from pipeline_profiler.precision.plan import (
    ModelJob,
    ReportProgress,
    SweepOptions,
    SweepState,
    check_options,
    plan_cells,
    run_guarded,
)
from pipeline_profiler.precision.summary import as_results, summarise, time_cells
from pipeline_profiler.precision.table import (
    CellWindow,
    LargestBatch,
    Measurement,
    ProbedCell,
    ProbeResult,
)
from pipeline_profiler.precision.trainer import (
    LEAD_IN,
    Backend,
    Cell,
    Trainer,
    check_outputs,
    time_window,
    timed_steps,
    train_steps,
    warm_up,
)
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.watchdog import Guard, kept_when_stopped
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.session import ProfileError, Session, utc_now
from pipeline_profiler.profiling.record.stages import Clock

WARM_STEPS = 2
PROBE_SHARE = 0.25  # of the budget: the first visit of one row ends there, after two steps at least
PASSAGE_SHARE = 0.3  # of the time left: whole epochs are taken where they fit in it
LARGEST_SHARE = 0.2  # of the budget: left for the search of the largest batch where there is one
MARGIN = 0.9  # of the time left is planned with: a busy machine makes later steps slower
MAX_PAUSE_S = 2.0  # until the workers have filled their queues


def _window_steps(sweep: SweepState, cell: Cell) -> int:
    return sweep.options.steps or timed_steps(sweep.probes[cell].step_s)


def window_s(sweep: SweepState, cell: Cell) -> float:
    """Seconds of one window with its new trainer."""
    probe = sweep.probes[cell]
    return probe.setup_s + (WARM_STEPS + LEAD_IN + _window_steps(sweep, cell)) * probe.step_s


def least_s(sweep: SweepState, cells: Sequence[Cell]) -> float:
    """Seconds that these cells take in the fewest rounds."""
    rounds = min(MIN_WINDOWS, sweep.options.rounds)
    return rounds * (sum(window_s(sweep, cell) for cell in cells) + passages_s(sweep, cells))


def passages_s(sweep: SweepState, cells: Sequence[Cell]) -> float:
    """Seconds of one passage of each cell and of each loader alone."""
    return sum(feed.cost_s(sweep) for feed in feeds_of(sweep, cells))


def left_s(sweep: SweepState) -> float:
    """Seconds left for the rounds, a margin and the search of the largest batch taken off."""
    return MARGIN * (_end_s(sweep) - sweep.spent_s())


def has_room(sweep: SweepState) -> bool:
    """Whether another cell can be probed and timed beside those that were probed already."""
    live = sweep.live_cells()
    if not live:
        return left_s(sweep) > 0
    # the next cell costs about as much as the last: nothing else is known of it
    last, probe = live[-1], sweep.probes[live[-1]]
    probe_s = probe.setup_s + probe.step_s * (1 + len(probe.losses))
    return least_s(sweep, [*live, last]) + probe_s <= left_s(sweep)


def drop_excess(sweep: SweepState) -> None:
    """Drop the cells that do not fit the time left; ProfileError where not even the first does."""
    live = sweep.live_cells()
    while live and least_s(sweep, live) > left_s(sweep):
        if len(live) == 1:
            raise ProfileError(_explain_least(sweep, live[0]))
        drop_cell(sweep, live.pop())


def drop_cell(sweep: SweepState, cell: Cell) -> None:
    """No time for this one: what was learnt of it, losses and memory, stays in its row."""
    advice = "give --seconds for more, or fewer --batch-sizes and --precisions."
    sentence = f"dropped to end within {sweep.options.seconds:.0f} s: {advice}"
    sweep.mark_failed(cell, ProbeResult("dropped", sentence))


def _explain_least(sweep: SweepState, cell: Cell) -> str:
    options = sweep.options
    took = options.seconds - left_s(sweep) / MARGIN
    needed = took + least_s(sweep, [cell]) / MARGIN
    return (
        f"{options.seconds:.0f} s are too short: {cell.label} alone needs about "
        f"{math.ceil(needed)} s here ({took:.0f} s of start-up and first steps, then "
        f"{min(MIN_WINDOWS, options.rounds)} rounds at {sweep.probes[cell].step_s:.2g} s a step). "
        f"Give --seconds {math.ceil(1.2 * needed)}, or a smaller batch."
    )


def choose_passages(sweep: SweepState) -> None:
    """Take whole epochs where they fit in the time left, those of few batches first."""
    live = sweep.live_cells()
    known = [(each.epoch_batches, each) for each in sweep.sources.values() if each.epoch_batches]
    for batches, source in sorted(known, key=itemgetter(0)):
        is_short = batches <= source.in_flight + source.passage_batches
        source.whole_epochs = True
        too_long = MIN_WINDOWS * passages_s(sweep, live) > PASSAGE_SHARE * left_s(sweep)
        source.whole_epochs = is_short or not too_long
        if batches < EPOCHS_IN_FLIGHT * source.in_flight:
            sweep.reasons.append(
                f"batch {source.batch_size}: an epoch has {batches} batches and "
                f"{source.in_flight} are in flight, so its start decides the rate with the loader."
            )
    for source in sweep.further:
        source.whole_epochs = sweep.sources[source.model, source.batch_size].whole_epochs


PACE_STEPS = 4


def probe_cell(sweep: SweepState, cell: Cell) -> ProbeResult:
    """Visit a cell for the first time; raises ProfileError where it cannot be trained."""
    if refusal := sweep.backend.refusal(cell.precision):
        raise ProfileError(refusal)
    source = sweep.open_source(cell)
    if not sweep.probes:
        # the first optimizer of a process imports for seconds: no later visit pays that again
        sweep.make_trainer(cell)
    begin = sweep.clock()
    trainer = sweep.make_trainer(cell)
    setup_s = (sweep.clock() - begin) / 1e9
    # before a step can fail on the device; a loss of the user's own checks its outputs itself
    shape = trainer.outputs(source.cached_batches[0])
    if shape is not None:
        check_outputs(shape, source.batch_size, source.labels)
    trainer.count_correct()
    wanted = sweep.options.parity_steps
    limit_s = PROBE_SHARE * sweep.options.seconds
    first_s, step_s = train_steps(trainer, source.epochs(), wanted, limit_s)
    losses, skipped, accuracies = trainer.losses(), trainer.skipped(), trainer.accuracies()
    if 0 < len(losses) < wanted:
        sweep.reasons.append(
            f"{cell.label}: the losses of {len(losses)} steps instead of {wanted}, because a step "
            f"takes {step_s:.2g} s."
        )
    preloaded = itertools.cycle(source.cached_batches)  # the pace without the loader
    _, step_s = train_steps(trainer, preloaded, PACE_STEPS, limit_s)
    if losses and math.isnan(losses[0]):
        advice = "check the inputs for NaN and the loss for a logarithm of 0."
        if cell.precision == "fp16":
            advice = "FP16 overflows above 65,504: scale the inputs down, or use bf16."
        raise ProfileError(f"the loss is NaN at step 0: {advice}")
    # memory comes after the losses: its extra step must not change them
    peak = trainer.peak_memory(trainer.place(source.cached_batches[0]))
    return ProbeResult(
        peak=peak,
        losses=losses,
        accuracies=accuracies,
        skipped=len(skipped),
        scale=trainer.scale(),
        step_s=step_s,
        setup_s=setup_s + max(0.0, first_s - step_s),
    )


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
        sweep.announce(f"largest batch of {cell.model} {cell.precision}")
        sweep.largest.append(_search_cell(sweep, cell))


def _search_cell(sweep: SweepState, cell: Cell) -> LargestBatch:
    batch = next(
        source.cached_batches[0]
        for (model, _), source in sweep.sources.items()
        if model == cell.model and source.cached_batches
    )
    trials: list[int] = []
    trouble: list[str] = []

    def train(tried: Cell) -> None:
        trainer = sweep.make_trainer(tried)
        device_batch = trainer.place(sweep.backend.resized(batch, tried.batch_size))
        train_steps(trainer, itertools.repeat(device_batch), TRIAL_STEPS)

    def fits(size: int) -> bool:
        if sweep.is_over():
            seconds = f"{sweep.options.seconds:.0f} s"
            trouble.append(f"the search ended at the {seconds}: it is at least this")
            return False
        trials.append(size)
        tried = replace(cell, batch_size=size)
        after = run_guarded(sweep, tried, partial(train, tried))
        # another failure counts as "does not fit", or the search would not end; it is reported
        if after.status not in ("ok", "oom"):
            trouble.append(f"at {size}: {after.sentence}")
        return after.status == "ok"

    limit, kind = sweep.options.largest_limit, (cell.model, cell.precision)
    live = sweep.live_cells()
    trained = [each.batch_size for each in live if (each.model, each.precision) == kind]
    size = bisect_largest(fits, max(trained, default=1), limit)
    return LargestBatch(cell.model, cell.precision, size, size == limit, trials, trouble[:1])


def bisect_largest(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """Return the largest batch size up to `limit` that `fits` (monotone), to 1 in 64; or 0."""
    # invariant: `low` fits (or is 0) and, once the doubling has ended, `high` does not
    low, high = 0, min(max(1, start), limit)
    # doubling first: the answer may be 1 or 65,536, and a trial above it costs no more than one
    # below, because memory is refused before the step runs
    while low < high and fits(high):
        low, high = high, min(2 * high, limit)
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
    session = Session(created=utc_now())
    # now: the memory that is free at the start
    session.environment = environment.describe(gpu=backend.device == "cuda")
    # what ends the process saves the session, which must hold the rows by then
    if rescue := guard.rescue:

        def fill_and_rescue(session: Session) -> None:
            fill_session(session, sweep)
            rescue(session)

        guard.rescue = fill_and_rescue
    try:
        with kept_when_stopped(session, guard):
            _run_sweep(sweep)
    finally:
        fill_session(session, sweep)
        for source in (*sweep.sources.values(), *sweep.further):
            source.close()
    return session


def _run_sweep(sweep: SweepState) -> None:
    cells, reasons = plan_cells(sweep.backend, sweep.jobs, sweep.options)
    sweep.reasons += reasons
    for number, cell in enumerate(cells):
        # as long as the budget has room for what is known to follow
        if number and not has_room(sweep):
            for left in cells[number:]:
                drop_cell(sweep, left)
            break
        sweep.announce(f"probing {cell.label}")
        sweep.probes[cell] = run_guarded(sweep, cell, partial(probe_cell, sweep, cell))
    drop_excess(sweep)
    choose_passages(sweep)
    _run_rounds(sweep)
    if sweep.searches_largest:
        search_largest(sweep, cells)
    total = math.ceil(sweep.options.seconds)
    sweep.progress(total, total, "done")


def _run_rounds(sweep: SweepState) -> None:
    """Time windows and passages until their intervals are narrow, or the time is over."""
    rng = random.Random(sweep.options.recipe.seed)
    for number in range(sweep.options.rounds):
        cells, feeds = due_cells(sweep, number), due_feeds(sweep, number)
        if not cells and not feeds:
            return
        begin = sweep.spent_s()
        # a fixed order would give each cell the heat that its neighbour leaves behind
        rng.shuffle(cells)
        rng.shuffle(feeds)
        for cell in cells:
            if not number and sweep.is_over():
                drop_cell(sweep, cell)
            elif _fits(sweep, number, window_s(sweep, cell)):
                sweep.announce(f"round {number + 1}: {cell.label}")
                _time_window(sweep, cell, number)
        for feed in itertools.chain(feeds, _fill_gap(sweep, begin, cells, rng)):
            if feed in feeds_of(sweep) and _fits(sweep, number, feed.cost_s(sweep)):
                sweep.announce(f"round {number + 1}: {feed.label}")
                _time_passage(sweep, feed, number)
        if sweep.spent_s() > _end_s(sweep):
            sweep.reasons.append(
                f"stopped in round {number + 1} of {sweep.options.rounds} at the time budget; "
                "give --seconds for narrower intervals."
            )
            return


def _end_s(sweep: SweepState) -> float:
    """Seconds after which no round begins."""
    share = LARGEST_SHARE if sweep.searches_largest else 0.0
    return (1 - share) * sweep.options.seconds


def _fits(sweep: SweepState, number: int, cost_s: float) -> bool:
    """Whether there is time; the first rounds were planned for and may use all of it."""
    if number < MIN_WINDOWS:
        return not sweep.is_over()
    return sweep.spent_s() + cost_s <= _end_s(sweep)


def due_cells(sweep: SweepState, number: int) -> list[Cell]:
    """The cells whose interval is too wide, each with the FP32 cell that it is compared with."""
    measurement = collect_measurement(sweep)
    medians = {cell: measurement.medians_by_round(cell) for cell in sweep.live_cells()}
    bases = {cell.source: cell for cell in medians if cell.precision == "fp32"}
    due = set()
    for cell, by_round in medians.items():
        base = bases.get(cell.source, cell)
        if number < MIN_WINDOWS or not _is_narrow(by_round, medians[base]):
            due |= {cell, base}
    return [cell for cell in medians if cell in due]


def _is_narrow(by_round: dict[int, float], base: dict[int, float]) -> bool:
    """Whether the cell's interval, and that of its ratio to FP32, were narrow at some look."""
    for look in LOOKS:
        rounds = sorted(by_round)[:look]
        if len(rounds) < look:
            return False
        seen = {number: by_round[number] for number in rounds}
        ratio = paired_ratio(base, seen)
        mean = window_mean(list(seen.values()))
        if is_settled(mean, look) and (ratio is None or is_settled(ratio, look)):
            return True
    return False


@dataclass(frozen=True)
class Feed:
    """A data source with the cell that trains on it; without one the loader is alone."""

    source: DataSource
    cell: Cell | None = None

    @property
    def label(self) -> str:
        """For progress lines."""
        size = self.source.batch_size
        return f"{self.cell.label} with the loader" if self.cell else f"loader alone x{size}"

    def cost_s(self, sweep: SweepState) -> float:
        """Seconds of a passage."""
        source, batch_s, setup_s = self.source, self.source.batch_s, 0.0
        if self.cell:
            probe = sweep.probes[self.cell]
            # workers load while the step runs, so the slower one sets the pace; without workers the
            # loader runs between the steps and both times add up
            batch_s = max(probe.step_s, batch_s) if source.workers else probe.step_s + batch_s
            setup_s = probe.setup_s + WARM_STEPS * probe.step_s
        untimed = 0 if source.whole_epochs else source.in_flight
        return setup_s + source.restart_s + (untimed + source.passage_batches) * batch_s


def feeds_of(sweep: SweepState, cells: Sequence[Cell] | None = None) -> list[Feed]:
    """The loaders of the cells (all live ones) alone, by number of workers, then the cells."""
    cells = sweep.live_cells() if cells is None else cells
    opened = {cell.source for cell in cells}
    alone = [sweep.sources[key] for key in sweep.sources if key in opened]
    alone += [each for each in sweep.further if (each.model, each.batch_size) in opened]
    sound = [Feed(source) for source in alone if not source.problem]
    return sound + [Feed(sweep.sources[cell.source], cell) for cell in cells]


def due_feeds(sweep: SweepState, number: int) -> list[Feed]:
    """The passages whose interval is too wide; after the first rounds in every other round."""
    feeds = feeds_of(sweep)
    if number < MIN_WINDOWS:
        return feeds
    if number % 2:
        return []
    measurement = collect_measurement(sweep)
    timings = time_cells(measurement)

    def is_wide(feed: Feed) -> bool:
        alone = measurement.batch_times(feed.source.describe(), None)
        times = timings[feed.cell].fed if feed.cell else alone
        return relative_half_width(window_mean(times)) > HALF_WIDTH

    return [feed for feed in feeds if is_wide(feed)]


def _fill_gap(
    sweep: SweepState, begin_s: float, cells: Sequence[Cell], rng: random.Random
) -> Iterator[Feed]:
    """Passages in random order until two windows of a cell lie `gap_s` apart."""
    while cells and sweep.spent_s() - begin_s < sweep.options.gap_s:
        left = _end_s(sweep) - sweep.spent_s()
        feeds = [feed for feed in feeds_of(sweep) if feed.cost_s(sweep) < left]
        if not feeds:
            return
        yield rng.choice(feeds)


def _time_window(sweep: SweepState, cell: Cell, number: int) -> None:
    """One window of the step on preloaded batches, on a new trainer: a trainer has a pace too."""

    def work() -> None:
        source, trainer = sweep.open_source(cell), _warm_trainer(sweep, cell)
        begin_s = round(sweep.spent_s(), 3)
        batches = itertools.cycle([trainer.place(batch) for batch in source.cached_batches])
        window = time_window(trainer, batches, _window_steps(sweep, cell), WARM_STEPS)
        sweep.windows.append(CellWindow(cell, number, begin_s, window))

    _guard_cells(sweep, [cell], work)


def _time_passage(sweep: SweepState, feed: Feed, number: int) -> None:
    """One passage through the loader, then a pause until the workers are idle again."""
    source, cell = feed.source, feed.cell
    # a loader that fails alone ends all cells of its source
    key = source.model, source.batch_size
    cells = [cell] if cell else [each for each in sweep.live_cells() if each.source == key]

    def work() -> None:
        trainer = Trainer("cpu", sweep.clock) if cell is None else _warm_trainer(sweep, cell)
        if cell is not None:
            warm_up(trainer, itertools.cycle(source.cached_batches), WARM_STEPS)
        sweep.passages.append(source.time_passage(trainer, cell, number, sweep.began))

    _guard_cells(sweep, cells, work)
    if not source.whole_epochs and source.workers:
        time.sleep(min(MAX_PAUSE_S, source.in_flight * source.batch_s))


def _warm_trainer(sweep: SweepState, cell: Cell) -> Trainer:
    """A new trainer at the loss scale that the probe found."""
    trainer = sweep.make_trainer(cell)
    if (scale := sweep.probes[cell].scale) is not None:
        trainer.start_at(scale)
    return trainer


def _guard_cells(sweep: SweepState, cells: Sequence[Cell], work: Callable[[], None]) -> None:
    result = run_guarded(sweep, cells[0], work)
    if result.status != "ok":
        for cell in cells:
            sweep.mark_failed(cell, result)


def fill_session(session: Session, sweep: SweepState) -> None:
    """Everything measured so far, and what follows from it."""
    session.plan = Plan(reasons=tuple(dict.fromkeys(sweep.reasons)))
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
        [ProbedCell(cell, probe) for cell, probe in sweep.probes.items()],
        [source.describe() for source in sweep.sources.values()],
        sweep.largest,
        sweep.windows,
        sweep.passages,
        usable_cores(),
    )
