"""The precision sweep: every cell probed once, then timed in interleaved blocks, in one run.

Probe: the batch is checked, the first k losses are recorded from one seed (loss parity), memory is
read, the pace is learnt. Blocks: each repeat visits all cells in random order, and each visit
times arm D (batches in hand) and arm W (the loader attached) right after each other, so that heat
and neighbours hit all rows alike and ratios are taken inside a block. A cell that runs out of
memory, or cannot be trained at all, becomes a row that says so; the sweep goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pipeline_profiler.measure import environment
from pipeline_profiler.measure.schedule import StoppedError
from pipeline_profiler.precision import rows
from pipeline_profiler.precision.largest_batch import find_largest
from pipeline_profiler.precision.plan import Job, Options, cells, is_tiny, refuse
from pipeline_profiler.precision.probe import (
    Probe,
    Progress,
    Sweep,
    add_references,
    feed_of,
    guarded,
    make_trainer,
    probe_cell,
    train,
)
from pipeline_profiler.precision.trainer import Backend, Cell, cycled, full_batches, timed
from pipeline_profiler.record.plan import Plan, Reason
from pipeline_profiler.record.session import Session
from pipeline_profiler.record.stages import Clock

TINY_STEPS, TINY_REPEATS = 1, 3
FEWEST_STEPS = 3
WARM_STEPS = 2
FEWEST_BLOCKS = 3  # below three an interval is a guess


def _quiet(done: int, total: int, text: str) -> None:
    """Nobody watches."""


def measure(
    backend: Backend,
    jobs: Sequence[Job],
    options: Options,
    clock: Clock = time.perf_counter_ns,
    progress: Progress = _quiet,
    notes: Sequence[str] = (),
) -> Session:
    """Run the sweep; returns a session whose results are of verdict "precision".

    Raises StoppedError with the partial session when it is interrupted, ProfileError for options
    that no row could be made of.
    """
    refuse(options)
    sweep = Sweep(backend, jobs, options, clock, progress, began=clock())
    sweep.session.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sweep.reasons += notes
    try:
        _measure(sweep)
    except KeyboardInterrupt:
        sweep.session.partial = True
        sweep.session.notes.append("Interrupted: this session is partial.")
        raise StoppedError("Interrupted.", finished(sweep), interrupted=True) from None
    finally:
        for feed in sweep.feeds.values():
            feed.close()
    return finished(sweep)


# --------------------------------------------------------------------------------- planning


def steps_for(sweep: Sweep, live: list[Cell]) -> tuple[int, int]:
    """(timed steps a window, repeats) that fit the time left; reasons are kept."""
    options = sweep.options
    left = max(options.seconds - sweep.spent_s(), 0.2 * options.seconds)
    once = fixed = 0.0
    for cell in live:
        probe, feed = sweep.probes[cell], sweep.feeds[cell.model, cell.batch_size]
        fed = max(probe.step_s, feed.batch_s) if feed.workers else probe.step_s + feed.batch_s
        if is_tiny(cell, options, sweep.backend.device):
            left -= min(TINY_REPEATS, options.repeats) * (1 + 2 * TINY_STEPS) * fed
            continue
        once += probe.step_s + fed
        fixed += (WARM_STEPS + 1) * probe.step_s + feed.warmup * fed
    repeats = options.repeats
    while repeats > 3 and repeats * (fixed + FEWEST_STEPS * once) > left:
        repeats -= 1
    affordable = int((left / repeats - fixed) / once) if once else options.steps
    steps = max(min(options.steps, affordable), min(FEWEST_STEPS, options.steps))
    if repeats < options.repeats:
        sweep.reasons.append(
            f"{repeats} repeats instead of {options.repeats}: all rows shall end within "
            f"{options.seconds:.0f} s; give --seconds for more."
        )
    if steps < options.steps:
        sweep.reasons.append(
            f"{steps} timed steps a window instead of {options.steps}: all rows shall end within "
            f"{options.seconds:.0f} s."
        )
    return steps, repeats


# -------------------------------------------------------------------------------- measuring


def _measure(sweep: Sweep) -> None:
    options, backend = sweep.options, sweep.backend
    planned, reasons = cells(backend, sweep.jobs, options)
    sweep.reasons += reasons
    sweep.total = len(planned) * (1 + options.repeats)
    for cell in planned:
        sweep.say(f"probing {cell.label}")
        started = sweep.clock()
        sweep.probes[cell] = probe_cell(sweep, cell)
        sweep.probes[cell].seconds = (sweep.clock() - started) / 1e9
    add_references(sweep)
    live = [c for c in planned if sweep.probes[c].status == "ok"]
    steps, repeats = steps_for(sweep, live)
    sweep.done, sweep.total = len(planned), len(planned) + repeats * len(live)
    _blocks(sweep, live, steps, repeats)
    if options.largest if options.largest is not None else backend.device == "cuda":
        find_largest(sweep, planned)
    sweep.progress(sweep.total, sweep.total, "done")


def _blocks(sweep: Sweep, live: list[Cell], steps: int, repeats: int) -> None:
    """Every live cell once a block, in random order; ends early where time runs out."""
    rng = random.Random(sweep.options.recipe.seed)
    for block in range(repeats):
        if block >= FEWEST_BLOCKS and sweep.spent_s() > sweep.options.seconds:
            sweep.reasons.append(
                f"{block} repeats instead of {repeats}: steps got slower than at first, and the "
                f"{sweep.options.seconds:.0f} s are over."
            )
            return
        order = [c for c in live if sweep.probes[c].status == "ok"]
        if block >= TINY_REPEATS:
            order = [c for c in order if not is_tiny(c, sweep.options, sweep.backend.device)]
        for model, size in dict.fromkeys((c.model, c.batch_size) for c in order):
            sweep.visits.append(sweep.feeds[model, size].alone(block, sweep.clock))
        rng.shuffle(order)
        for cell in order:
            sweep.say(f"block {block + 1} of {repeats}: {cell.label}")
            _visit(sweep, cell, block, steps, rng)


def _visit(sweep: Sweep, cell: Cell, block: int, steps: int, rng: random.Random) -> None:
    """Arms D and W of one cell, in random order, on one freshly made trainer."""

    def work() -> Probe:
        feed = feed_of(sweep, cell.model, cell.batch_size)
        trainer = make_trainer(sweep, cell)
        tiny = is_tiny(cell, sweep.options, sweep.backend.device)
        count = TINY_STEPS if tiny else steps
        found = sweep.probes[cell].scale
        if found is not None:
            trainer.start_at(found)
        placed = [trainer.place(batch) for batch in feed.kept]
        train(trainer, placed, 1 if tiny else WARM_STEPS, sweep.clock)
        for arm in rng.sample("DW", 2):
            before = trainer.graphs()
            if arm == "D":
                window = timed(trainer, cycled(placed), count, 0 if tiny else 1, sweep.clock)
            else:
                batches = full_batches(feed.loader, feed.batch_size)
                window = timed(trainer, batches, count, 0 if tiny else feed.warmup, sweep.clock)
            row = {"arm": arm, "block": block, "cell": asdict(cell)} | asdict(window)
            sweep.visits.append(row | {"recompiled": trainer.graphs() - before})
        return sweep.probes[cell]

    after = guarded(sweep, cell, work)
    if after.status != "ok":
        sweep.probes[cell] = replace(
            sweep.probes[cell], status=after.status, sentence=after.sentence
        )


# ---------------------------------------------------------------------------------- results


def finished(sweep: Sweep) -> Session:
    """The session with everything measured so far, judged."""
    session = sweep.session
    session.environment = environment.describe()
    session.plan = Plan(reasons=tuple(map(Reason, dict.fromkeys(sweep.reasons))))
    recipe = sweep.options.recipe
    raw: dict[str, Any] = {
        "backend": sweep.backend.name,
        "device": sweep.backend.device,
        "device_name": sweep.backend.device_name,
        "recipe": asdict(recipe),
        "flags": {
            p: sweep.backend.flags(p)
            for p in sweep.options.precisions
            if not sweep.backend.refusal(p)
        },
        "cells": [_cell_row(sweep, cell) for cell in sweep.probes],
        "feeds": [feed.as_dict() for feed in sweep.feeds.values()],
        "largest": sweep.largest,
        "visits": [_rounded(visit) for visit in sweep.visits],
    }
    session.results = rows.judge(raw)
    return session


def _cell_row(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    probe = sweep.probes[cell]
    base = sweep.probes.get(Cell(cell.model, cell.batch_size, "fp32"))
    known = base.losses if base else sweep.references.get((cell.model, cell.batch_size), [])
    tiny = is_tiny(cell, sweep.options, sweep.backend.device)
    floor = sweep.floors.get((cell.model, cell.batch_size), [])
    return asdict(cell) | asdict(probe) | {"reference": known, "floor": floor, "tiny": tiny}


def _rounded(visit: dict[str, Any]) -> dict[str, Any]:
    """Microseconds are what the clock is good for, and keep the file small."""
    return {
        k: [round(ms, 3) for ms in v] if k in ("period_ms", "wait_ms") else v
        for k, v in visit.items()
    }
