"""How many rows, repeats and steps fit the time budget, from the pace that the probes measured.

Steps are cut first, then repeats down to three, because the interval comes from them; where even
that does not fit, rows are dropped from the end of what was asked for, so that what stands first on
the command line is kept. Every cut is a reason that the session prints. A budget too short for a
single row is refused with the seconds that one row needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_profiler.precision.cell import Cell
from pipeline_profiler.precision.data_source import LOADER_ONLY_BATCHES, LOADER_ONLY_S, DataSource
from pipeline_profiler.precision.plan import SweepOptions, SweepState
from pipeline_profiler.precision.table import ProbeResult
from pipeline_profiler.profiling.record.session import ProfileError

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
    last = live[-1]
    return least_s(sweep, [*live, last]) + train_again_s(sweep.probes[last]) <= left_s(sweep)


def train_again_s(probe: ProbeResult) -> float:
    """Seconds of the first losses once more: without what a process pays once."""
    return probe.setup_s + probe.step_s * (1 + len(probe.losses))


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
