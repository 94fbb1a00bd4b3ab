"""One timed training step, whatever the framework: what a trainer must offer, and how it is timed.

A step is: batch to the device, forward, loss, backward, optimizer. Periods run from next() entry
to next() entry on one clock: CUDA events where the trainer has a GPU (read after the window, so
nothing synchronises inside it), perf_counter_ns where compute is synchronous. The mean counts,
because stalls are heavy-tailed; steps that AMP skipped are taken out of it and counted.

Arm D cycles real batches already in hand (on the device): the ceiling. Arm W is the same step fed
by the real loader. Warm-up and compilation come before the window. The collector is off inside it.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
NAMES = {"fp32": "FP32", "tf32": "TF32", "fp16": "FP16", "bf16": "BF16"}
DYNAMIC = "dynamic"
IGNORED_LABEL = -100  # what cross-entropy leaves out in torch


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: which model, at which batch size, precision and loss scale.

    `loss_scale` is "" without AMP scaling, "dynamic", or a number as text.
    """

    model: str
    batch_size: int
    precision: str
    loss_scale: str = ""

    @property
    def label(self) -> str:
        """'resnet18 FP16 x64 scale 128'."""
        scale = f" scale {self.loss_scale}" if self.loss_scale else ""
        return f"{self.model} {NAMES.get(self.precision, self.precision)} x{self.batch_size}{scale}"


@dataclass(frozen=True)
class Recipe:
    """What all cells share: optimizer and its rate, memory format, compilation, seed."""

    optimizer: str = "sgd"
    lr: float = 0.01
    channels_last: bool = False
    compile: bool = False
    seed: int = 0


@dataclass
class Window:
    """One timed window: a period and the host's wait in next() for each step, ms.

    `skipped` are the numbers of the steps whose update AMP dropped: in `period_ms`, in no mean.
    `period_ms` is empty and `elapsed_ms` alone counts where single steps cannot be told apart.
    """

    period_ms: list[float]
    wait_ms: list[float]
    elapsed_ms: float
    steps: int
    skipped: list[int] = field(default_factory=list)
    warmup_skipped: int = 0
    warmup_s: float = 0.0

    @property
    def kept_ms(self) -> list[float]:
        """Periods of the steps that were really taken."""
        dropped = set(self.skipped)
        return [ms for i, ms in enumerate(self.period_ms) if i not in dropped]

    @property
    def mean_ms(self) -> float | None:
        """Mean period of the steps taken; None where AMP skipped them all."""
        if not self.period_ms:
            return self.elapsed_ms / self.steps if self.steps else None
        kept = self.kept_ms
        return sum(kept) / len(kept) if kept else None


class Trainer(Protocol):
    """A model with its optimizer that can be stepped, on one framework and device."""

    def place(self, batch: Any) -> Any:
        """The batch on the device, in the memory format of the recipe."""

    def step(self, batch: Any) -> None:
        """One training step, enqueued."""

    def outputs(self, batch: Any) -> tuple[int, ...] | None:
        """Shape of the model's outputs for this batch; None where its own loss judges them."""

    def mark(self) -> Any:
        """A point in time on the trainer's clock."""

    def synchronise(self) -> None:
        """Wait for the device; used at the edges of a window only."""

    def periods_ms(self, marks: list[Any]) -> list[float]:
        """Differences of neighbouring marks; [] where the framework has no such clock."""

    def losses(self) -> list[float]:
        """Losses of the steps since `forget`; reads the device."""

    def skipped(self) -> list[int]:
        """Numbers of the steps since `forget` whose update was skipped; reads the device."""

    def forget(self) -> None:
        """Start the lists of losses and skipped steps anew."""

    def nudge(self, share: float) -> None:
        """Change every weight by about this share of itself."""

    def scale(self) -> float | None:
        """The loss scale now; None without one."""

    def start_at(self, scale: float) -> None:
        """Begin with this dynamic scale: the skips that find it belong to a training's start."""

    def peak_bytes(self, batch: Any) -> tuple[int | None, str]:
        """Peak memory of training on this batch, and how it was measured."""

    def graphs(self) -> int:
        """Graphs compiled so far; grows where a new shape makes it compile again."""


class Backend(Protocol):
    """A framework on a device."""

    name: str
    device: str  # cuda | cpu
    device_name: str

    def refusal(self, precision: str) -> str:
        """Why this device has no such precision, with the cure; '' when it has."""

    def flags(self, precision: str) -> dict[str, Any]:
        """The flags that decide what the precision means, as they are set during its steps."""

    def using(self, precision: str) -> Any:
        """Context manager that sets those flags, and puts the old ones back."""

    def trainer(self, make_model: Callable[[], Any], cell: Cell, recipe: Recipe) -> Trainer:
        """A new model with its optimizer, made from the recipe's seed."""

    def resized(self, batch: Any, size: int) -> Any:
        """The batch with its samples repeated up to `size`."""

    def release(self) -> None:
        """Give back what a dropped trainer held."""


def pair(batch: Any) -> tuple[Any, Any]:
    """(inputs, targets) of a batch: a pair, or a mapping with two entries."""
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        raise ProfileError(
            f"The loader gave a batch of type {type(batch).__name__}, not (inputs, labels): "
            "return a pair, or wrap the loader in a function that does."
        )
    return parts[0], parts[1]


def size_of(batch: Any) -> int:
    """Samples in the batch."""
    return int(pair(batch)[0].shape[0])


def label_problem(lowest: int, highest: int, outputs: int) -> str:
    """A sentence where labels lie outside the model's outputs; '' where they fit."""
    if (lowest >= 0 or lowest == IGNORED_LABEL) and highest < outputs:
        return ""
    wrong = highest if highest >= outputs else lowest
    return (
        f"label {wrong} lies outside [0, {outputs}): the model has {outputs} outputs; give it "
        f"{max(highest + 1, outputs)}, or mend the labels so that they count from 0."
    )


def shape_problem(shape: tuple[int, ...], batch_size: int) -> str:
    """A sentence where the model's output is not (batch, classes); '' where it is."""
    if len(shape) == 2 and shape[0] == batch_size:
        return ""
    return (
        f"the model returned shape {tuple(shape)} for {batch_size} samples, not ({batch_size}, "
        "classes): return logits, one row a sample, or give (model, loss) with a loss of your own."
    )


def out_of_memory(error: BaseException) -> bool:
    """True for what torch, TensorFlow and Python raise when memory is refused."""
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"OutOfMemoryError", "MemoryError", "ResourceExhaustedError"}:
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def full_batches(loader: Any, batch_size: int) -> Iterator[Any]:
    """Epoch after epoch, partial batches left out: they would be another shape."""
    found = True
    while found:
        found = False
        for batch in loader:
            if size_of(batch) == batch_size:
                found = True
                yield batch


def cycled(batches: list[Any]) -> Iterator[Any]:
    """Arm D: the batches in hand for ever."""
    return itertools.cycle(batches)


def timed(
    trainer: Trainer,
    batches: Iterable[Any],
    steps: int,
    warmup: int,
    clock: Clock = time.perf_counter_ns,
) -> Window:
    """Train `warmup` steps that do not count, then `steps` that do."""
    iterator = iter(batches)
    collecting = gc.isenabled()
    start = clock()
    trainer.forget()
    for _ in range(warmup):
        trainer.step(_next(iterator))
    trainer.synchronise()
    dropped = len(trainer.skipped())
    trainer.forget()
    gc.disable()
    try:
        begin = clock()
        marks, waits = _loop(trainer, iterator, steps, clock)
        end = clock()
    finally:
        if collecting:
            gc.enable()
        closing = getattr(batches, "close", None)
        if closing is not None:
            closing()
    periods = trainer.periods_ms(marks)
    elapsed = sum(periods) if periods else (end - begin) / 1e6
    skipped = trainer.skipped()
    return Window(periods, waits, elapsed, steps, skipped, dropped, (begin - start) / 1e9)


def _loop(
    trainer: Trainer, iterator: Iterator[Any], steps: int, clock: Clock
) -> tuple[list[Any], list[float]]:
    """The window itself: marks at each next() entry and after the last step; waits in ms."""
    marks, waits = [], []
    for _ in range(steps):
        marks.append(trainer.mark())
        before = clock()
        batch = _next(iterator)
        waits.append((clock() - before) / 1e6)
        trainer.step(batch)
    marks.append(trainer.mark())
    trainer.synchronise()
    return marks, waits


def _next(iterator: Iterator[Any]) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        raise ProfileError(
            "The loader had no full batch left: give a loader that can be iterated again and "
            "has more samples than the batch size."
        ) from None


def largest_batch(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """The largest batch size up to `limit` for which `fits` holds: doubling, then bisection.

    `fits` must be monotone, as memory is; 0 where not even one sample fits. About
    2 log2(answer) trials.
    """
    low, high = 0, max(1, start)
    while high <= limit and fits(high):
        low, high = high, high * 2
    if high > limit:
        if low == limit or fits(limit):
            return limit
        high = limit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
