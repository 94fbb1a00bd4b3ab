"""Session -> the sections of a report: sentences, tables and charts; no format knows more.

A section added here appears in every format and in the app. This file has the verdict, the causes
and the conditions; timing.py and trials.py have the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline_profiler.diagnose.evidence import NULL_FACTOR
from pipeline_profiler.diagnose.window import Windows
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.session import Session
from pipeline_profiler.report import charts, precision, timing, trials
from pipeline_profiler.report.section import Section, share_text

REFERENCE_AU = (0.9, 0.7)  # MLPerf Storage: image workloads, CosmoFlow
NO_VERDICT = "no verdict: the session ended before the real loader was timed"
SHOWN_FRAMES = 5
BUSY = 0.9  # load a core before the run, from which the report says so


def report_sections(session: Session) -> list[Section]:
    """Every section that the session has something to say in."""
    windows = Windows(session)
    all_sections = [
        _verdict(session, windows),
        *_precision(session),
        _causes(session),
        timing.arm_periods(session, windows),
        timing.waiting(session, windows),
        timing.loading_stages(windows),
        trials.operations(session),
        trials.interventions(session),
        timing.stall_causes(windows),
        timing.samples(session, windows),
        trials.sweep_points(session),
        trials.tuning_trials(session),
        _conditions(session),
    ]
    return [s for s in all_sections if s is not None]


def _verdict(session: Session, windows: Windows) -> Section:
    results = session.results
    lines = [str(results.get("sentence") or results.get("verdict") or NO_VERDICT)]
    lines += failed_rules(session)
    if session.partial:
        lines.append("This session is partial: the run ended before all arms were measured.")
    lines += _cut_off(results)
    lines += [*_utilisation(session, windows), *_busy(session), *_unfit_build(session)]
    return Section("Verdict", tuple(lines))


def _cut_off(results: Mapping[str, Any]) -> list[str]:
    """Where the loader hung, with the innermost frames of each thread and process seen."""
    cut_off = results.get("cut_off")
    if not cut_off:
        return []
    lines = [str(cut_off["sentence"])]
    for stack in cut_off["stacks"]:
        frames = stack["frames"][:SHOWN_FRAMES] or ["no stack could be taken"]
        lines += [f"  {stack['of']}: {frames[0]}", *(f"    from {frame}" for frame in frames[1:])]
    return lines


def failed_rules(session: Session) -> list[str]:
    """One line per diagnosis rule that raised: what it would have found is missing."""
    return [
        f"The rule {failed['rule']} failed ({failed['error']}: {failed['text']}; {failed['at']}): "
        "its cause may be missing here. Report it with the output of --trace."
        for failed in session.results.get("failed_rules") or []
    ]


def _busy(session: Session) -> list[str]:
    """The machine was not ours alone: what that does to the figures."""
    load, cores = session.environment.get("load"), session.environment.get("cores")
    if not load or not cores or load < BUSY * cores:
        return []
    return [
        f"The machine was busy before the run (load {load:.1f} on {cores} cores): stalls may be "
        "other programs', and intervals are wide; measure on a quiet machine."
    ]


def _unfit_build(session: Session) -> list[str]:
    """The framework has no code for this GPU: its figures are those of a fallback, or none."""
    torch = session.environment.get("torch")
    problem = torch.get("architecture_problem") if isinstance(torch, dict) else ""
    return [f"Careful: {problem}"] if problem else []


def _precision(session: Session) -> list[Section]:
    """The table, sentences and chart of `pipeline-profiler precision`."""
    return [Section(**part) for part in precision.parts(session)]


def _utilisation(session: Session, windows: Windows) -> list[str]:
    """AU and headroom, or why AU is no figure here."""
    arms = session.results.get("arms") or {}
    if not arms.get(Arm.RESIDENT) or not arms.get(Arm.WARM):
        return []
    ideal, real = arms[Arm.RESIDENT]["period_ms"], arms[Arm.WARM]["period_ms"]
    null = [float(np.mean(w.steps.wait)) / 1e6 for w in windows.arm(Arm.NULL)]
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
    stall = session.results.get("stall") or {}
    if stall.get("share") is not None:
        lines.append(f"Headroom: a perfect loader would make it {_faster(stall)}.")
    return lines


def _faster(stall: Mapping[str, float | None]) -> str:
    """The speed-up that ends the stall, with the interval that the stall has."""
    value, low, high = (
        None if share is None or share >= 1 else 1 / (1 - share)
        for share in (stall["share"], stall.get("low"), stall.get("high"))
    )
    text = f"{value:.2f} times as fast" if value else "many times as fast"
    if low is None and high is None:
        return f"{text} (interval unknown)"
    return f"{text} (95 %: {f'{low:.2f}' if low else '?'} to {f'{high:.2f}' if high else 'any'})"


def _causes(session: Session) -> Section | None:
    causes = session.results.get("causes") or []
    if not causes:
        return None
    rows = tuple(
        (str(i + 1), c["code"], c["name"], share_text(c), c["cause"], c["next"])
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
    lines = ("Causes overlap: shares do not add up. The first is the one to fix.",)
    head = ("#", "code", "name", "of the step", "cause", "next")
    return Section("Causes", lines, head, rows, chart, wide=True)


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
        return ", ".join(f"{k} {_shown(k, v)}" for k, v in value.items() if v != "")
    if isinstance(value, list):
        return " ".join(map(str, value))
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 1e9:.1f} GB"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
