"""A run that goes on for days is kept to its last steps; what they replace stays as sums.

Twelve million values are the most that a session file may hold, and a save must stay cheap beside
the training. The sums are enough to say what share of all steps was waiting.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import compress

from pipeline_profiler.record.session import MAIN, Run, SpanTable

MOST_STEPS, KEPT_STEPS = 12_000, 8_000


def copy_run(run: Run) -> Run:
    """A copy that the loop does not write to any more."""
    spans = SpanTable()
    spans.stages = list(run.spans.stages)
    spans.columns = {name: array("q", column) for name, column in run.spans.columns.items()}
    return replace(
        run,
        config=dict(run.config),
        spans=spans,
        batches={name: array("q", column) for name, column in run.batches.items()},
        slow_keys=run.slow_keys[:],
        slow=run.slow[:],
        depths=run.depths[:],
        gc_pauses=run.gc_pauses[:],
        totals=dict(run.totals),
        stacks=dict(run.stacks),
        notes=run.notes[:],
    )


def drop_steps(run: Run, steps: int) -> None:
    """Keep the last steps of a run that has recorded `steps`, once it holds too many."""
    totals = run.totals
    if steps - totals.get("dropped_steps", 0) < MOST_STEPS:
        return
    first = steps - KEPT_STEPS
    _add_sums(run, first)
    spans, batches = run.spans.columns, run.batches
    kept = [batch >= first for batch in spans["batch"]]
    rows = [batch >= first for batch in batches["batch"]]
    run.slow_keys = list(compress(run.slow_keys, rows))
    for table, mask in ((spans, kept), (batches, rows)):
        for name, column in table.items():
            table[name] = array("q", compress(column, mask))
    begin = min(compress(spans["start"], (w == MAIN for w in spans["worker"])), default=0)
    run.gc_pauses = [pause for pause in run.gc_pauses if pause[0] >= begin]
    run.depths = [row for row in run.depths if row[0] >= first]
    totals["dropped_steps"] = first


def _add_sums(run: Run, first: int) -> None:
    """Waiting and training time of the steps that go."""
    before = run.totals.get("dropped_steps", 0)
    for span in run.spans:
        if span.stage in ("wait", "loop", "iter") and before <= span.batch < first:
            name = f"dropped_{span.stage}_ns"
            run.totals[name] = run.totals.get(name, 0) + span.wall_ns
