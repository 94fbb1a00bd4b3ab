"""Find timed windows that other programs disturbed, by the totals of each window.

A block is left out if others took a tenth of the cores, or the step waited for a core without our
processes beside it. At least half of the blocks, and two, remain. Other programs only prolong the
loader's work, so a mean would not remove them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipeline_profiler.profiling.diagnose.window import Window, Windows
from pipeline_profiler.profiling.record.arm import IN_HAND, SPLIT_ORDER, Arm

DISTURBED = 0.1  # share of the cores taken by others in a window that counts as disturbed
QUEUED = 0.05  # of a window in which nothing of ours runs beside the step
ALONE = 0.02  # CPU of other threads and children over the window, below which nothing does
LEAST_BLOCKS = 2


@dataclass(frozen=True)
class Machine:
    """The machine in the windows that were used; shares of its cores, and of the time."""

    others: float = 0.0  # other programs and other virtual machines
    foreign: float = 0.0  # their share of the CPU time that was used
    left_out: int = 0  # blocks
    blocks: int = 0


def leave_out_disturbed(windows: Windows, environment: Mapping[str, Any]) -> Machine:
    """Take the disturbed blocks out of `windows`; return what the machine did in the others."""
    timed = windows.arm(*SPLIT_ORDER)
    blocks = {window.run.block for window in windows.arm(Arm.WARM)}
    bad = disturbed_blocks(timed) & blocks
    if bad and len(blocks - bad) >= max(LEAST_BLOCKS, len(blocks) / 2):
        windows.leave_out(frozenset(bad))
    used = windows.arm(*SPLIT_ORDER)
    taken = [share for window in used if (share := _others(window)) is not None]
    foreign = [_foreign(window) for window in used if _others(window) is not None]
    told = sum(float(environment.get(name) or 0.0) for name in ("others_cpu", "steal"))
    return Machine(
        others=fmean(taken) if taken else told,
        foreign=fmean(foreign) if foreign else 0.0,
        left_out=len(windows.left_out),
        blocks=len(blocks),
    )


def disturbed_blocks(windows: Iterable[Window]) -> set[int]:
    """Numbers of the blocks in one of whose windows other programs had a part."""
    return {window.run.block for window in windows if is_disturbed(window)}


def is_disturbed(window: Window) -> bool:
    """Whether other programs had a part in how long this window took."""
    others = _others(window)
    if others is not None and others >= DISTURBED:
        return True
    totals = window.run.totals
    queued, length = totals.get("main_queued_ns", 0), totals.get("window_ns", 0)
    if window.run.arm not in IN_HAND or not length or queued < QUEUED * length:
        return False
    beside = totals["own_cpu_ns"] - totals["main_cpu_ns"] + totals["children_cpu_ns"]
    return beside < ALONE * length


def _others(window: Window) -> float | None:
    totals = window.run.totals
    if not totals.get("cores_ns") or "others_ns" not in totals:
        return None
    return (totals["others_ns"] + totals.get("steal_ns", 0)) / totals["cores_ns"]


def _foreign(window: Window) -> float:
    totals = window.run.totals
    others = totals["others_ns"] + totals.get("steal_ns", 0)
    own = totals.get("own_cpu_ns", 0) + totals.get("children_cpu_ns", 0)
    return others / max(1, others + own)
