"""The conclusion of a watched run: the observed stall, or why it is inconclusive.

Without other configurations, the stall is the share of the step inside next() (on a GPU: the
device's wait). No verdict if the wait lies inside a compiled step or in another thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.verdict import (
    Conclusion,
    Verdict,
    diagnose_session,
)
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Run, Session

LEAST_STEPS = 5
PARTS = ("forward", "backward", "optimizer", "training collective", "checkpoint")
SAMPLED = ("backward", "optimizer")  # timed where `Looks` looks at a step
ELSEWHERE = 0.5  # share of the steps that train in another thread


def long_enough(session: Session) -> bool:
    """Whether a loop has steps enough to be judged."""
    return any(len(Window.of(run)) >= LEAST_STEPS for run in session.runs)


def judge_session(session: Session) -> Conclusion | None:
    """Judge a session by the present rules; return the conclusion, None if there is none.

    Without windows of the loader, or if judging raises, the stored results stay; `recorded` keeps a
    sentence that differs. Raises ProfileError for a whole session without results that cannot be
    judged.
    """
    stored = dict(session.results)
    one_loop = not session.plan.arms and {run.arm for run in session.runs} <= {Arm.WARM}
    if stored.get("verdict") not in (None, *Verdict) or not (one_loop or session.arm(Arm.WARM)):
        return None
    try:
        if one_loop:
            conclusion = _judge_loop(session)
        else:
            conclusion = diagnose_session(session)
            session.results |= conclusion.as_results()
    except Exception as error:
        session.results = stored
        if "verdict" in stored or (session.partial and isinstance(error, ProfileError)):
            return None
        raise
    if stored.get("sentence", session.results["sentence"]) != session.results["sentence"]:
        session.results["recorded"] = stored["sentence"]
    return conclusion


def _judge_loop(session: Session) -> Conclusion | None:
    conclusion = None
    run = session.runs[0] if session.runs else None
    why = "no loader was iterated" if run is None else _untold(run)
    if run is None or why:
        verdict = Verdict.INCONCLUSIVE.value
        said = f"{verdict}: the wait for the loader is inconclusive, because {why}"
        session.results |= {"verdict": verdict, "sentence": said, "stall": None, "causes": []}
    else:
        conclusion = diagnose_session(session)
        session.results |= conclusion.as_results()
        session.results["sentence"] += _all_steps(run)
    if run is not None:
        session.results["phases"] = step_phases(run)
    return conclusion


def _untold(run: Run) -> str:
    """Why the wait of this run is not known; '' where it is."""
    window = Window.of(run)
    if len(window) < LEAST_STEPS:
        return f"fewer than {LEAST_STEPS} steps were recorded"
    if not run.config.get("wait_told", True):
        return str(run.config.get("wait_untold", "the wait lies inside the train step"))
    trained = run.totals.get("trained_steps", 0)
    if trained and run.totals.get("elsewhere_steps", 0) > ELSEWHERE * trained:
        return (
            "batches are drawn in another thread than the one that trains; two lines record what "
            "the training waits for: rec = Recorder(save_to='profile.json') and, in the thread "
            "that trains, for batch in rec.watch(loader)"
        )
    return ""


def _all_steps(run: Run) -> str:
    """What is known of the steps that a long run has dropped."""
    dropped, totals = run.totals.get("dropped_steps", 0), run.totals
    if not dropped:
        return ""
    wait = totals.get("dropped_wait_ns", 0) + totals.get("dropped_iter_ns", 0)
    share = wait / max(1, wait + totals.get("dropped_loop_ns", 0))
    return f"; the {dropped} steps before these waited {share:.1%} of their time"


def step_phases(run: Run) -> dict[str, float]:
    """Seconds by part of the run's steps: wait, forward, ..., the rest; evaluation beside them."""
    window = Window.of(run)
    if not len(window):
        return {}
    parts = {"wait": float(window.exposed.sum())}
    for name in PARTS:
        rows = window.spans(f"step:{name}")
        seen = len(np.unique(rows["batch"]))
        # forward is looked at in some of the steps only, and so are others of short steps
        scale = len(window) / seen if seen and name == "forward" else 1.0
        if name in SAMPLED and "rank" not in run.totals:
            done = run.totals.get("dropped_steps", 0) + len(window)
            scale = max(1.0, done / max(1, run.totals.get("looked_steps", done)))
        parts[name] = float(rows["wall"].sum()) * scale
    parts["other"] = max(0.0, float(window.steps.period.sum()) - sum(parts.values()))
    parts["evaluation"] = float(run.totals.get("evaluation_ns", 0))
    return {name: ns / 1e9 for name, ns in parts.items() if ns > 0}


def parts_line(phases: dict[str, float], session: Session) -> list[str]:
    """The parts of the step in one line; none where they are not known."""
    inside = {name: s for name, s in phases.items() if name != "evaluation"}
    total = sum(inside.values())
    if not total:
        return []
    steps = int(np.sum([len(Window.of(run)) for run in session.runs]))
    shares = ", ".join(f"{name} {s / total:.0%}" for name, s in inside.items())
    on_a_gpu = session.environment.get("torch", {}).get("device", "cpu") != "cpu"
    whose = " in the process, the GPU runs behind" if on_a_gpu else ""  # kernels are only launched
    text = f"  step of {total / max(1, steps) * 1e3:.1f} ms{whose}: {shares}"
    beside: Any = phases.get("evaluation")
    return [text + (f"; evaluation took {beside:.1f} s beside it" if beside else "")]
