"""Sessions of several ranks, joined: the rank that others wait for, and whether its loader is why.

Ranks meet in every backward pass, so all have one step period. The last to arrive, by its wait for
data and its own work, is the straggler. Durations are compared step by step, never clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_profiler.profiling.diagnose.intervals import (
    Floats,
    Interval,
    block_interval,
    ratio_of_sums,
)
from pipeline_profiler.profiling.diagnose.window import Ints, Window
from pipeline_profiler.profiling.record.session import ProfileError, Session

LATE = 0.05  # of the step, from which a rank holds the others up: the band of a moderate stall
MEETING = ("backward", "training collective", "optimizer")


@dataclass(frozen=True)
class RankRow:
    """One rank; milliseconds a step."""

    rank: int
    period_ms: float
    wait_ms: float  # inside the loader's next()
    own_ms: float  # its own work before it meets the others
    collective_ms: float  # waits for the last rank
    last: float  # share of the steps in which it arrives last


@dataclass(frozen=True)
class JoinedRanks:
    """The ranks of one job, and how much of its step goes because one of them arrives late."""

    rows: tuple[RankRow, ...]
    late: Interval  # share of the step the others lose to the straggler's lead over their mean
    straggler: int
    by_loader: float  # share of its lateness that is its wait for data


def join_ranks(sessions: Sequence[Session]) -> JoinedRanks:
    """Compare the ranks step by step; ProfileError where they do not belong together."""
    windows = [Window.of(session.runs[0]) for session in sessions if session.runs]
    if len(windows) < len(sessions) or not all(map(len, windows)):
        raise ProfileError("A session without steps is no rank's: give files that `watch` saved.")
    ranks = [window.run.totals.get("rank", i) for i, window in enumerate(windows)]
    if len(set(ranks)) < len(ranks):
        raise ProfileError("Two sessions are of the same rank: give one file a rank.")
    first = max(int(w.steps.batch[0]) for w in windows)
    last = min(int(w.steps.batch[-1]) for w in windows)
    if last - first < 5:
        raise ProfileError("The ranks have fewer than 5 steps in common: record them together.")
    cuts = zip(*(_cut(window, first, last) for window in windows), strict=True)
    wait, own, period = map(np.stack, cuts)
    return _joined(ranks, wait, own, period)


def _cut(window: Window, first: int, last: int) -> tuple[Floats, Floats, Floats]:
    """Wait, own work before the meeting and period of the common steps; ns."""
    steps = window.steps
    rows = (steps.batch >= first) & (steps.batch <= last)
    ids: Ints = steps.batch[rows]
    meeting = sum((window.wall_of(f"step:{name}", ids) for name in MEETING), np.zeros(len(ids)))
    own = np.maximum(steps.loop[rows] - meeting, 0.0)
    return window.exposed[rows].astype(float), own, steps.period[rows].astype(float)


def _joined(ranks: list[int], wait: Floats, own: Floats, period: Floats) -> JoinedRanks:
    arrival = wait + own
    latest = arrival.max(axis=0)
    lost = latest - arrival
    winner = arrival.argmax(axis=0)
    rows = [
        RankRow(
            rank=ranks[i],
            period_ms=float(period[i].mean()) / 1e6,
            wait_ms=float(wait[i].mean()) / 1e6,
            own_ms=float(own[i].mean()) / 1e6,
            collective_ms=float(lost[i].mean()) / 1e6,
            last=float((winner == i).mean()),
        )
        for i in range(len(ranks))
    ]
    slowest = int(arrival.mean(axis=1).argmax())
    others = [i for i in range(len(ranks)) if i != slowest]
    behind = arrival[slowest] - arrival[others].mean(axis=0)
    late = block_interval(np.stack([behind, period.mean(axis=0)], axis=1), 5, ratio_of_sums)
    waiting = float((wait[slowest] - wait[others].mean(axis=0)).mean())
    share = waiting / float(behind.mean()) if behind.mean() > 0 else 0.0
    return JoinedRanks(
        tuple(sorted(rows, key=lambda row: row.rank)),
        late,
        ranks[slowest],
        min(1.0, max(0.0, share)),
    )


RANK_HEAD = ("rank", "step", "loader wait", "own work", "collective", "last")


def join_lines(sessions: Sequence[Session]) -> list[str]:
    """The table and what it says."""
    joined = join_ranks(sessions)
    widths = (5, 10, 12, 10, 11, 6)
    table = [RANK_HEAD, *map(rank_cells, joined.rows)]
    lines = [" ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in table]
    return [*lines, ranks_sentence(joined)]


def rank_cells(row: RankRow) -> tuple[str, ...]:
    """A row of the table, under `RANK_HEAD`."""
    times = (row.period_ms, row.wait_ms, row.own_ms, row.collective_ms)
    return (str(row.rank), *(f"{ms:.1f} ms" for ms in times), f"{row.last:.0%}")


def ranks_sentence(joined: JoinedRanks) -> str:
    """Who is waited for, and why."""
    late = joined.late
    interval = f"{late.value:.1%} of the step (95%: {late.low:.1%} to {late.high:.1%})"
    if late.low < LATE:
        if late.high < LATE:
            return f"No rank holds the others up: the latest one is behind by {interval}."
        return f"Not enough steps to decide whether one rank is slower: {interval}."
    why = "its loader" if joined.by_loader > 0.5 else "its own work before the collective"
    return (
        f"Rank {joined.straggler} is the straggler, by {interval}: the others wait for it in the "
        f"collective, and {max(joined.by_loader, 1 - joined.by_loader):.0%} of that is {why}."
    )
