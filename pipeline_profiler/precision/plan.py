"""A sweep: its options, the cells that follow from them, and its state while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from pipeline_profiler.precision.data_source import DataSource, make_sized_loader
from pipeline_profiler.precision.estimate import LOOKS
from pipeline_profiler.precision.table import CellWindow, LargestBatch, Passage, ProbeResult
from pipeline_profiler.precision.trainer import (
    DYNAMIC,
    Backend,
    Cell,
    MakeLoader,
    MakeModel,
    Recipe,
    Trainer,
    is_out_of_memory,
)
from pipeline_profiler.profiling.measure.watchdog import Guard
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock


@dataclass(frozen=True)
class ModelJob:
    """A model and its data: `make_model()` and `make_loader(batch_size)`."""

    name: str
    make_model: MakeModel
    make_loader: MakeLoader
    pairs: bool = True  # the loader's batches are (inputs, labels); a step of one's own takes any


@dataclass(frozen=True)
class SweepOptions:
    """What the caller chose; times in seconds."""

    batch_sizes: tuple[int, ...] = (64, 128, 256, 512)
    precisions: tuple[str, ...] = ("fp32", "tf32", "fp16", "bf16")
    loss_scales: tuple[str, ...] = (DYNAMIC,)
    recipe: Recipe = field(default_factory=Recipe)
    rounds: int = LOOKS[-1]  # at most
    steps: int | None = None  # timed, of a window; None: 9, or 5 where a step is slow
    seconds: float = 150.0
    gap_s: float = 4.0  # between two windows of a cell: states of the host last a second or two
    parity_steps: int = 20
    workers: tuple[int, ...] = ()  # of further loaders, which are timed alone
    memory_limit: int | None = None  # bytes
    largest: bool | None = None  # find the largest batch; None: where there is a GPU
    largest_limit: int = 65536


def check_options(options: SweepOptions) -> None:
    """Raise ProfileError for options that no row could be made of."""
    if not options.batch_sizes or min(options.batch_sizes) < 1:
        raise ProfileError("--batch-sizes takes whole numbers above 0, such as 64,128.")
    if not options.precisions:
        raise ProfileError("--precisions is empty: give some of fp32,tf32,fp16,bf16.")
    for text in options.loss_scales:
        try:
            is_known = text == DYNAMIC or float(text) > 0
        except ValueError:
            is_known = False
        if not is_known:
            raise ProfileError(
                f"--loss-scale takes 'dynamic' or numbers above 0 with commas, not '{text}'."
            )


def plan_cells(
    backend: Backend, jobs: Sequence[ModelJob], options: SweepOptions
) -> tuple[list[Cell], list[str]]:
    """All cells to measure, and the reasons for those that were changed."""
    cells = [
        Cell(job.name, size, precision, scale)
        for job, size, precision in product(jobs, options.batch_sizes, options.precisions)
        for scale in (options.loss_scales if precision == "fp16" else ("",))
    ]
    emulated = backend.device == "cpu" and "fp16" in options.precisions
    note = "FP16 is emulated on a CPU, so its times say nothing about a GPU: use bf16 there."
    return cells, [note] if emulated else []


ReportProgress = Callable[[int, int, str], None]


@dataclass
class SweepState:
    """The sweep's inputs and its measurements so far; keys (model, batch size) or the cell."""

    backend: Backend
    jobs: Sequence[ModelJob]
    options: SweepOptions
    clock: Clock
    progress: ReportProgress
    sources: dict[tuple[str, int], DataSource] = field(default_factory=dict)
    further: list[DataSource] = field(default_factory=list)  # with other numbers of workers
    probes: dict[Cell, ProbeResult] = field(default_factory=dict)
    windows: list[CellWindow] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    largest: list[LargestBatch] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    began: int = 0
    guard: Guard = field(default_factory=Guard)

    def spent_s(self) -> float:
        """Seconds since the sweep began."""
        return (self.clock() - self.began) / 1e9

    @property
    def searches_largest(self) -> bool:
        """Whether the largest batch is looked for at the end."""
        # a CPU that runs out of memory is killed rather than refused: there only when asked for
        wanted = self.options.largest
        return self.backend.device == "cuda" if wanted is None else wanted

    def is_over(self) -> bool:
        """Whether the time budget is spent."""
        return self.spent_s() > self.options.seconds

    def announce(self, text: str) -> None:
        """One unit of work is about to start; progress is the share of the time budget."""
        self.guard.pulse.doing = text
        total = math.ceil(self.options.seconds)
        self.progress(min(int(self.spent_s()), total), total, text)

    def job(self, cell: Cell) -> ModelJob:
        """The job of a cell."""
        return next(job for job in self.jobs if job.name == cell.model)

    def live_cells(self) -> list[Cell]:
        """The cells that can still be measured, in the order they were planned."""
        return [cell for cell, probe in self.probes.items() if probe.status == "ok"]

    def mark_failed(self, cell: Cell, failure: ProbeResult) -> None:
        """The cell stops here; what its probe measured stays in its row."""
        probe = self.probes.get(cell, failure)
        self.probes[cell] = replace(probe, status=failure.status, sentence=failure.sentence)

    def open_source(self, cell: Cell) -> DataSource:
        """The data of one model at one batch size, read once; ProfileError where there is none."""
        key, job = cell.source, self.job(cell)
        if key not in self.sources:
            self.sources[key] = DataSource.open(job.make_loader, *key, self.clock, job.pairs)
            # the same loader with other numbers of workers
            for workers in self.options.workers if not self.sources[key].problem else ():
                make = partial(make_sized_loader, job.make_loader, workers=workers)
                opened = DataSource.open(make, *key, self.clock, job.pairs)
                self.further.append(opened)
                self.reasons += [opened.problem] if opened.problem else []
        source = self.sources[key]
        if source.problem:
            raise ProfileError(source.problem)
        return source

    def make_trainer(self, cell: Cell) -> Trainer:
        """A new trainer of the cell, from the recipe's seed."""
        return self.backend.new_trainer(self.job(cell).make_model, cell, self.options.recipe)


def run_guarded(
    sweep: SweepState, cell: Cell, work: Callable[[], ProbeResult | None]
) -> ProbeResult:
    """What goes wrong in a cell becomes its row; nothing of it stays on the device."""
    try:
        with sweep.backend.using(cell.precision):
            result = work() or ProbeResult()
    except ProfileError as error:
        result = ProbeResult("refused", str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a failed cell is a row
        result = _describe_failure(error, cell)
    # outside the except block: its traceback would keep the tensors of the failed step alive
    sweep.backend.release()
    return result


def _describe_failure(error: BaseException, cell: Cell) -> ProbeResult:
    if is_out_of_memory(error):
        text = f"out of memory at batch {cell.batch_size}: take a smaller batch or precision."
        return ProbeResult("oom", text)
    # frameworks print pages; the reason stands in the last line
    last = str(error).strip().rpartition("\n")[2].strip() or "no message"
    text = f"{type(error).__name__}: {last}; run one step of the model by hand to see where."
    return ProbeResult("failed", text)
