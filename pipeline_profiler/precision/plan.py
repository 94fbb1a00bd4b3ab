"""What a precision sweep was asked for, and the cells that follow from it.

Every combination of model, batch size and precision is a cell; FP16 is one for each loss scale.
On a CPU, which has no FP16 arithmetic, FP16 shrinks to one tiny cell with FP32 beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline_profiler.precision.batches import MakeLoader
from pipeline_profiler.precision.cell import DYNAMIC, Cell, Recipe
from pipeline_profiler.precision.trainer import Backend, MakeModel
from pipeline_profiler.record.session import ProfileError

TINY_BATCH = 2  # FP16 is emulated on a CPU: one step of a larger batch would take minutes


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
    repeats: int = 5
    steps: int = 50
    seconds: float = 150.0
    parity_steps: int = 20
    fewest_steps: int = 3  # per window: what the time budget cuts `steps` down to at most
    memory_limit: int | None = None  # bytes
    largest: bool | None = None  # find the largest batch; None: where there is a GPU
    largest_limit: int = 65536
    tiny_fp16: bool = True  # FP16 on a CPU is cut down to one small row


def check_options(options: SweepOptions) -> None:
    """Raise ProfileError for options that no row could be made of."""
    if not options.batch_sizes or min(options.batch_sizes) < 1:
        raise ProfileError("--batch-sizes takes whole numbers above 0, such as 64,128.")
    if not options.precisions:
        raise ProfileError("--precisions is empty: give some of fp32,tf32,fp16,bf16.")
    if options.repeats < 1 or options.steps < 1 or options.parity_steps < 1:
        raise ProfileError("--repeats, --steps and --parity-steps must be at least 1.")
    for text in options.loss_scales:
        if text != DYNAMIC and not _is_positive(text):
            raise ProfileError(
                f"--loss-scale takes 'dynamic' or numbers above 0 with commas, not '{text}'."
            )


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def plan_cells(
    backend: Backend, jobs: Sequence[ModelJob], options: SweepOptions
) -> tuple[list[Cell], list[str]]:
    """All cells to measure, and the reasons for those that were changed."""
    cells: list[Cell] = []
    reasons = []
    tiny = backend.device == "cpu" and options.tiny_fp16 and "fp16" in options.precisions
    for job in jobs:
        for size in options.batch_sizes:
            for precision in options.precisions:
                if not (tiny and precision == "fp16"):
                    cells += _by_loss_scale(job.name, size, precision, options)
    if tiny:
        size = min(TINY_BATCH, *options.batch_sizes)
        # a ratio needs FP32 at the same batch; where it is planned already, dict.fromkeys drops it
        cells.append(Cell(jobs[0].name, size, "fp32"))
        cells += _by_loss_scale(jobs[0].name, size, "fp16", options)
        reasons.append(
            f"FP16 is one tiny row (batch {size}, with FP32 beside it): a CPU has no FP16 "
            "arithmetic and is slower with it, so it says nothing about a GPU."
        )
    return list(dict.fromkeys(cells)), reasons


def _by_loss_scale(model: str, size: int, precision: str, options: SweepOptions) -> list[Cell]:
    """FP16 once for each loss scale, the others once."""
    scales = options.loss_scales if precision == "fp16" else ("",)
    return [Cell(model, size, precision, scale) for scale in scales]


def is_tiny(cell: Cell, options: SweepOptions, device: str) -> bool:
    """True for the cut-down FP16 row of a CPU and the FP32 row beside it."""
    if device != "cpu" or not options.tiny_fp16 or "fp16" not in options.precisions:
        return False
    beside = cell.batch_size not in options.batch_sizes
    return cell.precision == "fp16" or (cell.precision == "fp32" and beside)
