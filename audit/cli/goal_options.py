"""The options that describe a goal, declared once for `audit subset plan` and `draw`.

`takes_options` turns the fields of a dataclass into options; the command gets one object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from audit.cli.options import option, read_config
from audit.errors import UsageError

if TYPE_CHECKING:
    from audit.checking.config import PlanSettings
    from audit.subset import Goal
    from audit.subset.goal import Estimand


MEAN = "mean:"
"""A metric: the mean of a column with a number per example."""


class Target(StrEnum):
    """What an estimate is about."""

    NEW_DATA = "new-data"
    THIS_SET = "this-set"
    DEDUPLICATED = "deduplicated"


# Options that other commands of the group have too.
SplitOption = Annotated[
    str | None,
    option("--split", "Split to draw from; `all`: every file (default: as planned, test)."),
]
GroupOption = Annotated[str | None, option("--group", "Group by this column (patient, video).")]
FromOption = Annotated[
    Path | None, option("--from", "List (CSV, Parquet) or COCO file in place of a run.")
]
UnlabelledOption = Annotated[bool, option("--unlabelled", "The list has no classes yet.")]


@dataclass(frozen=True)
class PlanOptions:
    """The set, the metric, and a target or budget; assumptions come from `[plan]`."""

    split: SplitOption = None
    metric: Annotated[
        str, option("--metric", "accuracy, recall:CLASS, macro-recall, mean:COLUMN, map, miou, ...")
    ] = "accuracy"
    by: Annotated[
        list[str] | None,
        option("--by", "Also stratify by this column, or `confidence`; repeatable."),
    ] = None
    group: GroupOption = None
    predictions: Annotated[
        list[Path] | None,
        option("--predictions", "Predictions of an earlier model; twice for two models."),
    ] = None
    confidence: Annotated[float, option("--confidence", "Confidence level.")] = 0.95
    target: Annotated[
        list[Target] | None,
        option("--target", "new-data (default) or this-set; also deduplicated."),
    ] = None
    half_width: Annotated[
        float | None, option("--half-width", "Target margin of error, 0.02 = 2 points.")
    ] = None
    detect: Annotated[
        float | None, option("--detect", "Difference between two models to detect.")
    ] = None
    n: Annotated[int | None, option("--n", "Units to draw.")] = None
    seconds: Annotated[float | None, option("--seconds", "Time budget, s.")] = None
    throughput: Annotated[
        str | None, option("--throughput", "Files per second, or a saved profiler session.")
    ] = None

    @cached_property
    def assumptions(self) -> PlanSettings:
        """The table `[plan]` of the settings."""
        return read_config().plan

    @property
    def mean_of(self) -> str | None:
        """The column whose mean is the metric."""
        return self.metric.removeprefix(MEAN) if self.metric.startswith(MEAN) else None

    @property
    def estimand(self) -> Estimand:
        """The estimand of the goal; raises UsageError for two of them."""
        targets = set(self.target or ()) - {Target.DEDUPLICATED}
        if len(targets) > 1:
            raise UsageError("--target names two targets: choose new-data or this-set.")
        return "full-set" if Target.THIS_SET in targets else "generalisation"

    @property
    def set_options(self) -> dict[str, Any]:
        """How the set becomes strata and units, as `make_plan` and `make_curve` take it."""
        return {
            "by": self.by or (),
            "by_label": self.assumptions.label_strata,
            "group": self.group,
            "deduplicated": Target.DEDUPLICATED in (self.target or ()),
            "allocation": self.assumptions.allocation,
        }

    def open_goal(self) -> Goal:
        """Return the goal without a target: the smallest budget stands in for it."""
        from audit.subset import Goal

        given = self.assumptions
        looks = 1 if given.comparisons is None else given.comparisons
        return Goal(
            metric="accuracy" if self.mean_of else self.metric, n=2, power=given.power,
            confidence=self.confidence, looks=looks, estimand=self.estimand,
            planning_value=given.expected, discordant=given.disagreement, rho=given.correlation,
        )  # fmt: skip

    def goal(self, population: int | None = None) -> Goal:
        """Return the goal, checked; `population` sizes for a mean in a finite set."""
        n, half_width = self.n, self.half_width
        if self.mean_of and n is None and self.seconds is None:
            n, half_width = self._units_for_mean(population), None
        goal = replace(
            self.open_goal(), half_width=half_width, detect=self.detect, n=n,
            seconds=self.seconds, throughput=_files_per_second(self.throughput),
        )  # fmt: skip
        goal.check()
        return goal

    def _units_for_mean(self, population: int | None) -> int:
        from audit.subset.values import units_for_mean

        deviation = self.assumptions.deviation
        if self.half_width is None or deviation is None:
            raise UsageError(
                f"--metric {self.metric} needs --n, or --half-width and --set "
                "plan.deviation=NUMBER, both in the unit of the column."
            )
        known = population if self.estimand == "full-set" else None
        needed = units_for_mean(deviation, self.half_width, self.confidence, known)
        return needed if population is None else min(needed, population)


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its `options` parameter as options of its own."""
    own = dict(inspect.signature(command, eval_str=True).parameters)
    kind = own.pop("options").annotation
    taken = inspect.signature(kind, eval_str=True).parameters

    @wraps(command)
    def run(**values: Any) -> None:
        options = kind(**{name: values.pop(name) for name in taken})
        command(options=options, **values)

    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*taken.values(), *own.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def model_names(paths: Sequence[Path]) -> list[str]:
    """Return short names of prediction files that tell them apart."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _files_per_second(text: str | None) -> float | None:
    from audit.subset.goal import session_throughput

    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return session_throughput(Path(text))
