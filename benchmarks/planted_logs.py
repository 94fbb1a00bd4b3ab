"""Logs of metrics as trainers write them: healthy ones of twelve shapes, eight kinds of defects.

`healthy(seed)` and `planted(seed)` give (name, columns, the code that is expected). All have the
columns that trainers log beside metrics: learning rate, epoch, clock, throughput, memory.

Run: python benchmarks/planted_logs.py [--seeds 20]: how many healthy logs fail a check, and how
many of the planted ones are named.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.check import Judgement, select_checks
from pipeline_profiler.checks.log_subject import LogSubject, read_log

Columns = dict[str, NDArray[np.float64]]
STEPS, EPOCH = 1200, 60


def _rates(count: int) -> dict[str, NDArray[np.float64]]:
    at = np.arange(count) / count
    return {
        "cosine": 0.05 * (1 + np.cos(np.pi * at)),
        "one cycle": np.interp(at, [0, 0.3, 1], [1e-4, 1e-2, 1e-6]),
        "constant": np.full(count, 3e-4),
        "steps": 0.1 * 0.1 ** np.floor(3 * at),
        "warm-up, inverse root": np.minimum(at / 0.05, np.sqrt(0.05 / np.maximum(at, 0.05))) * 1e-3,
        "restarts": 0.05 * (1 + np.cos(np.pi * ((4 * at) % 1))),
    }


def _smooth(rng: np.random.Generator, count: int, share: float) -> NDArray[np.float64]:
    noise, kept = rng.normal(size=count), np.zeros(count)
    for i in range(1, count):
        kept[i] = share * kept[i - 1] + noise[i]
    smooth: NDArray[np.float64] = kept * np.sqrt(1 - share**2)
    return smooth


def _beside(rng: np.random.Generator, steps: NDArray[np.float64], columns: Columns) -> Columns:
    """`columns` with the columns that are no metrics."""
    count = len(steps)
    rate = list(_rates(count).values())[int(rng.integers(6))]
    seconds = np.cumsum(0.2 + 0.01 * np.abs(rng.normal(size=count)))
    settings: Columns = {
        "step": steps,
        str(rng.choice(["lr", "learning_rate", "lr-AdamW", "train/lr", "lr/pg0"])): rate,
        "epoch": np.floor(steps / EPOCH),
        "epoch_time": 12 + 0.1 * rng.normal(size=count),
        "samples_per_second": 640 + 5 * np.sin(steps / 10) + rng.normal(size=count),
        "gpu_mem": np.full(count, 10.5),
        "momentum": 0.95 - 0.1 * np.sin(steps / 100),
        "elapsed": seconds,
    }
    return settings | columns


def healthy(rng: np.random.Generator) -> Iterator[tuple[str, Columns]]:
    """Twelve shapes of logs of trainings that went well."""
    steps = np.arange(float(STEPS))
    fall = 0.4 + 2 * np.exp(-steps / 500)

    def with_noise(noise: NDArray[np.float64], **more: NDArray[np.float64]) -> Columns:
        return _beside(rng, steps, {"train/loss": fall + noise, **more})

    yield "white noise", with_noise(0.1 * rng.normal(size=STEPS))
    yield "running mean", with_noise(0.05 * _smooth(rng, STEPS, 0.95))
    sizes = rng.lognormal(0, 0.5, STEPS) * 0.2
    yield "heavy tails", with_noise(sizes - sizes.mean() + 0.3)
    yield "multiplicative", with_noise(0.1 * fall * rng.normal(size=STEPS))
    yield (
        "with accuracy of batches",
        with_noise(
            0.1 * rng.normal(size=STEPS),
            **{"train/acc": rng.binomial(64, 1 - 0.4 * fall / fall[0]) / 64},
        ),
    )
    yield "rounded to two digits", with_noise(np.round(0.05 * rng.normal(size=STEPS), 2))
    norms = 1 / np.sqrt(1 + steps / 50) + np.abs(0.1 * rng.normal(size=STEPS))
    yield "norm of gradients", with_noise(0.1 * rng.normal(size=STEPS), grad_norm=norms)
    epochs = np.arange(150.0)
    gains = 0.9 - 0.6 * np.exp(-epochs / 60)
    yield (
        "by epoch",
        _beside(
            rng,
            epochs,
            {
                "loss": 0.3 + 1.5 * np.exp(-epochs / 60) + 0.02 * rng.normal(size=150),
                "val_loss": 0.5 + 1.4 * np.exp(-epochs / 60) + 0.04 * rng.normal(size=150),
                "val_accuracy": gains + 0.01 * rng.normal(size=150),
            },
        ),
    )
    drops = np.select([steps < 500, steps < 900], [2 * np.exp(-steps / 150) + 0.9, 0.6], 0.45)
    yield "rate in steps", _beside(rng, steps, {"loss": drops + 0.05 * rng.normal(size=STEPS)})
    scale = 2.0 ** np.minimum(16, 10 + np.floor(steps / 200))
    quick = np.exp(-steps / 8)
    yield (
        "an easy task",
        _beside(
            rng,
            steps,
            {
                "loss": 0.1 + 2.2 * quick + 0.05 * rng.lognormal(size=STEPS),
                "accuracy": 0.97 - 0.87 * quick + 0.01 * rng.normal(size=STEPS),
            },
        ),
    )
    many = np.arange(20_000.0)
    power = 2.1 + 8 / np.sqrt(1 + many / 20) + 0.05 * rng.normal(size=len(many))
    yield "a long one that falls as a power", _beside(rng, many, {"train_loss": power})
    yield "loss scale", with_noise(0.1 * rng.normal(size=STEPS), loss_scale=scale)


def planted(rng: np.random.Generator) -> Iterator[tuple[str, str, Columns]]:
    """Eight kinds of defects, each in another log, with the code that must name it."""
    steps = np.arange(float(STEPS))
    fall, noise = 0.4 + 2 * np.exp(-steps / 500), 0.1 * rng.normal(size=STEPS)
    place = (steps % EPOCH) / EPOCH

    def log(loss: NDArray[np.float64], **more: NDArray[np.float64]) -> Columns:
        return _beside(rng, steps, {"train/loss": loss, **more})

    yield (
        "the same order each epoch",
        "LOG001",
        log(fall + noise + 0.15 * np.sin(2 * np.pi * place)),
    )
    yield "saw-tooth by epoch", "LOG001", log(fall + noise + 0.25 * (place - 0.5))
    hard = (steps % EPOCH) < 3
    yield "one hard shard", "LOG001", log(fall + noise + 0.8 * hard)
    late = np.clip(steps - 900, 0, None)
    yield "leaves for good", "LOG002", log(fall + noise + 0.01 * late)
    broken = fall + noise
    broken[700:] = np.nan
    yield "no number from 700 on", "LOG002", log(broken)
    gaps = np.cumsum(np.round(100 + 30 * rng.normal(size=40)).clip(10))
    by_clock = {
        "val_accuracy": 0.9 - 0.5 * np.exp(-np.arange(40) / 15) + 0.01 * rng.normal(size=40)
    }
    yield "evaluated by the clock", "LOG003", _beside(rng, gaps, by_clock)
    yield "flat from a fifth on", "LOG004", log(0.4 + 2 * np.exp(-steps / 60) + 0.2 * noise)
    first = np.where(steps < 20, 8 * np.exp(-steps / 5), 0.0)
    first = np.where(steps < 20, 8 * np.exp(-steps / 5), 0.0)
    score = 0.9 - 0.3 * np.exp(-steps / 400) + 0.02 * rng.normal(size=STEPS)
    loss = 0.2 + 0.5 * np.exp(-steps / 400) + 0.4 * noise + first
    yield "starts at the wrong bias", "LOG008", log(loss, **{"val/acc": score})


def failed(columns: Columns, folder: Path) -> dict[str, str]:
    """The codes that fail a log, with their sentences."""
    path = folder / "log.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    subject = LogSubject(read_log(str(path)))
    answers = {check.code: check.run(subject) for check in select_checks("LOG")}
    return {c: a.sentence for c, a in answers.items() if a.judgement is Judgement.FAIL}


def count(seeds: int, say: Callable[[str], None]) -> None:
    """Print which healthy logs fail and which planted ones are named."""
    wrong, logs, named, kinds = Counter[str](), 0, Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        for seed in range(seeds):
            for name, columns in healthy(np.random.default_rng(seed)):
                logs += 1
                found = failed(columns, Path(place))
                wrong.update(f"{name}: {code}" for code in found)
                wrong["any"] += bool(found)
            for name, code, columns in planted(np.random.default_rng([seed, 1])):
                found = failed(columns, Path(place))
                kinds[f"{code} {name}"] += 1
                named[f"{code} {name}"] += code in found
    say(f"healthy logs that fail: {wrong.pop('any', 0)} of {logs}")
    for name, times in wrong.most_common():
        say(f"  {times:4} {name}")
    say(f"planted and named: {sum(named.values())} of {sum(kinds.values())}")
    for name, times in kinds.items():
        say(f"  {named[name]:3} of {times} {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    count(parser.parse_args().seeds, print)
