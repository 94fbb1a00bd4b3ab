"""How many steps and repeats fit the time budget, from the pace that the probes measured.

Repeats are given up last, because the interval comes from them: steps are cut first, and repeats
only where even the fewest steps would not fit. Every cut is a reason that the session prints.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_profiler.precision.cell import Cell
from pipeline_profiler.precision.sweep_state import SweepState

TINY_STEPS, TINY_REPEATS = 1, 3  # a step of FP16 on a CPU takes seconds
FEWEST_STEPS = 3
FEWEST_REPEATS = 3  # below three an interval is a guess
WARM_STEPS = 2
LEAST_SHARE = 0.2  # of the budget: probes that took it all still leave something to measure with


def fit_to_budget(sweep: SweepState, live: Sequence[Cell]) -> tuple[int, int]:
    """(timed steps per window, repeats) that fit the time left; adds the reasons for cuts."""
    options = sweep.options
    left, once, fixed = _costs(sweep, live)
    repeats = options.repeats
    while repeats > FEWEST_REPEATS and repeats * (fixed + FEWEST_STEPS * once) > left:
        repeats -= 1
    # solved for the steps: repeats * (fixed + steps * once) = left
    affordable = int((left / repeats - fixed) / once) if once else options.steps
    steps = max(min(options.steps, affordable), min(FEWEST_STEPS, options.steps))
    _explain_cuts(sweep, steps, repeats)
    return steps, repeats


def _costs(sweep: SweepState, live: Sequence[Cell]) -> tuple[float, float, float]:
    """Seconds: left for ordinary cells, per timed step of all cells, and fixed per block."""
    options = sweep.options
    left = max(options.seconds - sweep.spent_s(), LEAST_SHARE * options.seconds)
    once = fixed = 0.0
    for cell in live:
        probe, source = sweep.probes[cell], sweep.sources[cell.source]
        # workers load while the step runs, so the slower one sets the pace; without workers the
        # loader runs between the steps and both times add up
        parallel = max(probe.step_s, source.batch_s)
        fed = parallel if source.workers else probe.step_s + source.batch_s
        if sweep.is_tiny(cell):
            # both arms and the step before them; their number is fixed, so they come off the top
            left -= min(TINY_REPEATS, options.repeats) * (1 + 2 * TINY_STEPS) * fed
            continue
        once += probe.step_s + fed
        fixed += (WARM_STEPS + 1) * probe.step_s + source.warmup * fed
    return left, once, fixed


def _explain_cuts(sweep: SweepState, steps: int, repeats: int) -> None:
    options = sweep.options
    if repeats < options.repeats:
        sweep.reasons.append(
            f"{repeats} repeats instead of {options.repeats}: all rows must end within "
            f"{options.seconds:.0f} s; give --seconds for more."
        )
    if steps < options.steps:
        sweep.reasons.append(
            f"{steps} timed steps per window instead of {options.steps}: all rows must end within "
            f"{options.seconds:.0f} s."
        )
