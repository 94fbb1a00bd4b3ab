"""The first visit of a cell: check the batch, record the first losses, read memory, learn the pace.

Nothing that goes wrong here ends the sweep: it becomes the cell's row, with a sentence and the
cure. Losses are taken from one seed on the same batches at every precision (loss parity), and
FP32 is run once more from nudged weights to show how far chance alone carries a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.precision.data_source import Feed
from pipeline_profiler.precision.plan import Job, Options, is_tiny
from pipeline_profiler.precision.trainer import (
    Backend,
    Cell,
    Trainer,
    cycled,
    label_problem,
    out_of_memory,
    shape_problem,
)
from pipeline_profiler.record.session import ProfileError, Session
from pipeline_profiler.record.stages import Clock

Progress = Callable[[int, int, str], None]
TINY_PARITY = 3
NUDGE = 1e-6


@dataclass
class Probe:
    """What the first visit of a cell found; `status` is ok, refused, failed or oom."""

    status: str = "ok"
    sentence: str = ""
    losses: list[float] = field(default_factory=list)
    skipped: int = 0
    scale: float | None = None
    step_s: float = 0.0
    seconds: float = 0.0
    peak_bytes: int | None = None
    peak_how: str = "n/a"
    graphs: int = 0


@dataclass
class Sweep:
    """A sweep under way."""

    backend: Backend
    jobs: Sequence[Job]
    options: Options
    clock: Clock
    progress: Progress
    session: Session = field(default_factory=Session)
    feeds: dict[tuple[str, int], Feed] = field(default_factory=dict)
    probes: dict[Cell, Probe] = field(default_factory=dict)
    references: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    floors: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    visits: list[dict[str, Any]] = field(default_factory=list)
    largest: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    done: int = 0
    total: int = 0
    began: int = 0

    def spent_s(self) -> float:
        """Seconds since the sweep was made."""
        return (self.clock() - self.began) / 1e9

    def say(self, text: str) -> None:
        """One unit of work is about to start."""
        self.progress(self.done, self.total, text)
        self.done += 1

    def job(self, name: str) -> Job:
        """The job of that name."""
        return next(job for job in self.jobs if job.name == name)


def feed_of(sweep: Sweep, model: str, size: int) -> Feed:
    """The data of one model at one batch size, read once; ProfileError where there is none."""
    key = model, size
    if key not in sweep.feeds:
        sweep.feeds[key] = Feed.open(sweep.job(model).make_loader, model, size, sweep.clock)
    feed = sweep.feeds[key]
    if feed.problem:
        raise ProfileError(feed.problem)
    return feed


def guarded(sweep: Sweep, cell: Cell, work: Callable[[], Probe]) -> Probe:
    """What goes wrong in a cell becomes its row; nothing of it stays on the device."""
    found = Probe()
    try:
        with sweep.backend.using(cell.precision):
            found = work()
    except ProfileError as error:
        found = Probe("refused", str(error))
    except Exception as error:  # noqa: BLE001 - a user's model may raise anything: it is a row
        found = _failure(error, cell)
    # outside the except block: its traceback would keep the tensors of the failed step alive
    sweep.backend.release()
    return found


def _failure(error: Exception, cell: Cell) -> Probe:
    if out_of_memory(error):
        return Probe(
            "oom", f"out of memory at batch {cell.batch_size}: take a smaller batch or precision."
        )
    lines = [line for line in str(error).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no message"
    return Probe(
        "failed",
        f"{type(error).__name__}: {last}; run one step of the model by hand to see where.",
    )


def probe_cell(sweep: Sweep, cell: Cell) -> Probe:
    """The first visit, or why there is none."""
    refusal = sweep.backend.refusal(cell.precision)
    if refusal:
        return Probe("refused", refusal)
    return guarded(sweep, cell, lambda: _first_visit(sweep, cell))


def _first_visit(sweep: Sweep, cell: Cell) -> Probe:
    feed = feed_of(sweep, cell.model, cell.batch_size)
    trainer = make_trainer(sweep, cell)
    compiled = trainer.graphs()
    problem = unfit(trainer, feed)
    if problem:
        return Probe("refused", problem)
    found = Probe()
    found.step_s = train(trainer, feed.kept, _parity_steps(sweep, cell), sweep.clock)
    found.losses, found.skipped = trainer.losses(), len(trainer.skipped())
    if math.isnan(found.losses[0]):
        return Probe("refused", nan_sentence(cell))
    found.peak_bytes, found.peak_how = trainer.peak_bytes(trainer.place(feed.kept[0]))
    found.scale, found.graphs = trainer.scale(), trainer.graphs() - compiled
    return found


def unfit(trainer: Trainer, feed: Feed) -> str:
    """What is wrong with outputs or labels, asked on the host before the first step."""
    shape = trainer.outputs(feed.kept[0])
    if shape is None:  # a loss of the user's own knows better
        return ""
    wrong = shape_problem(shape, feed.batch_size)
    if wrong or feed.labels is None:
        return wrong
    return label_problem(*feed.labels, shape[1])


def nan_sentence(cell: Cell) -> str:
    """The loss is not a number before anything was learnt."""
    cure = (
        "FP16 overflows above 65,504: scale the inputs down, or use bf16."
        if cell.precision == "fp16"
        else "check the inputs for NaN and the loss for a logarithm of 0."
    )
    return f"the loss is NaN at step 0: {cure}"


def _parity_steps(sweep: Sweep, cell: Cell) -> int:
    wanted = sweep.options.parity_steps
    return (
        min(TINY_PARITY, wanted) if is_tiny(cell, sweep.options, sweep.backend.device) else wanted
    )


def make_trainer(sweep: Sweep, cell: Cell) -> Trainer:
    """A new trainer of the cell."""
    return sweep.backend.trainer(sweep.job(cell.model).make_model, cell, sweep.options.recipe)


def train(trainer: Trainer, kept: list[Any], count: int, clock: Clock) -> float:
    """Train `count` steps on the kept batches; mean seconds a step, the first left out."""
    batches = cycled(kept)
    trainer.step(next(batches))
    trainer.synchronise()
    begin = clock()
    for _ in range(count - 1):
        trainer.step(next(batches))
    trainer.synchronise()
    return (clock() - begin) / 1e9 / max(1, count - 1)


def add_references(sweep: Sweep) -> None:
    """FP32 losses where no row has them, and FP32 from nudged weights: what chance alone does.

    Training magnifies any difference; a precision is suspicious only beyond that.
    """
    fine = [c for c, p in sweep.probes.items() if p.status == "ok"]
    compared = dict.fromkeys((c.model, c.batch_size) for c in fine if c.precision != "fp32")
    for model, size in compared:
        base = Cell(model, size, "fp32")
        if base not in sweep.probes:
            sweep.references[model, size] = _losses_of(sweep, base, 0.0)
        if not is_tiny(base, sweep.options, sweep.backend.device):
            sweep.floors[model, size] = _losses_of(sweep, base, NUDGE)


def _losses_of(sweep: Sweep, cell: Cell, nudged: float) -> list[float]:
    """The first losses of one more training run; [] where it fails."""

    def work() -> Probe:
        trainer, feed = make_trainer(sweep, cell), feed_of(sweep, cell.model, cell.batch_size)
        if nudged:
            trainer.nudge(nudged)
        train(trainer, feed.kept, sweep.options.parity_steps, sweep.clock)
        return Probe(losses=trainer.losses())

    return guarded(sweep, cell, work).losses
