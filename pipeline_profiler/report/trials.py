"""What was tried: sections on tf.data operations and interventions, a sweep, and tuning."""

from __future__ import annotations

from pipeline_profiler.record.session import Session
from pipeline_profiler.report.section import Section


def operations(session: Session) -> Section | None:
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


def interventions(session: Session) -> Section | None:
    """tf.data: what each change to the graph saved."""
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


def sweep_points(session: Session) -> Section | None:
    """Every setting with its predicted and its measured period."""
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


def tuning_trials(session: Session) -> Section | None:
    """What `tune` tried, and what it kept."""
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
