"""Planted faults and healthy twins for `training/overfits_one_batch.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import nn
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    descent,
    toy_regression,
    toy_training,
    warm_up_and_decay,
)


def _linear_bottleneck() -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 1), nn.Tanh(), nn.Linear(1, 4))
    return toy_training(model, optimizer=descent("SGD", 1e-6))


def _decayed() -> Any:
    return toy_training(optimizer=descent("Adam", 3e-4), schedule=warm_up_and_decay)


EXAMPLES = {
    "TRAIN003": Examples(
        planted=(
            ("hardly a step", lambda: toy_training(optimizer=descent("SGD", 1e-6))),
            ("one unit", lambda: _linear_bottleneck()),
        ),
        healthy=(
            ("slow and steady", lambda: toy_regression(optimizer=descent("SGD", 1.5e-3))),
            ("a decay to nothing within 100 steps", lambda: _decayed()),
        ),
    ),
}
