"""A log of metrics as series: from CSV, JSON lines or a TensorBoard event file.

A row has a step (`step`, `global_step`, `iteration`, `epoch`; else its number) and numbers by name.
Event files are read by hand, as they are simple: records of length, checksum, bytes, checksum, in
which an event holds a step and scalars; neither TensorBoard nor TensorFlow is needed.
"""

from __future__ import annotations

import csv
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.record.errors import ProfileError

STEPS = ("step", "global_step", "iteration", "iter", "_step", "epoch")
CLOCKS = ("wall_time", "timestamp", "_timestamp", "time", "_runtime")  # seconds
NOT_METRICS = (*STEPS, *CLOCKS, "date")
LOWEST_LINE, BESIDE, FREEDOM = 6, 56, 12
MOST_ROWS, MOST_RECORD = 2_000_000, 1 << 26
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
    """The series of one log or of several, and their folders.

    `deadline` is of time.monotonic().
    """

    series: list[Series]
    deadline: float = field(default=float("inf"))
    folders: tuple[Path, ...] = ()

    @property
    def logs(self) -> dict[str, list[Series]]:
        """The series by log, in the order given."""
        found: dict[str, list[Series]] = {}
        for series in self.series:
            found.setdefault(series.log, []).append(series)
        return found


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


def folders_of(paths: Sequence[str]) -> tuple[Path, ...]:
    """The folders that the logs lie in, or are, each once."""
    places = [Path(path) for path in paths]
    return tuple(dict.fromkeys(p if p.is_dir() else p.absolute().parent for p in places))


def _names_of(paths: Sequence[str]) -> list[str]:
    """File names, with their folders where these are needed to tell them apart."""
    for parts in (1, 2, 3):
        names = ["/".join(Path(path).parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} #{number}" for number, path in enumerate(paths, 1)]


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
    found: dict[str, list[tuple[float, float, float]]] = {}
    for name, *row in points:
        found.setdefault(name, []).append((row[0], row[1], row[2]))
    if not found:
        raise ProfileError(f"{path} holds no numbers by name: is it a log of metrics?")
    return [_series(name, np.array(rows)) for name, rows in found.items()]


def _series(name: str, rows: NDArray[np.float64]) -> Series:
    known = bool(np.isfinite(rows[:, 2]).all())
    return Series(name, rows[:, 0], rows[:, 1], rows[:, 2] if known else None)


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
            yield from csv.DictReader(stream)


def _points(rows: Iterator[Mapping[str, Any]]) -> Iterator[Point]:
    for number, row in enumerate(rows):
        if number >= MOST_ROWS:
            return
        at = next((v for n in STEPS if (v := _number(row.get(n))) is not None), float(number))
        clock = next((v for n in CLOCKS if (v := _number(row.get(n))) is not None), math.nan)
        for name, text in row.items():
            value = _number(text)
            if value is not None and name not in NOT_METRICS:
                yield str(name), at, value, clock


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool | list | dict) or value == "":
        return None
    try:
        return float(value)
    except ValueError:
        return None


# ---- TensorBoard ----


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
            if not isinstance(tag, bytes):
                continue
            if isinstance(number, float):
                yield tag.decode("utf-8", "replace"), step, number, clock
            elif isinstance(parts.get(8), bytes):
                held = _tensor(parts[8])
                if held is not None:
                    yield tag.decode("utf-8", "replace"), step, held, clock


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


def spectral_peak(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """(period in rows, peak over its surroundings, probability by chance) of the strongest one.

    The series minus its moving mean, with its correlation of neighbours taken out (which a
    sine cannot hide in), windowed. Each line of the spectrum over the median of some 50 beside it
    exceeds x with probability (1 + x/v)^-v: a line of noise is exponential, and what it is divided
    by is uncertain as v degrees of freedom are, of which the median and the window leave 12.
    Source: periodogram ordinates of a linear process are asymptotically independent and
    exponential (Brockwell and Davis, Time Series, 10.3).
    """
    n = len(values)
    width = max(5, n // 4) | 1
    padded = np.pad(values, width // 2, mode="reflect", reflect_type="odd")
    rest = values - np.convolve(padded, np.ones(width) / width, mode="valid")
    power_of_rest = float((rest**2).sum())
    if power_of_rest == 0 or not np.isfinite(power_of_rest):
        return math.inf, 0.0, 1.0
    share = float((rest[1:] * rest[:-1]).sum()) / power_of_rest
    rest = rest[1:] - share * rest[:-1]
    power = np.abs(np.fft.rfft(rest * np.hanning(len(rest)))) ** 2
    lines = np.arange(LOWEST_LINE, len(power) - 1)
    if len(lines) < BESIDE:
        return math.inf, 0.0, 1.0
    around = np.array([_surroundings(power, int(k)) for k in lines])
    ratio = power[lines] / np.maximum(around, 1e-300) * math.log(2)
    best = int(ratio.argmax())
    alone = (1 + float(ratio[best]) / FREEDOM) ** -FREEDOM
    chance = -math.expm1(len(lines) * math.log1p(-min(alone, 1 - 1e-12)))
    return len(rest) / float(lines[best]), float(ratio[best]), chance


def _surroundings(power: NDArray[np.float64], at: int) -> float:
    """Median of the lines beside one, without its neighbours, which the window mixes in."""
    low = min(max(2, at - BESIDE // 2), max(2, len(power) - 1 - BESIDE))
    places = np.arange(low, min(len(power) - 1, low + BESIDE))
    return float(np.median(power[places[np.abs(places - at) > 2]]))
