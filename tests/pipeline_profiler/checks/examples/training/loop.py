"""Planted faults and healthy twins for `training/loop.py`."""

from __future__ import annotations

from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import loop_seen

EXAMPLES = {
    "TRAIN038": Examples(
        planted=(("never told", loop_seen(told=[0, 0])),),
        healthy=(("told", loop_seen(told=[0, 1])), ("one process", loop_seen())),
    ),
    "TRAIN039": Examples(
        planted=(("after the step", loop_seen(clipped=(0, 5))),),
        healthy=(("before it", loop_seen(clipped=(5, 0))), ("never", loop_seen())),
    ),
    "TRAIN042": Examples(
        planted=(
            ("a prefix", loop_seen(loaded=(0, 12, 10))),
            ("another model", loop_seen(loaded=(0, 12, 0))),
        ),
        healthy=(("a new head", loop_seen(loaded=(10, 12, 0))), ("nothing to load", loop_seen())),
    ),
    "TRAIN043": Examples(
        planted=(("kept without a copy", loop_seen(weights_kept=(1, 1))),),
        healthy=(("saved", loop_seen(weights_kept=(2, 0))), ("never", loop_seen())),
    ),
    "TRAIN044": Examples(
        planted=(("accuracy in mode min", loop_seen(plateau=("min", 0.8, True))),),
        healthy=(
            ("accuracy in mode max", loop_seen(plateau=("max", 0.8, True))),
            ("a loss", loop_seen(plateau=("min", 0.4, False))),
        ),
    ),
    "TRAIN047": Examples(
        planted=(("0.9999 for 200 steps", loop_seen(average=(8, 4e-4), run_steps=200)),),
        healthy=(
            ("0.9999 for 100,000 steps", loop_seen(average=(8, 4e-4), run_steps=100_000)),
            ("a reference", loop_seen(average=(8, 0.0), run_steps=200)),
            ("one that is warmed up", loop_seen(average=(8, 0.8), run_steps=200)),
        ),
    ),
    "TRAIN048": Examples(
        planted=(("the first step overflows", loop_seen(overflowed=True)),),
        healthy=(("it does not", loop_seen(overflowed=False)),),
    ),
}
