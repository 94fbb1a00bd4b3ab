"""What only the user's own loop shows: modes, epochs, clipping, gradients, the schedule's unit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline_profiler.checks.check import Answer

MODE_DEPENDENT = ("Dropout", "BatchNorm", "DropPath", "StochasticDepth", "InstanceNorm")
FLAG = re.compile(r"requires?d?_?grad(s|ient|ients)?", re.IGNORECASE)


@dataclass
class RankFacts:
    """What a program that names ranks did in one of them."""

    wrapped: bool = False  # in DistributedDataParallel
    bypassed: str = ""  # the line that calls the module inside
    seeded: list[tuple[str, bool]] = field(default_factory=list)  # (line, depends on the rank)
    written: list[tuple[str, str, bool]] = field(default_factory=list)  # (line, file, depends)
    drawn: bool = False  # the first step draws random numbers
    collectives: list[str] = field(default_factory=list)  # functions of torch.distributed


class Reported(NamedTuple):
    """A number of a script beside the metric of all samples; flaw: the wrong formula, or ''."""

    label: str
    metric: str
    value: float
    right: float
    flaw: str
    line: str
    is_exact: bool = True  # else its rounding leaves room for chance


@dataclass
class LoopFacts:
    """Counts of what the loop did; 0, '' or None: not seen. Lines are those of the user's file."""

    steps: int = 0
    epochs: int = 0
    evaluations: int = 0
    after_evaluation: int = 0  # training steps that came after an evaluation
    modes: int = 0  # modules whose mode matters
    asleep: bool = False  # all of them were in eval mode in the first step
    unmoded: tuple[str, ...] = ()  # modules that trained in the first step only
    evaluated_in_train_mode: tuple[str, ...] = ()  # modules
    teacher: tuple[tuple[str, ...], str] | None = None  # (modules in train mode, line), not trained
    sampler_epochs: list[int] = field(default_factory=list)  # by iteration
    repeated: str = ""  # the line of a seed that gives two epochs one order
    stale: tuple[str, str] | None = None  # (attribute that persistent workers do not see, line)
    clipped: tuple[int, int] = (0, 0)  # before and after the step
    clip_scale: float = 1.0  # of a GradScaler, by which clipped gradients were multiplied
    kept: int = 0  # steps that began with old gradients
    lost: int = 0  # gradients that were cleared between two backward() without a step
    summed: tuple[int, float] = (1, 1.0)  # (batches of a step, factor of their mean)
    optimizers: int = 0  # that made a step
    graded: frozenset[str] = frozenset()  # parameters of the model that got gradients
    unheld: tuple[str, str] | None = None  # (module whose parameters no optimizer has, line)
    scheduled: str = ""  # 'step', 'epoch', 'evaluation' or 'by hand'
    rates: list[float] = field(default_factory=list)  # by step
    loaded_rate: tuple[float, float, str] | None = None  # (before, after a load, line)
    run_steps: int = 0  # by the schedule
    epoch_steps: int = 0  # by the loader
    plateau: tuple[str, float, bool] | None = None  # (mode, value, whether it is the accuracy)
    loaded: tuple[int, int, int] | None = None  # the worst load: (found, expected, renamed)
    weights_kept: tuple[int, int] = (0, 0)  # states taken, of these unread live weights
    best_reversed: tuple[str, str] | None = None  # (condition, line): keeps the worst metric
    idle_flags: tuple[str, ...] = ()  # at the first step
    average: tuple[int, float] | None = None  # (steps before its evaluation, share of the way)
    graphs: tuple[int, str, float, str] | None = None  # (number of old ones, holder, MB each, line)
    argument: tuple[str, str] | None = None  # (sentence, line)
    reported: list[Reported] = field(default_factory=list)
    dropped: tuple[int, int, str] | None = None  # (samples an evaluation leaves out, all, line)
    folded: str = ""  # the line of a loader whose samples an earlier loader trained on
    answers: dict[str, Answer] = field(default_factory=dict)  # of checks that judge tensors
    ranks: RankFacts | None = None
    places: dict[str, str] = field(default_factory=dict)  # lines by name

    def unreached(self) -> list[str]:
        """Return what the run did not come to, in words."""
        second = self.epochs > 1 or self.after_evaluation
        names = ("a step of an optimizer", "an evaluation", "a second epoch")
        reached = zip(names, (self.steps, self.evaluations, second), strict=True)
        return [name for name, count in reached if not count]


def modes_of(model: Any) -> dict[str, bool]:
    """Return whether each module trains whose mode changes its output, by name."""
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
    """Return flags that were to freeze what is trained, and do not: `require_grad = False`."""
    parts = [*model.named_modules(), *model.named_parameters()]
    return tuple(
        f"{name}.{flag}".lstrip(".")
        for name, part in parts
        for flag, value in vars(part).items()
        if value is False
        and FLAG.fullmatch(flag)
        and any(
            p.requires_grad for p in (part.parameters() if hasattr(part, "children") else [part])
        )
    )
