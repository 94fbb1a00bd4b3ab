"""Logs of metrics as trainers write them: healthy ones of many shapes, and kinds of defects.

`healthy(seed)` and `planted(seed)` give (name, columns, the code that is expected). All have the
columns that trainers log beside metrics: learning rate, epoch, clock, throughput, memory.
`FILES` in the columns: the names of checkpoints beside the log.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.check import Judgement, select_checks
from pipeline_profiler.checks.log_subject import LogSubject, checkpoints_beside, read_log

Columns = dict[str, Any]
STEPS, EPOCH = 1200, 60
FILES = "files beside it"


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
    """Six kinds of defects, each in another log, with the code that must name it."""
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
    yield "leaves for good", "LOG012", log(fall + noise + 0.01 * late)
    broken = fall + noise
    broken[700:] = np.nan
    yield "no number from 700 on", "LOG012", log(broken)
    gaps = np.cumsum(np.round(100 + 30 * rng.normal(size=40)).clip(10))
    by_clock = {
        "val_accuracy": 0.9 - 0.5 * np.exp(-np.arange(40) / 15) + 0.01 * rng.normal(size=40)
    }
    yield "evaluated by the clock", "LOG010", _beside(rng, gaps, by_clock)


def _curve(
    rng: np.random.Generator, count: int = 600, end: float = 0.4, at: float = 150.0
) -> NDArray[np.float64]:
    """A loss that falls from 2.3, with the noise of batches."""
    fall = end + (2.3 - end) * np.exp(-np.arange(count) / at)
    loss: NDArray[np.float64] = fall + 0.05 * rng.normal(size=count)
    return loss


def _cosine(count: int, periods: float = 1.0) -> NDArray[np.float64]:
    rate: NDArray[np.float64] = 5e-4 * (1 + np.cos(np.pi * periods * np.arange(count) / count))
    return rate


def look_alikes(rng: np.random.Generator) -> Iterator[tuple[str, Columns]]:
    """Healthy logs that resemble a run that learns nothing, or that lost its state."""
    count, steps, loss = 600, np.arange(600.0), _curve(rng)
    noise, epochs = rng.normal(size=count), np.arange(30.0)
    flat, few = 0.12 + 0.02 * noise, rng.normal(size=30)
    gain = 0.9 - 0.7 * np.exp(-epochs / 6)

    def log(loss: NDArray[np.float64], **more: NDArray[np.float64]) -> Columns:
        return {"step": np.arange(float(len(loss))), "loss": loss, **more}

    warm = np.minimum(steps / 30, 1)
    yield "warm-up then cosine", log(loss, lr=warm * _cosine(count))
    yield "linear to zero", log(loss, lr=1e-3 * (1 - steps / (count - 1)))
    yield "rounded rate", log(_curve(rng, at=400), lr=np.round(_cosine(count) / 10, 4))
    yield "cyclic", log(loss, lr=1e-5 + 1e-3 * np.abs((steps / 50) % 2 - 1))
    yield "restarts", log(loss, lr=5e-4 * (1 + np.cos(np.pi * (steps % 150) / 150)))
    yield "long cycles", log(loss, lr=5e-4 * (1.2 + np.cos(np.pi * ((steps + 1) % 301) / 301)))
    yield "a frozen group", log(loss, **{"lr/pg0": 0 * steps, "lr/pg1": _cosine(count)})
    yield "reduced at plateaus", log(loss, lr=10.0 ** -(3 + np.floor(steps / 200)))
    yield "fine-tuning, low and flat", log(flat, val_acc=0.97 + 0.002 * noise, lr=0 * steps + 1e-5)
    yield "fine-tuning, saturated", log(flat, val_acc=np.full(count, 31 / 32))
    yield "GAN", log(0.69 + 0.02 * noise, g_loss=1.4 + 0.1 * noise, d_loss=0.69 + 0.02 * noise)
    yield "adversary of domains", log(loss, domain_acc=0.5 + 0.01 * noise)
    yield "RL", log(1.1 + 0.1 * noise, policy_loss=0.02 * noise, reward=steps / 6 + 5 * noise)
    contrast = np.log(256) - 1.5 * np.clip(steps - 150, 0, None) / count
    yield "contrastive, late", log(contrast + 0.01 * noise)
    yield (
        "plateau before the fall",
        log(2.303 - 1.8 / (1 + np.exp((300 - steps) / 30)) + 0.02 * noise),
    )
    yield "small and noisy", log(0.69 + 0.2 * few, val_acc=rng.binomial(20, 0.6, 30) / 20)
    yield "at a checkpoint", {"step": 1e5 + steps, "loss": 1.9 + 0.02 * noise, "lr": _cosine(count)}
    fine = {"epoch": epochs, "loss": 0.8 + 0.01 * few, "val_acc": 0.93 + 0.004 * few}
    yield "fine-tuning by epoch", fine
    yield "two runs", {"step": np.tile(steps, 2), "loss": np.r_[loss, _curve(rng)],
                       "lr": np.tile(_cosine(count), 2)}  # fmt: skip
    yield (
        "five folds",
        {"loss": np.concatenate([_curve(rng, n, at=30) for n in (90, 80, 120, 99, 80)])},
    )
    again = np.r_[steps[:400], steps[350:]]
    yield "resumed", {"step": again, "loss": np.r_[loss[:400], _curve(rng)[350:]],
                      "lr": np.r_[_cosine(count)[:400], _cosine(count)[350:]]}  # fmt: skip
    early = {"step": np.r_[steps[:500], steps[100:]],
             "loss": np.r_[loss[:500], _curve(rng)[100:]]}  # fmt: skip
    yield "resumed early", early
    lower = np.where(steps < 300, 1e-3, 1e-4)
    yield "resumed at a lower rate", {"step": np.r_[steps[:300], steps[290:590]], "loss": loss,
                                      "lr": lower}  # fmt: skip
    local = {"epoch": np.floor(steps / 60), "step": steps % 60, "loss": loss, "lr": _cosine(count)}
    yield "steps within an epoch", local
    yield "spikes", log(loss + 1.5 * (rng.random(count) < 0.01))
    yield "majority, rising", log(loss, val_acc=np.maximum(0.62, 0.9 - 0.4 * np.exp(-steps / 300)))
    best = {
        "step": 100 * epochs,
        "val_acc": gain - 0.01 * np.clip(epochs - 15, 0, None) + 0.005 * few,
    }
    yield "best beside last", best | {FILES: ["best.pt", "last.pt"]}
    yield "the top three", best | {FILES: [f"epoch={e}-step={100 * e}.ckpt" for e in (14, 15, 17)]}
    yield "all checkpoints", best | {FILES: [f"checkpoint-{100 * e}" for e in range(0, 30, 5)]}
    yield "model.pt", best | {FILES: ["model.pt"]}
    yield "pretrained", best | {FILES: ["resnet50.pth", "optimizer_last.pt"]}
    rising = {"step": 100 * epochs, "val_acc": gain + 0.01 * few}
    yield "last is best", rising | {FILES: ["last.pt"]}
    begun = {"step": epochs[:6], "val_acc": gain[:6][::-1], FILES: ["last.pt"]}
    yield "just begun", begun


def stands_still(rng: np.random.Generator) -> Iterator[tuple[str, str, Columns]]:
    """Runs that learn nothing, that lost their state, or whose best checkpoint is lost."""
    count, steps, loss = 600, np.arange(600.0), _curve(rng)
    noise, epochs, few = rng.normal(size=count), np.arange(30.0), rng.normal(size=30)
    gain = 0.9 - 0.7 * np.exp(-epochs / 6)

    def log(loss: NDArray[np.float64], **more: NDArray[np.float64]) -> Columns:
        return {"step": np.arange(float(len(loss))), "loss": loss, **more}

    flat, ended = (
        2.303 + 0.02 * noise,
        np.where(steps < 200, loss, loss[190:200].mean() + 0.05 * noise),
    )
    yield "never falls", "LOG012", log(flat)
    yield "never falls, with rate", "LOG012", log(2.34 + 0.03 * noise, lr=_cosine(count))
    yield "never falls, no classes", "LOG012", log(5.1 + 0.05 * noise, grad_norm=1 + 0.1 * noise)
    yield (
        "never falls, two classes",
        "LOG012",
        log(0.694 + 0.005 * noise, val_acc=0.5 + 0.01 * noise),
    )
    by_epoch = {"epoch": epochs, "loss": 2.304 + 0.003 * few, "val_loss": 2.305 + 0.003 * few}
    yield "never falls, by epoch", "LOG012", by_epoch
    yield "rate zero", "LOG012", log(1.7 + 0.02 * noise, lr=0 * steps)
    yield "rate 1e-9", "LOG012", log(1.7 + 0.02 * noise, lr=0 * steps + 1e-9)
    yield (
        "schedule over at a third",
        "LOG012",
        log(ended, lr=1e-3 * np.clip(1 - steps / 200, 0, None)),
    )
    yield "decay by step", "LOG012", log(ended, lr=0.1 * 0.95**steps)
    yield "rate cut to zero", "LOG012", log(ended, lr=np.where(steps < 200, 3e-4, 0))
    yield "below zero", "LOG012", log(loss, lr=1e-3 * (1 - steps / 500))
    score = {"epoch": epochs, "loss": 2.3 * np.exp(-epochs / 15) + 0.02 * few}
    yield "accuracy at chance", "LOG012", score | {"val_acc": np.full(30, 0.1)}
    yield "noisy chance", "LOG012", score | {"val_accuracy": 0.1 + 0.002 * few}
    yield "majority", "LOG012", score | {"val_acc": np.full(30, 0.7134)}
    yield "majority, loss flat", "LOG012", {"epoch": epochs, "loss": 0.66 + 0.002 * few,
                                            "val_acc": np.full(30, 0.62)}  # fmt: skip
    again = np.r_[steps[:400], steps[300:500]]
    yield (
        "repeats, from the start",
        "LOG012",
        {"step": again, "loss": np.r_[loss[:400], _curve(rng, 200)]},
    )
    spike = _curve(rng)[300:500] + 0.8 * np.exp(-np.arange(200) / 20)
    yield "repeats, optimizer lost", "LOG012", {"step": again, "loss": np.r_[loss[:400], spike]}
    anew = {"step": np.r_[steps[:400], steps[:200]], "loss": np.r_[loss[:400], spike]}
    yield "counter lost", "LOG012", anew
    yield "schedule lost", "LOG012", log(loss, lr=np.r_[_cosine(count)[:240], _cosine(360)])
    up = {"step": np.r_[steps[:400], steps[:200]], "lr": np.r_[_cosine(count)[:400], _cosine(200)]}
    yield "counter and schedule", "LOG012", up | {"loss": np.r_[loss[:400], loss[400:]]}
    from_epoch = {"step": np.r_[steps[:400], steps[:200]], "epoch": np.floor(steps / 40),
                  "loss": np.r_[loss[:400], _curve(rng, 200)]}  # fmt: skip
    yield "epoch goes on", "LOG012", from_epoch
    score_back = np.r_[gain, gain[:10]]
    yield (
        "score",
        "LOG012",
        {"step": np.r_[epochs, epochs[20:]], "val_acc": score_back + 0.003 * rng.normal(size=40)},
    )
    fallen = gain - 0.02 * np.clip(epochs - 15, 0, None) + 0.005 * few
    for name, files in (
        ("last.pt", ["last.pt"]), ("checkpoint", ["checkpoint-2900"]),
        ("the last three", [f"model_epoch_{e}.pth" for e in (27, 28, 29)]),
        ("Lightning", ["epoch=29-step=2900.ckpt"]),
    ):  # fmt: skip
        yield f"only {name}", "LOG005", {"step": 100 * epochs, "val_acc": fallen, FILES: files}


def failed(columns: Columns, folder: Path) -> dict[str, str]:
    """The codes that fail a log, with their sentences."""
    files = list(columns.get(FILES, ()))
    columns = {name: values for name, values in columns.items() if name != FILES}
    for path in folder.iterdir():
        path.unlink()
    for file in files:
        (folder / str(file)).touch()
    path = folder / "log.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    subject = LogSubject(read_log(str(path)), checkpoints=checkpoints_beside([str(path)]))
    answers = {check.code: check.run(subject) for check in select_checks("LOG")}
    return {c: a.sentence for c, a in answers.items() if a.judgement is Judgement.FAIL}


def count(seeds: int, say: Callable[[str], None]) -> None:
    """Print which healthy logs fail and which planted ones are named."""
    wrong, logs, named, kinds = Counter[str](), 0, Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            for name, columns in (*healthy(rng), *look_alikes(rng)):
                logs += 1
                found = failed(columns, Path(place))
                wrong.update(f"{name}: {code}" for code in found)
                wrong["any"] += bool(found)
            rng = np.random.default_rng([seed, 1])
            for name, code, columns in (*planted(rng), *stands_still(rng)):
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
