"""A log of metrics as series: from CSV, JSON lines or a TensorBoard event file; and its noise.

Event files are read here, without TensorBoard. Noise is computed from neighbouring rows, so a curve
that rises or falls has no part in it.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.profiling.record.errors import ProfileError

STEPS = ("step", "global_step", "iteration", "iter", "_step", "epoch")
CLOCKS = ("wall_time", "timestamp", "_timestamp", "time", "_runtime")  # seconds
FIXED_TYPES = {1: "<d", 5: "<f"}  # of a protocol buffer
TENSOR_TYPES = {1: "<f", 2: "<d"}
MOST_ROWS = 2_000_000
UNREADABLE = (ValueError, TypeError, AttributeError, struct.error, csv.Error, OSError)
Values = NDArray[np.float64]
Point = tuple[str, float, float, float]  # name, step, value, seconds on the clock or NaN

LOSSES = {"loss", "error", "perplexity", "mse", "rmse", "mae", "nll", "wer", "cer", "fid"}
SCORES = {
    *("acc", "accuracy", "f1", "auc", "auroc", "map", "iou", "miou", "dice", "precision"),
    *("recall", "bleu", "rouge", "top1", "top5", "r2", "psnr", "ssim", "score", "reward", "kappa"),
}
BESIDE_METRICS = {  # settings, clocks and counts, which trainers log beside metrics
    *("lr", "rate", "rates", "momentum", "decay", "beta", "betas", "epsilon", "scale", "scaler"),
    *("epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "progress", "percent"),
    *("time", "times", "seconds", "sec", "secs", "duration", "elapsed", "eta", "runtime", "clock"),
    *("throughput", "fps", "mem", "memory", "gpu", "cpu", "util", "utilization", "temperature"),
    *("samples", "tokens", "examples", "seen", "batch_size", "size", "seed", "flops", "mfu"),
}
OTHER_GOALS = {  # adversaries, RL, references
    *("g", "d", "gen", "disc", "gan", "generator", "discriminator", "critic", "adv", "adversarial"),
    *("domain", "actor", "policy", "value", "entropy", "kl", "td", "q", "reg", "penalty"),
    *("best", "target", "teacher", "baseline", "chance", "random", "majority", "dummy"),
}
ACCURACIES = {"acc", "accuracy", "top1", "auc", "auroc"}
HELD_OUT = ("val", "test", "eval", "valid", "validation", "dev", "heldout")
RATE = re.compile(r"lr\d*|learningrate")
NO_RATE = {"scale", "mult", "factor", "scheduler", "ratio", "min", "max", "initial"}


@dataclass(frozen=True)
class Series:
    """One metric: values by step, in the order of the file. Its name shows what it measures."""

    name: str
    steps: Values
    values: Values
    seconds: Values | None = None  # the clock at each row, where the log has it
    log: str = ""  # which log, where there are several

    @property
    def title(self) -> str:
        """The name in sentences."""
        return f"{self.name} of {self.log}" if self.log else self.name

    @cached_property
    def words(self) -> set[str]:
        """{'val', 'accuracy', 'top', ...} of 'valAccuracy/top-1', joined pairs too ('top1')."""
        apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()
        forms = (apart, self.name.lower(), re.sub(r"[-_@ ]", "", apart))  # mAP is one word
        return {word for form in forms for word in re.findall("[a-z]+[0-9]*", form)}

    @cached_property
    def sign(self) -> int:
        """-1 where a lower value is better, 1 where a higher value is, 0 where this is unknown."""
        if self.words & {"scale", "scaler", "lr"}:
            return 0
        if self.words & LOSSES or any(word.endswith("loss") for word in self.words):
            return -1
        return int(bool(self.words & SCORES))

    @property
    def is_metric(self) -> bool:
        """Whether it is a metric: no setting, clock or count."""
        return self.sign != 0 or not self.words & BESIDE_METRICS

    @property
    def is_rate(self) -> bool:
        """Whether it is a learning rate."""
        return any(map(RATE.fullmatch, self.words)) and not self.words & NO_RATE

    @property
    def is_accuracy(self) -> bool:
        """Whether it is a share of correct samples, or an area under a curve."""
        return bool(self.words & ACCURACIES)

    @property
    def is_held_out(self) -> bool:
        """Whether it is measured on data that are not trained on."""
        return any(word.startswith(HELD_OUT) for word in self.words)

    @cached_property
    def gains(self) -> Values:
        """The values, so that higher is better."""
        return self.sign * self.values

    @cached_property
    def noise(self) -> float:
        """The standard deviation of the noise of a row."""
        return noise_of(self.values)

    @cached_property
    def curve(self) -> Values:
        """`gains` without noise."""
        return smoothed(self.gains, 0.3)


@dataclass
class LogSubject:
    """The series of one log or of several."""

    series: list[Series]
    checkpoints: Sequence[Path] = ()  # beside the only log

    def by_log(self) -> list[LogSubject]:
        """The series of each log."""
        groups = itertools.groupby(self.series, lambda series: series.log)
        return [LogSubject(list(own)) for _, own in groups]

    def metrics(self, least_rows: int) -> list[Series]:
        """The losses and scores that a training should improve, with enough rows of numbers."""
        found = [s for s in self.series if s.sign and not s.words & OTHER_GOALS]
        return [s for s in found if len(s.values) >= least_rows and np.isfinite(s.values).all()]

    def rates(self, least_rows: int) -> list[Series]:
        """The learning rates with enough rows of numbers."""
        found = [s for s in self.series if s.is_rate and len(s.values) >= least_rows]
        return [s for s in found if np.isfinite(s.values).all()]


def read_logs(paths: Sequence[str]) -> list[Series]:
    """The metrics of several logs, each with the name of its log; of one log, without."""
    files = [Path(os.path.abspath(path)) for path in paths]
    root = os.path.commonpath([file.parent for file in files])
    names = [file.relative_to(root).as_posix() if len(files) > 1 else "" for file in files]
    return [s for path, name in zip(paths, names, strict=True) for s in read_log(path, name)]


CHECKPOINT = re.compile(
    r".*\.(pt|pth|ckpt|keras|safetensors|weights\.h5)|checkpoint-\d+|.*best.*", re.IGNORECASE
)
FOLDERS = ("checkpoint*s", "*ckpt*", "*weight*", "*model*", "*save*")


def checkpoints_beside(paths: Sequence[str]) -> list[Path]:
    """The checkpoints of the only log: in its folder, and in folders there that are named so."""
    home = Path(paths[0]) if Path(paths[0]).is_dir() else Path(paths[0]).parent
    folders = (home, *(folder for word in FOLDERS for folder in home.glob(word)))
    found = sorted({file for folder in folders for file in folder.glob("*")})
    return [f for f in found if CHECKPOINT.fullmatch(f.name) and len(paths) == 1]


def read_log(path: str, log: str = "") -> list[Series]:
    """Every metric of a log; ProfileError for a file that holds none."""
    file = Path(path)
    parts = sorted(file.glob("*tfevents*")) if file.is_dir() else [file]
    if not parts or not all(part.is_file() for part in parts):
        raise ProfileError(
            f"{path} is no file: give a CSV, JSON lines or TensorBoard event file, or a folder "
            "of event files."
        )
    columns = defaultdict(list)
    try:
        for part in parts:
            read = _events if "tfevents" in part.name else _points
            for name, *row in read(part):
                columns[name].append(row)
    except UNREADABLE as error:
        raise ProfileError(f"{path} cannot be read as a log: {error}.") from None
    if not columns:
        raise ProfileError(f"{path} holds no numbers by name: is it a log of metrics?")
    arrays = [(name, *np.array(rows).T) for name, rows in columns.items()]
    return [
        Series(name, steps, values, seconds if np.isfinite(seconds).all() else None, log)
        for name, steps, values, seconds in arrays
    ]


def _points(file: Path) -> Iterator[Point]:
    """Yield the numbers of a CSV or JSON lines file."""
    with file.open(encoding="utf-8", errors="replace", newline="") as stream:
        is_json = stream.read(1) == "{"
        stream.seek(0)
        rows: Iterator[Mapping[str, Any]] = csv.DictReader(stream)
        if is_json:
            rows = (json.loads(line) for line in stream if line.strip())
        for number, texts in enumerate(itertools.islice(rows, MOST_ROWS)):
            named = {str(name).strip(): _number(text) for name, text in texts.items()}
            row = {name: value for name, value in named.items() if value is not None}
            key = next(filter(row.__contains__, STEPS), "")
            step, clocks = row.get(key, float(number)), [row[n] for n in CLOCKS if n in row]
            for name, value in row.items():
                if name not in (*STEPS[:-1], key, *CLOCKS, "date"):
                    yield name, step, value, [*clocks, math.nan][0]


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (ValueError, TypeError):
        return None


def _events(file: Path) -> Iterator[Point]:
    """Yield the scalars of an event file; TensorFlow writes tensors, in bytes or packed."""
    data, at = file.read_bytes(), 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            return  # a run that goes on, or was killed, ends in half a record
        event = dict(_fields(data[at + 12 : at + 12 + length]))
        for _, summary in _fields(event.get(5, b"")):
            parts = dict(_fields(summary))
            tensor = dict(_fields(parts.get(8, b"")))
            number = parts.get(2, tensor.get(4, tensor.get(5)))
            form = TENSOR_TYPES.get(tensor.get(1, 0), "")
            if form and isinstance(number, bytes) and len(number) == struct.calcsize(form):
                (number,) = struct.unpack(form, number)
            if isinstance(number, float):
                tag = parts.get(1, b"").decode("utf-8", "replace")
                yield tag, event.get(2, 0), number, event.get(1, math.nan)
        at += 16 + length


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of a protocol buffer: int, float (32 or 64 bits) or bytes."""
    while data:
        key, data = _varint(data)
        if form := FIXED_TYPES.get(key & 7):
            yield key >> 3, struct.unpack_from(form, data)[0]
            data = data[struct.calcsize(form) :]
            continue
        value, data = _varint(data)
        size = value if key & 7 == 2 else 0
        yield key >> 3, data[:size] if key & 7 == 2 else value
        data = data[size:]


def _varint(data: bytes) -> tuple[int, bytes]:
    value = 0
    for shift, byte in enumerate(data[:10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, data[shift + 1 :]
    raise ValueError("it ends in the middle of a number")


def off_pace(values: Values, near: float = 0.1) -> tuple[float, float]:
    """(median distance of neighbours, share of distances that are off by more than a share)."""
    gaps = np.diff(values)
    middle = float(np.median(gaps))
    return middle, float((np.abs(gaps - middle) > near * abs(middle)).mean())


def noise_of(values: Values, order: int = 2) -> float:
    """Return the standard deviation of the noise by differences, in which a curve cancels.

    Those of white noise have the variance (2n over n); 0.6745 is the median of |normal|.
    """
    rough = float(np.median(np.abs(np.diff(values, order))))
    return rough / (0.6745 * math.sqrt(math.comb(2 * order, order)))


def smoothed(values: Values, share: float) -> Values:
    """Return the curve without noise: lines through neighbourhoods (Savitzky and Golay, 1964)."""
    width = max(3, round(0.7 * share * len(values))) | 1
    level, rows, half = values.mean(), np.arange(width), width // 2
    sums = np.cumsum([0.0, *(values - level)])
    start, end = (
        np.polyval(np.polyfit(rows, v, 1), rows) for v in (values[:width], values[-width:])
    )
    middle = level + (sums[width:] - sums[:-width]) / width
    return np.concatenate([start[:half], middle, end[-half:]])


def error_of_mean(values: Values, rows: int) -> float:
    """Standard error of a mean of neighbouring rows, of which (1 + r) / (1 - r) count as one.

    A curve that is taken out makes r, their correlation, too small by 4 / n (Kendall, 1954).
    """
    rest = values - smoothed(values, share=0.4)
    spread, power = 1.4826 * float(np.median(np.abs(rest))), float((rest**2).sum())
    near = min(0.98, float((rest[1:] * rest[:-1]).sum()) / max(power, 1e-300) + 4 / len(rest))
    alike = min(float(rows), max(1.0, (1 + near) / (1 - near)))
    return max(noise_of(values), spread) * math.sqrt(alike / rows)
