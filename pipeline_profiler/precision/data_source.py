"""The data of one model at one batch size: the loader, preloaded batches, its throughput alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from pipeline_profiler.precision.table import LoaderPass, SourceRecord
from pipeline_profiler.precision.trainer import (
    Batch,
    Loader,
    MakeLoader,
    count_samples,
    full_batches,
    label_range,
    split_batch,
)
from pipeline_profiler.profiling.adapters import module_for
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock

T = TypeVar("T")
CACHED = 8  # several, so that data differ from step to step; few, as all lie on the device
SCANNED, SCAN_S = 64, 3.0
LOADER_ONLY_BATCHES, LOADER_ONLY_S = 20, 1.0


@dataclass
class DataSource:
    """A loader with what is known of it; `problem` says why no row can use it."""

    model: str
    batch_size: int
    loader: Loader = ()
    config: Mapping[str, object] = field(default_factory=dict)
    cached_batches: list[Batch] = field(default_factory=list)
    batch_s: float = 0.0
    first_s: float = 0.0  # until the first batch: workers start in it
    open_s: float = 0.0
    labels: tuple[int, int] | None = None  # lowest and highest seen; None: not whole numbers
    problem: str = ""
    pairs: bool = True  # batches are (inputs, labels)

    @classmethod
    def open(
        cls, make_loader: MakeLoader, model: str, size: int, clock: Clock, pairs: bool = True
    ) -> DataSource:
        """Make the loader and read its first batches; never raises for the loader's faults."""
        source, begin = cls(model, size, pairs=pairs), clock()
        try:
            source.loader = make_loader(size)
            source.config = dict(module_for(source.loader).describe(source.loader))
            source.problem = source._check_length() or source._scan(clock)
        except ProfileError as error:
            source.problem = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failed loader is a row
            text = str(error).strip() or "no message"
            source.problem = (
                f"the loader failed with {type(error).__name__}: {text}; iterate it by hand to "
                "see where."
            )
        source.open_s = (clock() - begin) / 1e9
        return source

    def _check_length(self) -> str:
        """Asked before the first batch: with drop_last a loader that is too short gives none."""
        dataset = getattr(self.loader, "dataset", None)
        try:
            samples = len(dataset)  # type: ignore[arg-type]
        except TypeError:
            return ""
        return "" if samples >= self.batch_size else explain_too_large(self.batch_size, samples)

    def _scan(self, clock: Clock) -> str:
        """Read the first batches: cache some, note the labels and the pace; '' or the problem."""
        count, largest, begin = 0, 0, clock()
        first = begin
        for batch in self.loader:
            if count == 0:
                first = clock()
            count += 1
            size = count_samples(batch)
            largest = max(largest, size)
            if self.pairs and (ends := label_range(split_batch(batch)[1])):
                low, high = self.labels or ends
                self.labels = min(low, ends[0]), max(high, ends[1])
            if size == self.batch_size and len(self.cached_batches) < CACHED:
                self.cached_batches.append(batch)
            # two batches at least: cycling a single one would time a cache, not a training
            enough = len(self.cached_batches) > 1 and clock() - begin > SCAN_S * 1e9
            if count >= SCANNED or enough:
                break
        if not self.cached_batches:
            return _explain_no_batch(self.batch_size, largest)
        # The first batch holds the start of the workers, so the pace is that of the others; with
        # one batch its own time has to do, the start included.
        self.first_s = (first - begin) / 1e9
        self.batch_s = (clock() - first) / 1e9 / (count - 1) if count > 1 else (first - begin) / 1e9
        return ""

    @property
    def workers(self) -> int:
        """Processes or threads that load beside the trainer; 0 where loading is in its way."""
        return self._setting("workers", int) or 0

    @property
    def restart_s(self) -> float:
        """Seconds that iterating it once more takes before a batch comes, beyond the pace."""
        alive = bool(self.config.get("persistent")) or not self.workers
        return 0.0 if alive else max(0.0, self.first_s - self.batch_s)

    @property
    def warmup(self) -> int:
        """Return the steps until the buffers are in their steady state: twice their size."""
        return max(2, 2 * self.workers * (self._setting("prefetch", int) or 0))

    def _setting(self, key: str, kind: type[T]) -> T | None:
        value = self.config.get(key)
        return value if isinstance(value, kind) else None

    def time_loader(self, block: int, clock: Clock) -> LoaderPass:
        """Take batches with no step between them."""
        batches = full_batches(self.loader, self.batch_size)
        for _ in islice(batches, self.warmup):
            pass
        count, begin = 0, clock()
        now = begin
        for _ in islice(batches, LOADER_ONLY_BATCHES):
            count, now = count + 1, clock()
            if now - begin > LOADER_ONLY_S * 1e9:
                break
        return LoaderPass(block, self.model, self.batch_size, count, (now - begin) / 1e6)

    def describe(self) -> SourceRecord:
        """The setting, for the session."""
        return SourceRecord(
            self.model,
            self.batch_size,
            len(self.cached_batches),
            self.problem,
            self._setting("kind", str),
            self._setting("workers", int),
            self._setting("prefetch", int),
            self._setting("pin_memory", bool),
        )

    def close(self) -> None:
        """Drop loader and batches; its workers end with it."""
        self.loader, self.cached_batches = (), []


def explain_too_large(size: int, samples: int) -> str:
    """The sentence for a batch that the data cannot fill."""
    return (
        f"batch {size} is larger than the data ({samples} samples): leave it out of --batch-sizes, "
        "or give more data."
    )


def _explain_no_batch(size: int, largest: int) -> str:
    if largest == 0:
        return (
            f"the loader gave no batch at batch size {size}: its dataset is empty, or smaller than "
            "one batch with drop_last on."
        )
    if largest < size:
        return explain_too_large(size, largest)
    return (
        f"the loader gives {largest} samples per batch, not {size}: make it a function of the "
        "batch size, make_loader(batch_size)."
    )


def make_sized_loader(make: Callable[..., Loader], size: int) -> Loader:
    """A user's loader at one batch size: `make(size)`, or `make()` rebuilt by its adapter."""
    try:
        inspect.signature(make).bind(1)
    except (TypeError, ValueError):
        pass
    else:
        return make(size)
    loader = make()
    module = module_for(loader)
    if module.describe(loader).get("batch_size") == size:
        return loader
    rebuilt: Loader | None = module.rebuild(loader, {"batch_size": size})
    return loader if rebuilt is None else rebuilt


def own_batch_size(loader: Loader) -> int:
    """The batch size that a loader has, by its settings, else by its first batch; 0 without one."""
    size = module_for(loader).describe(loader).get("batch_size")
    return size or next((count_samples(batch) for batch in loader), 0)
