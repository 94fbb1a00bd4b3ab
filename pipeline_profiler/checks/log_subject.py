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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.profiling.record.errors import ProfileError

STEPS = ("step", "global_step", "iteration", "iter", "_step", "epoch")
CLOCKS = ("wall_time", "timestamp", "_timestamp", "time", "_runtime")  # seconds
FIXED_TYPES = {1: "<d", 5: "<f"}  # of a protocol buffer
TENSOR_TYPES = {1: "<f", 2: "<d"}
LOWEST_LINE, BESIDE, FREEDOM, SHORTEST = 9, 56, 12, 131  # SHORTEST: rows
COMB_BOUND, MOST_SHARES = 6.0, 64  # evidence for a longer period; times as long
MOST_ROWS, MOST_RECORD, MOST_BLOCKS = 2_000_000, 1 << 26, 300
UNREADABLE = (ValueError, TypeError, AttributeError, struct.error, csv.Error, OSError)
Values = NDArray[np.float64]
Point = tuple[str, float, float, float]  # name, step, value, seconds on the clock or NaN


@dataclass(frozen=True)
class Series:
    """One metric: values by step, in the order of the file."""

    name: str
    steps: Values
    values: Values
    seconds: Values | None = None  # the clock at each row, where the log has it
    log: str = ""  # which log, where there are several

    @property
    def title(self) -> str:
        """The name as sentences have it."""
        return f"{self.name} of {self.log}" if self.log else self.name


@dataclass
class LogSubject:
    """The series of one log or of several."""

    series: list[Series]
    checkpoints: Sequence[Path] = ()  # beside the only log

    def by_log(self) -> list[list[Series]]:
        """The series of each log."""
        return [list(own) for _, own in itertools.groupby(self.series, lambda s: s.log)]


def read_logs(paths: Sequence[str]) -> list[Series]:
    """The metrics of several logs, each with the name of its log; of one log, without."""
    if len(paths) == 1:
        return read_log(paths[0])
    files = {path: Path(os.path.abspath(path)) for path in paths}
    root = os.path.commonpath([file.parent for file in files.values()])
    return [
        replace(series, log=file.relative_to(root).as_posix())
        for path, file in files.items()
        for series in read_log(path)
    ]


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


def read_log(path: str) -> list[Series]:
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
            is_events = "tfevents" in part.name
            for name, *row in _events(part.read_bytes()) if is_events else _points(part):
                columns[name].append(row)
    except UNREADABLE as error:
        raise ProfileError(f"{path} cannot be read as a log: {error}.") from None
    if not columns:
        raise ProfileError(f"{path} holds no numbers by name: is it a log of metrics?")
    arrays = [(name, *np.array(rows).T) for name, rows in columns.items()]
    return [
        Series(name, steps, values, seconds if np.isfinite(seconds).all() else None)
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
    if value is None or isinstance(value, bool | list | dict) or value == "":
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _events(data: bytes) -> Iterator[Point]:
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > MOST_RECORD or at + 16 + length > len(data):
            return  # a run that goes on, or was killed, ends in half a record
        yield from _scalars(data[at + 12 : at + 12 + length])
        at += 16 + length


def _scalars(event: bytes) -> Iterator[Point]:
    """Yield the scalars of an event; TensorFlow writes them as tensors, in bytes or packed."""
    fields = dict(_fields(event))
    for _, value in _fields(fields.get(5, b"")):
        parts = dict(_fields(value))
        tensor = dict(_fields(parts.get(8, b"")))
        number = parts.get(2, tensor.get(4, tensor.get(5)))
        form = TENSOR_TYPES.get(tensor.get(1, 0), "")
        if form and isinstance(number, bytes) and len(number) == struct.calcsize(form):
            number = struct.unpack(form, number)[0]
        if isinstance(number, float):
            tag = parts.get(1, b"").decode("utf-8", "replace")
            yield tag, fields.get(2, 0), number, fields.get(1, math.nan)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a protocol buffer: int, float (32 or 64 bits) or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: Any = None
        if form := FIXED_TYPES.get(key & 7):
            (value,) = struct.unpack_from(form, data, at)
            at += struct.calcsize(form)
        else:
            value, at = _varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("it ends in the middle of a number")


class Period(NamedTuple):
    """A line of a spectrum: period in rows; height over its surroundings, chance of that height.

    `swing` is from top to bottom, in units of the series; `noise` the deviation beside it.
    """

    rows: float
    ratio: float
    chance: float
    swing: float
    noise: float


def spectral_peak(values: Values) -> Period:
    """Return the strongest period of a series, and its fundamental if the line is a harmonic.

    The series has at least `SHORTEST` rows. It is detrended, whitened (AR(1)) and windowed. A line
    of noise over the median of about 50 neighbours exceeds x with probability (1 + x/v)^-v, v = 12
    (Brockwell and Davis, Time Series, 10.3).
    """
    plain = values - smoothed(values, 0.36)
    share = (plain[1:] * plain[:-1]).sum() / max((plain**2).sum(), 1e-300)
    white = plain[1:] - share * plain[:-1]
    power = np.abs(np.fft.rfft(white * np.hanning(len(white)))) ** 2
    lines = np.arange(LOWEST_LINE, len(power) - 1)
    offsets = np.arange(-BESIDE // 2, BESIDE // 2 + 1)  # without those that the window mixes in
    beside = np.lib.stride_tricks.sliding_window_view(power, len(offsets))[:, np.abs(offsets) > 2]
    inside = np.clip(lines - BESIDE // 2, 2, len(beside) - 3)
    ratio = power[lines] / np.maximum(np.median(beside[inside], axis=1), 1e-300) * math.log(2)
    alone = (1 + ratio / FREEDOM) ** -FREEDOM
    best = int(ratio.argmax())
    shares = range(1, min(MOST_SHARES, lines[best] // LOWEST_LINE) + 1)
    rows = len(white) / lines[best] * max(shares, key=lambda k: _comb(alone, best, k))
    chance = -math.expm1(len(ratio) * math.log1p(-min(float(alone[best]), 1 - 1e-12)))
    late, lag = plain[len(plain) // 3 :], round(rows * math.ceil(12 / rows))
    if np.corrcoef(late[lag:], late[:-lag])[0, 1] < 2 / math.sqrt(len(late) - lag):
        chance = 1.0  # a steep beginning has all periods
    phase = np.arange(len(values)) % rows / rows * min(12, max(2, int(rows)))
    folded = np.bincount(phase.astype(int), plain) / np.bincount(phase.astype(int))
    noise = math.sqrt(max(0.0, float(plain.var() - folded.var())))
    return Period(rows, float(ratio[best]), chance, float(np.ptp(folded)), noise)


def _comb(chances: Values, best: int, share: int) -> float:
    """Evidence for the lines up to twice the best that its share adds; noise takes 2 off each."""
    at = np.array([m for m in range(1, 2 * share) if m % share]) * (best + LOWEST_LINE) / share
    at = np.round(at).astype(int) - LOWEST_LINE
    added = -np.log(np.maximum(chances[at[at < len(chances)]], 1e-12)) - 3
    return float(added.sum()) if share > 1 else COMB_BOUND


def without_noise(values: Values) -> bool:
    """Return whether a column is smooth within its rounding: a setting or a clock.

    The fourth differences of noise of deviation 1 have the variance 70.
    """
    rough = float(np.median(np.abs(np.diff(values, 4)))) / (0.6745 * math.sqrt(70))
    digits = float(np.diff(np.unique(values)).min(initial=np.inf))
    return rough <= max(1e-5 * float(np.ptp(values)), digits)


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
WORD = re.compile(r"[a-z]+[0-9]*")


def name_words(name: str) -> set[str]:
    """'valAccuracy/top-1' -> {'val', 'accuracy', 'top', ...}, joined pairs too ('top1')."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    forms = (apart, name.lower(), re.sub(r"[-_@ ]", "", apart))  # mAP is one word, top-1 as well
    return {word for form in forms for word in WORD.findall(form)}


def better_is(name: str) -> int:
    """-1 where a lower value is better, 1 where a higher one is, 0 where the name does not tell."""
    words = name_words(name)
    if words & {"scale", "scaler", "lr"}:
        return 0
    if words & LOSSES or any(word.endswith("loss") for word in words):
        return -1
    return int(bool(words & SCORES))


def is_metric(name: str) -> bool:
    """Return whether a column is judged as a metric: no setting, clock or count, by its name."""
    return better_is(name) != 0 or not name_words(name) & BESIDE_METRICS


def is_held_out(name: str) -> bool:
    """Whether a metric is of data that are not trained on, by its name."""
    return any(word.startswith(part) for word in name_words(name) for part in HELD_OUT)


def is_own(name: str) -> bool:
    """Return whether a metric is none of an adversary or of RL, and no reference, by its name."""
    return not name_words(name) & OTHER_GOALS


def to_improve(series: Sequence[Series], least_rows: int) -> list[Series]:
    """Return the losses and scores that a training should improve, with enough rows of numbers."""
    return [
        s for s in series
        if better_is(s.name) and is_own(s.name)
        and len(s.values) >= least_rows and np.isfinite(s.values).all()
    ]  # fmt: skip


def noise_of(values: Values) -> float:
    """Return the standard deviation of the noise by second differences, in which a slope cancels.

    Their variance is 6 for white noise; 0.6745 is the median of |normal|.
    """
    return float(np.median(np.abs(np.diff(values, 2))) / (0.6745 * np.sqrt(6)))


def smoothed(values: Values, share: float) -> Values:
    """Return the curve without noise: lines through neighbourhoods (Savitzky and Golay, 1964)."""
    width = max(3, round(0.7 * share * len(values))) | 1
    level = values.mean()
    sums = np.cumsum([0.0, *(values - level)])
    rows, half = np.arange(width), width // 2
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
    return max(noise_of(values), spread) * float(np.sqrt(alike / rows))
