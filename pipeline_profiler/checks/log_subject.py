"""A log of metrics as series: from CSV, JSON lines or a TensorBoard event file; and its noise.

Event files are read here, without TensorBoard. Noise is computed from neighbouring rows, so a curve
that rises or falls has no part in it.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.profiling.record.errors import ProfileError

STEPS = ("step", "global_step", "iteration", "iter", "_step", "epoch")
CLOCKS = ("wall_time", "timestamp", "_timestamp", "time", "_runtime")  # seconds
LOWEST_LINE, BESIDE, FREEDOM = 9, 56, 12
OWN_LINE = 1e-4  # chance below which a line stands out alone
COMB_BOUND, MOST_SHARES = 6.0, 64  # evidence for a longer period; times as long
MOST_ROWS, MOST_RECORD, MOST_BLOCKS = 2_000_000, 1 << 26, 300
Point = tuple[str, float, float, float]  # name, step, value, seconds on the clock or NaN


@dataclass(frozen=True)
class Series:
    """One metric: values by step, in the order of the file."""

    name: str
    steps: NDArray[np.float64]
    values: NDArray[np.float64]
    seconds: NDArray[np.float64] | None = None  # the clock at each row, where the log has it
    log: str = ""  # which log, where there are several

    @property
    def title(self) -> str:
        """The name as sentences have it."""
        return f"{self.name} of {self.log}" if self.log else self.name


@dataclass
class LogSubject:
    """The series of one log or of several; `deadline` is of time.monotonic()."""

    series: list[Series]
    deadline: float = field(default=float("inf"))
    checkpoints: Sequence[Path] = ()  # beside the only log

    def by_log(self) -> list[list[Series]]:
        """The series of each log."""
        return [list(own) for _, own in itertools.groupby(self.series, lambda s: s.log)]


def read_logs(paths: Sequence[str]) -> list[Series]:
    """The metrics of several logs, each with the name of its log; of one log, without."""
    if len(paths) == 1:
        return read_log(paths[0])
    names = _names_of(paths)
    return [
        replace(series, log=name)
        for path, name in zip(paths, names, strict=True)
        for series in read_log(path)
    ]


def _names_of(paths: Sequence[str]) -> list[str]:
    """File names, with their folders where these are needed to tell them apart."""
    for parts in (1, 2, 3):
        names = ["/".join(Path(path).parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} #{number}" for number, path in enumerate(paths, 1)]


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
    if not parts or "\0" in path or not all(part.is_file() for part in parts):
        raise ProfileError(
            f"{path} is no file: give a CSV, JSON lines or TensorBoard event file, or a folder "
            "of event files."
        )
    try:
        points = [
            point
            for part in parts
            for point in (
                _events(part.read_bytes()) if "tfevents" in part.name else _points(_rows(part))
            )
        ]
    except (ValueError, struct.error, csv.Error) as error:
        raise ProfileError(f"{path} cannot be read as a log: {error}.") from None
    except OSError as error:
        raise ProfileError(f"{path} cannot be read ({error.strerror or error}).") from None
    found = defaultdict(list)
    for name, *row in points:
        found[name].append(row)
    if not found:
        raise ProfileError(f"{path} holds no numbers by name: is it a log of metrics?")
    columns = {name: np.array(rows).T for name, rows in found.items()}
    return [
        Series(name, steps, values, seconds if np.isfinite(seconds).all() else None)
        for name, (steps, values, seconds) in columns.items()
    ]


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8", errors="replace", newline="") as stream:
        first = stream.read(1)
        stream.seek(0)
        if first == "{":
            for number, line in enumerate(stream, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"line {number} is no JSON object")
                    yield row
        else:
            for row in csv.DictReader(stream):
                yield {str(name).strip(): value for name, value in row.items()}


def _points(rows: Iterator[Mapping[str, Any]]) -> Iterator[Point]:
    for number, row in enumerate(itertools.islice(rows, MOST_ROWS)):
        key = next((n for n in STEPS if _number(row.get(n)) is not None), None)
        at = float(number if key is None else row[key])
        clock = next((v for n in CLOCKS if (v := _number(row.get(n))) is not None), math.nan)
        for name, text in row.items():
            value = _number(text)
            if value is not None and name not in (*STEPS[:-1], key, *CLOCKS, "date"):
                yield str(name), at, value, clock


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
    fields = list(_fields(event))
    step = next((float(v) for n, v in fields if n == 2 and isinstance(v, int)), 0.0)
    clock = next((v for n, v in fields if n == 1 and isinstance(v, float)), math.nan)
    for summary in (v for n, v in fields if n == 5 and isinstance(v, bytes)):
        for value in (v for n, v in _fields(summary) if n == 1 and isinstance(v, bytes)):
            parts = dict(_fields(value))
            tag, number = parts.get(1), parts.get(2)
            if not isinstance(number, float):
                number = _tensor(parts[8]) if isinstance(parts.get(8), bytes) else None
            if isinstance(tag, bytes) and number is not None:
                yield tag.decode("utf-8", "replace"), step, number, clock


def _tensor(data: Any) -> float | None:
    """A scalar tensor of float32 (type 1) or float64 (type 2)."""
    parts = dict(_fields(data))
    form = {1: "<f", 2: "<d"}.get(int(parts.get(1, 0)))
    content = parts.get(4)
    if form and isinstance(content, bytes) and len(content) == struct.calcsize(form):
        return float(struct.unpack(form, content)[0])
    packed = parts.get(5)
    if isinstance(packed, bytes) and len(packed) == 4:
        return float(struct.unpack("<f", packed)[0])
    return packed if isinstance(packed, float) else None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a protocol buffer: int, float (32 or 64 bits) or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
        elif kind == 1:
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif kind == 2:
            length, at = _varint(data, at)
            yield number, data[at : at + length]
            at += length
        elif kind == 5:
            yield number, struct.unpack_from("<f", data, at)[0]
            at += 4
        else:
            raise ValueError(f"it has a field of kind {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            break
    raise ValueError("it ends in the middle of a number")


class Period(NamedTuple):
    """A line of a spectrum: period in rows; height over its surroundings, chance of that height.

    `swing` is from top to bottom, in units of the series; `noise` the deviation beside it.
    """

    rows: float
    ratio: float
    chance: float
    swing: float = 0.0
    noise: float = 0.0


def spectral_peak(values: NDArray[np.float64]) -> Period:
    """Return the strongest period of a series, and its fundamental if the line is a harmonic.

    The series is detrended, whitened (AR(1)) and windowed. A line of noise over the median of about
    50 neighbours exceeds x with probability (1 + x/v)^-v, v = 12 (Brockwell and Davis, Time Series,
    10.3).
    """
    found = _spectrum(values)
    if found is None:
        return Period(math.inf, 0.0, 1.0)
    plain, ratio, alone = found
    lines = np.arange(len(ratio)) + LOWEST_LINE
    best = int(ratio.argmax())
    chance = -math.expm1(len(lines) * math.log1p(-min(float(alone[best]), 1 - 1e-12)))
    shares = range(1, min(MOST_SHARES, int(lines[best]) // LOWEST_LINE) + 1)
    rows = (len(values) - 1) / float(lines[best]) * max(shares, key=lambda k: _comb(alone, best, k))
    if not _again(values, {rows, (len(values) - 1) / float(lines[best])}):
        chance = 1.0
    folded = np.array([part.mean() for part in _by_phase(plain, rows)])
    noise = math.sqrt(max(0.0, float(plain.var()) - float(folded.var())))
    return Period(rows, float(ratio[best]), chance, float(np.ptp(folded)), noise)


def _comb(chances: NDArray[np.float64], best: int, share: int) -> float:
    """Evidence for the lines up to twice the best that its share adds; noise takes 2 off each."""
    at = np.array([m for m in range(1, 2 * share) if m % share]) * (best + LOWEST_LINE) / share
    at = np.round(at).astype(int) - LOWEST_LINE
    added = -np.log(np.maximum(chances[at[at < len(chances)]], 1e-12)) - 3
    return float(added.sum()) if share > 1 else COMB_BOUND


def _again(values: NDArray[np.float64], periods: set[float]) -> bool:
    """Whether one stands in the last two thirds as well: a steep beginning has all periods."""
    late = values[len(values) // 3 :]
    found = _spectrum(late)
    if found is None:
        return True  # too few rows for a second look
    at = [(len(late) - 1) / rows for rows in periods]
    # a long period has too few repeats left: its second harmonic has its place
    at = [(line if line >= LOWEST_LINE else 2 * line) - LOWEST_LINE for line in at]
    near = (found[2][max(0, math.floor(a) - 1) : max(0, math.ceil(a) + 2)] for a in at)
    return any(bool((chances < 100 * OWN_LINE).any()) for chances in near)


def _spectrum(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """(the series without its trend; of each line its height and the chance of it); None: short."""
    n = len(values)
    width = max(5, n // 4) | 1
    padded = np.pad(values, width // 2, mode="reflect", reflect_type="odd")
    rest = values - np.convolve(padded, np.ones(width) / width, mode="valid")
    power_of_rest = float((rest**2).sum())
    if power_of_rest == 0 or not np.isfinite(power_of_rest):
        return None
    share = float((rest[1:] * rest[:-1]).sum()) / power_of_rest
    plain, rest = rest, rest[1:] - share * rest[:-1]
    power = np.abs(np.fft.rfft(rest * np.hanning(len(rest)))) ** 2
    lines = np.arange(LOWEST_LINE, len(power) - 1)
    if len(lines) < BESIDE:
        return None
    ratio = power[lines] / np.maximum(_surroundings(power, lines), 1e-300) * math.log(2)
    return plain, ratio, (1 + ratio / FREEDOM) ** -FREEDOM


def _by_phase(values: NDArray[np.float64], rows: float) -> list[NDArray[np.float64]]:
    """The values by their place in the period, in at most twelve parts."""
    parts = min(12, max(2, int(rows)))
    phase = np.floor(np.arange(len(values)) % rows / rows * parts).astype(int)
    return [values[phase == part] for part in range(parts) if (phase == part).any()]


def without_noise(values: NDArray[np.float64]) -> bool:
    """Return whether a column is smooth within its rounding: a setting or a clock.

    The fourth differences of noise of deviation 1 have the variance 70.
    """
    if len(values) < 8:
        return False
    rough = float(np.median(np.abs(np.diff(values, 4)))) / (0.6745 * math.sqrt(70))
    distinct = np.unique(values)
    digits = float(np.diff(distinct).min()) if len(distinct) > 1 else 0.0
    return rough <= max(1e-5 * float(np.ptp(values)), digits)


def _surroundings(power: NDArray[np.float64], lines: NDArray[np.intp]) -> NDArray[np.float64]:
    """Median of the lines beside each, without its neighbours, which the window mixes in."""
    low = np.minimum(np.maximum(2, lines - BESIDE // 2), max(2, len(power) - 1 - BESIDE))
    medians = []
    for part in np.array_split(np.arange(len(lines)), len(lines) // 65_536 + 1):
        places = low[part, None] + np.arange(BESIDE)
        inside = (places < len(power) - 1) & (np.abs(places - lines[part, None]) > 2)
        beside = np.where(inside, power[np.minimum(places, len(power) - 1)], np.nan)
        medians.append(np.nanmedian(beside, axis=1))
    return np.concatenate(medians)


LOSSES = ("loss", "error", "perplexity", "mse", "rmse", "mae", "nll", "wer", "cer", "fid")
SCORES = (
    *("acc", "accuracy", "f1", "auc", "auroc", "map", "iou", "miou", "dice", "precision"),
    *("recall", "bleu", "rouge", "top1", "top5", "r2", "psnr", "ssim", "score", "reward", "kappa"),
)
BESIDE_METRICS = (  # settings, clocks and counts, which trainers log beside metrics
    *("lr", "rate", "rates", "momentum", "decay", "beta", "betas", "epsilon", "scale", "scaler"),
    *("epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "progress", "percent"),
    *("time", "times", "seconds", "sec", "secs", "duration", "elapsed", "eta", "runtime", "clock"),
    *("throughput", "fps", "mem", "memory", "gpu", "cpu", "util", "utilization", "temperature"),
    *("samples", "tokens", "examples", "seen", "batch_size", "size", "seed", "flops", "mfu"),
)
ADVERSARIES = (
    *("g", "d", "gen", "disc", "gan", "generator", "discriminator", "critic", "adv", "adversarial"),
    *("domain", "actor", "policy", "value", "entropy", "kl", "td", "q", "reg", "penalty"),
)
REFERENCES = ("best", "target", "teacher", "baseline", "chance", "random", "majority", "dummy")
ACCURACIES = {"acc", "accuracy", "top1", "auc", "auroc"}
HELD_OUT = ("val", "test", "eval", "valid", "validation", "dev", "heldout")
WORD = re.compile(r"[a-z]+[0-9]*")
Values = NDArray[np.float64]


def name_words(name: str) -> set[str]:
    """'valAccuracy/top-1' -> {'val', 'accuracy', 'top', ...}, joined pairs too ('top1')."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    forms = (apart, name.lower(), re.sub(r"[-_@ ]", "", apart))  # mAP is one word, top-1 as well
    return {word for form in forms for word in WORD.findall(form)}


def better_is(name: str) -> int:
    """-1 where a lower value is better, 1 where a higher one is, 0 where the name does not tell."""
    words = name_words(name)
    if not is_metric(name):
        return 0
    if words & set(LOSSES) or any(word.endswith("loss") for word in words):
        return -1
    return 1 if words & set(SCORES) else 0


def is_metric(name: str) -> bool:
    """Return whether a column is judged as a metric: no setting, clock or count, by its name."""
    words = name_words(name)
    if words & {"scale", "scaler", "lr"}:
        return False
    named = bool(words & {*LOSSES, *SCORES}) or any(word.endswith("loss") for word in words)
    return named or not words & set(BESIDE_METRICS)


def is_held_out(name: str) -> bool:
    """Whether a metric is of data that are not trained on, by its name."""
    return any(word.startswith(part) for word in name_words(name) for part in HELD_OUT)


def is_own(name: str) -> bool:
    """Return whether a metric is none of an adversary or of RL, and no reference, by its name."""
    return not name_words(name) & {*ADVERSARIES, *REFERENCES}


def to_improve(series: Sequence[Series], least_rows: int) -> list[Series]:
    """Return the losses and scores that a training should improve, with enough rows of numbers."""
    found = [s for s in series if better_is(s.name) and is_own(s.name)]
    return [s for s in found if len(s.values) >= least_rows and np.isfinite(s.values).all()]


def noise_of(values: Values) -> float:
    """Return the standard deviation of the noise by second differences, in which a slope cancels.

    Their variance is 6 for white noise; 0.6745 is the median of |normal|.
    """
    if len(values) < 4:
        return float("nan")
    return float(np.median(np.abs(np.diff(values, 2))) / (0.6745 * np.sqrt(6)))


def smoothed(values: Values, share: float = 0.5) -> Values:
    """Return the curve without noise: lines through neighbourhoods (Cleveland, 1979: LOWESS)."""
    count = len(values)
    reach = max(3, min(count, round(share * count)))
    places = np.arange(count, dtype=float)
    distances = np.abs(places[:, None] - places[None, :])
    width = np.sort(distances, axis=1)[:, reach - 1 : reach] + 1e-9
    weights = np.clip(1 - (distances / width) ** 3, 0, None) ** 3
    total = weights.sum(axis=1)
    at = weights @ places / total
    mean = weights @ values / total
    spread = (weights * (places[None, :] - at[:, None]) ** 2).sum(axis=1)
    slope = (weights * (places[None, :] - at[:, None]) * values[None, :]).sum(axis=1)
    line: Values = mean + slope / np.maximum(spread, 1e-12) * (places - at)
    return line


def error_of_mean(values: Values, rows: int) -> float:
    """Standard error of a mean of neighbouring rows, of which (1 + r) / (1 - r) count as one.

    A curve that is taken out makes r, their correlation, too small by 4 / n (Kendall, 1954).
    """
    rest = values - smoothed(values, share=0.4)
    spread, power = 1.4826 * float(np.median(np.abs(rest))), float((rest**2).sum())
    near = min(0.98, float((rest[1:] * rest[:-1]).sum()) / max(power, 1e-300) + 4 / len(rest))
    alike = min(float(rows), max(1.0, (1 + near) / (1 - near)))
    return max(noise_of(values), spread) * float(np.sqrt(alike / rows))


def gain_of(values: Values, parts: int = 10) -> tuple[float, float]:
    """Return the gain from the first part to the best later part, and the error of a part."""
    if len(values) > MOST_BLOCKS:
        values = np.array([part.mean() for part in np.array_split(values, MOST_BLOCKS)])
    split = np.array_split(values, min(parts, len(values) // 3))
    means = np.array([part.mean() for part in split])
    gain = float(means[1:].max() - means[0])
    return gain, error_of_mean(values, len(values)) * math.sqrt(len(split))
