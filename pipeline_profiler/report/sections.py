"""Session -> the sections of a report: sentences, tables and charts; no format knows more.

A section added here appears in every format and in the app. Figures carry their unit; what was
not measured is "n/a", never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_profiler.diagnose import window as metrics
from pipeline_profiler.diagnose.evidence import NULL_FACTOR
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.plan import SlowSample
from pipeline_profiler.record.session import Run, Session
from pipeline_profiler.report import charts, precision

REFERENCE_AU = (0.9, 0.7)  # MLPerf Storage: image workloads, CosmoFlow
NO_VERDICT = "no verdict: the session ended before the real loader was timed"
BUSY = 0.9  # load a core before the run, from which the report says so


@dataclass(frozen=True)
class Section:
    """A heading, sentences, a table and a chart; any of them may be empty."""

    title: str
    lines: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    chart: str = ""
    wide: bool = False  # sentences in the cells: on a terminal one block a row, not a table


def percent(share: dict[str, Any]) -> str:
    """'12.3 % (10.1 to 14.2)' from a share with its interval."""
    value, low, high = share.get("share"), share.get("low"), share.get("high")
    if value is None:
        return "n/a"
    if low is None or high is None:
        return f"{value:.1%} (interval unknown)"
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms"


def sections(session: Session) -> list[Section]:
    """Every section that the session has something to say in."""
    made = [
        _verdict(session),
        *_precision(session),
        _causes(session),
        _arms(session),
        _wait(session),
        _stages(session),
        _operations(session),
        _interventions(session),
        _stalls(session),
        _samples(session),
        _sweep(session),
        _trials(session),
        _conditions(session),
    ]
    return [s for s in made if s is not None]


def _verdict(session: Session) -> Section:
    results = session.results
    lines = [str(results.get("sentence") or results.get("verdict") or NO_VERDICT)]
    if session.partial:
        lines.append("This session is partial: the run ended before all arms were measured.")
    lines += [*_utilisation(session), *_busy(session)]
    return Section("Verdict", tuple(lines))


def _busy(session: Session) -> list[str]:
    """The machine was not ours alone: what that does to the figures."""
    load, cores = session.environment.get("load"), session.environment.get("cores")
    if not load or not cores or load < BUSY * cores:
        return []
    return [
        f"The machine was busy before the run (load {load:.1f} on {cores} cores): stalls may be "
        "other programs', and intervals are wide; measure on a quiet machine."
    ]


def _precision(session: Session) -> list[Section]:
    """The table, sentences and chart of `pipeline-profiler precision`."""
    return [Section(**part) for part in precision.parts(session)]


def _utilisation(session: Session) -> list[str]:
    """AU and headroom, or why AU is no figure here."""
    arms = session.results.get("arms") or {}
    if not arms.get(Arm.RESIDENT) or not arms.get(Arm.WARM):
        return []
    ideal, real = arms[Arm.RESIDENT]["period_ms"], arms[Arm.WARM]["period_ms"]
    null = [float(np.mean(metrics.steps(run).wait)) / 1e6 for run in session.arm(Arm.NULL)]
    lines = []
    if null and ideal < NULL_FACTOR * null[0]:
        au_null = ideal / (ideal + null[0])
        lines.append(
            f"AU is n/a: the step ({ideal:.3f} ms) is below {NULL_FACTOR} x an empty loader's "
            f"next() ({null[0]:.3f} ms). AU / AU_null {ideal / real / au_null:.1%}."
        )
    else:
        marks = ", ".join(f"{mark:.0%}" for mark in REFERENCE_AU)
        lines.append(f"AU {ideal / real:.1%} (MLPerf Storage asks for {marks}, by workload).")
    lines.append(f"Headroom: a perfect loader would make it {real / ideal:.2f} times as fast.")
    return lines


def _causes(session: Session) -> Section | None:
    causes = session.results.get("causes") or []
    if not causes:
        return None
    rows = tuple(
        (str(i + 1), c["code"], c["name"], percent(c), c["cause"], c["next"])
        for i, c in enumerate(causes)
    )
    chart = charts.dots(
        "Share of the step each cause is worth, with 95 % interval",
        [
            (c["name"], 100 * c["share"], 100 * c["low"], 100 * c["high"])
            for c in causes
            if None not in (c["share"], c["low"], c["high"])
        ],
        "%",
    )
    lines = ("Causes overlap: shares do not add up. The first is the one to mend.",)
    head = ("#", "code", "name", "of the step", "cause", "next")
    return Section("Causes", lines, head, rows, chart, wide=True)


def _arms(session: Session) -> Section | None:
    arms = session.results.get("arms") or {}
    measured = {name: row for name, row in arms.items() if row}
    if not measured:
        return None
    rows = tuple(
        (
            Arm(name).label,
            f"{row['period_ms']:.3f} ms" if row else "n/a",
            str(row["repeats"]) if row else "n/a",
        )
        for name, row in arms.items()
    )
    parts = session.results.get("parts") or {}
    lines = ["Split of the stall, in this order (shares of the last arm's step):"] if parts else []
    lines += [f"  {name}: {percent(share)}" for name, share in parts.items()]
    lines += _device_bytes(session)
    if session.arm(Arm.BARE):
        cost = float(session.results.get("recording_share") or 0.0)
        seen = (
            f"costs up to {cost:.1%} of the step" if cost >= 0.0005 else "costs nothing measurable"
        )
        lines.append(
            f"recording {seen} (the warm loader against the bare loop, which has no recorder)"
        )
    if "contention" not in parts and parts:
        lines.append("  contention is part of preparation here: the shadow loader was not run.")
    chart = charts.bars(
        "Step period by arm",
        [(Arm(name).label, row["period_ms"]) for name, row in measured.items()],
        "ms",
    )
    return Section("Arms", tuple(lines), ("arm", "period", "repeats"), rows, chart)


def _device_bytes(session: Session) -> list[str]:
    """Whether warm was warm and cold was cold: what really came from the block device."""
    lines = []
    for arm in (Arm.WARM, Arm.COLD):
        made = [metrics.batches(run) for run in session.arm(arm)]
        known = [m.read_bytes for m in made if len(m.batch) and m.read_bytes.min() >= 0]
        if known:
            megabytes = sum(int(column.sum()) for column in known) / 1e6
            lines.append(f"{megabytes:.1f} MB came from the block device in the arm '{arm.label}'")
    return lines


def _warm(session: Session) -> Run | None:
    """The first W run; the pilot where a partial session has none."""
    runs = [*session.arm(Arm.WARM), *session.arm(Arm.PILOT)]
    runs = [run for run in runs if len(metrics.steps(run).batch) >= 2]
    return runs[0] if runs else None


def _wait(session: Session) -> Section | None:
    run = _warm(session)
    if run is None:
        return None
    window = metrics.steps(run)
    ready, first = metrics.readiness(run), metrics.time_to_first_batch_ns(run)
    lines = [
        f"input wait {_ms(metrics.input_wait_ns(run))} a step of {_ms(metrics.period_ns(run))} "
        "(mean, first repeat)",
        f"data readiness {'n/a' if ready is None else f'{ready:.1%}'} (share of the time with a "
        "batch deliverable; near 100 % is healthy)",
        f"time to first batch {', '.join(_ms(ns) for ns in first[:5]) or 'n/a'} (by epoch)",
        *_first_batch(run),
        *_on_device(session),
    ]
    low, high = metrics.clock_error_ns(run)
    if (low, high) != (0, 0):
        offset = "one clock" if low <= 0 <= high else "CLOCKS DISAGREE"
        lines.append(
            f"worker clocks: {offset}; cause and effect bound the offset to {_ms(low)} .. "
            f"{_ms(high)}"
        )
    if not metrics.steady(run):
        lines.append("not steady: the step period drifts or its halves differ; give more --steps")
    chart = charts.line(
        "Wait inside next(), by step",
        [(float(i), float(w) / 1e6) for i, w in enumerate(window.wait[:2000])],
        "step",
        "ms",
    )
    return Section("Waiting", tuple(lines), chart=chart)


def _first_batch(run: Run) -> list[str]:
    spawn = metrics.first_fetch_ns(run)
    return [] if spawn is None else [f"  of the first, {_ms(spawn)} until a worker began to load"]


def _on_device(session: Session) -> list[str]:
    probed = session.probes
    if not probed.on_device:
        return ["device rows (starvation by events, copy, utilisation): n/a, no GPU was used"]
    share, use = probed.starvation, probed.utilisation_symptom
    lines = [f"device idle for data (events): {'n/a' if share is None else f'{share:.1%}'}"]
    shown = "n/a" if use is None else f"{use:.0%}"
    return [*lines, f"utilisation {shown} (some kernel ran: a symptom, not a cause)"]


def _stages(session: Session) -> Section | None:
    run = _warm(session)
    table = metrics.stage_table(run) if run is not None else []
    if run is None or not table:
        return None
    shares = metrics.loading_shares(run)
    line = (
        f"loading time: {shares.get('cpu', 0):.0%} on CPU, {shares.get('queued', 0):.0%} waiting "
        f"for a core, {shares.get('blocked', 0):.0%} blocked (I/O, locks, sleep)"
    )
    rows = tuple(
        (
            r["stage"],
            f"{r['ms']:.2f} ms",
            "n/a" if r["cpu_ms"] is None else f"{r['cpu_ms']:.2f} ms",
            f"{r['share']:.1%}",
        )
        for r in table
    )
    chart = charts.stacked(
        "Loading time a batch by stage", [(r["stage"], r["ms"]) for r in table], "ms"
    )
    return Section("Stages", (line,), ("stage", "a batch", "on CPU", "share"), rows, chart)


def _operations(session: Session) -> Section | None:
    """tf.data: each operation's cost, from timing the prefixes of the user's own graph."""
    prefixes = session.probes.prefixes or []
    if not prefixes:
        return None
    rows = tuple(
        (
            r["operation"],
            f"{r['ms']:.2f} ms",
            f"{r['total_ms']:.2f} ms",
            f"{r['first_ms']:.1f} ms",
            f"{r['visits']:g}",
        )
        for r in prefixes
    )
    head = ("operation", "adds a batch", "up to here", "first element", "elements a batch")
    lines = (
        "Each prefix of the graph iterated alone, source first; a negative figure: the operation "
        "runs in parallel with, or ahead of, what comes before it.",
    )
    return Section("tf.data operations", lines, head, rows)


def _interventions(session: Session) -> Section | None:
    trials = session.probes.interventions or []
    if not trials:
        return None
    rows = tuple(
        (
            r["name"],
            f"{r['baseline_ms']:.2f} ms",
            f"{r['period_ms']:.2f} ms",
            f"{1 - r['period_ms'] / r['baseline_ms']:+.1%} +/- {r['spread']:.1%}",
            r["how"],
        )
        for r in trials
    )
    head = ("tried", "as it is", "changed", "saves", "how")
    return Section("tf.data interventions, tried and timed", (), head, rows)


def _stalls(session: Session) -> Section | None:
    run = _warm(session)
    events = metrics.stall_events(run) if run is not None else []
    if run is None or not events:
        return None
    n = len(metrics.steps(run).batch)
    causes = sorted({e.cause for e in events})
    rows = []
    for cause in causes:
        walls = np.array([e.wall_ns for e in events if e.cause == cause]) / 1e6
        rows.append(
            (
                cause,
                f"{1000 * len(walls) / n:.0f}",
                f"{walls.sum():.1f} ms",
                f"{np.median(walls):.1f} ms",
                f"{np.quantile(walls, 0.95):.1f} ms",
                f"{walls.max():.1f} ms",
            )
        )
    head = ("cause", "per 1000 steps", "total", "p50", "p95", "longest")
    return Section("Stall events", (), head, tuple(rows))


def _samples(session: Session) -> Section | None:
    runs = session.arm(Arm.WARM)
    slow = session.probes.slow_samples or metrics.slowest_samples(runs, 10)
    if not slow or not any(len(run) for run in runs):
        return None
    rows = tuple(
        (
            str(r.get("path", r["key"])),
            f"{r['ms']:.1f} ms",
            f"{r['worst_ms']:.1f} ms",
            str(r["seen"]),
        )
        for r in slow[:10]
    )
    head = ("sample", "mean", "worst", "seen as slowest of its batch")
    return Section("Slowest samples", _guilty(slow), head, rows)


def _guilty(slow: Sequence[SlowSample]) -> tuple[str, ...]:
    guilty = [row for row in slow if row.get("stall_share")]
    share = sum(row["stall_share"] for row in guilty)
    if share < 0.1:
        return ()
    return (f"{len(guilty)} samples make {share:.0%} of the stalled time.",)


def _sweep(session: Session) -> Section | None:
    points = session.results.get("sweep") or []
    if not points:
        return None
    rows = tuple(
        (
            p["setting"],
            f"{p['measured_ms']:.2f} ms",
            f"{p['predicted_ms']:.2f} ms",
            f"{p['error']:+.1%}",
            f"{p['fluid_error']:+.1%}",
            p["extrapolated"] or "",
        )
        for p in points
    )
    head = ("setting", "measured", "predicted", "error", "fluid bound's error", "extrapolated")
    lines = (str(session.results.get("sweep_sentence", "")),)
    return Section("Sweep: predicted beside measured", lines, head, rows)


def _trials(session: Session) -> Section | None:
    trials = session.results.get("trials") or []
    if not trials:
        return None
    rows = tuple(
        (t["change"], f"{t['predicted']:.2f}x", t["measured"], t["decision"], t["why"])
        for t in trials
    )
    head = ("change", "predicted", "measured", "decision", "why")
    lines = tuple(filter(None, [session.results.get("kept_sentence")]))
    return Section("Tuning: recommended, applied, re-run", lines, head, rows)


def _conditions(session: Session) -> Section:
    env, plan = session.environment, session.plan
    lines = [f"plan: {reason.sentence}" for reason in plan.reasons]
    lines += [f"{k.replace('_', ' ')}: {_shown(k, v)}" for k, v in env.items()]
    runs = session.arm(Arm.WARM) or session.arm(Arm.PILOT)
    if runs:
        lines.append(f"loader: {_shown('loader', runs[0].config)}")
    notes = [note for run in session.runs for note in run.notes]
    lines += [f"note: {note}" for note in dict.fromkeys([*session.notes, *notes])]
    return Section("Conditions", tuple(lines))


def _shown(name: str, value: Any) -> str:
    """A condition in words: bytes as GB, shares and loads rounded, None as n/a."""
    if value is None:
        return "n/a"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(k, v)}" for k, v in value.items())
    if name == "memory_bytes":
        return f"{value / 1e9:.1f} GB"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
