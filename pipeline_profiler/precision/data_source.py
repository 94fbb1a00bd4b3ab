"""The data of one model at one batch size: the loader, preloaded batches, passages through it.

A passage takes whole epochs where they are short enough. Else it takes batches from the middle of
an epoch: first as many as were in flight, which prefetched while no step ran, then the timed ones.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from pipeline_profiler.precision.table import Passage, SourceRecord
from pipeline_profiler.precision.trainer import (
    NO_BATCH,
    Batch,
    Cell,
    Loader,
    MakeLoader,
    Trainer,
    count_samples,
    label_range,
    split_batch,
    time_batches,
)
from pipeline_profiler.profiling.adapters import module_for
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock

T = TypeVar("T")
CACHED = 8  # several, so that data differ from step to step; few, as all lie on the device
SCANNED, SCAN_S = 64, 3.0
MIN_PASSAGE_BATCHES = 8
MAX_EPOCHS = 1_000_000


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
    labels: tuple[int, int] | None = None  # lowest and highest seen; None: not whole numbers
    problem: str = ""
    pairs: bool = True  # batches are (inputs, labels)
    clock: Clock = time.perf_counter_ns
    epoch_batches: int | None = None  # full ones; None where the loader has no length
    whole_epochs: bool = False  # passages take whole epochs
    start_s: list[float] = field(default_factory=list)  # until the first batch, a value an epoch
    _stream: Iterator[Batch] | None = None
    _taken: int = 0  # of the open epoch

    @classmethod
    def open(
        cls, make_loader: MakeLoader, model: str, size: int, clock: Clock, pairs: bool = True
    ) -> DataSource:
        """Make the loader and read its first batches; never raises for the loader's faults."""
        source = cls(model, size, pairs=pairs, clock=clock)
        try:
            source.loader = make_loader(size)
            source.config = dict(module_for(source.loader).describe(source.loader))
            samples = _length(getattr(source.loader, "dataset", None))
            # before the first batch: with drop_last a loader that is too short gives none
            is_short = samples is not None and samples < size
            source.problem = explain_too_large(size, samples or 0) if is_short else ""
            lengths = _length(source.loader), samples if samples is None else samples // size
            source.epoch_batches = min((n for n in lengths if n is not None), default=None)
            source.problem = source.problem or source._scan()
        except ProfileError as error:
            source.problem = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failed loader is a row
            text = str(error).strip() or "no message"
            source.problem = (
                f"the loader failed with {type(error).__name__}: {text}; iterate it by hand to "
                "see where."
            )
        return source

    def _scan(self) -> str:
        """Read the first batches: cache some, note the labels and the pace; '' or the problem."""
        clock, count, full, largest = self.clock, 0, 0, 0
        first = begin = clock()
        for count, batch in enumerate(self.loader, 1):
            first = clock() if count == 1 else first
            size = count_samples(batch)
            largest, full = max(largest, size), full + (size == self.batch_size)
            if self.pairs and (ends := label_range(split_batch(batch)[1])):
                low, high = self.labels or ends
                self.labels = min(low, ends[0]), max(high, ends[1])
            if size == self.batch_size and len(self.cached_batches) < CACHED:
                self.cached_batches.append(batch)
            # two batches at least: cycling a single one would time a cache, not a training
            enough = len(self.cached_batches) > 1 and clock() - begin > SCAN_S * 1e9
            if count >= SCANNED or enough:
                break
        else:
            self.epoch_batches = self.epoch_batches or full
        if not self.cached_batches:
            return _explain_no_batch(self.batch_size, largest)
        # The first batch holds the start of the workers, so the pace is that of the others; with
        # one batch its own time has to do, the start included.
        self.first_s = (first - begin) / 1e9
        self.batch_s = (clock() - first) / 1e9 / (count - 1) if count > 1 else self.first_s
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
    def in_flight(self) -> int:
        """Batches that workers load ahead; the first of them after a pause were waiting."""
        return max(1, self.workers * (self._setting("prefetch", int) or 2)) if self.workers else 0

    @property
    def passage_batches(self) -> int:
        """Timed batches of a passage: at least twice those in flight, or whole epochs."""
        least = max(MIN_PASSAGE_BATCHES, 2 * self.in_flight)
        if self.whole_epochs and self.epoch_batches:
            return self.epoch_batches * -(-least // self.epoch_batches)
        return least

    def _setting(self, key: str, kind: type[T]) -> T | None:
        value = self.config.get(key)
        return value if isinstance(value, kind) else None

    def time_passage(self, trainer: Trainer, cell: Cell | None, number: int, began: int) -> Passage:
        """Train on a passage through the loader; without a cell the loader is alone."""
        begin, self.start_s = self.clock(), []
        if self.whole_epochs and self.epoch_batches:
            self._stream = None
            epochs = self.passage_batches // self.epoch_batches
            batches, elapsed_ms = time_batches(trainer, self.epochs(epochs))
        else:
            stream = self._steady(restart=cell is None)
            for batch in islice(stream, self.in_flight):
                trainer.step(batch)
            batches, elapsed_ms = time_batches(trainer, islice(stream, self.passage_batches))
            self._taken += self.in_flight + batches
        if not batches:
            raise ProfileError(NO_BATCH)
        starts = self.start_s
        return Passage(
            cell or Cell(self.model, self.batch_size, ""),
            self.workers,
            number,
            round((begin - began) / 1e9, 3),
            batches,
            round(elapsed_ms, 3),
            round(1e3 * sum(starts) / len(starts), 3) if starts else None,
            len(trainer.skipped()),
        )

    def epochs(self, count: int = MAX_EPOCHS) -> Iterator[Batch]:
        """Yield the full batches of `count` epochs; note in `start_s` how long each began."""
        for _ in range(count):
            begin, number = self.clock(), 0
            for batch in self.loader:
                if count_samples(batch) != self.batch_size:
                    continue
                if not number:
                    self.start_s.append((self.clock() - begin) / 1e9)
                number += 1
                yield batch
            if not number:
                return

    def _steady(self, restart: bool) -> Iterator[Batch]:
        """The open iterator; a new one where its epoch would end in the passage."""
        needed = self.in_flight + self.passage_batches
        ends = self.epoch_batches is not None and self._taken + needed > self.epoch_batches
        if self._stream is None or restart or ends:
            self._stream, self._taken = self.epochs(), 0
        return self._stream

    def describe(self) -> SourceRecord:
        """The setting, for the session."""
        kinds: dict[str, type] = {"kind": str, "workers": int, "prefetch": int, "pin_memory": bool}
        settings: dict[str, Any] = {name: self._setting(name, kinds[name]) for name in kinds}
        return SourceRecord(
            self.model,
            self.batch_size,
            len(self.cached_batches),
            self.problem,
            epoch_batches=self.epoch_batches,
            in_flight=self.in_flight,
            whole_epochs=self.whole_epochs,
            **settings,
        )

    def close(self) -> None:
        """Drop loader and batches; its workers end with it."""
        self.loader, self.cached_batches, self._stream = (), [], None


def _length(part: Any) -> int | None:
    try:
        return len(part)
    except TypeError:  # no length, or an IterableDataset that has none
        return None


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


def make_sized_loader(make: Callable[..., Loader], size: int, workers: int | None = None) -> Loader:
    """A user's loader at one batch size: `make(size)`, or `make()` rebuilt by its adapter.

    Raises ProfileError where it cannot have another number of workers.
    """
    changes: dict[str, int] = {} if workers is None else {"workers": workers}
    try:
        inspect.signature(make).bind(1)
    except (TypeError, ValueError):
        loader = make()
        changes["batch_size"] = size
    else:
        loader = make(size)
    module = module_for(loader)
    settings = module.describe(loader)
    if all(settings.get(name) == value for name, value in changes.items()):
        return loader
    rebuilt: Loader | None = module.rebuild(loader, changes)
    if rebuilt is None and workers is not None:
        raise ProfileError(
            "--workers: this loader cannot be rebuilt with another number of workers; set it in "
            "your own function."
        )
    return loader if rebuilt is None else rebuilt


def own_batch_size(loader: Loader) -> int:
    """The batch size that a loader has, by its settings, else by its first batch; 0 without one."""
    size = module_for(loader).describe(loader).get("batch_size")
    return size or next((count_samples(batch) for batch in loader), 0)
