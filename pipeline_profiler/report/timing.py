"""Where the time goes: sections on arms, waiting, stages, stall events and slow samples.

All of them draw the first run of the warm loader; a partial session without one shows its first
pass. Windows are made once by the caller, so that no section walks back to the spans of a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_profiler.diagnose.samples import slowest_samples
from pipeline_profiler.diagnose.stalls import readiness, stall_events
from pipeline_profiler.diagnose.window import Window, Windows, first_with_steps
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.plan import SlowSample
from pipeline_profiler.record.session import Session
from pipeline_profiler.report import charts
from pipeline_profiler.report.section import Section, in_ms, share_text
from pipeline_profiler.watching.conclusion import parts_line

SHOWN_STEPS, SHOWN_SAMPLES, SHOWN_EPOCHS = 2000, 10, 5
NAMED_STALLS = 0.1  # share of the stalled time from which samples are blamed for it


def arm_periods(session: Session, windows: Windows) -> Section | None:
    """Step period of each arm, the split of the stall, and what recording cost."""
    periods = session.results.get("arms") or {}
    measured = {name: row for name, row in periods.items() if row}
    if not measured:
        return None
    rows = tuple(
        (
            Arm(name).label,
            f"{row['period_ms']:.3f} ms" if row else "n/a",
            str(row["repeats"]) if row else "n/a",
        )
        for name, row in periods.items()
    )
    parts = session.results.get("parts") or {}
    lines = ["Split of the stall, in this order (shares of the last arm's step):"] if parts else []
    lines += [f"  {name}: {share_text(share)}" for name, share in parts.items()]
    lines += _device_bytes(windows)
    if session.arm(Arm.BARE):
        cost = float(session.results.get("recording_share") or 0.0)
        cost_text = (
            f"costs up to {cost:.1%} of the step and is taken out of the stall"
            if cost >= 0.0005
            else "costs nothing measurable"
        )
        lines.append(
            f"recording {cost_text} (the warm loader against the bare loop, which has no recorder)"
        )
    if "contention" not in parts and parts:
        lines.append("  contention is part of preparation here: the shadow loader was not run.")
    chart = charts.bars(
        "Step period by arm",
        [(Arm(name).label, row["period_ms"]) for name, row in measured.items()],
        "ms",
    )
    return Section("Arms", tuple(lines), ("arm", "period", "repeats"), rows, chart)


def _device_bytes(windows: Windows) -> list[str]:
    """Whether warm was warm and cold was cold: what really came from the block device."""
    lines = []
    for arm in (Arm.WARM, Arm.COLD):
        batches = [window.batches for window in windows.arm(arm)]
        known = [m.read_bytes for m in batches if len(m.batch) and m.read_bytes.min() >= 0]
        if known:
            megabytes = sum(int(column.sum()) for column in known) / 1e6
            lines.append(f"{megabytes:.1f} MB came from the block device in the arm '{arm.label}'")
    return lines


def shown(windows: Windows) -> Window | None:
    """The first run of the warm loader; the pilot where a partial session has none."""
    return first_with_steps(windows.arm(Arm.WARM, Arm.PILOT))


def waiting(session: Session, windows: Windows) -> Section | None:
    """How long a step waits, when batches are ready, and how an epoch begins."""
    timed = shown(windows)
    if timed is None:
        return None
    ready = readiness(timed)
    first = ", ".join(in_ms(ns) for ns in timed.first_batch_ns[:SHOWN_EPOCHS]) or "n/a"
    lines = [
        f"input wait {in_ms(timed.input_wait_ns)} a step of {in_ms(timed.period_ns)} "
        "(mean, first repeat)",
        f"data readiness {'n/a' if ready is None else f'{ready:.1%}'} (share of the time with a "
        "batch deliverable; near 100 % is healthy)",
        f"time to first batch {first} (by epoch)",
        *_first_batch(timed),
        *_on_device(session),
        *parts_line(session.results.get("phases") or {}, session),
    ]
    low, high = timed.clock_error_ns
    if (low, high) != (0, 0):
        offset = "one clock" if low <= 0 <= high else "CLOCKS DISAGREE"
        lines.append(
            f"worker clocks: {offset}; cause and effect bound the offset to {in_ms(low)} .. "
            f"{in_ms(high)}"
        )
    if not timed.steady:
        lines.append("not steady: the step period drifts or its halves differ; give more --steps")
    chart = charts.line(
        "Wait inside next(), by step",
        [(float(i), float(w) / 1e6) for i, w in enumerate(timed.steps.wait[:SHOWN_STEPS])],
        "step",
        "ms",
    )
    return Section("Waiting", tuple(lines), chart=chart)


def _first_batch(timed: Window) -> list[str]:
    spawn = timed.first_fetch_ns
    return [] if spawn is None else [f"  of the first, {in_ms(spawn)} until a worker began to load"]


def _on_device(session: Session) -> list[str]:
    probed = session.probes
    if not probed.on_device:
        return ["device rows (starvation by events, copy, utilisation): n/a, no GPU was used"]
    share, use = probed.starvation, probed.utilisation_symptom
    lines = [f"device idle for data (events): {'n/a' if share is None else f'{share:.1%}'}"]
    shown = "n/a" if use is None else f"{use:.0%}"
    return [*lines, f"utilisation {shown} (some kernel ran: a symptom, not a cause)"]


def loading_stages(windows: Windows) -> Section | None:
    """What loading a batch consists of."""
    timed = shown(windows)
    if timed is None or not timed.stage_table:
        return None
    table, shares = timed.stage_table, timed.loading_shares
    line = (
        f"loading time: {shares.cpu:.0%} on CPU, {shares.queued:.0%} waiting "
        f"for a core, {shares.blocked:.0%} blocked (I/O, locks, sleep)"
    )
    rows = tuple(
        (
            r.stage,
            f"{r.ms:.2f} ms",
            "n/a" if r.cpu_ms is None else f"{r.cpu_ms:.2f} ms",
            f"{r.share:.1%}",
        )
        for r in table
    )
    chart = charts.stacked("Loading time a batch by stage", [(r.stage, r.ms) for r in table], "ms")
    return Section("Stages", (line,), ("stage", "a batch", "on CPU", "share"), rows, chart)


def stall_causes(windows: Windows) -> Section | None:
    """How many stalls there were of each cause, and how long they took."""
    timed = shown(windows)
    events = stall_events(timed) if timed is not None else []
    if timed is None or not events:
        return None
    causes = sorted({e.cause for e in events})
    rows = []
    for cause in causes:
        walls = np.array([e.wall_ns for e in events if e.cause == cause]) / 1e6
        rows.append(
            (
                cause,
                f"{1000 * len(walls) / len(timed):.0f}",
                f"{walls.sum():.1f} ms",
                f"{np.median(walls):.1f} ms",
                f"{np.quantile(walls, 0.95):.1f} ms",
                f"{walls.max():.1f} ms",
            )
        )
    head = ("cause", "per 1000 steps", "total", "p50", "p95", "longest")
    return Section("Stall events", (), head, tuple(rows))


def samples(session: Session, windows: Windows) -> Section | None:
    """The samples that were slowest of their batch."""
    warm = windows.arm(Arm.WARM)
    slow = session.probes.slow_samples or slowest_samples(warm, SHOWN_SAMPLES)
    if not slow or not any(len(window.run) for window in warm):
        return None
    rows = tuple(
        (
            str(r.get("path", r["key"])),
            f"{r['ms']:.1f} ms",
            f"{r['worst_ms']:.1f} ms",
            str(r["seen"]),
        )
        for r in slow[:SHOWN_SAMPLES]
    )
    head = ("sample", "mean", "worst", "seen as slowest of its batch")
    return Section("Slowest samples", _guilty(slow), head, rows)


def _guilty(slow: Sequence[SlowSample]) -> tuple[str, ...]:
    guilty = [row for row in slow if row.get("stall_share")]
    share = sum(row["stall_share"] for row in guilty)
    if share < NAMED_STALLS:
        return ()
    return (f"{len(guilty)} samples make {share:.0%} of the stalled time.",)
