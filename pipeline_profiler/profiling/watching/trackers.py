"""The verdict in the summary of the W&B or MLflow run that is active in this process.

Only what the user's own program has imported and started is spoken to; where a tracker refuses, the
training goes on without a word.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipeline_profiler.profiling.record.session import Session

Facts = Mapping[str, float | str]


def tell_trackers(session: Session) -> None:
    """Write what a recorded loop says into every active run; nothing where there is none."""
    tellers = list(_tellers())
    if not tellers:
        return
    # a training without a tracker does not load what judges
    from pipeline_profiler.profiling.watching.conclusion import judge_watched, long_enough

    if not long_enough(session):
        return
    judged = replace(session, results={}, notes=list(session.notes))
    judge_watched(judged)
    facts = summary_facts(judged)
    for tell in tellers:
        with contextlib.suppress(Exception):
            tell(facts)


def is_tracked() -> bool:
    """Whether a run is active in this process."""
    return any(True for _ in _tellers())


def summary_facts(session: Session) -> dict[str, float | str]:
    """What stands in the summary: verdict, wait share with its interval, step, first cause."""
    from pipeline_profiler.profiling.diagnose.window import Window

    results, window = session.results, Window.of(session.runs[0])
    facts: dict[str, float | str] = {
        "verdict": str(results["verdict"]),
        "step_ms": window.period_ns / 1e6,
        "steps": float(len(window)),
    }
    if stall := results.get("stall"):
        names = {"share": "wait_share", "low": "wait_share_low", "high": "wait_share_high"}
        facts |= {names[key]: float(stall[key]) for key in names if stall.get(key) is not None}
    if causes := results.get("causes"):
        facts["first_cause"] = f"{causes[0]['code']} {causes[0]['name']}"
    return {"pipeline_profiler/" + name: value for name, value in facts.items()}


def _tellers() -> Iterator[Callable[[Facts], None]]:
    with contextlib.suppress(Exception):
        run = getattr(sys.modules.get("wandb"), "run", None)
        if run is not None:
            yield run.summary.update
    with contextlib.suppress(Exception):
        mlflow: Any = sys.modules.get("mlflow")
        if mlflow is not None and mlflow.active_run() is not None:

            def tell(facts: Facts) -> None:
                mlflow.log_metrics({k: v for k, v in facts.items() if isinstance(v, float)})
                mlflow.set_tags({k: v for k, v in facts.items() if isinstance(v, str)})

            yield tell
