"""Two sessions made by hand, so that a profile can be read without timing anything."""

from __future__ import annotations

from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import made_session, schedule

STEP_MS = 10.0
STAGES = {"read": 0.2, "decode": 0.6, "collate": 0.2}


def session(slow: bool, step_ms: float = STEP_MS) -> Session:
    """A loader of two workers that cannot keep up with a step of so many ms (slow), or can."""
    cost = 32.0 if slow else 8.0
    rows = schedule(80, 2, 2, step_ms, lambda j: cost * (3 if j % 16 == 0 else 1), STAGES)
    made: Session = made_session(rows, step_ms, jitter=0.01, workers=2, prefetch=2, batch_size=8)
    made.environment["command"] = {"loader": "train.py:make_loader", "step": "train.py:make_step"}
    for run in made.arm(Arm.WARM):
        run.slow = [
            {"key": "train/fish/2664.jpg", "batch": 16, "wall_ns": 70_000_000, "cpu_ns": 1},
            {"key": "<b>nowhere</b>.jpg", "batch": 32, "wall_ns": 40_000_000, "cpu_ns": 1},
        ]
    return made
