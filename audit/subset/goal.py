"""What is asked of a subset: a metric, a target or a budget, the error rates; checked once.

Exactly one of half_width, detect, n and seconds is given. A goal knows nothing of the set: what it
takes there is in `audit.subset.requirement`, and which strata that goes to in
`audit.subset.allocation`. Shares are in [0, 1], seconds in seconds, throughput in files per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from audit import stats
from audit.errors import UsageError
from audit.subset.estimate import ESTIMANDS, Estimand

SIZED_METRICS = ("accuracy", "recall", "specificity", "macro-recall")
SCORED_METRICS = (*SIZED_METRICS, "precision", "macro-f1", "auroc")
# Fields whose command-line option has another name.
OPTIONS = {"planning_value": "p"}
PER_LABEL = ("recall", "specificity", "precision")


def parse_metric(metric: str) -> tuple[str, str | None]:
    """Split `recall:cat` into metric and class; raises UsageError for an unknown metric."""
    name, _, label = metric.partition(":")
    if name not in SCORED_METRICS:
        raise UsageError(f"Metric {metric!r} does not exist: choose {', '.join(SCORED_METRICS)}.")
    if label and name not in PER_LABEL:
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
        return stats.alpha_for_looks(self.confidence, self.looks)

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
        stats.check_level(self.confidence, "--confidence")
        stats.check_level(self.power, "--power")
        if self.estimand not in ESTIMANDS:
            raise UsageError(f"--estimand is {self.estimand!r}: choose {' or '.join(ESTIMANDS)}.")
        for name in ("half_width", "detect", "planning_value", "discordant", "rho"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                option = OPTIONS.get(name, name).replace("_", "-")
                raise UsageError(
                    f"--{option} is {value}: give a share between 0 and 1, such as 0.02 for 2 "
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
                    f"{self.seconds:g} s at {self.throughput:g} files/s pay for fewer than 2 "
                    "examples: allow more seconds."
                )
        stats.alpha_for_looks(self.confidence, self.looks)
