"""What a framework must offer so that its training step can be timed, and how a window is timed.

A backend holds the device and its precisions; a trainer is one model with its optimizer at one
precision. Periods run from step to step: CUDA events on a GPU, perf_counter_ns elsewhere. Steps
that AMP skipped are counted, and are not in the median.
"""

from __future__ import annotations

import gc
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
PRECISION_NAMES = {"fp32": "FP32", "tf32": "TF32", "fp16": "FP16", "bf16": "BF16"}
DYNAMIC = "dynamic"
OWN_OPTIMIZER = "of make_step"  # in a recipe: the user's own, whose rate is not known


@dataclass(frozen=True, slots=True)
class Cell:
    """One row: model, batch size, precision, loss scale ("", "dynamic" or a number as text)."""

    model: str
    batch_size: int
    precision: str
    loss_scale: str = ""

    @property
    def label(self) -> str:
        """'resnet18 FP16 x64 scale 128', for progress lines."""
        scale = f" scale {self.loss_scale}" if self.loss_scale else ""
        return f"{self.model} {name_precision(self.precision)} x{self.batch_size}{scale}"

    @property
    def name(self) -> str:
        """'FP16 (scale 128)', for sentences; a dynamic scale is the normal case and not named."""
        return name_precision(self.precision, self.loss_scale)

    @property
    def source(self) -> tuple[str, int]:
        """Model and batch size: the cells of one data source."""
        return self.model, self.batch_size


def name_precision(precision: str, loss_scale: str = "") -> str:
    """'BF16', 'FP16 (scale 128)'; an unknown precision keeps its own spelling."""
    scale = f" (scale {loss_scale})" if loss_scale not in ("", DYNAMIC) else ""
    return PRECISION_NAMES.get(precision, precision) + scale


@dataclass(frozen=True)
class Recipe:
    """What all cells share: optimizer and its rate, memory format, compilation, seed."""

    optimizer: str = "sgd"
    lr: float = 0.01
    channels_last: bool = False
    compile: bool = False
    seed: int = 0


# Only `shape` and `dtype` of a tensor are used, which all frameworks have. Problems are sentences
# with the fix: each becomes a row of the table.

Tensor: TypeAlias = Any  # torch.Tensor, tf.Tensor or numpy array: they share no base class
Batch: TypeAlias = "tuple[Tensor, Tensor] | Sequence[Tensor] | dict[str, Tensor]"
Loader: TypeAlias = Iterable[Batch]
MakeLoader: TypeAlias = Callable[[int], Loader]

IGNORED_LABEL = -100  # what cross-entropy leaves out in torch


def split_batch(batch: Batch) -> tuple[Tensor, Tensor]:
    """(inputs, targets) of a batch: a pair, or a mapping with two entries."""
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        raise ProfileError(
            f"The loader gave a batch of type {type(batch).__name__}, not (inputs, labels): "
            "return a pair, or wrap the loader in a function that does."
        )
    return parts[0], parts[1]


def count_samples(batch: Batch) -> int:
    """Samples in the batch: the length of its first tensor, whatever holds it."""
    part: Any = batch
    while not hasattr(part, "shape"):
        inner = part.values() if isinstance(part, Mapping) else part
        if not isinstance(part, Mapping | list | tuple) or not inner:
            raise ProfileError(
                f"The loader gave a batch of type {type(batch).__name__} without a tensor: return "
                "tensors, or a tuple, list or dict of them."
            )
        part = next(iter(inner))
    return int(part.shape[0])


def label_range(targets: Tensor) -> tuple[int, int] | None:
    """(lowest, highest) of class numbers; None where the labels are something else."""
    kind = str(getattr(targets, "dtype", ""))
    if "int" not in kind or len(getattr(targets, "shape", ())) != 1:
        return None
    values = targets if hasattr(targets, "min") else targets.numpy()  # TensorFlow has no min
    return int(values.min()), int(values.max())


def check_outputs(shape: tuple[int, ...], batch_size: int, labels: tuple[int, int] | None) -> None:
    """Raise ProfileError unless outputs are (batch, classes) and labels lie within the classes."""
    if len(shape) != 2 or shape[0] != batch_size:
        raise ProfileError(
            f"the model returned shape {tuple(shape)} for {batch_size} samples, not ({batch_size}, "
            "classes): return logits, one row per sample, or give (model, loss) with a loss of "
            "your own."
        )
    outputs, (lowest, highest) = shape[1], labels or (0, 0)
    wrong = highest if highest >= outputs else lowest
    if wrong != IGNORED_LABEL and wrong not in range(outputs):
        raise ProfileError(
            f"label {wrong} lies outside [0, {outputs}): the model has {outputs} outputs; give it "
            f"{max(highest + 1, outputs)}, or fix the labels so that they count from 0."
        )


Mark: TypeAlias = Any  # a point in time: nanoseconds, or an event of the device
MakeModel: TypeAlias = Callable[[], object]  # returns a model, or (model, loss)
Flags: TypeAlias = dict[str, str | bool | int]


@dataclass(frozen=True)
class PeakMemory:
    """Bytes that training allocated, and how that was measured; None is not measured.

    Reserved: by the framework's allocator. Occupied: on the device, other programs included.
    """

    peak_bytes: int | None = None
    peak_how: str = "n/a"
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None


STEPS, FEW_STEPS, SLOW_STEP_S = 9, 5, 0.03  # timed steps of a window, where a step is fast, slow
LEAD_IN = 2  # steps between a synchronise and the first mark: they fill the queue of the device


class Trainer:
    """A model with its optimizer that can be stepped, on one framework and device.

    The base class has no model: it times a loader alone, and its steps drop their batches.
    """

    lead_in = LEAD_IN

    def __init__(self, device: str, clock: Clock) -> None:
        """`device` is cuda or cpu; the clock gives ns."""
        self.device, self.clock = device, clock
        self._losses: list[Tensor | float] = []
        self._correct: list[Tensor] | None = None

    def place(self, batch: Batch) -> Batch:
        """The batch on the device, in the memory format of the recipe."""
        return batch

    def step(self, batch: Batch) -> None:
        """One training step, enqueued."""

    def synchronise(self) -> None:
        """Wait for the device; used at the edges of a window only."""

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """Most memory of training on this batch."""
        return PeakMemory(None, "not measured: a CPU has no count of the memory of a step")

    def outputs(self, batch: Batch) -> tuple[int, ...] | None:
        """Shape of the model's outputs for this batch; None where its own loss checks them."""
        return None

    def mark(self) -> Mark:
        """A point in time on the trainer's clock."""
        return self.clock()

    def periods_ms(self, marks: Sequence[Mark]) -> list[float]:
        """Differences of neighbouring marks; [] where the framework has no such clock."""
        return [(b - a) / 1e6 for a, b in pairwise(marks)]

    def losses(self) -> list[float]:
        """Losses of the steps since `forget`; reads the device."""
        return [float(loss) for loss in self._losses]

    def skipped(self) -> list[int]:
        """Numbers of the steps since `forget` whose update was skipped; reads the device."""
        return []

    def forget(self) -> None:
        """Clear the lists of losses and skipped steps."""
        self._losses.clear()

    def scale(self) -> float | None:
        """The loss scale now; None without one."""
        return None

    def start_at(self, scale: float) -> None:
        """Begin with this dynamic scale: the skips that find it belong to a training's start."""

    def count_correct(self) -> None:
        """From now on keep the accuracy of each step; costs a reduction, so in no timed window."""
        self._correct = []

    def accuracies(self) -> list[float]:
        """Share of each step's samples whose largest output is their label; [] where unknown."""
        return [float(share) for share in self._correct or ()]


class Backend(ABC):
    """A framework on a device."""

    name: str
    device: str  # cuda | cpu
    device_name: str
    clock: Clock = time.perf_counter_ns

    def refusal(self, precision: str) -> str:
        """Why this device does not have the precision, and what to do; '' when it has it."""
        if precision not in PRECISIONS:
            return f"there is no precision '{precision}': choose from {', '.join(PRECISIONS)}."
        if precision == "tf32" and self.device == "cpu":
            return "a CPU has no TF32: leave tf32 out, or use a GPU."
        return ""

    @abstractmethod
    def flags(self, precision: str) -> Flags:
        """The flags that decide what the precision means, as they are set during its steps."""

    @abstractmethod
    def using(self, precision: str) -> AbstractContextManager[None]:
        """Context manager that sets those flags, and puts the old ones back."""

    @abstractmethod
    def new_trainer(self, make_model: MakeModel, cell: Cell, recipe: Recipe) -> Trainer:
        """A new model with its optimizer, made from the recipe's seed."""

    @abstractmethod
    def resized(self, batch: Batch, size: int) -> Batch:
        """The batch with its samples repeated up to `size`."""

    @abstractmethod
    def release(self) -> None:
        """Give back what a dropped trainer held."""

    def limit_memory(self, limit_bytes: int) -> str:
        """Let training have no more than this; a sentence that says what is limited."""
        # TensorFlow takes a limit only before its first operation
        raise ProfileError("--memory-limit is for torch: leave it out with --framework keras.")


def import_framework(name: str, extra: str) -> ModuleType:
    """torch or TensorFlow, or ProfileError with the command that installs it."""
    try:
        return import_module(name.lower())
    except ImportError:
        command = f"pip install 'dataset-preflight[{extra}]'"
        raise ProfileError(f"{name} is not installed: {command}.") from None


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch, TensorFlow and Python raise when memory is refused."""
    # by name: importing a framework only to compare its exception classes would load it
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"OutOfMemoryError", "MemoryError", "ResourceExhaustedError"}:
        return True
    # torch's CPU allocator has no class of its own for this
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@dataclass(frozen=True)
class TimedWindow:
    """One timed window on preloaded batches: the period of each step, ms.

    `skipped`: steps whose update AMP dropped, in `period_ms`, in no median. Without `period_ms`,
    `elapsed_ms` counts alone.
    """

    period_ms: Sequence[float]
    elapsed_ms: float
    steps: int
    skipped: Sequence[int] = ()
    warmup_skipped: int = 0

    @property
    def median_ms(self) -> float | None:
        """Median period of the steps taken; None where AMP skipped them all."""
        if not self.period_ms:
            return self.elapsed_ms / self.steps
        # a skipped step omits the optimizer: left in, it would make FP16 look faster than it is
        counted = [ms for i, ms in enumerate(self.period_ms) if i not in self.skipped]
        return float(np.median(counted)) if counted else None


def time_window(trainer: Trainer, batches: Iterator[Batch], steps: int, warmup: int) -> TimedWindow:
    """Train `warmup` steps and the lead-in, which do not count, then `steps` that do."""
    warmup_skipped = warm_up(trainer, batches, warmup)
    lead_in, clock = trainer.lead_in, trainer.clock
    with _no_collector():
        # The first step after a synchronise finds an empty queue, so its period holds the host's
        # launches. The lead-in fills the queue and is not marked.
        for _ in range(lead_in):
            trainer.step(_next_batch(batches))
        begin, marks = clock(), []
        for _ in range(steps):
            marks.append(trainer.mark())
            trainer.step(_next_batch(batches))
        marks.append(trainer.mark())
        # the only wait for the device: the last mark must have happened before it is read
        trainer.synchronise()
        end = clock()
    # the events are read only now: reading one inside the window would wait for the device
    periods = [round(ms, 3) for ms in trainer.periods_ms(marks)]
    elapsed = sum(periods) if periods else (end - begin) / 1e6
    skipped = trainer.skipped()
    return TimedWindow(
        periods,
        elapsed,
        steps,
        [i - lead_in for i in skipped if i >= lead_in],
        warmup_skipped + sum(i < lead_in for i in skipped),
    )


def timed_steps(step_s: float) -> int:
    """How many steps of a window are timed, at this time of a step."""
    return FEW_STEPS if step_s > SLOW_STEP_S else STEPS


def warm_up(trainer: Trainer, batches: Iterator[Batch], count: int) -> int:
    """Train steps until allocation and compilation have settled; how many AMP skipped."""
    trainer.forget()
    for _ in range(count):
        trainer.step(_next_batch(batches))
    # work still queued on the device would be charged to what is timed next
    trainer.synchronise()
    skipped = len(trainer.skipped())
    trainer.forget()
    return skipped


@contextmanager
def _no_collector() -> Iterator[None]:
    """Python's collector takes milliseconds and strikes at random: as long as a small step."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def time_batches(trainer: Trainer, batches: Iterable[Batch]) -> tuple[int, float]:
    """Train on all `batches` and return their number and the ms until the device has finished.

    The time includes the start of the iterator, so that whole epochs hold their first batch.
    """
    trainer.synchronise()
    count, begin, marks = 0, trainer.clock(), [trainer.mark()]
    with _no_collector():
        for batch in batches:
            trainer.step(batch)
            count += 1
        marks.append(trainer.mark())
        trainer.synchronise()
    periods = trainer.periods_ms(marks)
    return count, periods[0] if periods else (trainer.clock() - begin) / 1e6


NO_BATCH = (
    "The loader had no full batch left: give a loader that can be iterated again and has more "
    "samples than the batch size."
)


def _next_batch(iterator: Iterator[Batch]) -> Batch:
    for batch in iterator:
        return batch
    raise ProfileError(NO_BATCH)


def train_steps(
    trainer: Trainer, batches: Iterator[Batch], count: int, limit_s: float = math.inf
) -> tuple[float, float]:
    """Train up to `count` steps in `limit_s`, two at least; return s of the first and of a later.

    The first step allocates and compiles; the later one includes its batch.
    """
    batch, clock = _next_batch(batches), trainer.clock
    start = clock()
    trainer.step(batch)
    trainer.synchronise()
    begin, taken = clock(), 0
    while taken < count - 1 and (taken == 0 or (clock() - start) / 1e9 <= limit_s):
        trainer.step(_next_batch(batches))
        taken += 1
    trainer.synchronise()
    return (begin - start) / 1e9, (clock() - begin) / 1e9 / max(1, taken)
