"""What a sweep measured, before anything is concluded from it.

Every figure of the table follows from these records, so a session that holds them can be
summarised again with other formulas. They are frozen: what was measured does not change. How they
look in a saved session is decided in document.py alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline_profiler.precision.cell import RESIDENT, WARM, Cell, Recipe
from pipeline_profiler.precision.timing import TimedWindow
from pipeline_profiler.precision.trainer import Flags


@dataclass(frozen=True)
class ProbeResult:
    """What the first visit of a cell found; `status` is ok, refused, failed, oom or dropped.

    `setup_s` are the seconds of making the trainer, which every visit does again.
    """

    status: str = "ok"
    sentence: str = ""
    losses: Sequence[float] = ()
    accuracies: Sequence[float] = ()
    skipped: int = 0
    scale: float | None = None
    step_s: float = 0.0
    seconds: float = 0.0
    setup_s: float = 0.0
    peak_bytes: int | None = None
    peak_how: str = "n/a"
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None
    graphs: int = 0


@dataclass(frozen=True)
class ProbedCell:
    """A cell with its first visit and the FP32 losses that its own are compared with.

    `reference` are FP32's losses from the same seed, `floor` those of FP32 from nudged weights.
    """

    cell: Cell
    probe: ProbeResult
    reference: Sequence[float] = ()
    floor: Sequence[float] = ()
    tiny: bool = False


@dataclass(frozen=True)
class Visit:
    """One window of one cell in one block; `recompiled` counts graphs made inside it."""

    arm: str
    block: int
    cell: Cell
    window: TimedWindow
    recompiled: int = 0


@dataclass(frozen=True)
class LoaderPass:
    """Batches taken from a loader with no step between them, in one block."""

    block: int
    model: str
    batch_size: int
    batches: int
    elapsed_ms: float


@dataclass(frozen=True)
class SourceRecord:
    """The setting of a data source; `problem` says why no row could use it."""

    model: str
    batch_size: int
    cached: int = 0
    problem: str = ""
    kind: str | None = None
    workers: int | None = None
    prefetch: int | None = None
    pin_memory: bool | None = None


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch that fits; `trouble` says what else went wrong on the way."""

    model: str
    precision: str
    batch_size: int
    limit_reached: bool
    trials: Sequence[int]
    trouble: Sequence[str] = ()


@dataclass(frozen=True)
class Measurement:
    """All that a sweep measured, with the device and the flags it was measured under."""

    backend: str
    device: str
    device_name: str
    recipe: Recipe = field(default_factory=Recipe)
    flags: Mapping[str, Flags] = field(default_factory=dict)
    cells: Sequence[ProbedCell] = ()
    sources: Sequence[SourceRecord] = ()
    largest: Sequence[LargestBatch] = ()
    visits: Sequence[Visit | LoaderPass] = ()

    def visits_of(self, cell: Cell) -> list[Visit]:
        """The timed windows of one cell, both arms, in order of measurement."""
        arms = (RESIDENT, WARM)
        return [
            visit
            for visit in self.visits
            if isinstance(visit, Visit) and visit.cell == cell and visit.arm in arms
        ]

    def means_by_block(self, cell: Cell, arm: str) -> dict[int, float]:
        """Block -> mean period of one arm, ms; windows whose steps AMP all skipped are left out."""
        means = {v.block: v.window.mean_ms for v in self.visits_of(cell) if v.arm == arm}
        return {block: mean for block, mean in means.items() if mean}
