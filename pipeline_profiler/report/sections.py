"""Session -> the sections of a report: sentences, tables and charts; no format adds more.

The loop shown is the first run of the warm loader, in a partial session its first pass.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from dataset_preflight.foundation import charts
from pipeline_profiler.profiling.diagnose.evidence import NULL_FACTOR
from pipeline_profiler.profiling.diagnose.stalls import readiness, slowest_samples, stall_events
from pipeline_profiler.profiling.diagnose.verdict import TO_DECIDE, Verdict
from pipeline_profiler.profiling.diagnose.window import Window, Windows, first_with_steps
from pipeline_profiler.profiling.monitor.conclusion import parts_line
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.report.precision import precision_sections
from pipeline_profiler.report.section import (
    Section,
    in_ms,
    name_files_once,
    share_text,
    tells_nothing,
)

WORDS = {
    "HOL": "head of line: a batch that is ready waits for an earlier one that is late",
    "configuration": "a measured setting of loader and step, such as preloaded batches",
    "shadow": "the step on batches in memory while the real loader runs beside it",
    "serialise": "to turn a batch into bytes, so that a worker process can hand it over",
    "collate": "to make one batch of single samples",
}
COMPUTE_BOUND, OTHER_PROGRAMS = "PIPE000", "PIPE033"
LEAST_REST = 0.02  # share of the step, from which what no cause explains is told
REFERENCE_AU = (0.9, 0.7)  # MLPerf Storage: image workloads, CosmoFlow
NO_VERDICT = "no verdict: the session ended before the real loader was timed"
UNTOLD = (
    "inconclusive: the repeats differ too much to decide. Measure longer on a quiet "
    "machine: the same command with `--seconds 240`."
)
IMAGE_SIZES = """
    SELECT name, format('{{}} x {{}}, {{:,}} bytes, {{}}', width, height, n_bytes, format)
    FROM images, unnest([id, uri]) AS names(name) WHERE name IN ({names})
"""
SHOWN_FRAMES = 5
SHOWN_STEPS, SHOWN_SAMPLES, SHOWN_EPOCHS, SHOWN_COLUMNS = 2000, 10, 5, 5
NAMED_STALLS = 0.1  # share of the stalled time from which samples are blamed for it


def report_sections(session: Session) -> list[Section]:
    """Return the title and every section that the session has results for."""
    windows = Windows(session)
    all_sections = [
        profile_title(session),
        verdict(session, windows),
        step_bar(session),
        *precision_sections(session),
        *script_sections(session),
        _causes(session),
        loading(session),
        arm_periods(session),
        waiting(session, windows),
        operations(session),
        interventions(session),
        stall_causes(windows),
        samples(session, windows),
        predictions(session),
        sweep_points(session),
        _conditions(session),
    ]
    found = [s for s in all_sections if s is not None]
    return [*found, *_words(found)]


def _words(sections: Sequence[Section]) -> list[Section]:
    """What the words mean that these sections use and not everybody knows."""
    text = " ".join(part for s in sections for part in (*s.lines, *s.head, *chain(*s.rows)))
    said = [f"{w}: {m}" for w, m in WORDS.items() if re.search(rf"\b{w}s?\b", text, re.IGNORECASE)]
    return [Section("Words", tuple(said))] if said else []


def script_sections(session: Session) -> list[Section]:
    """Return the precisions of an unmodified script, and how they were measured."""
    table = session.results.get("precision-script")
    if not table:
        return []
    rows = tuple(map(tuple, table["rows"]))
    return [
        Section("Precision of the script", (), tuple(table["head"]), rows),
        Section("How it was measured", tuple(table["lines"])),
    ]


def profile_title(session: Session) -> Section:
    """Return what was profiled, by which command, when and where."""
    env = session.environment
    command, torch = (env[k] if isinstance(env.get(k), dict) else {} for k in ("command", "torch"))
    loader, step = command.get("loader"), command.get("step")
    words = ["pipeline-profiler run", loader, step and f"--step {step}", command.get("options")]
    cores = env.get("cores") and f"{env['cores']} cores"
    gpu = str(torch.get("device", "cpu")).replace("cpu", "")
    machine = filter(None, [env.get("cpu_model") or env.get("system"), cores, gpu])
    facts = {
        "step": step,
        "command": loader and f"`{' '.join(map(str, filter(None, words)))}`",
        "recorded": session.created.replace("T", " ").replace("Z", " UTC"),
        "machine": ", ".join(map(str, machine)),
    }
    lines = tuple(f"{name}: {fact}" for name, fact in facts.items() if fact)
    return Section(f"Pipeline profile of {loader}" if loader else "Pipeline profile", lines)


def headline(session: Session, windows: Windows) -> list[str]:
    """Return the verdict's sentences, the throughput, and the GPU starvation where there is one."""
    results, timed = session.results, shown(windows)
    first = results.get("sentence") or results.get("verdict") or NO_VERDICT
    lines = [
        UNTOLD if tells_nothing(results.get("stall") or {}) else str(first),
        results.get("epoch_sentence"),
        results.get("contention_sentence"),
        (results.get("throughput") or {}).get("sentence"),
    ]
    if timed is not None and timed.tells_of_device:
        lines.append(f"GPU starvation {share_text(timed.starvation.as_dict())} of the time.")
    return [line for line in lines if line]


def warnings(session: Session) -> list[str]:
    """Return what is missing in this session, or makes its figures doubtful."""
    text = "This session is partial: the run ended before all configurations were measured."
    lines = [text] if session.partial else []
    torch = session.environment.get("torch")
    # the framework has no code for this GPU: its figures are those of a fallback, or none
    problem = torch.get("architecture_problem") if isinstance(torch, dict) else ""
    unfit = [f"Careful: {problem}"] if problem else []
    return [*failed_rules(session), *lines, *_cut_off(session.results), *unfit]


def speed_up(session: Session) -> list[str]:
    """Return what a perfect loader would gain."""
    arms, stall = session.results.get("arms") or {}, session.results.get("stall") or {}
    measured = arms.get(Arm.RESIDENT) and arms.get(Arm.WARM) and stall.get("share") is not None
    gain = measured and not tells_nothing(stall)
    return [f"A perfect loader would make it {_faster(stall)}."] if gain else []


def verdict(session: Session, windows: Windows) -> Section:
    """The verdict, what a perfect loader would buy, and what speaks against believing either."""
    lines = [*headline(session, windows), *warnings(session), *speed_up(session)]
    lines += [note for note in session.notes if note.startswith("Stopped after ")]
    return Section("Verdict", tuple(lines))


def step_parts(session: Session) -> dict[str, float]:
    """Return the milliseconds of each part of a step; they add up to its period. {}: unknown."""
    results = session.results
    arms, stall = results.get("arms") or {}, results.get("stall") or {}
    if not arms.get(Arm.WARM) or stall.get("share") is None or tells_nothing(stall):
        return {}
    period, device, host = (
        (arms.get(arm) or {}).get("period_ms", 0.0) for arm in (Arm.WARM, Arm.RESIDENT, Arm.HOST)
    )
    null, other_programs, remaining = (
        ((results.get(name) or {}).get("share") or 0.0) * period
        for name in ("stall_with_null", "contention", "together")
    )
    rest = min(max(stall["share"], 0.0), 1.0) * period
    null = min(max(0.0, null - rest), period - rest)
    parts = {"compute": period - rest - null, "hand-over of an empty loader": null}
    claims = {
        "copy to the device": host - device if device and host else 0.0,
        "contention by other programs": other_programs,
    }
    claims |= {
        f"wait: {cause['name']}": cause["share"] * period
        for cause in split_causes(results.get("causes") or [])[0]
        if cause.get("about", "input") == "input"
        and cause["share"] is not None
        and cause["code"] != OTHER_PROGRAMS
    }
    for name, claim in claims.items():
        # causes overlap: each gets what the parts before it leave
        room = rest - max(0.0, remaining) * name.startswith("wait")
        parts[name] = max(0.0, min(claim, room))
        rest -= parts[name]
    return {name: ms for name, ms in (parts | {"wait, unexplained": rest}).items() if ms > 0}


def step_bar(session: Session) -> Section | None:
    """Return the parts of a step, as a bar and as a table."""
    parts = step_parts(session)
    if not parts:
        return None
    period = sum(parts.values())
    rows = tuple((name, f"{ms:.2f} ms", f"{ms / period:.1%}") for name, ms in parts.items())
    chart = partial(charts.stacked_bars, f"One step of {period:.2f} ms", [("", parts)], "ms")
    return Section("Step", (), ("part", "time", "share"), rows, chart)


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


def _utilisation(session: Session) -> str:
    """Return the accelerator utilisation, or why it is no figure here."""
    arms = session.results.get("arms") or {}
    ideal, real = arms.get(Arm.RESIDENT), arms.get(Arm.WARM)
    if not ideal or not real:
        return "n/a"
    if session.results.get("null_ms"):  # set where the step is too short
        return f"inconclusive (step below {NULL_FACTOR} times an empty next())"
    return f"{ideal['period_ms'] / real['period_ms']:.1%}"


def _faster(stall: Mapping[str, float | None]) -> str:
    """The speed-up that ends the stall, with the interval that the stall has."""
    value, low, high = (
        None if share is None or share >= 1 else 1 / (1 - share)
        for share in (stall["share"], stall.get("low"), stall.get("high"))
    )
    text = f"{value:.2f} times as fast" if value else "many times as fast"
    if low and high:
        return f"{text} (95% CI {low:.2f} to {high:.2f})"
    ends = [f"at least {low:.2f} times" if low else "", f"at most {high:.2f} times" if high else ""]
    return f"{text} ({''.join(f'95% CI: {end}' for end in ends if end) or 'interval unknown'})"


def _causes(session: Session) -> Section | None:
    shown, unsure = split_causes(session.results.get("causes") or [])
    causes = [*shown, *unsure]
    if not causes:
        return None
    rows = tuple(
        (
            str(i),
            c["code"],
            c["name"],
            share_text(c),
            *map(name_files_once, (c["cause"], c["next"])),
        )
        for i, c in enumerate(causes, 1)
    )
    drawn = [
        (c["name"], 100 * c["share"], 100 * c["low"], 100 * min(c["high"], 1.0))
        for c in causes
        if None not in (c["share"], c["low"], c["high"])
    ]
    title = "Share of the step each cause is worth, with 95% CI"
    chart = partial(charts.intervals, title, drawn, "%")
    lines = ["Causes overlap: shares do not add up."]
    if shown and shown[0]["code"] != COMPUTE_BOUND:
        lines[0] += " The first is the one to fix."
    if rest := unexplained(session):
        lines.append(f"{rest[0].upper()}{rest[1:]}.")
    if unsure:
        text = f"The last {len(unsure)} are not shown to cost time: the interval reaches zero."
        lines.append(text)
    if together := session.results.get("together"):
        lines.append(name_files_once(together["sentence"]))
    head = ("#", "code", "name", "of the step", "cause", "next")
    return Section("Causes", tuple(lines), head, rows, chart, wide=True)


def split_causes(
    causes: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return (causes whose interval is above zero; the others), in the order of the diagnosis."""
    unsure = [c for c in causes if tells_nothing(c) or (c.get("low") is not None and c["low"] <= 0)]
    return [c for c in causes if c not in unsure], unsure


def unexplained(session: Session) -> str:
    """What the causes leave of the stall, where that is more than its interval; else nothing."""
    stall, causes = session.results.get("stall") or {}, session.results.get("causes") or []
    if stall.get("low") is None or tells_nothing(stall) or stall["low"] <= 0:
        return ""
    if session.results.get("verdict") == Verdict.NOT_BOUND:
        return ""  # what every loader costs
    named = sum(c["share"] or 0.0 for c in causes if c["code"] != COMPUTE_BOUND)
    rest = stall["low"] - named
    return f"not explained: at least {rest:.1%} of the step" if rest >= LEAST_REST else ""


def _conditions(session: Session) -> Section:
    env, plan = session.environment, session.plan
    found = [(c["name"], c["text"]) for c in session.results.get("conditions") or []]
    found += [("plan", reason) for reason in plan.reasons]
    found += [(k.replace("_", " "), _shown(k, v)) for k, v in env.items() if k != "command"]
    runs = session.arm(Arm.WARM) or session.arm(Arm.PILOT)
    found += [("loader", _shown("loader", runs[0].config))] if runs else []
    notes = [note for run in session.runs for note in run.notes]
    found += [("note", note) for note in dict.fromkeys([*session.notes, *notes])]
    if recorded := session.results.get("recorded"):
        found.append(("verdict when it was recorded", recorded))
    # a line end inside a text would end its row
    rows = tuple((name, " ".join(text.split())) for name, text in found)
    return Section("Conditions", (), ("condition", "value"), rows)


def deciding_condition(session: Session) -> str:
    """Return what would decide an inconclusive verdict; '' with another verdict."""
    conditions = session.results.get("conditions") or []
    texts = [condition["text"] for condition in conditions if condition["name"] == TO_DECIDE]
    return f"To decide: {texts[0]}." if texts else ""


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


def arm_periods(session: Session) -> Section | None:
    """Step period of each arm, the split of the stall, and what recording cost."""
    periods = session.results.get("arms") or {}
    measured = {name: row for name, row in periods.items() if row}
    if not measured:
        return None
    unmeasured = ("not measured", "-")
    rows = tuple(
        (
            Arm(name).label,
            *((f"{row['period_ms']:.3f} ms", f"{row['repeats']}") if row else unmeasured),
        )
        for name, row in periods.items()
    )
    parts = session.results.get("parts") or {}
    lines = [f"  {name}: {share_text(share)}" for name, share in parts.items()]
    if parts:
        lines[:0] = ["Parts of the data stall, as shares of the step of the last configuration:"]
    cost = float(session.results.get("recording_share") or 0.0)
    if cost >= 0.0005:
        lines.append(f"recording costs {cost:.1%} of the step and is subtracted from the stall")
    if "contention" not in parts and parts:
        lines.append("  preparation includes contention: no shadow loader ran to separate them.")
    drawn = [(Arm(name).label, row["period_ms"]) for name, row in measured.items()]
    chart = partial(charts.bars, "Step period by configuration", drawn, "ms")
    head = ("configuration", "period", "repeats")
    return Section("Configurations", tuple(lines), head, rows, chart)


def shown(windows: Windows) -> Window | None:
    """The first run of the warm loader; the pilot where a partial session has none."""
    return first_with_steps(windows.arm(Arm.WARM, Arm.PILOT))


def waiting(session: Session, windows: Windows) -> Section | None:
    """Return every number of waiting with its meaning, and how the wait goes on by step."""
    timed = shown(windows)
    if timed is None:
        return None
    lines = parts_line(session.results.get("phases") or {}, session)
    waits = [(float(i), float(w) / 1e6) for i, w in enumerate(timed.steps.wait[:SHOWN_STEPS])]
    chart = partial(charts.curve, "Wait inside next(), by step", waits, "step", "ms")
    rows = tuple(_waiting_rows(session, timed))
    return Section("Waiting", tuple(lines), ("number", "value", "meaning"), rows, chart)


def _waiting_rows(session: Session, timed: Window) -> list[tuple[str, str, str]]:
    """Return the numbers of waiting, each with its value and its meaning."""
    ready, use = readiness(timed), session.probes.utilisation_symptom
    rows = [
        ("data stall", share_text(session.results.get("stall") or {}),
         "share of the step time spent waiting for data: the number of the verdict"),
        ("input wait", f"{in_ms(timed.input_wait_ns)} of {in_ms(timed.period_ns)}",
         "time of a step inside next() and iter(): the mean of the first repeat"),
        ("accelerator utilisation (AU)", _utilisation(session),
         "step time with preloaded batches / with the loader; MLPerf Storage requires "
         f"{' or '.join(f'{mark:.0%}' for mark in REFERENCE_AU)}, by workload"),
        ("data readiness", "n/a" if ready is None else f"{ready:.1%}",
         "share of the time in which a batch is ready; near 100% is healthy"),
        ("time to first batch",
         ", ".join(in_ms(ns) for ns in timed.first_batch_ns[:SHOWN_EPOCHS]) or "n/a",
         "from iter() to the first batch, by epoch"),
    ]  # fmt: skip
    if timed.tells_of_device or session.probes.on_device:
        share = share_text(timed.starvation.as_dict()) if timed.tells_of_device else "n/a"
        rows[2:2] = [
            ("GPU starvation", share, "share of the time in which the GPU waits for data (events)"),
            ("GPU utilisation", "n/a" if use is None else f"{use:.0%}",
             "share of the time in which a kernel runs: a symptom, not a cause"),
        ]  # fmt: skip
    if (spawn := timed.first_fetch_ns) is not None:
        rows.append(("worker start", in_ms(spawn), "from the first iter() until a worker loads"))
    return rows


def loading(session: Session) -> Section | None:
    """Return the stages of loading a batch: time, line of code and advice."""
    found = session.results.get("loading")
    if not found:
        return None
    rows = tuple(
        (
            row["stage"],
            "n/a" if row["ms"] is None else f"{row['ms']:.1f} ms",
            "n/a" if row["share"] is None else f"{row['share']:.0%}",
            row["how"],
            f"{row['at']} {row['code']}".strip(),
            name_files_once(row["advice"]),
        )
        for row in found["rows"]
    )
    drawn = [(row["stage"], row["ms"]) for row in found["rows"] if row["ms"] is not None]
    chart = partial(charts.bars, "Loading time a batch by stage", drawn, "ms") if drawn else str
    head = ("stage", "a batch", "share", "where", "line", "advice")
    return Section("Loading a batch", (name_files_once(found["sentence"]),), head, rows, chart)


def stall_causes(windows: Windows) -> Section | None:
    """How many stalls there were of each cause, and how long they took."""
    timed = shown(windows)
    events = stall_events(timed) if timed is not None else []
    if timed is None or not events:
        return None
    rows = []
    for cause in sorted({e.cause for e in events}):
        walls = np.array([e.wall_ns for e in events if e.cause == cause]) / 1e6
        times = walls.sum(), *np.quantile(walls, [0.5, 0.95]), walls.max()
        per_thousand = f"{1000 * len(walls) / len(timed):.0f}"
        rows.append((cause, per_thousand, *(f"{ms:.1f} ms" for ms in times)))
    head = ("cause", "per 1000 steps", "total", "p50", "p95", "longest")
    return Section("Stall events", (), head, tuple(rows))


def samples(session: Session, windows: Windows) -> Section | None:
    """The samples that were slowest of their batch."""
    warm = windows.arm(Arm.WARM)
    slow = session.probes.slow_samples or slowest_samples(warm, SHOWN_SAMPLES)
    if not slow or not any(len(window.run) for window in warm):
        return None
    named = [{"path": row["key"], "image": "", **row} for row in slow[:SHOWN_SAMPLES]]
    rows = _rows(named, "{path}", "{ms:.1f} ms", "{worst_ms:.1f} ms", "{seen}", "{image}")
    head = ("sample", "mean", "worst", "seen as slowest of its batch", "image")
    columns = len(head) - (not any(row["image"] for row in named))
    guilty = [row for row in slow if row.get("stall_share")]
    share = sum(row["stall_share"] for row in guilty)
    text = f"{len(guilty)} samples make {share:.0%} of the stalled time."
    lines = (text,) if share >= NAMED_STALLS else ()
    return Section("Slowest samples", lines, head[:columns], tuple(row[:columns] for row in rows))


def add_image_sizes(session: Session, run: str) -> None:
    """Add image sizes of a run of `audit` to the slowest samples; ProfileError without any."""
    rows = session.probes.slow_samples or slowest_samples(Windows(session).arm(Arm.WARM))
    names = ", ".join("'" + str(r.get("path", r["key"])).replace("'", "''") + "'" for r in rows)
    query = IMAGE_SIZES.format(names=names or "''")
    words = [sys.executable, "-m", "audit", "sql", run, query, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProfileError(f"--audit {run}: {done.stderr.strip()}")
    found = dict(row.values() for row in json.loads(done.stdout))
    if not found:
        raise ProfileError(f"{run} has none of the {len(rows)} slowest samples of the session.")
    for row in rows:
        row["image"] = found.get(str(row.get("path", row["key"])), "")
    session.probes.slow_samples = rows


def predictions(session: Session) -> Section | None:
    """Return the drawing of `watch --track-predictions`: a row a sample, a column a step."""
    kept = session.results.get("predictions")
    if not kept:
        return None
    ended = (f"No more was kept: {kept['ended']}.",) if kept.get("ended") else ()
    if not kept["steps"]:
        return Section("Predictions", ended)
    steps, labels = kept["steps"], kept.get("labels")
    values = np.array(kept["values"], float)  # (steps, examples)
    ids = kept.get("samples") or range(values.shape[1])
    of = "samples of the dataset" if "samples" in kept else "examples of the first batch"
    said = f"{len(ids)} {of}, {len(steps)} times in {steps[-1]} steps"
    if labels is None:
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
        lines = [f"{said}: the mean output of each, from {low:.4g} (light) to {high:.4g} (dark)."]
        shades, right = (values - low) / ((high - low) or 1.0), np.ones(values.shape, bool)
    else:
        right = np.array(kept["guesses"]) == labels
        shades, never = np.where(right, values, 1 - values), np.flatnonzero(~right.any(0))
        lines = [f"{said}: blue is right, orange and half as high is wrong, darker is surer."]
        if len(never):
            named = ", ".join(f"{ids[i]} (class {labels[i]})" for i in never[:SHOWN_SAMPLES])
            lines.append(f"Never right: {named}. Look at their labels first.")
    at = sorted({*np.linspace(0, len(steps) - 1, SHOWN_COLUMNS).astype(int).tolist()})
    head = "sample", *(f"step {steps[i]}" for i in at)
    marks = np.where(right, "", " wrong")
    rows = tuple(
        (str(name), *(f"{values[i, n]:.3g}{marks[i, n]}" for i in at)) for n, name in enumerate(ids)
    )
    chart = partial(_grid, steps, ids, values, shades, right)
    return Section("Predictions", (*lines, *ended), head, rows, chart)


def _grid(steps: Sequence[int], ids: Sequence[int], values: Any, shades: Any, right: Any) -> str:
    side, left = 14, 40
    width = min(float(side), (charts.WIDTH - left) / len(steps))
    shapes = [
        charts.bar(left + x * width, y * side, width, side - (1 if right[x, y] else 7),
                   int(not right[x, y]), f"sample {ids[y]}, step {steps[x]}: {values[x, y]:.3g}",
                   max(0.06, shades[x, y]))
        for x, y in np.ndindex(values.shape) if np.isfinite(values[x, y])
    ]  # fmt: skip
    foot = values.shape[1] * side + 14
    shapes += [charts.text(left - 6, y * side + 11, str(i), "end") for y, i in enumerate(ids)]
    shapes += [charts.text(left, foot, f"step {steps[0]}"),
               charts.text(left + width * len(steps), foot, str(steps[-1]), "end")]  # fmt: skip
    return charts.figure(foot + 6, "Predictions on one batch", shapes)


def _rows(items: Iterable[Mapping[str, Any]], *forms: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(form.format(**item) for form in forms) for item in items)


def operations(session: Session) -> Section | None:
    """tf.data: each operation's cost, from timing the prefixes of the user's own graph."""
    prefixes = session.probes.prefixes or []
    if not prefixes:
        return None
    forms = ("{operation}", "{ms:.2f} ms", "{total_ms:.2f} ms", "{first_ms:.1f} ms", "{visits:g}")
    rows = _rows(prefixes, *forms)
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
    saved = [{**r, "saves": 1 - r["period_ms"] / r["baseline_ms"]} for r in trials]
    forms = ("{name}", "{baseline_ms:.2f} ms", "{period_ms:.2f} ms")
    rows = _rows(saved, *forms, "{saves:+.1%} +/- {spread:.1%}", "{how}")
    head = ("tried", "as it is", "changed", "saves", "how")
    return Section("tf.data interventions, tried and timed", (), head, rows)


def sweep_points(session: Session) -> Section | None:
    """Return the step time and the wait of every setting, beside the step without loading."""
    points = session.results.get("sweep") or []
    if not points:
        return None
    forms = ("{setting}", "{measured_ms:.2f} ms", "{wait_ms:.2f} ms", "{wait_share:.1%}")
    unknown = (*forms[:2], "not measured", "not measured")  # in sessions without this figure
    rows = tuple(_rows([p], *(forms if "wait_ms" in p else unknown))[0] for p in points)
    if lowest := session.results.get("lowest_ms"):
        rows = (("preloaded batches", f"{lowest:.2f} ms", "", ""), *rows)
    head = ("setting", "step", "wait", "of the step")
    return Section("Settings of the loader", (), head, rows)
