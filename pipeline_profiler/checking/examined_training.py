"""What a training under examination is, whichever framework made it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.checking.keras_loss import KerasLossAlone
from pipeline_profiler.checking.loss_alone import LossAlone
from pipeline_profiler.checking.tasks import Task
from pipeline_profiler.checking.user_training import Training

FROM_ZERO = 0.1  # of the loss of the best constant output


@dataclass
class ExaminedTraining(ABC):
    """`make()` returns a new Training; deadline is of time.monotonic(); notes are for the user."""

    make: Callable[[], Training]
    seed: int = 0
    deadline: float = field(default=float("inf"))
    notes: list[str] = field(default_factory=list)

    @property
    @abstractmethod
    def loss_alone(self) -> LossAlone | KerasLossAlone:
        """The loss of free outputs for the first batch."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """What is learned."""

    def time_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def uniform_loss(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""
        return self.loss_alone.uniform

    @property
    def constant_loss(self) -> float:
        """The least loss of an output that is the same for all examples of the first batch."""
        return self.loss_alone.constant

    @property
    def best_outputs(self) -> tuple[float, Any]:
        """(least loss, outputs) over free outputs for the first batch."""
        return self.loss_alone.best_outputs

    @property
    def bottomless(self) -> bool:
        """Whether the loss of free outputs falls without end, so that there is no least one."""
        return self.loss_alone.bottomless

    @property
    def is_likelihood(self) -> bool:
        """Whether the least loss is far from 0, as that of counts or densities is, and no error."""
        return abs(self.best_outputs[0]) > FROM_ZERO * abs(self.constant_loss)
