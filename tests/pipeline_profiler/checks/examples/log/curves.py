"""Planted faults and healthy twins for `log/curves.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
    Values,
)
from tests.pipeline_profiler.checks.examples import Examples


def _swinging(
    swing: float, beside: str = "", values: Values | None = None, rows: int = 600
) -> LogSubject:
    rng = np.random.default_rng(0)
    steps = np.arange(float(rows))
    loss = 2 * np.exp(-steps / 200) + rng.normal(0, 0.1, rows)
    loss += swing * np.sin(steps / 40 * 2 * np.pi)
    more = [] if values is None else [Series(beside, steps, values)]
    return LogSubject([Series("loss", steps, loss), *more])


def _ending(name: str, end: float) -> LogSubject:
    rng = np.random.default_rng(0)
    steps = np.arange(200.0)
    loss = 2 * np.exp(-steps / 40) + rng.normal(0, 0.05, 200)
    loss[150:] += np.linspace(0, end, 50)
    return LogSubject([Series(name, steps, loss)])


def _jittered(jitter: float, seconds: Any = None) -> LogSubject:
    """Steps with a gap, where it was resumed."""
    rng = np.random.default_rng(0)
    steps = np.cumsum(np.round(100 + jitter * rng.normal(0, 1, 30)))
    steps += 37.0 * (np.arange(30) > 12)
    return LogSubject([Series("val_accuracy", steps, rng.normal(0.9, 0.01, 30), seconds)])


def _flattening(length: float, noise: float = 0.05, count: int = 400) -> LogSubject:
    rng = np.random.default_rng(0)
    steps = np.arange(float(count))
    loss = 0.5 + 2 * np.exp(-steps / length) + rng.normal(0, noise, count)
    return LogSubject([Series("val_loss", steps * 10, loss)])


def _falling(first: float, score: str = "", rises: float = 1.0) -> LogSubject:
    rng, steps = np.random.default_rng(0), np.arange(1000.0)
    slow = np.exp(-steps / 400)
    loss = 0.6 + 0.4 * slow + first * np.exp(-steps / 4) + rng.normal(0, 0.03, 1000)
    shape = 1 - np.where(rises > 0, rises * slow + (1 - rises) * np.exp(-steps / 4), slow)
    more = [Series(score, steps, 0.5 + 0.4 * shape + rng.normal(0, 0.01, 1000))]
    return LogSubject([Series("train/loss", steps, loss), *(more if score else [])])


EXAMPLES = {
    "LOG001": Examples(
        planted=(("with the epoch", lambda: _swinging(0.2)),),
        healthy=(
            ("noise on a curve", lambda: _swinging(0.0)),
            ("few rows", lambda: LogSubject([Series("loss", np.arange(9.0), np.ones(9))])),
            ("a learning rate", lambda: _swinging(0.0, "lr", np.cos(np.arange(600) / 25))),
            ("a setting without a name", lambda: _swinging(0.0, "b", np.cos(np.arange(600) / 25))),
            ("a swing that is nothing", lambda: _swinging(0.02, rows=30_000)),
        ),
    ),
    "LOG002": Examples(
        planted=(("rises at the end", lambda: _ending("train/loss", 4.0)),),
        healthy=(
            ("falls", lambda: _ending("train/loss", 0.0)),
            ("overfitting", lambda: _ending("val_loss", 4.0)),
        ),
    ),
    "LOG003": Examples(
        planted=(
            ("uneven", lambda: _jittered(20.0)),
            ("by the clock", lambda: _jittered(20.0, 600.0 * np.arange(30.0))),
        ),
        healthy=(("steps of one that was resumed", lambda: _jittered(0.0)),),
    ),
    "LOG004": Examples(
        planted=(
            ("flat from a tenth on", lambda: _flattening(20, 0.03)),
            ("flat and without noise", lambda: _flattening(20, 0.0)),
        ),
        healthy=(
            ("falls to the end", lambda: _flattening(200)),
            ("few rows", lambda: _flattening(4, count=40)),
            ("nothing but noise", lambda: _flattening(0.01)),
        ),
    ),
    "LOG008": Examples(
        planted=(("the accuracy rises later", lambda: _falling(6.0, "train/acc")),),
        healthy=(
            ("a slow fall", lambda: _falling(0.0, "train/acc")),
            ("an easy task", lambda: _falling(6.0, "train/acc", 0.2)),
            ("no score", lambda: _falling(6.0)),
        ),
    ),
}
