"""A sweep under way: what it was asked for, what it has measured so far, and how cells are run.

Everything that an interrupted sweep needs for its partial results is in here, so that a Ctrl-C at
any moment loses at most one window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pipeline_profiler.measure.stopping import Guard
from pipeline_profiler.precision.cell import Cell
from pipeline_profiler.precision.data_source import DataSource
from pipeline_profiler.precision.measurement import LargestBatch, LoaderPass, ProbeResult, Visit
from pipeline_profiler.precision.plan import ModelJob, SweepOptions, is_tiny
from pipeline_profiler.precision.trainer import Backend, Trainer, is_out_of_memory
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

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
    probes: dict[Cell, ProbeResult] = field(default_factory=dict)
    references: dict[tuple[str, int], Sequence[float]] = field(default_factory=dict)
    floors: dict[tuple[str, int], Sequence[float]] = field(default_factory=dict)
    visits: list[Visit | LoaderPass] = field(default_factory=list)
    largest: list[LargestBatch] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    done: int = 0
    total: int = 0
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
        """One unit of work is about to start."""
        self.guard.pulse.doing = text
        self.progress(self.done, self.total, text)
        self.done += 1

    def job(self, name: str) -> ModelJob:
        """The job of that name."""
        return next(job for job in self.jobs if job.name == name)

    def is_tiny(self, cell: Cell) -> bool:
        """True for the cut-down FP16 row of a CPU and the FP32 row beside it."""
        return is_tiny(cell, self.options, self.backend.device)

    def live_cells(self) -> list[Cell]:
        """The cells that can still be measured, in the order they were planned."""
        return [cell for cell, probe in self.probes.items() if probe.status == "ok"]

    def mark_failed(self, cell: Cell, failure: ProbeResult) -> None:
        """The cell stops here; what its probe measured stays in its row."""
        self.probes[cell] = replace(
            self.probes[cell], status=failure.status, sentence=failure.sentence
        )

    def open_source(self, cell: Cell) -> DataSource:
        """The data of one model at one batch size, read once; ProfileError where there is none."""
        key = cell.source
        if key not in self.sources:
            job = self.job(cell.model)
            self.sources[key] = DataSource.open(job.make_loader, *key, self.clock, job.pairs)
        source = self.sources[key]
        if source.problem:
            raise ProfileError(source.problem)
        return source

    def make_trainer(self, cell: Cell) -> Trainer:
        """A new trainer of the cell, from the recipe's seed."""
        job, recipe = self.job(cell.model), self.options.recipe
        return self.backend.new_trainer(job.make_model, cell, recipe)


def run_guarded(sweep: SweepState, cell: Cell, work: Callable[[], ProbeResult]) -> ProbeResult:
    """What goes wrong in a cell becomes its row; nothing of it stays on the device."""
    try:
        with sweep.backend.using(cell.precision):
            result = work()
    except ProfileError as error:
        result = ProbeResult("refused", str(error))
    except Exception as error:  # noqa: BLE001 - a user's model may raise anything: it is a row
        result = _describe_failure(error, cell)
    # outside the except block: its traceback would keep the tensors of the failed step alive
    sweep.backend.release()
    return result


def _describe_failure(error: Exception, cell: Cell) -> ProbeResult:
    if is_out_of_memory(error):
        return ProbeResult(
            "oom", f"out of memory at batch {cell.batch_size}: take a smaller batch or precision."
        )
    # frameworks print pages; the reason stands in the last line
    lines = [line for line in str(error).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no message"
    return ProbeResult(
        "failed",
        f"{type(error).__name__}: {last}; run one step of the model by hand to see where.",
    )
