"""Planted faults and healthy twins for the checks in `log/`."""

from pathlib import Path
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


def _noisy_curve(noise: float, count: int = 60, bend: float = 8.0) -> LogSubject:
    rng = np.random.default_rng(0)
    curve = 0.8 - 0.4 * np.exp(-np.arange(count) / bend) + rng.normal(0, noise, count)
    return LogSubject([Series("val/accuracy", 500.0 * np.arange(float(count)), curve)])


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


def _rising_again(back: float, score: float | None = None) -> LogSubject:
    """Forty epochs; how much of its gain the held-out loss, and its accuracy, lose again."""
    rng, at = np.random.default_rng(0), np.arange(40.0)
    fall, late = np.exp(-at / 6), np.clip(at - 15, 0, None) / 24
    columns = {"loss": 2 * fall, "val_loss": 0.4 + 1.6 * (fall + back * late)}
    if score is not None:
        columns["val_acc"] = 0.9 - 0.6 * (fall + score * late)
    made = {name: values + 0.02 * rng.normal(size=40) for name, values in columns.items()}
    return LogSubject([Series(name, at, values) for name, values in made.items()])


NOISE = np.random.default_rng(0).normal(size=600)
ROWS = np.arange(600.0)
FALL = 0.4 + 1.9 * np.exp(-ROWS / 150) + 0.05 * NOISE
COSINE = 5e-4 * (1 + np.cos(np.pi * ROWS / 600))


def _log(steps: Values = ROWS, **columns: Values) -> LogSubject:
    return LogSubject([Series(name, steps, values) for name, values in columns.items()])


def _still(level: float, noise: float = 0.02, **columns: Any) -> LogSubject:
    """A loss that stands at a level, beside columns of one value or of 600."""
    filled = {name: values + 0.0 * ROWS for name, values in columns.items()}
    return _log(loss=level + noise * NOISE, **filled)


def _resumed(loss: Values, rate: Values = COSINE, back_to: int = 300) -> LogSubject:
    """The last 200 of 600 rows have the steps from `back_to` on."""
    return _log(np.r_[ROWS[:400], ROWS[back_to : back_to + 200]], loss=loss, lr=rate)


def _evaluated(falls: float, *files: str) -> LogSubject:
    """Thirty evaluations with their best at half, and the checkpoints beside them."""
    at = np.arange(30.0)
    score = 0.9 - 0.7 * np.exp(-at / 6) - falls * np.clip(at - 15, 0, None) + 0.005 * NOISE[:30]
    return LogSubject([Series("val_acc", 100 * at, score)], checkpoints=[Path(f) for f in files])


def _leaping(rows: int, stage: float = 1.0) -> LogSubject:
    """A loss that steps up for some rows and comes down again; a stage that may change there."""
    up = 0.8 * ((ROWS >= 400) & (ROWS - rows < 400))
    return _log(loss=FALL + up, stage=np.where(ROWS < 400, 1.0, stage))


def _of_samples(count: int) -> LogSubject:
    """Forty evaluations of an accuracy of 0.7 to 0.9 on so many samples."""
    rng = np.random.default_rng(0)
    right = rng.binomial(count, np.linspace(0.7, 0.9, 40))
    return LogSubject([Series("val_acc", np.arange(40.0), right / count)])


def _ahead(by: float) -> LogSubject:
    """Forty epochs of an accuracy, and of the held-out one that is higher by a number."""
    at, noise = np.arange(40.0), 0.002 * NOISE[:40]
    rise = 0.8 - 0.5 * np.exp(-at / 6) + noise
    return LogSubject([Series("train_acc", at, rise), Series("val_acc", at, rise + by + noise)])


def _frozen_from(row: int) -> LogSubject:
    """Forty epochs; the held-out loss repeats its value of a row."""
    at = np.arange(40.0)
    fall = 0.4 + np.exp(-at / 10) + 0.01 * NOISE[:40]
    held = (fall + 0.1234567)[np.minimum(at, row).astype(int)]
    return LogSubject([Series("loss", at, fall), Series("val_loss", at, held)])


def _by_epoch(at_starts: float, within: float) -> LogSubject:
    """Five epochs of 100 rows; what the loss falls by at each start, and within each epoch."""
    rows, epoch = np.arange(500.0), np.arange(500) // 100
    loss = 4 - at_starts * epoch - within * rows / 100 + 0.05 * NOISE[:500]
    return _log(rows, loss=loss, epoch=epoch.astype(float))


def _restarting(period: float) -> LogSubject:
    """Ten epochs of 60 rows; a cosine with a period in rows."""
    rate = 1 + np.cos(2 * np.pi * ROWS / period)
    return _log(loss=FALL, lr=rate, epoch=np.floor(ROWS / 60))


def _warmed(row: int) -> Values:
    """Return a warm-up and a decay of 600 rows that begins again at a row."""
    rate = np.interp(ROWS, [0, 30, 600], [1e-5, 1e-3, 0.0])
    return np.r_[rate[:row], rate[: 600 - row]]


SPIKE = np.r_[FALL[:400], FALL[300:500] + 0.8 * np.exp(-np.arange(200) / 20)]
EXAMPLES: Rows = [
    ("LOG012", FAULT, "a loss at the level of ten classes", lambda: _still(2.303)),
    ("LOG012", FAULT, "a loss that stands from step 0 on", lambda: _still(5.1)),
    ("LOG012", FAULT, "a rate of zero", lambda: _still(1.2, lr=0.0)),
    ("LOG012", FAULT, "a rate of 1e-9", lambda: _still(1.2, lr=1e-9)),
    ("LOG012", FAULT, "a schedule that ends early", lambda: _log(loss=FALL[np.minimum(ROWS,
     199).astype(int)] + 0.05 * NOISE, lr=1e-3 * np.clip(1 - ROWS / 200, 0, None))),
    ("LOG012", FAULT, "a rate below zero", lambda: _log(loss=FALL, lr=1e-3 * (1 - ROWS / 500))),
    ("LOG012", FAULT, "accuracy of chance", lambda: _log(loss=FALL, val_acc=np.full(600, 0.1))),
    ("LOG012", FAULT, "noisy chance", lambda: _log(loss=FALL, val_acc=0.1 + 0.003 * NOISE)),
    ("LOG012", FAULT, "one class", lambda: _log(loss=FALL, val_acc=np.full(600, 0.7134))),
    ("LOG012", FAULT, "one class of two", lambda: _still(0.33, 0.002, val_acc=0.9)),
    ("LOG012", TWIN, "warm-up and cosine", lambda: _log(loss=FALL, lr=COSINE * (ROWS > 9))),
    ("LOG012", TWIN, "a rounded rate", lambda: _log(loss=FALL, lr=np.round(COSINE / 10, 4))),
    ("LOG012", TWIN, "a frozen group", lambda: _log(loss=FALL, lr0=0 * ROWS, lr1=COSINE)),
    ("LOG012", TWIN, "fine-tuning, flat", lambda: _still(0.12, val_acc=0.97 + 0.002 * NOISE)),
    ("LOG012", TWIN, "few held-out samples", lambda: _still(0.12, val_acc=31 / 32)),
    ("LOG012", TWIN, "a GAN", lambda: _still(2.303, g_loss=0.7, d_acc=0.5)),
    ("LOG012", TWIN, "RL", lambda: _still(2.303, reward=ROWS / 6, policy_loss=0.0)),
    ("LOG012", TWIN, "a teacher", lambda: _log(loss=FALL, teacher_acc=np.full(600, 0.7134))),
    ("LOG012", TWIN, "a hundred classes, from a checkpoint", lambda: _log(1e5 + ROWS,
     loss=2.2 + 0.02 * NOISE, val_loss=2.2 + 0.02 * NOISE, val_acc=0.5 + 0.004 * NOISE)),
    ("LOG012", TWIN, "a loss at the level of ten classes, from a checkpoint",
     lambda: _log(1e5 + ROWS, loss=2.303 + 0.02 * NOISE)),
    ("LOG010", TWIN, "rows of training and evaluation at the same steps",
     lambda: LogSubject([Series("epoch", np.sort(np.r_[ROWS, ROWS[::2]]), np.arange(900.0)),
     Series("loss", ROWS, FALL)])),
    ("LOG012", FAULT, "all lost at a resume", lambda: _resumed(np.r_[FALL[:400], FALL[:200]])),
    ("LOG012", FAULT, "the optimizer lost at a resume", lambda: _resumed(SPIKE)),
    ("LOG012", FAULT, "the schedule lost", lambda: _log(loss=FALL, lr=np.r_[COSINE[:240],
     COSINE[np.arange(360) * 5 // 3]])),
    ("LOG012", TWIN, "a resume", lambda: _resumed(np.r_[FALL[:400], FALL[300:500]],
     np.r_[COSINE[:400], COSINE[300:500]])),
    ("LOG012", TWIN, "a second run", lambda: _resumed(np.r_[FALL[:400], FALL[:200]],
     np.r_[COSINE[:400], COSINE[:200]], back_to=0)),
    ("LOG012", TWIN, "steps of an epoch", lambda: _log(ROWS % 60, loss=FALL, lr=COSINE)),
    ("LOG012", TWIN, "warm restarts", lambda: _log(loss=FALL,
     lr=1 + np.cos(np.pi * (ROWS % 150) / 150))),
    ("LOG012", TWIN, "a loss of a GAN", lambda: _log(g_loss=0.7 + ROWS / 200 + 0.1 * NOISE)),
    ("LOG005", FAULT, "only the last", lambda: _evaluated(0.02, "last.pt")),
    ("LOG005", FAULT, "only the last step", lambda: _evaluated(0.02, "checkpoint-2900")),
    ("LOG005", FAULT, "the last three epochs", lambda: _evaluated(0.02,
     *(f"model_epoch_{epoch}.pth" for epoch in (28, 29, 30)))),
    ("LOG005", TWIN, "the best beside the last", lambda: _evaluated(0.02, "best.pt", "last.pt")),
    ("LOG005", TWIN, "a folder of the best", lambda: _evaluated(0.02, "best_model", "last.pt")),
    ("LOG005", TWIN, "the top two", lambda: _evaluated(0.02, "epoch=14-step=1400.ckpt", "last.pt")),
    ("LOG005", TWIN, "a file without a step", lambda: _evaluated(0.02, "resnet50.pth")),
    ("LOG005", TWIN, "the last is the best", lambda: _evaluated(0.0, "last.pt")),
    ("LOG001", FAULT, "with the epoch", lambda: _swinging(0.2)),
    ("LOG001", TWIN, "noise on a curve", lambda: _swinging(0.0)),
    ("LOG001", TWIN, "few rows", lambda: LogSubject([Series("loss", np.arange(9.0), np.ones(9))])),
    ("LOG001", TWIN, "a learning rate", lambda: _swinging(0.0, "lr", np.cos(np.arange(600) / 25))),
    ("LOG001", TWIN, "a nameless setting", lambda: _swinging(0.0, "b",
     np.cos(np.arange(600) / 25))),
    ("LOG001", TWIN, "a swing that is nothing", lambda: _swinging(0.02, rows=30_000)),
    ("LOG012", FAULT, "rises at the end", lambda: _ending("train/loss", 4.0)),
    ("LOG012", TWIN, "falls", lambda: _ending("train/loss", 0.0)),
    ("LOG012", TWIN, "overfitting", lambda: _ending("val_loss", 4.0)),
    ("LOG010", FAULT, "uneven", lambda: _jittered(20.0)),
    ("LOG010", FAULT, "by the clock", lambda: _jittered(20.0, 600.0 * np.arange(30.0))),
    ("LOG010", TWIN, "steps of one that was resumed", lambda: _jittered(0.0)),
    ("LOG005", FAULT, "noisy evaluations", lambda: _noisy_curve(0.2)),
    ("LOG005", TWIN, "quiet evaluations", lambda: _noisy_curve(0.003)),
    ("LOG005", TWIN, "eight evaluations", lambda: _noisy_curve(0.03, 8, 2.0)),
    ("LOG005", TWIN, "nothing but noise", lambda: _noisy_curve(0.03, 60, 1e9)),
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
    ("LOG012", FAULT, "a loss steps up for a while", lambda: _leaping(40)),
    ("LOG012", TWIN, "a spike of two rows", lambda: _leaping(2)),
    ("LOG012", TWIN, "a step up with its stage", lambda: _leaping(200, 2.0)),
    ("LOG012", FAULT, "a second warm-up", lambda: _log(loss=FALL, lr=_warmed(450))),
    ("LOG012", TWIN, "a single warm-up", lambda: _log(loss=FALL, lr=_warmed(600))),
    ("LOG012", FAULT, "a rate back at its peak after a warm-up", lambda: _log(loss=FALL,
     lr=np.where((ROWS >= 450) & (ROWS < 500), 1e-3, _warmed(600)))),
    ("LOG012", TWIN, "a weight of the loss that grows", lambda: _log(loss=FALL + ROWS / 100,
     beta=ROWS / 300)),
    ("LOG012", TWIN, "a small loss that halves late",
     lambda: _log(loss=2 * np.exp(-ROWS / 20) + 0.02 - ROWS / 40000)),
    ("LOG012", TWIN, "a stage of harder samples", lambda: _log(loss=FALL + 0.3 * (ROWS > 330),
     stage=1.0 * (ROWS > 330))),
    ("LOG005", FAULT, "eight samples", lambda: _of_samples(8)),
    ("LOG005", TWIN, "120 samples", lambda: _of_samples(120)),
    ("LOG005", TWIN, "luck of a fifth of the gain", lambda: _noisy_curve(0.06)),
    ("LOG011", FAULT, "a held-out accuracy far ahead", lambda: _ahead(0.19)),
    ("LOG011", TWIN, "ahead by dropout", lambda: _ahead(0.04)),
    ("LOG011", FAULT, "surer, and no better", lambda: _rising_again(0.8, 0.1)),
    ("LOG011", TWIN, "rounding of a constant", lambda: _log(acc=ROWS, val_acc=1 - 1e-16 * ROWS)),
    ("LOG011", FAULT, "falls at the starts of epochs", lambda: _by_epoch(0.5, 0.0)),
    ("LOG011", TWIN, "falls within the epochs", lambda: _by_epoch(0.0, 0.5)),
    ("LOG012", FAULT, "a held-out loss that is frozen", lambda: _frozen_from(20)),
    ("LOG012", TWIN, "a held-out loss that moves", lambda: _frozen_from(38)),
    ("LOG012", FAULT, "a cosine by batch", lambda: _restarting(30)),
    ("LOG012", TWIN, "a cosine of two epochs", lambda: _restarting(120)),
    ("LOG012", FAULT, "no schedule", lambda: _log(loss=FALL, lr=ROWS * 0 + 1, scheduled_lr=COSINE)),
    ("LOG012", TWIN, "as scheduled", lambda: _log(loss=FALL, lr=COSINE, scheduled_lr=COSINE)),
    ("LOG012", FAULT, "a noisy loss of 5", lambda: _still(5.1, 0.6)),
    ("LOG012", FAULT, "no sample is right, logged every 100 steps", lambda: _log(100 * ROWS + 100,
     loss=7.66 + 0.01 * NOISE, acc=1e-4 * (ROWS % 50 == 9))),
    ("LOG012", TWIN, "some samples are right", lambda: _still(5.1, 0.01, acc=0.8 + 0.01 * NOISE)),
]  # fmt: skip
