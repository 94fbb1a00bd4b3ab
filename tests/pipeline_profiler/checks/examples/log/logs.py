"""Planted faults and healthy twins for the checks in `log/`."""

from typing import Any

import numpy as np

from pipeline_profiler.checks.log_subject import LogSubject, Series, Values
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows


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


EXAMPLES: Rows = [
    ("LOG001", FAULT, "with the epoch", lambda: _swinging(0.2)),
    ("LOG001", TWIN, "noise on a curve", lambda: _swinging(0.0)),
    ("LOG001", TWIN, "few rows", lambda: LogSubject([Series("loss", np.arange(9.0), np.ones(9))])),
    ("LOG001", TWIN, "a learning rate", lambda: _swinging(0.0, "lr", np.cos(np.arange(600) / 25))),
    (
        "LOG001",
        TWIN,
        "a nameless setting",
        lambda: _swinging(0.0, "b", np.cos(np.arange(600) / 25)),
    ),
    ("LOG001", TWIN, "a swing that is nothing", lambda: _swinging(0.02, rows=30_000)),
    ("LOG002", FAULT, "rises at the end", lambda: _ending("train/loss", 4.0)),
    ("LOG002", TWIN, "falls", lambda: _ending("train/loss", 0.0)),
    ("LOG002", TWIN, "overfitting", lambda: _ending("val_loss", 4.0)),
    ("LOG003", FAULT, "uneven", lambda: _jittered(20.0)),
    ("LOG003", FAULT, "by the clock", lambda: _jittered(20.0, 600.0 * np.arange(30.0))),
    ("LOG003", TWIN, "steps of one that was resumed", lambda: _jittered(0.0)),
    ("LOG004", FAULT, "flat from a tenth on", lambda: _flattening(20, 0.03)),
    ("LOG004", FAULT, "flat and without noise", lambda: _flattening(20, 0.0)),
    ("LOG004", TWIN, "falls to the end", lambda: _flattening(200)),
    ("LOG004", TWIN, "few rows", lambda: _flattening(4, count=40)),
    ("LOG004", TWIN, "nothing but noise", lambda: _flattening(0.01)),
    ("LOG008", FAULT, "the accuracy rises later", lambda: _falling(6.0, "train/acc")),
    ("LOG008", TWIN, "a slow fall", lambda: _falling(0.0, "train/acc")),
    ("LOG008", TWIN, "an easy task", lambda: _falling(6.0, "train/acc", 0.2)),
    ("LOG008", TWIN, "no score", lambda: _falling(6.0)),
    ("LOG005", FAULT, "noisy evaluations", lambda: _noisy_curve(0.06)),
    ("LOG005", TWIN, "quiet evaluations", lambda: _noisy_curve(0.003)),
    ("LOG005", TWIN, "eight evaluations", lambda: _noisy_curve(0.03, 8, 2.0)),
    ("LOG005", TWIN, "nothing but noise", lambda: _noisy_curve(0.03, 60, 1e9)),
    ("LOG006", FAULT, "slower but longer", lambda: _two_runs(30, 40, (30, 90))),
    ("LOG006", FAULT, "the same but longer", lambda: _two_runs(40, 40, (40, 80))),
    ("LOG006", TWIN, "faster and longer", lambda: _two_runs(60, 20, (40, 60))),
    ("LOG006", TWIN, "longer for nothing", lambda: _two_runs(5, 5, (60, 90))),
    ("LOG009", FAULT, "noise as large as the gain", lambda: _with_subset(0.5)),
    ("LOG009", TWIN, "a large subset", lambda: _with_subset(0.01)),
    ("LOG009", TWIN, "nothing to choose", lambda: _with_subset(0.3, 0.0)),
    ("LOG010", FAULT, "forty steps' time, every twenty", lambda: _costly(40.0)),
    ("LOG010", TWIN, "two steps' time", lambda: _costly(2.0)),
    ("LOG011", FAULT, "the loss alone", lambda: _rising_again(0.8)),
    ("LOG011", FAULT, "loss and score", lambda: _rising_again(0.8, 0.7)),
    ("LOG011", TWIN, "both fall", lambda: _rising_again(0.0)),
    ("LOG011", TWIN, "a little back", lambda: _rising_again(0.3)),
    ("LOG011", TWIN, "surer, not worse", lambda: _rising_again(0.8, 0.0)),
]
