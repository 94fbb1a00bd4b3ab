"""Planted faults and healthy twins for `training/short_trainings.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import functional, nn
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    descent,
    toy_regression,
    toy_training,
    warm_up_and_decay,
)


def _signed(sign: float) -> Any:
    """Cross-entropy and, by sign, a penalty or a reward of large outputs."""
    return lambda o, t: functional.cross_entropy(o, t) + sign * 0.05 * (o**2).sum(1).mean()


def _density() -> Any:
    """The mean and logarithmic spread of numbers that spread by a hundredth."""

    def loss(outputs: Any, targets: Any) -> Any:
        mean, spread = outputs[:, :1], outputs[:, 1:]
        return (spread + ((targets / 100 - mean) / spread.exp()) ** 2 / 2).mean()

    return toy_regression(model=nn.Linear(8, 2), loss=loss)


def _warmed() -> Any:
    return toy_training(optimizer=descent("Adam", 3e-4), schedule=warm_up_and_decay)


EXAMPLES = {
    "TRAIN015": Examples(
        planted=(
            ("upwards", lambda: toy_training(optimizer=descent("SGD", 0.05, maximize=True))),
            ("hardly at all", lambda: toy_training(optimizer=descent("SGD", 1e-7))),
            ("a term with the wrong sign", lambda: toy_training(loss=_signed(-1.0))),
        ),
        healthy=(
            ("a penalty of large outputs", lambda: toy_training(loss=_signed(1.0))),
            ("a density above one", lambda: _density()),
        ),
    ),
    "TRAIN026": Examples(
        planted=(
            ("too low", lambda: toy_training(optimizer=descent("SGD", 1e-5))),
            ("too high", lambda: toy_regression(optimizer=descent("SGD", 10.0))),
        ),
        healthy=(("a warm-up and a decay", lambda: _warmed()),),
    ),
}
