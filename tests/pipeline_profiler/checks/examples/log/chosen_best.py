"""Planted faults and healthy twins for `log/chosen_best.py`."""

from __future__ import annotations

import numpy as np

from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
)
from tests.pipeline_profiler.checks.examples import Examples


def _noisy_curve(noise: float, count: int = 60, bend: float = 8.0) -> LogSubject:
    rng = np.random.default_rng(0)
    curve = 0.8 - 0.4 * np.exp(-np.arange(count) / bend) + rng.normal(0, noise, count)
    return LogSubject([Series("val/accuracy", 500.0 * np.arange(float(count)), curve)])


def _two_runs(first: float, second: float, rows: tuple[int, int]) -> LogSubject:
    """Two runs that fall with these lengths, to 0.5."""
    rng = np.random.default_rng(0)
    made = []
    for name, length, count in zip("ab", (first, second), rows, strict=True):
        steps = np.arange(float(count))
        loss = 0.5 + np.exp(-steps / length) + rng.normal(0, 0.01, count)
        made.append(Series("val_loss", steps * 100, loss, log=f"{name}.csv"))
    return LogSubject(made)


EXAMPLES = {
    "LOG005": Examples(
        planted=(("noisy evaluations", lambda: _noisy_curve(0.06)),),
        healthy=(
            ("quiet evaluations", lambda: _noisy_curve(0.003)),
            ("eight evaluations", lambda: _noisy_curve(0.03, 8, 2.0)),
            ("nothing but noise", lambda: _noisy_curve(0.03, 60, 1e9)),
        ),
    ),
    "LOG006": Examples(
        planted=(
            ("slower but longer", lambda: _two_runs(30, 40, (30, 90))),
            ("the same but longer", lambda: _two_runs(40, 40, (40, 80))),
        ),
        healthy=(
            ("faster and longer", lambda: _two_runs(60, 20, (40, 60))),
            ("longer for nothing", lambda: _two_runs(5, 5, (60, 90))),
        ),
    ),
}
