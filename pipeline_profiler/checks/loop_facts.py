"""What only the user's own loop shows: modes, epochs, clipping, gradients, the schedule's unit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.checks.check import Answer

MODE_DEPENDENT = ("Dropout", "BatchNorm", "DropPath", "StochasticDepth", "InstanceNorm")
FLAG = re.compile(r"requires?d?_?grad(s|ient|ients)?", re.IGNORECASE)


@dataclass
class RankFacts:
    """What a program that speaks of ranks did in one of them.

    wrapped: in DistributedDataParallel. bypassed: the line that calls the module inside. seeded,
    written: lines, and whether they depend on the rank. drawn: the first step draws random numbers.
    collectives: functions of torch.distributed that were called.
    """

    wrapped: bool = False
    bypassed: str = ""
    seeded: list[tuple[str, bool]] = field(default_factory=list)
    written: list[tuple[str, str, bool]] = field(default_factory=list)  # with the file's name
    drawn: bool = False
    collectives: list[str] = field(default_factory=list)


Reported = tuple[str, str, float, float, str, str]


@dataclass
class LoopFacts:
    """Counts of what the loop did; a count of 0 says that it was not seen.

    asleep: model and modules with a mode were in eval mode in the first step. lost: gradients
    cleared between two backward() without a step. optimizers: that made a step. unmoded: modules
    that trained in the first step only. evaluated_in_train_mode: modules that trained during
    evaluation. sampler_epochs: by iteration. clipped: (before, after) the step. kept:
    steps that began with old gradients. scheduled: 'step', 'epoch', 'evaluation', 'by hand' or ''.
    rates: by step. loaded: (found, expected, found under another name) of the load with the
    smallest part. weights_kept: (states taken, of these unread live weights). plateau: (mode,
    value, whether it is the accuracy). idle_flags: at the first step. average: (steps before its
    evaluation, share of the way). run_steps: by the schedule; epoch_steps: by the loader; 0 if
    unknown. answers: of checks that judge tensors, by code. reported: (label, metric, number, right
    value, wrong formula or '', line) of evaluations. summed: (batches, factor of their mean).
    graphs: old ones (number, holder, MB of each, line). best_reversed: (condition, line) that keeps
    the worst value of a metric. teacher: (modules that train in a model without an optimizer,
    line). repeated: the line of a seed that gives two epochs one order. stale: (attribute of the
    dataset that persistent workers do not see, line). unheld: (module without an optimizer, line).
    loaded_rate: (before, after a load, line). dropped: (samples that an evaluation leaves out, all,
    line). folded: the line of a loader whose samples an earlier one trained on.
    places: lines of the user's file.
    """

    steps: int = 0
    epochs: int = 0
    evaluations: int = 0
    after_evaluation: int = 0  # training steps that came after an evaluation
    modes: int = 0  # modules whose mode matters
    asleep: bool = False
    unmoded: tuple[str, ...] = ()
    evaluated_in_train_mode: tuple[str, ...] = ()
    sampler_epochs: list[int] = field(default_factory=list)
    clipped: tuple[int, int] = (0, 0)
    kept: int = 0
    lost: int = 0
    optimizers: int = 0
    scheduled: str = ""
    rates: list[float] = field(default_factory=list)
    loaded: tuple[int, int, int] | None = None
    weights_kept: tuple[int, int] = (0, 0)
    plateau: tuple[str, float, bool] | None = None
    idle_flags: tuple[str, ...] = ()
    average: tuple[int, float] | None = None
    run_steps: int = 0
    epoch_steps: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    reported: list[Reported] = field(default_factory=list)
    summed: tuple[int, float] = (1, 1.0)
    graphs: tuple[int, str, float, str] | None = None
    ranks: RankFacts | None = None
    best_reversed: tuple[str, str] | None = None
    argument: tuple[str, str] | None = None
    teacher: tuple[tuple[str, ...], str] | None = None
    repeated: str = ""
    stale: tuple[str, str] | None = None
    unheld: tuple[str, str] | None = None
    loaded_rate: tuple[float, float, str] | None = None
    dropped: tuple[int, int, str] | None = None
    folded: str = ""
    places: dict[str, str] = field(default_factory=dict)

    def unreached(self) -> list[str]:
        """What the run did not come to, in words."""
        return [
            *([] if self.steps else ["a step of an optimizer"]),
            *([] if self.evaluations else ["an evaluation"]),
            *([] if self.epochs > 1 or self.after_evaluation else ["a second epoch"]),
        ]


def modes_of(model: Any) -> dict[str, bool]:
    """Whether each module trains whose mode changes its output, by name; recurrent ones too."""
    return {
        name: bool(part.training)
        for name, part in model.named_modules()
        if (
            any(kind in type(part).__name__ for kind in MODE_DEPENDENT)
            and getattr(part, "p", True)
            and getattr(part, "track_running_stats", True)
        )
        or (isinstance(rate := getattr(part, "dropout", 0), int | float) and rate > 0)
    }


def idle_flags(model: Any) -> tuple[str, ...]:
    """Flags of modules and parameters that were to freeze what is trained, and do not."""
    parts = [*model.named_modules(), *model.named_parameters()]
    return tuple(
        f"{name}.{flag}".lstrip(".")
        for name, part in parts
        for flag, value in vars(part).items()
        if value is False and FLAG.fullmatch(flag) and _is_trained(part)
    )


def _is_trained(part: Any) -> bool:
    parameters = part.parameters() if hasattr(part, "parameters") else [part]
    return any(parameter.requires_grad for parameter in parameters)
