"""What a framework must offer so that its training step can be timed: a backend and its trainers.

A step is: batch to the device, forward, loss, backward, optimizer. A backend knows the device and
what each precision means on it; a trainer is one model with its optimizer at one precision. Both
are protocols: the sweep never asks which framework it drives, and tests drive it with a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pipeline_profiler.precision.batches import Batch
from pipeline_profiler.precision.cell import Cell, Recipe

Mark: TypeAlias = Any  # a point in time: nanoseconds, or an event of the device
MakeModel: TypeAlias = Callable[[], object]  # returns a model, or (model, loss)
Flags: TypeAlias = dict[str, str | bool | int]


@dataclass(frozen=True)
class PeakMemory:
    """Bytes: most that training allocated, and how that was measured; None is not measured.

    `reserved` is what the framework's allocator took from the device for it, `occupied` what lay
    on the device in all right after the step, CUDA's own context and other programs included.
    """

    allocated: int | None
    how: str
    reserved: int | None = None
    occupied: int | None = None


class Trainer(Protocol):
    """A model with its optimizer that can be stepped, on one framework and device."""

    def place(self, batch: Batch) -> Batch:
        """The batch on the device, in the memory format of the recipe."""

    def step(self, batch: Batch) -> None:
        """One training step, enqueued."""

    def outputs(self, batch: Batch) -> tuple[int, ...] | None:
        """Shape of the model's outputs for this batch; None where its own loss checks them."""

    def mark(self) -> Mark:
        """A point in time on the trainer's clock."""

    def synchronise(self) -> None:
        """Wait for the device; used at the edges of a window only."""

    def periods_ms(self, marks: Sequence[Mark]) -> list[float]:
        """Differences of neighbouring marks; [] where the framework has no such clock."""

    def losses(self) -> list[float]:
        """Losses of the steps since `forget`; reads the device."""

    def skipped(self) -> list[int]:
        """Numbers of the steps since `forget` whose update was skipped; reads the device."""

    def forget(self) -> None:
        """Clear the lists of losses and skipped steps."""

    def nudge(self, share: float) -> bool:
        """Change every weight by about this share of itself; False where none can be reached."""

    def scale(self) -> float | None:
        """The loss scale now; None without one."""

    def start_at(self, scale: float) -> None:
        """Begin with this dynamic scale: the skips that find it belong to a training's start."""

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """Most memory of training on this batch."""

    def count_correct(self) -> None:
        """From now on keep the accuracy of each step; costs a reduction, so in no timed window."""

    def accuracies(self) -> list[float]:
        """Share of each step's samples whose largest output is their label; [] where unknown."""

    def graphs(self) -> int:
        """Graphs compiled so far; grows where a new shape makes it compile again."""


class Backend(Protocol):
    """A framework on a device."""

    name: str
    device: str  # cuda | cpu
    device_name: str

    def refusal(self, precision: str) -> str:
        """Why this device does not have the precision, and what to do; '' when it has it."""

    def flags(self, precision: str) -> Flags:
        """The flags that decide what the precision means, as they are set during its steps."""

    def using(self, precision: str) -> AbstractContextManager[None]:
        """Context manager that sets those flags, and puts the old ones back."""

    def new_trainer(self, make_model: MakeModel, cell: Cell, recipe: Recipe) -> Trainer:
        """A new model with its optimizer, made from the recipe's seed."""

    def resized(self, batch: Batch, size: int) -> Batch:
        """The batch with its samples repeated up to `size`."""

    def release(self) -> None:
        """Give back what a dropped trainer held."""

    def limit_memory(self, limit_bytes: int) -> str:
        """Let training have no more than this; a sentence that says what is limited."""


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch, TensorFlow and Python raise when memory is refused."""
    # by name: importing a framework only to compare its exception classes would load it
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"OutOfMemoryError", "MemoryError", "ResourceExhaustedError"}:
        return True
    # torch's CPU allocator has no class of its own for this
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
