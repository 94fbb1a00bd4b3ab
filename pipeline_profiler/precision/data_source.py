"""The data of one model at one batch size: the loader, real batches in hand, its pace alone.

The loader is opened once and kept for the whole sweep, so workers are started once. What a first
pass over it finds is kept: batches for arm D, the range of the labels, the seconds a batch takes
with nobody else computing (arm L, an uncontended upper bound of what the loader delivers).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pipeline_profiler.adapters import module_for
from pipeline_profiler.precision.trainer import full_batches, pair, size_of
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

KEPT = 8
LOOKED_AT, LOOKING_S = 64, 3.0
ALONE_BATCHES, ALONE_S = 20, 1.0


@dataclass
class Feed:
    """A loader with what is known of it; `problem` says why no row can use it."""

    model: str
    batch_size: int
    loader: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    batch_s: float = 0.0
    labels: tuple[int, int] | None = None  # lowest and highest seen; None: not whole numbers
    problem: str = ""

    @classmethod
    def open(cls, make: Callable[[int], Any], model: str, size: int, clock: Clock) -> Feed:
        """Make the loader and look at its first batches; never raises for the loader's faults."""
        feed = cls(model, size)
        try:
            feed.loader = make(size)
            feed.config = dict(module_for(feed.loader).describe(feed.loader))
            feed.problem = feed._too_small() or feed._look(clock)
        except ProfileError as error:
            feed.problem = str(error)
        except Exception as error:  # noqa: BLE001 - a user's loader may raise anything: it is a row
            said = str(error).strip() or "no message"
            feed.problem = (
                f"the loader failed with {type(error).__name__}: {said}; iterate it by hand to "
                "see where."
            )
        return feed

    def _too_small(self) -> str:
        dataset = getattr(self.loader, "dataset", None)
        try:
            samples = len(dataset)  # type: ignore[arg-type]
        except TypeError:
            return ""
        return "" if samples >= self.batch_size else larger_than(self.batch_size, samples)

    def _look(self, clock: Clock) -> str:
        seen, largest, begin = 0, 0, clock()
        first = begin
        low = high = None
        for batch in self.loader:
            if seen == 0:
                first = clock()
            seen += 1
            largest = max(largest, size_of(batch))
            ends = label_range(pair(batch)[1])
            if ends is not None:
                low = ends[0] if low is None else min(low, ends[0])
                high = ends[1] if high is None else max(high, ends[1])
            if size_of(batch) == self.batch_size and len(self.kept) < KEPT:
                self.kept.append(batch)
            if seen >= LOOKED_AT or (clock() - begin > LOOKING_S * 1e9 and len(self.kept) > 1):
                break
        if low is not None and high is not None:
            self.labels = low, high
        if not self.kept:
            return _no_batch(self.batch_size, largest)
        # with one batch its own time has to do, the start of the workers included
        self.batch_s = (clock() - first) / 1e9 / (seen - 1) if seen > 1 else (first - begin) / 1e9
        return ""

    @property
    def workers(self) -> int:
        """Processes or threads that load beside the trainer; 0 where loading is in its way."""
        return int(self.config.get("workers") or 0)

    @property
    def buffered(self) -> int:
        """Batches in flight at most."""
        return self.workers * int(self.config.get("prefetch") or 0)

    @property
    def warmup(self) -> int:
        """Steps until the buffers are in their steady state."""
        return max(2, 2 * self.buffered)

    def alone(self, block: int, clock: Clock) -> dict[str, Any]:
        """Arm L: batches drawn with no step between them."""
        batches = full_batches(self.loader, self.batch_size)
        for _ in islice(batches, self.warmup):
            pass
        count, begin = 0, clock()
        now = begin
        for _ in islice(batches, ALONE_BATCHES):
            count, now = count + 1, clock()
            if now - begin > ALONE_S * 1e9:
                break
        return {
            "arm": "L",
            "block": block,
            "model": self.model,
            "batch_size": self.batch_size,
            "batches": count,
            "elapsed_ms": (now - begin) / 1e6,
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the session."""
        known = {k: self.config.get(k) for k in ("kind", "workers", "prefetch", "pin_memory")}
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "kept": len(self.kept),
            "problem": self.problem,
            **known,
        }

    def close(self) -> None:
        """Drop loader and batches; its workers end with it."""
        self.loader, self.kept = None, []


def larger_than(size: int, samples: int) -> str:
    """The sentence for a batch that the data cannot fill."""
    return (
        f"batch {size} is larger than the data ({samples} samples): leave it out of --batch-sizes, "
        "or give more data."
    )


def _no_batch(size: int, largest: int) -> str:
    if largest == 0:
        return (
            f"the loader gave no batch at batch size {size}: its dataset is empty, or smaller than "
            "one batch with drop_last on."
        )
    if largest < size:
        return larger_than(size, largest)
    return (
        f"the loader gives {largest} samples a batch, not {size}: make it a function of the batch "
        "size, make_loader(batch_size)."
    )


def label_range(targets: Any) -> tuple[int, int] | None:
    """(lowest, highest) of class numbers; None where the labels are something else."""
    kind = str(getattr(targets, "dtype", ""))
    if "int" not in kind or len(getattr(targets, "shape", ())) != 1:
        return None
    values = targets if hasattr(targets, "min") else targets.numpy()  # TensorFlow has no min
    return int(values.min()), int(values.max())


def sized(make: Callable[..., Any], size: int) -> Any:
    """A user's loader at one batch size: `make(size)`, or `make()` rebuilt by its adapter."""
    if _takes_size(make):
        return make(size)
    loader = make()
    module = module_for(loader)
    if module.describe(loader).get("batch_size") == size:
        return loader
    rebuilt = module.rebuild(loader, {"batch_size": size})
    return loader if rebuilt is None else rebuilt


def _takes_size(make: Callable[..., Any]) -> bool:
    try:
        inspect.signature(make).bind(1)
    except (TypeError, ValueError):
        return False
    return True
