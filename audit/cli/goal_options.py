"""The options that describe a goal, declared once for `audit subset plan` and `curve`.

Typer reads a command's options from its signature. `takes_options` lets a command name one
dataclass instead: its fields become the options, and the command gets one object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from audit.errors import UsageError

if TYPE_CHECKING:
    from audit.subset import Goal
    from audit.subset.goal import Estimand as Target


def option(name: str, text: str) -> Any:
    """Return an option with its help text."""
    return typer.Option(name, help=text)


class Estimand(StrEnum):
    """What the target is about."""

    GENERALISATION = "generalisation"
    FULL_SET = "full-set"
    DEDUPLICATED = "deduplicated"


# Options that other commands of the group have too.
SplitOption = Annotated[
    str | None,
    option("--split", "Split to draw from; `all`: every file (default: as planned, test)."),
]
GroupOption = Annotated[
    str | None, option("--group", "Column of units taken whole: patient, video; `group`.")
]
PredictionsOption = Annotated[
    list[Path] | None,
    option("--predictions", "Table, or COCO results, of an earlier model; twice for two models."),
]
# Of commands that read a drawn subset: what it was planned for, unless it does not say.
KeptConfidenceOption = Annotated[
    float | None, option("--confidence", "Confidence of the intervals (default: as planned, 0.95).")
]
KeptLooksOption = Annotated[
    int | None, option("--looks", "Comparisons fixed in advance (default: as planned, 1).")
]


FromOption = Annotated[
    Path | None,
    option("--from", "List (CSV, Parquet: id, label, any columns) or COCO file in place of a run."),
]
UnlabelledOption = Annotated[bool, option("--unlabelled", "The list has no classes yet.")]


@dataclass(frozen=True)
class GoalOptions:
    """What every goal has: the set, the metric, the error rates, the planning values."""

    split: SplitOption = None
    metric: Annotated[
        str,
        option(
            "--metric",
            "accuracy, recall:CLASS, macro-recall, ...; of objects map, map50, miou, ...",
        ),
    ] = "accuracy"
    by: Annotated[
        list[str] | None,
        option(
            "--by", "Column that forms strata with the label; repeatable; `confidence` works too."
        ),
    ] = None
    no_label_strata: Annotated[
        bool, option("--no-label-strata", "The label forms no strata; only --by does.")
    ] = False
    group: GroupOption = None
    predictions: PredictionsOption = None
    confidence: Annotated[float, option("--confidence", "Confidence of the intervals.")] = 0.95
    power: Annotated[float, option("--power", "Chance to detect a difference.")] = 0.8
    allocation: Annotated[
        Literal["proportional", "equal", "neyman"] | None,
        option("--allocation", "How units go to strata (default: by metric)."),
    ] = None
    estimand: Annotated[
        list[Estimand] | None,
        option("--estimand", "What the target is about; `deduplicated` may be added to either."),
    ] = None
    p: Annotated[float | None, option("--p", "Planning value of the share (default 0.5).")] = None
    discordant: Annotated[
        float | None, option("--discordant", "Share on which exactly one of two models is right.")
    ] = None
    rho: Annotated[float | None, option("--rho", "Correlation of two files of one group.")] = None

    @property
    def target(self) -> Target:
        """The estimand of the goal; raises UsageError for two of them."""
        targets = set(self.estimand or ()) - {Estimand.DEDUPLICATED}
        if len(targets) > 1:
            raise UsageError("--estimand names two targets: choose generalisation or full-set.")
        return "full-set" if Estimand.FULL_SET in targets else "generalisation"

    @property
    def set_options(self) -> dict[str, Any]:
        """How the set becomes strata and units, as `make_plan` and `make_curve` take it."""
        return {
            "by": self.by or (),
            "by_label": not self.no_label_strata,
            "group": self.group,
            "deduplicated": Estimand.DEDUPLICATED in (self.estimand or ()),
            "allocation": self.allocation,
        }

    def goal(self) -> Goal:
        """Return the goal without a target: the smallest budget stands in for it."""
        from audit.subset import Goal

        return Goal(
            metric=self.metric, n=2, power=self.power, confidence=self.confidence,
            estimand=self.target, planning_value=self.p, discordant=self.discordant, rho=self.rho,
        )  # fmt: skip


@dataclass(frozen=True)
class PlanOptions(GoalOptions):
    """A goal with its target or budget, and how strictly to reach it."""

    half_width: Annotated[
        float | None, option("--half-width", "Target half-width of the interval, 0.02 = 2 points.")
    ] = None
    detect: Annotated[
        float | None, option("--detect", "Smallest difference between two models to detect.")
    ] = None
    deviation: Annotated[
        float | None,
        option("--deviation", "Standard deviation of a number per example: --half-width of it."),
    ] = None
    n: Annotated[int | None, option("--n", "Units to draw.")] = None
    seconds: Annotated[float | None, option("--seconds", "Time budget, s.")] = None
    throughput: Annotated[
        str | None, option("--throughput", "Files per second, or a saved profiler session.")
    ] = None
    looks: Annotated[int, option("--looks", "Comparisons fixed in advance.")] = 1
    label_noise: Annotated[
        str | None, option("--label-noise", "Rate of wrong labels, or `auto` for the audit's.")
    ] = None
    merge_strata: Annotated[
        bool, option("--merge-strata", "Join the smallest strata where n is too small for all.")
    ] = False

    def goal(self, population: int | None = None) -> Goal:
        """Return the goal, checked; `population` sizes for a mean in a finite set."""
        from dataclasses import replace

        n, half_width = self.n, self.half_width
        if self.deviation is not None:
            n, half_width = self._units_for_mean(population), None
        goal = replace(
            GoalOptions.goal(self), half_width=half_width, detect=self.detect, n=n,
            seconds=self.seconds, throughput=_files_per_second(self.throughput), looks=self.looks,
        )  # fmt: skip
        goal.check()
        return goal

    def _units_for_mean(self, population: int | None) -> int:
        from audit.subset.values import units_for_mean

        if self.half_width is None or self.deviation is None:
            raise UsageError("--deviation needs the --half-width of the mean, in the same unit.")
        known = population if self.target == "full-set" else None
        needed = units_for_mean(self.deviation, self.half_width, self.confidence, known)
        return needed if population is None else min(needed, population)


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its `options` parameter as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    kind = hints["options"]
    names = [field.name for field in fields(kind)]
    kinds = get_type_hints(kind, include_extras=True)

    @wraps(command)
    def run(**values: Any) -> None:
        options = kind(**{name: values.pop(name) for name in names})
        command(options=options, **values)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name != "options":
            own = parameter.replace(annotation=hints[parameter.name])
            parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, annotation=kinds[field.name],
                default=field.default if field.default is not MISSING else inspect.Parameter.empty,
            )
            for field in fields(kind)
        ]  # fmt: skip
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
