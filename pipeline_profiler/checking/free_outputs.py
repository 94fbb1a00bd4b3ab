"""What a loss asks for, found on outputs that are free numbers: the same for every framework.

A framework says how the loss of outputs falls (`_descended`) and what zero outputs cost
(`uniform`); the reference values follow from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

FARTHER = 0.05  # of the way from zero outputs to the least loss


class FreeOutputs(ABC):
    """The loss of one batch, without a model; see `LossAlone` and `KerasLossAlone`."""

    @property
    @abstractmethod
    def uniform(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""

    @abstractmethod
    def _descended(self, shared: bool, scale: float) -> tuple[float, Any]:
        """(least loss, outputs) by Adam at this scale; `shared`: one output for all examples."""

    @abstractmethod
    def _target_scale(self) -> float:
        """How large the targets are, 1 at least."""

    @cached_property
    def constant(self) -> float:
        """The least loss of an output that is the same for all examples of the first batch."""
        return self.shared_outputs[0]

    @cached_property
    def shared_outputs(self) -> tuple[float, Any]:
        """(least loss, outputs) where all examples have one output."""
        return self._best(shared=True)

    @cached_property
    def best_outputs(self) -> tuple[float, Any]:
        """(least loss, outputs) over free outputs for the first batch, by Adam on the outputs.

        No model is involved, so this shows what the loss itself asks for.
        """
        return self._best(shared=False)

    @cached_property
    def bottomless(self) -> bool:
        """Whether outputs that go twice as far have a loss that is lower by a twentieth more."""
        least = self.best_outputs[0]
        farther = self._descended(False, 2 * max(1.0, self._target_scale()))[0]
        return least - farther > FARTHER * (self.uniform - least)

    def _best(self, shared: bool) -> tuple[float, Any]:
        """The better of both scales that outputs may have: that of targets, or of logarithms."""
        scales = sorted({self._target_scale(), 1.0})
        return min((self._descended(shared, scale) for scale in scales), key=lambda found: found[0])
