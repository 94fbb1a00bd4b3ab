"""What is asked of a subset: a metric, a target or a budget, the error rates; checked once.

Exactly one of half_width, detect, n and seconds is given; shares are in [0, 1], throughput in files
per second. Here too: the two estimands, and the form of every document.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from audit.errors import UsageError
from audit.records import finite
from audit.statistics.intervals import Ints, alpha_for_looks, check_level
from dataset_preflight.foundation.files import regular

Estimand = Literal["full-set", "generalisation"]
ESTIMANDS: tuple[Estimand, Estimand] = ("full-set", "generalisation")
TARGET_NAMES: dict[Estimand, str] = {"full-set": "this set", "generalisation": "new data"}
SIZED_METRICS = ("accuracy", "recall", "specificity", "macro-recall")
SCORED_METRICS = (*SIZED_METRICS, "precision", "macro-f1", "auroc")
# How the user gives a field: an option, or a key of the settings.
OPTIONS = {
    "planning_value": "[plan] expected", "discordant": "[plan] disagreement",
    "rho": "[plan] correlation", "half_width": "--half-width", "detect": "--detect",
}  # fmt: skip


def parse_metric(metric: str) -> tuple[str, str | None]:
    """Split `recall:cat` into metric and class; raises UsageError for an unknown metric."""
    name, _, label = metric.partition(":")
    if name not in SCORED_METRICS:
        raise UsageError(
            f"Metric {metric!r} does not exist here: choose {', '.join(SCORED_METRICS)}; plan, "
            "draw and score also take metrics of objects (map, map50, ar100, f1@0.5, ...)."
        )
    if label and name not in ("recall", "specificity", "precision"):
        raise UsageError(f"{name} is over all classes: write it without {':' + label!r}.")
    if name in {"specificity", "precision"} and not label:
        raise UsageError(f"{name} is of one class: write {name}:CLASS.")
    return name, label or None


@dataclass(frozen=True)
class Goal:
    """The target or budget of a plan, with its error rates."""

    metric: str = "accuracy"
    half_width: float | None = None
    detect: float | None = None
    n: int | None = None
    seconds: float | None = None
    throughput: float | None = None
    power: float = 0.8
    confidence: float = 0.95
    looks: int = 1
    estimand: Estimand = "generalisation"
    planning_value: float | None = None
    discordant: float | None = None
    rho: float | None = None

    @property
    def parsed(self) -> tuple[str, str | None]:
        """Metric and class."""
        return parse_metric(self.metric)

    @property
    def alpha(self) -> float:
        """Error rate of one comparison, after sharing it among the looks."""
        return alpha_for_looks(self.confidence, self.looks)

    @property
    def level(self) -> float:
        """Confidence of one interval, after sharing the error rate among the looks."""
        return 1 - self.alpha

    @property
    def is_budget(self) -> bool:
        """True for n or seconds, False for a half-width or a difference."""
        return self.n is not None or self.seconds is not None

    def target(self) -> dict[str, Any]:
        """Return the fields that were given, for the plan's document."""
        names = ("half_width", "detect", "n", "seconds", "throughput", "power")
        return {k: v for k in names if (v := getattr(self, k)) is not None}

    def budget_units(self, files_per_unit: float) -> int | None:
        """Return floor(seconds x throughput / files a unit), n itself, or None for a target."""
        if self.seconds is None or self.throughput is None:
            return self.n
        # 0.29 s at 100 files/s is 28.999999999999996 in floating point, and pays for 29 files.
        return math.floor(self.seconds * self.throughput / files_per_unit + 1e-9)

    def check(self) -> None:
        """Raise UsageError for the first thing that does not fit, with what to do about it."""
        name, _ = self.parsed
        targets = [
            k for k in ("half_width", "detect", "n", "seconds") if getattr(self, k) is not None
        ]
        if len(targets) != 1:
            options = " and ".join(f"--{k.replace('_', '-')}" for k in targets) or "none"
            raise UsageError(
                f"A plan needs exactly one of --half-width, --detect, --n and --seconds; {options} "
                "given."
            )
        if name not in SIZED_METRICS and not self.is_budget:
            raise UsageError(
                f"No formula sizes a subset for {name}: plan with --metric accuracy or recall, or "
                "give --n or --seconds; `audit subset score` then reports it with an interval."
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        check_level(self.confidence, "--confidence")
        check_level(self.power, "[plan] power")
        if self.estimand not in ESTIMANDS:
            raise UsageError(f"The target is {self.estimand!r}: choose {' or '.join(ESTIMANDS)}.")
        for name in ("half_width", "detect", "planning_value", "discordant", "rho"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise UsageError(
                    f"{OPTIONS[name]} is {value}: give a share between 0 and 1, such as 0.02 for 2 "
                    "points."
                )
        if self.half_width is not None and not 0 < self.half_width < 0.5:
            raise UsageError(f"--half-width is {self.half_width}: give one between 0 and 0.5.")
        if self.detect == 0:
            raise UsageError("--detect is 0: no number of examples shows that; give 0 < D <= 1.")
        if self.n is not None and self.n < 2:
            raise UsageError(f"--n is {self.n}: a subset needs at least 2 units.")
        self._check_budget()

    def _check_budget(self) -> None:
        if (self.seconds is None) != (self.throughput is None):
            raise UsageError(
                "--seconds and --throughput belong together: give both, in seconds and in files "
                "per second (a saved profiler session has the second)."
            )
        if self.seconds is not None and self.throughput is not None:
            if not (0 < self.seconds < math.inf and 0 < self.throughput < math.inf):
                raise UsageError("--seconds and --throughput must be finite and greater than 0.")
            if self.seconds * self.throughput < 2:
                raise UsageError(
                    f"{self.seconds:g} s at {self.throughput:g} files/s are fewer than 2 "
                    "examples: allow more seconds."
                )
        alpha_for_looks(self.confidence, self.looks)


def level_text(level: float) -> str:
    """Return a confidence level with as many digits as tell it from 1: 0.95, 0.99999995."""
    if level >= 1:  # an error rate that floating point cannot tell from 0
        return "just below 1"
    return f"{level:.{max(4, 1 - math.floor(math.log10(1 - level)))}g}"


def counted_points(share: float) -> str:
    """Return a share as percentage points: `1 point`, `12.5 points`."""
    number = f"{100 * share:.3g}"
    return f"{number} point{'' if number == '1' else 's'}"


SESSION_SCHEMA = "profile/1"
UNDISTURBED = "W"
MAIN = -1  # worker number of the training process
DIFFERENCES = frozenset({"batch", "start"})  # columns that a session stores as differences
LARGEST = 256 << 20  # bytes of a session once unpacked


def session_throughput(path: Path) -> float:
    """Return files per second of the loop with the real loader in a saved session.

    The timed window runs from the first next() call after the warm-up to the end of the last step.
    """
    document = _session(path)
    try:
        timed = [_timed(run) for run in document.get("runs", ()) if run["arm"] == UNDISTURBED]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is a damaged profiler session: record it again, or give --throughput as files "
            "per second."
        ) from error
    files, seconds = (sum(column) for column in zip(*timed, strict=True)) if timed else (0, 0)
    if not (files > 0 and seconds > 0):
        raise UsageError(
            f"{path} does not hold the throughput (no timed step of the real loader with a batch "
            "size): give --throughput as files per second."
        )
    return float(files / seconds)


def _timed(run: dict[str, Any]) -> tuple[float, float]:
    """Return the files and the seconds of the timed window of one run; zeros if it has none."""
    columns = {k: _column(run["spans"], k) for k in ("stage", "batch", "worker", "start", "wall")}

    def spans(stage: str) -> dict[str, Ints]:
        codes = [code for code, name in enumerate(run["spans"]["stages"]) if name == stage]
        rows = np.isin(columns["stage"], codes) & (columns["worker"] == MAIN)
        return {name: column[rows] for name, column in columns.items()}

    wait, loop, warmup = spans("wait"), spans("loop"), int(run.get("warmup", 0))
    steps = min(wait["batch"].size, loop["batch"].size)  # a loop cut off has a wait without a step
    timed = np.flatnonzero(wait["batch"][:steps] >= warmup)
    samples = _column(run["batches"], "samples")
    samples = samples[(_column(run["batches"], "batch") >= warmup) & (samples > 0)]
    size = float(samples.mean()) if samples.size else 0.0
    if size <= 1:  # a dataset may give whole batches as samples: only the loader's setting decides
        size = float(run["config"].get("batch_size") or 0)
    if not (timed.size and size):
        return 0.0, 0.0
    elapsed = loop["start"][steps - 1] + loop["wall"][steps - 1] - wait["start"][timed[0]]
    return size * timed.size, float(elapsed) / 1e9


def _column(table: dict[str, Any], name: str) -> Ints:
    values = np.asarray(table[name], np.int64)
    return np.cumsum(values) if name in DIFFERENCES else values


def _session(path: Path) -> dict[str, Any]:
    try:
        with (
            open(path, "rb", opener=regular) as raw,
            gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw as file,
        ):
            text = file.read(LARGEST)  # a file of a megabyte may unpack to gigabytes
        document = json.loads(text)
    except (OSError, ValueError, EOFError, RecursionError, zlib.error) as error:
        raise UsageError(
            f"--throughput {str(path)!r} is neither a number (files per second) nor a saved "
            "profiler session."
        ) from error
    if not isinstance(document, dict) or document.get("schema") != SESSION_SCHEMA:
        raise UsageError(
            f"{path} is not a profiler session ({SESSION_SCHEMA}): give files per second."
        )
    return document


class Documented:
    """A record that is printed as a document of its `SCHEMA`."""

    SCHEMA: ClassVar[str]

    def document(self) -> dict[str, Any]:
        """Return it as plain data under its schema; NaN and infinity become null."""
        return document_of(self.SCHEMA, self)


def document_of(schema: str, content: Any) -> dict[str, Any]:
    """Return a record (or its content) as plain data under a schema, as JSON can hold it."""
    values = content if isinstance(content, dict) else asdict(content)
    return {"schema": schema, **finite(values)}
