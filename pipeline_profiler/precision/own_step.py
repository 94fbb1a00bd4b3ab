"""The user's own training: a step that is a function, or a model with its loss and optimizer.

`make_step()` is called anew for every row, as a model's factory is. What it returns is either
`step(batch, precision)`, which does a whole training step and returns its loss or nothing, or what
check-training's `make_training()` returns. A function does its own casting and scaling: the sweep
sets the global TF32 flags around it and tells it which precision is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline_profiler.checking.user_training import Training, as_training, checked
from pipeline_profiler.measure.kept_batches import is_tensor, mapped
from pipeline_profiler.precision.batches import Batch, Tensor
from pipeline_profiler.precision.cell import Cell, Recipe
from pipeline_profiler.precision.memory_torch import peak_on_gpu
from pipeline_profiler.precision.trainer import PeakMemory
from pipeline_profiler.precision.trainer_torch import DeviceClock, TorchTrainer, import_torch
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

UNTOLD = "n/a: on a CPU what the step holds cannot be told from outside"


@dataclass(frozen=True)
class OwnStep:
    """`call(batch, precision)` trains one step."""

    call: Callable[[Batch, str], object]


def read_step(made: object, loader: object = None) -> OwnStep | Training:
    """What `make_step()` returned; `loader` stands in for one that a training lacks."""
    torch = import_torch()
    if isinstance(made, torch.nn.Module):
        raise ProfileError(
            "make_step returned a model alone: return a function step(batch, precision), or "
            "{'model', 'loader', 'loss', 'optimizer'}."
        )
    if callable(made) and not hasattr(made, "optimizer"):
        return OwnStep(made)
    training = checked(as_training(made, loader))
    own = [name for name in ("train_step", "split_batch") if getattr(training, name) is not None]
    if own:
        raise ProfileError(
            f"make_step returned a training with its own {own[0]}, which knows no precision: "
            "return a function step(batch, precision) instead."
        )
    return training


def new_own_trainer(
    made: OwnStep | Training, cell: Cell, recipe: Recipe, device: str, clock: Clock
) -> TorchTrainer | OwnStepTrainer:
    """The trainer of either kind."""
    if isinstance(made, OwnStep):
        return OwnStepTrainer(made, cell, device, clock)
    model = made.model, made.loss
    return TorchTrainer(model, cell, recipe, device, clock, optimizer=made.optimizer)


class OwnStepTrainer(DeviceClock):
    """A function of the user's as a trainer: what lies inside it cannot be seen or changed."""

    def __init__(self, own: OwnStep, cell: Cell, device: str, clock: Clock) -> None:
        """The function is told the cell's precision with every batch."""
        super().__init__(device, clock)
        self._call, self._precision = own.call, cell.precision
        self._losses: list[Tensor | float] = []

    def place(self, batch: Batch) -> Any:
        """The batch with its tensors on the device; the function's own `.to()` finds them there."""
        return mapped(
            batch,
            lambda _, part: part.to(self.device, non_blocking=True) if is_tensor(part) else part,
        )

    def step(self, batch: Batch) -> None:
        """One call, with containers of its own: a step may take its labels out of the batch."""
        loss: Any = self._call(mapped(batch, lambda _, part: part), self._precision)
        if is_tensor(loss) and loss.numel() == 1:
            self._losses.append(loss.detach())
        elif isinstance(loss, float):
            self._losses.append(loss)

    def outputs(self, batch: Batch) -> None:
        """Unknown: the function judges its batches itself."""

    def losses(self) -> list[float]:
        """What the function returned since `forget`; [] where it returns nothing."""
        return [float(loss) for loss in self._losses]

    def skipped(self) -> list[int]:
        """None that can be seen: scaling is the function's own."""
        return []

    def forget(self) -> None:
        """Clear the losses."""
        self._losses.clear()

    def nudge(self, share: float) -> bool:
        """False: its weights are out of reach."""
        return False

    def scale(self) -> None:
        """Unknown."""

    def start_at(self, scale: float) -> None:
        """Its scale is its own."""

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """On a GPU the device's count."""
        if self.device != "cuda":
            return PeakMemory(None, UNTOLD)
        return peak_on_gpu()

    def count_correct(self) -> None:
        """Its outputs are out of reach."""

    def accuracies(self) -> list[float]:
        """None."""
        return []

    def graphs(self) -> int:
        """Unknown."""
        return 0
