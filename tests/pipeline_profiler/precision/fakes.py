"""Small real models and loaders, and a trainer whose time is a clock that only moves when told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipeline_profiler.precision.plan import ModelJob, SweepOptions
from pipeline_profiler.precision.trainer import Backend, PeakMemory, Trainer
from tests.pipeline_profiler.fakes import FakeClock

CLASSES = 3


class FakeTrainer(Trainer):
    """Each step takes `ms`, on the clock; the listed steps are skipped; calls are kept in order.

    The loss falls by a tenth with each step.
    """

    def __init__(self, clock: FakeClock, ms: float, skips: set[int] | None = None) -> None:
        super().__init__("cpu", clock)
        self.ms, self.skips = ms, skips or set()
        self.calls: list[str] = []
        self.taken = 0
        self.since: list[int] = []

    def place(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        self.calls.append("step")
        self.clock.advance(self.ms)
        self.since.append(self.taken)
        self.taken += 1

    def mark(self) -> int:
        self.calls.append("mark")
        return self.clock()

    def synchronise(self) -> None:
        self.calls.append("synchronise")

    def skipped(self) -> list[int]:
        return [i for i, number in enumerate(self.since) if number in self.skips]

    def forget(self) -> None:
        self.since = []

    def losses(self) -> list[float]:
        return [2.0 * 0.9**number for number in self.since]

    def peak_memory(self, batch: Any) -> PeakMemory:
        self.step(batch)
        return PeakMemory(1000, "simulated")

    def accuracies(self) -> list[float]:
        return [1 - 0.9**number for number in self.since]


class SimulatedBackend(Backend):
    """A device whose steps take `ms` per sample and whose models take `setup_ms` to make."""

    name, device, device_name = "simulated", "cpu", "clock"

    def __init__(self, clock: FakeClock, ms: float, setup_ms: float = 0.0) -> None:
        self.clock, self.ms, self.setup_ms = clock, ms, setup_ms

    def using(self, precision: str) -> Any:
        return contextlib.nullcontext()

    def flags(self, precision: str) -> dict[str, Any]:
        return {}

    def new_trainer(self, make_model: Any, cell: Any, recipe: Any) -> FakeTrainer:
        self.clock.advance(self.setup_ms)
        return FakeTrainer(self.clock, self.ms * cell.batch_size)

    def resized(self, batch: Any, size: int) -> Any:
        return batch

    def release(self) -> None:
        """Nothing is held."""

    def limit_memory(self, limit_bytes: int) -> str:
        return "A clock has nothing to limit."


class SimulatedLoader:
    """Batches of the size with labels, a millisecond each on the clock."""

    def __init__(self, clock: FakeClock, size: int) -> None:
        self.clock, self.size = clock, size

    def __iter__(self) -> Iterator[Any]:
        for _ in range(8):
            self.clock.advance(1.0)
            yield np.zeros((self.size, 2)), np.zeros(self.size, int)


def flat_model(outputs: int = CLASSES, side: int = 4) -> Any:
    """The smallest classifier of (B, 3, side, side)."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, outputs))


def overflowing() -> Any:
    """w * x with loss w * x: at FP16 the scaled gradient x * scale is infinite above 65,504."""
    import torch

    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    return model, lambda outputs, targets: outputs.sum()


def refusing(limit: int, refuse: Callable[[], None]) -> Any:
    """A classifier that cannot get memory for more than `limit` samples."""
    from torch import nn

    class Hungry(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = flat_model()

        def forward(self, x: Any) -> Any:
            if len(x) > limit:
                refuse()
            return self.inner(x)

    return Hungry()


class Batches:
    """`count` batches of `size` samples with labels 0, 1, 2, ...; can be read again and again."""

    def __init__(self, size: int, count: int = 6, top: int = CLASSES) -> None:
        import torch

        source = torch.Generator().manual_seed(size)
        inputs = (torch.randn(size, 3, 4, 4, generator=source) for _ in range(count))
        self.rows = [(x, torch.arange(i, i + size) % top) for i, x in enumerate(inputs)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def job(
    make_model: Callable[[], Any] = flat_model,
    make_loader: Callable[[int], Any] = Batches,
    name: str = "flat",
) -> ModelJob:
    """A job on the hand-made data."""
    return ModelJob(name, make_model, make_loader)


def quick(**changes: Any) -> SweepOptions:
    """Options that take a fraction of a second."""
    plain: dict[str, Any] = {
        "batch_sizes": (4,),
        "precisions": ("fp32", "bf16"),
        "rounds": 3,
        "steps": 3,
        "gap_s": 0.0,
        "seconds": 600.0,  # far more than it takes: a busy machine must not drop a row
        "parity_steps": 4,
    }
    return SweepOptions(**(plain | changes))
