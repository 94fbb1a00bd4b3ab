"""Planted faults and healthy twins for `log/evaluations.py`."""

from __future__ import annotations

import numpy as np

from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
)
from tests.pipeline_profiler.checks.examples import Examples


def _with_subset(noise: float, fall: float = 0.5) -> LogSubject:
    """Thirty evaluations that rise and then fall; the subset's noise."""
    rng, at = np.random.default_rng(0), np.arange(30.0)
    curve = 0.5 + 0.3 * (1 - np.exp(-at / 5)) - fall * np.clip(at - 15, 0, None) / 15
    whole, part = (curve + rng.normal(0, n, 30) for n in (0.002, noise))
    named = (("val/acc", whole), ("val_subset/acc", part))
    return LogSubject([Series(name, 100 * at, values) for name, values in named])


def _costly(cost: float) -> LogSubject:
    rng, at = np.random.default_rng(0), np.arange(400.0)
    took = 1 + 0.05 * rng.random(400) + cost * (at % 20 == 1)
    loss = np.exp(-at / 100) + 0.02 * rng.normal(size=400)
    train = Series("train/loss", at, loss, np.cumsum(took))
    return LogSubject([train, Series("val/loss", at[20::20], loss[20::20] + 0.1)])


def _rising_again(back: float, score: float | None = None, decay: float = 0.0) -> LogSubject:
    """Forty epochs; how much of its gain the held-out loss, and its accuracy, lose again."""
    rng, at = np.random.default_rng(0), np.arange(40.0)
    fall, late = np.exp(-at / 6), np.clip(at - 15, 0, None) / 24
    columns = {"loss": 2 * fall, "val_loss": 0.4 + 1.6 * (fall + back * late)}
    if score is not None:
        columns["val_acc"] = 0.9 - 0.6 * (fall + score * late)
    made = {name: values + 0.02 * rng.normal(size=40) for name, values in columns.items()}
    made["weight_decay"] = np.full(40, decay)
    return LogSubject([Series(name, at, values) for name, values in made.items()])


EXAMPLES = {
    "LOG009": Examples(
        planted=(("noise as large as the gain", lambda: _with_subset(0.5)),),
        healthy=(
            ("a large subset", lambda: _with_subset(0.01)),
            ("nothing to choose", lambda: _with_subset(0.3, 0.0)),
        ),
    ),
    "LOG010": Examples(
        planted=(("forty steps' time, every twenty", lambda: _costly(40.0)),),
        healthy=(("two steps' time", lambda: _costly(2.0)),),
    ),
    "LOG011": Examples(
        planted=(
            ("the loss alone", lambda: _rising_again(0.8)),
            ("loss and score", lambda: _rising_again(0.8, 0.7)),
        ),
        healthy=(
            ("both fall", lambda: _rising_again(0.0)),
            ("a little back", lambda: _rising_again(0.3)),
            ("surer, not worse", lambda: _rising_again(0.8, 0.0)),
        ),
    ),
}
