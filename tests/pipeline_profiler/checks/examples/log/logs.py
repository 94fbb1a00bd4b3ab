"""Planted faults and healthy twins for the checks in `log/`."""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.log_subject import LogSubject, Series, Values
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows

NOISE = np.random.default_rng(0).normal(size=600)
ROWS, AT = np.arange(600.0), np.arange(40.0)
FALL = 0.4 + 1.9 * np.exp(-ROWS / 150) + 0.05 * NOISE
COSINE = 5e-4 * (1 + np.cos(np.pi * ROWS / 600))
WARM = np.interp(ROWS, [0, 30, 600], [1e-5, 1e-3, 0.0])
SPIKE = np.r_[FALL[:400], FALL[300:500] + 0.8 * np.exp(-np.arange(200) / 20)]
RISE = 0.8 - 0.5 * np.exp(-AT / 6) + 0.002 * NOISE[:40]


def _log(steps: Values = ROWS, **columns: Values) -> LogSubject:
    return LogSubject([Series(name, steps, values) for name, values in columns.items()])


def _still(level: float, noise: float = 0.02, **columns: Any) -> LogSubject:
    """A loss that stands at a level, beside columns of one value or of 600."""
    filled = {name: values + 0.0 * ROWS for name, values in columns.items()}
    return _log(loss=level + noise * NOISE, **filled)


def _swinging(swing: float, rows: int = 600, **beside: Values) -> LogSubject:
    steps = np.arange(float(rows))
    loss = 2 * np.exp(-steps / 200) + np.random.default_rng(0).normal(0, 0.1, rows)
    return _log(steps, loss=loss + swing * np.sin(steps / 40 * 2 * np.pi), **beside)


def _jittered(jitter: float) -> LogSubject:
    """Steps at even times, with a gap where it was resumed."""
    steps = np.cumsum(np.round(100 + jitter * NOISE[:40])) + 37.0 * (AT > 12)
    return LogSubject([Series("val_accuracy", steps, 0.9 + 0.01 * NOISE[:40], 600 * AT)])


def _noisy_curve(noise: float, count: int = 60, bend: float = 8.0) -> LogSubject:
    curve = 0.8 - 0.4 * np.exp(-np.arange(count) / bend)
    return _log(500 * ROWS[:count], val_accuracy=curve + noise * NOISE[:count])


def _with_subset(noise: float, gain: float = 0.3) -> LogSubject:
    """Forty evaluations that rise and then fall; the subset's noise."""
    curve = 0.5 + gain * (1 - np.exp(-AT / 5) - np.clip(AT - 15, 0, None) / 9)
    part = curve + noise * NOISE[400:440]
    return _log(100 * AT, val_acc=curve + 0.002 * NOISE[:40], val_subset_acc=part)


def _costly(cost: float) -> LogSubject:
    took = 1 + 0.05 * np.abs(NOISE) + cost * (ROWS % 20 == 1)
    train = Series("train/loss", ROWS, FALL, np.cumsum(took))
    return LogSubject([train, Series("val/loss", ROWS[20::20], FALL[20::20] + 0.1)])


def _rising_again(back: float, score: float) -> LogSubject:
    """Forty epochs; how much of its gain the held-out loss, and its accuracy, lose again."""
    fall, late, noise = np.exp(-AT / 6), np.clip(AT - 15, 0, None) / 24, 0.02 * NOISE[:40]
    held_out = 0.4 + 1.6 * (fall + back * late) - noise
    return _log(AT, loss=2 * fall + noise, val_loss=held_out,
                val_acc=0.9 - 0.6 * (fall + score * late) + noise)  # fmt: skip


def _resumed(loss: Values, rate: Values = COSINE, back_to: int = 300) -> LogSubject:
    """The last 200 of 600 rows have the steps from `back_to` on."""
    return _log(np.r_[ROWS[:400], ROWS[back_to : back_to + 200]], loss=loss, lr=rate)


def _evaluated(falls: float, *files: str) -> LogSubject:
    """Evaluations with their best at half, and the checkpoints beside them."""
    score = 0.9 - 0.7 * np.exp(-AT / 6) - falls * np.clip(AT - 15, 0, None) + 0.005 * NOISE[:40]
    return LogSubject([Series("val_acc", 100 * AT, score)], checkpoints=[Path(f) for f in files])


def _leaping(rows: int, stage: float = 1.0) -> LogSubject:
    """A loss that steps up for some rows and comes down again; a stage that may change there."""
    up = 0.8 * ((ROWS >= 400) & (ROWS - rows < 400))
    return _log(loss=FALL + up, stage=np.where(ROWS < 400, 1.0, stage))


def _of_samples(count: int) -> LogSubject:
    """Evaluations of an accuracy of 0.7 to 0.9 on a number of samples."""
    right = np.random.default_rng(0).binomial(count, np.linspace(0.7, 0.9, 40))
    return _log(AT, val_acc=right / count)


def _frozen_from(row: int) -> LogSubject:
    """Forty epochs; the held-out loss repeats its value of a row."""
    fall = 0.4 + np.exp(-AT / 10) + 0.01 * NOISE[:40]
    return _log(AT, loss=fall, val_loss=(fall + 0.1234567)[np.minimum(AT, row).astype(int)])


def _by_epoch(at_starts: float, within: float) -> LogSubject:
    """Six epochs of 100 rows; what the loss falls by at each start, and within each epoch."""
    loss = 5 - at_starts * (ROWS // 100) - within * ROWS / 100 + 0.05 * NOISE
    return _log(loss=loss, epoch=ROWS // 100)


def _restarting(period: float) -> LogSubject:
    """Ten epochs of 60 rows; a cosine with a period in rows."""
    return _log(loss=FALL, lr=1 + np.cos(2 * np.pi * ROWS / period), epoch=ROWS // 60)


EXAMPLES: Rows = [
    ("LOG001", FAULT, "with the epoch", lambda: _swinging(0.2)),
    ("LOG001", TWIN, "a rate, a nameless setting", lambda: _swinging(0.0,
     lr=np.cos(ROWS / 25), b=np.cos(ROWS / 25))),
    ("LOG001", TWIN, "few rows", lambda: _log(AT, loss=AT)),
    ("LOG001", TWIN, "a swing that is nothing", lambda: _swinging(0.02, rows=30_000)),
    ("LOG005", FAULT, "only the last", lambda: _evaluated(0.02, "last.pt")),
    ("LOG005", FAULT, "the last three epochs", lambda: _evaluated(0.02,
     *(f"model_epoch_{epoch}.pth" for epoch in (38, 39, 40)))),
    ("LOG005", TWIN, "the best beside the last", lambda: _evaluated(0.02, "best.pt", "last.pt")),
    ("LOG005", TWIN, "the top two", lambda: _evaluated(0.02, "epoch=14-step=1400.ckpt", "last.pt")),
    ("LOG005", TWIN, "a file without a step", lambda: _evaluated(0.02, "resnet50.pth")),
    ("LOG005", TWIN, "the last is the best", lambda: _evaluated(0.0, "last.pt")),
    ("LOG005", FAULT, "noisy evaluations", lambda: _noisy_curve(0.2)),
    ("LOG005", TWIN, "luck of a fifth of the gain", lambda: _noisy_curve(0.06)),
    ("LOG005", TWIN, "eight evaluations", lambda: _noisy_curve(0.03, 8, 2.0)),
    ("LOG005", TWIN, "nothing but noise", lambda: _noisy_curve(0.03, 60, 1e9)),
    ("LOG005", FAULT, "eight samples", lambda: _of_samples(8)),
    ("LOG005", TWIN, "120 samples", lambda: _of_samples(120)),
    ("LOG009", FAULT, "noise as large as the gain", lambda: _with_subset(0.5)),
    ("LOG009", TWIN, "a large subset", lambda: _with_subset(0.01)),
    ("LOG009", TWIN, "nothing to choose", lambda: _with_subset(0.3, 0.0)),
    ("LOG010", FAULT, "by the clock", lambda: _jittered(20.0)),
    ("LOG010", TWIN, "steps of one that was resumed", lambda: _jittered(0.0)),
    ("LOG010", TWIN, "rows of training and evaluation at the same steps",
     lambda: LogSubject([Series("epoch", np.sort(np.r_[ROWS, ROWS[::2]]), np.arange(900.0)),
     Series("loss", ROWS, FALL)])),
    ("LOG010", FAULT, "forty steps' time, every twenty", lambda: _costly(40.0)),
    ("LOG010", TWIN, "two steps' time", lambda: _costly(2.0)),
    ("LOG011", FAULT, "surer, and no better", lambda: _rising_again(0.8, 0.1)),
    ("LOG011", TWIN, "a little back", lambda: _rising_again(0.3, 0.0)),
    ("LOG011", TWIN, "surer, not worse", lambda: _rising_again(0.8, 0.0)),
    ("LOG011", FAULT, "far ahead", lambda: _log(AT, train_acc=RISE, val_acc=RISE + 0.19)),
    ("LOG011", TWIN, "ahead by dropout", lambda: _log(AT, train_acc=RISE, val_acc=RISE + 0.04)),
    ("LOG011", TWIN, "rounding of a constant", lambda: _log(acc=ROWS, val_acc=1 - 1e-16 * ROWS)),
    ("LOG011", FAULT, "falls at the starts of epochs", lambda: _by_epoch(0.5, 0.0)),
    ("LOG011", TWIN, "a constant by epoch", lambda: _log(loss=0 * ROWS + 4.85, epoch=ROWS // 100)),
    ("LOG011", TWIN, "falls within the epochs", lambda: _by_epoch(0.0, 0.5)),
    ("LOG012", FAULT, "no number", lambda: _log(loss=np.where(ROWS < 400, FALL, np.nan))),
    ("LOG012", FAULT, "rises at the end", lambda: _log(loss=FALL + np.clip(ROWS - 450, 0, 4))),
    ("LOG012", TWIN, "overfitting", lambda: _log(val_loss=FALL + np.clip(ROWS - 450, 0, 4))),
    ("LOG012", TWIN, "a weight that grows", lambda: _log(loss=FALL + ROWS / 100, beta=ROWS / 300)),
    ("LOG012", FAULT, "a loss steps up for a while", lambda: _leaping(40)),
    ("LOG012", TWIN, "a spike of two rows", lambda: _leaping(2)),
    ("LOG012", TWIN, "a step up with its stage", lambda: _leaping(200, 2.0)),
    ("LOG012", FAULT, "all lost at a resume", lambda: _resumed(np.r_[FALL[:400], FALL[:200]])),
    ("LOG012", FAULT, "the optimizer lost at a resume", lambda: _resumed(SPIKE)),
    ("LOG012", TWIN, "a resume", lambda: _resumed(np.r_[FALL[:400], FALL[300:500]],
     np.r_[COSINE[:400], COSINE[300:500]])),
    ("LOG012", TWIN, "a second run", lambda: _resumed(np.r_[FALL[:400], FALL[:200]],
     np.r_[COSINE[:400], COSINE[:200]], back_to=0)),
    ("LOG012", TWIN, "steps of an epoch", lambda: _log(ROWS % 60, loss=FALL, lr=COSINE)),
    ("LOG012", FAULT, "the schedule lost", lambda: _log(loss=FALL, lr=np.r_[COSINE[:240],
     COSINE[np.arange(360) * 5 // 3]])),
    ("LOG012", FAULT, "a second warm-up", lambda: _log(loss=FALL, lr=np.r_[WARM[:450],
     WARM[:150]])),
    ("LOG012", TWIN, "a single warm-up", lambda: _log(loss=FALL, lr=WARM)),
    ("LOG012", TWIN, "few rows of a rate", lambda: LogSubject([Series("loss", ROWS, FALL),
     Series("lr", ROWS[:1], COSINE[:1])])),
    ("LOG012", TWIN, "warm restarts", lambda: _log(loss=FALL,
     lr=1 + np.cos(np.pi * (ROWS % 150) / 150))),
    ("LOG012", FAULT, "a loss at the level of ten classes", lambda: _still(2.303)),
    ("LOG012", TWIN, "the same, from a checkpoint", lambda: _log(1e5 + ROWS,
     loss=2.303 + 0.02 * NOISE)),
    ("LOG012", TWIN, "a GAN", lambda: _still(2.303, g_loss=0.7, d_acc=0.5)),
    ("LOG012", TWIN, "RL", lambda: _still(2.303, reward=ROWS / 6, policy_loss=0.0)),
    ("LOG012", FAULT, "a noisy loss of 5", lambda: _still(5.1, 0.6)),
    ("LOG012", FAULT, "no sample is right, logged every 100 steps", lambda: _log(100 * ROWS + 100,
     loss=7.66 + 0.01 * NOISE, acc=1e-4 * (ROWS % 50 == 9))),
    ("LOG012", TWIN, "some samples are right", lambda: _still(5.1, 0.01, acc=0.8 + 0.01 * NOISE)),
    ("LOG012", FAULT, "a rate of 1e-9", lambda: _still(1.2, lr=1e-9)),
    ("LOG012", FAULT, "a rate below zero", lambda: _log(loss=FALL, lr=1e-3 * (1 - ROWS / 500))),
    ("LOG012", TWIN, "a rounded rate", lambda: _log(loss=FALL, lr=np.round(COSINE / 10, 4))),
    ("LOG012", TWIN, "a frozen group", lambda: _log(loss=FALL, lr0=0 * ROWS, lr1=COSINE)),
    ("LOG012", FAULT, "noisy chance", lambda: _log(loss=FALL, val_acc=0.1 + 0.003 * NOISE)),
    ("LOG012", FAULT, "one class", lambda: _log(loss=FALL, val_acc=np.full(600, 0.7134))),
    ("LOG012", FAULT, "one class of two", lambda: _still(0.33, 0.002, val_acc=0.9)),
    ("LOG012", TWIN, "few held-out samples", lambda: _still(0.12, val_acc=31 / 32)),
    ("LOG012", TWIN, "a teacher", lambda: _log(loss=FALL, teacher_acc=np.full(600, 0.7134))),
    ("LOG012", TWIN, "a hundred classes, from a checkpoint", lambda: _log(1e5 + ROWS,
     loss=2.2 + 0.02 * NOISE, val_loss=2.2 + 0.02 * NOISE, val_acc=0.5 + 0.004 * NOISE)),
    ("LOG012", FAULT, "a held-out loss that is frozen", lambda: _frozen_from(20)),
    ("LOG012", TWIN, "a held-out loss that moves", lambda: _frozen_from(38)),
    ("LOG012", FAULT, "a cosine by batch", lambda: _restarting(30)),
    ("LOG012", TWIN, "a cosine of two epochs", lambda: _restarting(120)),
    ("LOG012", FAULT, "no schedule", lambda: _log(loss=FALL, lr=ROWS * 0 + 1, scheduled_lr=COSINE)),
    ("LOG012", TWIN, "as scheduled", lambda: _log(loss=FALL, lr=COSINE, scheduled_lr=COSINE)),
]  # fmt: skip
