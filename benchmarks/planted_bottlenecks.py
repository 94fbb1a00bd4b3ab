"""Planted bottlenecks: is the first cause named the planted one, and does its interval hold?

Each pipeline has one known cause and a twin without it. The truth is measured, not assumed: both
run bare (no recorder), one right after the other, once before and once after each diagnosis, and
1 - T_twin / T_planted over all pairs of a pipeline is the planted share. The profiler sees the
planted pipeline only. Targets: planted cause first in at least 90 % of the runs, at most 10 %
inconclusive, no false all-clear, healthy and compute-bound pipelines never called input-bound,
planted share inside the stated interval in at least 90 %.

    python benchmarks/planted_bottlenecks.py [--runs 5] [--only NAME,...] [--results F.jsonl]
        [--which sleeping|busy] [--shard 0/2]

About 20 s a pipeline and run. Results are appended to a JSONL file as they come; what is in it
already is not run again, so the suite can be stopped and resumed. Most pipelines sleep: on two idle
cores two shards of them may run side by side, the busy ones after that, alone, into the same
file::

    B="python benchmarks/planted_bottlenecks.py --results planted.jsonl"
    $B --which sleeping --shard 0/2 & $B --which sleeping --shard 1/2; wait; $B --which busy

The last line is one JSON document over all results in the file.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import io
import itertools
import json
import math
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from pipeline_profiler.diagnose import verdict
from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.measure.arms import QUICK_SECONDS, Bench, Options, emulated_step
from pipeline_profiler.measure.schedule import measure_arms
from pipeline_profiler.record.session import Session

BATCH = 8
SAMPLES = 20_000
PACE = 0.6  # every millisecond below times this: the same shapes, sooner done
WARM = 14  # bare steps before timing
SHORT_EPOCH = 100


def nap(ms: float) -> None:
    """Blocked time: no core needed."""
    if ms > 0:
        time.sleep(ms * PACE / 1e3)


def burn(ms: float) -> None:
    """CPU time of this thread, independent of what else runs."""
    end = time.thread_time_ns() + ms * PACE * 1e6
    while time.thread_time_ns() < end:
        pass


# --------------------------------------------------------------------------------- a dataset


@dataclass
class Costs:
    """Milliseconds a sample by stage; light by default."""

    read: float = 0.15
    decode: float = 0.25
    transform: float = 0.2
    plain: float = 0.0  # not in any function with a telling name
    straggler: tuple[int, float] = (0, 0.0)  # one sample in n takes so many ms
    slow_batch: tuple[int, float] = (0, 0.0)  # one batch in n costs so many ms a sample
    lognormal: float = 0.0  # sigma of a factor on `plain`, by index
    cpu: bool = False


class Throttled(io.RawIOBase):
    """A file source with latency, as a busy network file system has."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def read(self, size: int = -1) -> bytes:
        """A few bytes, late."""
        nap(self.ms)
        return bytes(64)


class Compose:
    """torchvision's shape: a callable with a list of callables."""

    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        """Keep what is wrapped or measured."""
        self.transforms = transforms

    def __call__(self, x: Any) -> Any:
        """Call what is wrapped, timed."""
        for t in self.transforms:
            x = t(x)
        return x


class Jitter:
    """One step of the Compose."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __call__(self, x: Any) -> Any:
        """Call what is wrapped, timed."""
        nap(self.ms)
        return x


class Pictures(Dataset[Any]):
    """read -> decode -> transform with the given costs."""

    def __init__(self, costs: Costs, length: int = SAMPLES) -> None:
        """Keep what is wrapped or measured."""
        self.costs, self.length = costs, length
        self.transform = Compose([Jitter(costs.transform / 2), Jitter(costs.transform / 2)])

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return self.length

    def decode(self, blob: bytes) -> torch.Tensor:
        """Take the decode cost."""
        (burn if self.costs.cpu else nap)(self.costs.decode)
        return torch.zeros(3, 16, 16)

    def __getitem__(self, i: int) -> Any:
        """One sample, timed."""
        c = self.costs
        every, ms = c.straggler
        if every and i % every == every // 2:
            nap(ms)
        every, ms = c.slow_batch
        # by chance, but the same chance for all samples of a batch (the order is sequential)
        if every and np.random.default_rng(i // BATCH).integers(every) == 0:
            nap(ms)
        factor = np.random.default_rng(i).lognormal(0, c.lognormal) if c.lognormal else 1.0
        (burn if c.cpu else nap)(c.plain * factor)
        return self.transform(self.decode(Throttled(c.read).read()))


def torch_loader(costs: Costs, workers: int = 2, **kwargs: Any) -> DataLoader[Any]:
    length = kwargs.pop("length", SAMPLES)
    if workers and "prefetch_factor" not in kwargs:
        kwargs["prefetch_factor"] = 2
    return DataLoader(Pictures(costs, length), BATCH, num_workers=workers, **kwargs)


# ---------------------------------------------------------------------------------- plants


@dataclass(frozen=True)
class Plant:
    """A pipeline by name; `make(True)` is planted, `make(False)` its twin."""

    name: str
    codes: tuple[str, ...]  # any of these first is right
    make: Callable[[bool], tuple[Any, Callable[[Any], Any]]]
    bound: bool | None = True  # the verdict shall say input-bound; None: either
    small: bool = False  # below 15 % of the step: second table, no target


PLANTS: list[Plant] = []
# these keep cores busy: they would disturb a neighbour, and be disturbed by one
BUSY = {
    *("slow_decode_on_cpu", "giant_pickles", "oversubscribed", "gc_pauses", "contention"),
    *("compute_bound_host", "large_arrays_in_the_pipe", "pil_in_the_training_process"),
}


def plant(*codes: str, bound: bool | None = True, small: bool = False) -> Callable[..., Any]:
    def register(make: Callable[[bool], Any]) -> Callable[[bool], Any]:
        PLANTS.append(Plant(make.__name__, codes, make, bound, small))
        return make

    return register


def sleepy(ms: float = 20.0) -> Callable[[Any], Any]:
    return emulated_step(ms * PACE)


@plant("PIPE001")
def slow_read(planted: bool) -> Any:
    return torch_loader(Costs(read=9.0 if planted else 0)), sleepy()


@plant("PIPE001")
def slow_read_in_process(planted: bool) -> Any:
    return torch_loader(Costs(read=2.5 if planted else 0), workers=0), sleepy()


@plant("PIPE002")
def slow_decode(planted: bool) -> Any:
    return torch_loader(Costs(decode=9.0 if planted else 0)), sleepy()


@plant("PIPE002")
def slow_decode_on_cpu(planted: bool) -> Any:
    return torch_loader(
        Costs(read=0, transform=0, decode=3.0 if planted else 0, cpu=True), workers=0
    ), sleepy()


@plant("PIPE003")
def slow_transform(planted: bool) -> Any:
    return torch_loader(Costs(transform=9.0 if planted else 0)), sleepy()


class SlowCollate:
    """A collate function that takes its time."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __call__(self, rows: list[torch.Tensor]) -> torch.Tensor:
        """Call what is wrapped, timed."""
        nap(self.ms)
        return torch.stack(rows)


@plant("PIPE004")
def slow_collate(planted: bool) -> Any:
    return torch_loader(Costs(), collate_fn=SlowCollate(65 if planted else 0)), sleepy()


class Objects(Dataset[Any]):
    """Samples of many small Python objects: cheap to make, dear to pickle."""

    def __init__(self, count: int) -> None:
        """Keep what is wrapped or measured."""
        self.row = [(float(i), str(i)) for i in range(count)]

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __getitem__(self, i: int) -> Any:
        """One sample, timed."""
        return self.row


def keep_rows(rows: list[Any]) -> list[Any]:
    # distinct objects, or pickle would send one row and seven references
    return [list(row) for row in rows]


@plant("PIPE005")
def giant_pickles(planted: bool) -> Any:
    dataset = Objects(25_000 if planted else 10)
    return DataLoader(dataset, BATCH, num_workers=1, collate_fn=keep_rows), sleepy()


@plant("PIPE006")
def too_few_workers(planted: bool) -> Any:
    return torch_loader(Costs(plain=3.5), workers=1 if planted else 4), sleepy()


@plant("PIPE006")
def no_workers(planted: bool) -> Any:
    return torch_loader(Costs(plain=1.2), workers=0 if planted else 3), sleepy()


@plant("PIPE007")
def no_prefetch(planted: bool) -> Any:
    costs = Costs(plain=1.0, slow_batch=(4, 9.0))
    return torch_loader(costs, workers=2, prefetch_factor=1 if planted else 8), sleepy()


@plant("PIPE008")
def one_straggler_in_100(planted: bool) -> Any:
    return torch_loader(Costs(straggler=(100, 250.0 if planted else 0.0))), sleepy()


class Counted:
    """Collate that stops for a while every n calls: a shard is opened, a cache refilled."""

    def __init__(self, every: int, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.every, self.ms, self.calls = every, ms, 0

    def __call__(self, rows: list[torch.Tensor]) -> torch.Tensor:
        """Call what is wrapped, timed."""
        self.calls += 1
        if self.calls % self.every == 0:
            nap(self.ms)
        return torch.stack(rows)


@plant("PIPE009")
def periodic_stall(planted: bool) -> Any:
    collate = Counted(20, 250.0 if planted else 0.0)
    return torch_loader(Costs(), workers=1, collate_fn=collate), sleepy()


@plant("PIPE010")
def head_of_line(planted: bool) -> Any:
    costs = Costs(slow_batch=(10, 30.0))
    return torch_loader(costs, workers=3, in_order=planted), sleepy()


def late_start(worker: int) -> None:
    nap(250)


@plant("PIPE011")
def worker_start_up_each_epoch(planted: bool) -> Any:
    loader = torch_loader(
        Costs(), length=15 * BATCH, worker_init_fn=late_start, persistent_workers=not planted
    )
    return loader, sleepy()


class Spinning(Dataset[Any]):
    """Workers whose native threads fight for the cores (hashing releases the interpreter lock)."""

    def __init__(self, threads: int) -> None:
        """Keep what is wrapped or measured."""
        self.threads, self.started = threads, False

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def _spin(self) -> None:
        blob = bytes(4_000_000)
        while True:
            hashlib.sha256(blob).digest()

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        # in workers only: threads left in this process would disturb the pipelines that follow
        if not self.started and torch.utils.data.get_worker_info() is not None:
            self.started = True
            for _ in range(self.threads):
                threading.Thread(target=self._spin, daemon=True).start()
        burn(1.8)
        return torch.zeros(8)


@plant("PIPE012")
def oversubscribed(planted: bool) -> Any:
    return DataLoader(Spinning(4 if planted else 0), BATCH, num_workers=2), sleepy(10)


class Littering(Dataset[Any]):
    """A heap of a million objects, and a collection in every batch."""

    def __init__(self, planted: bool) -> None:
        """Keep what is wrapped or measured."""
        self.heap = [[i] for i in range(600_000)] if planted else []
        self.planted = planted

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        nap(0.2)
        if self.planted and i % BATCH == 0:
            gc.collect()
        return torch.zeros(8)


@plant("PIPE013")
def gc_pauses(planted: bool) -> Any:
    return DataLoader(Littering(planted), BATCH, num_workers=0), sleepy()


class SlowSampler:
    """A weighted draw per index, in the training process."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        """Indices, each late."""
        for i in range(SAMPLES):
            nap(self.ms)
            yield i


@plant("PIPE017")
def slow_sampler(planted: bool) -> Any:
    return torch_loader(Costs(), sampler=SlowSampler(1.5 if planted else 0)), sleepy()


class Trainer:
    """A step with side work."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def write_log(self) -> None:
        """Side work of the training process."""
        nap(self.ms)

    def __call__(self, batch: Any) -> None:
        """Call what is wrapped, timed."""
        nap(12)
        self.write_log()


@plant("PIPE014", bound=False)
def main_thread_work(planted: bool) -> Any:
    return torch_loader(Costs()), Trainer(9 if planted else 0)


def pause(seconds: float) -> None:
    """Blocked time to a moment."""
    if seconds > 0:
        time.sleep(seconds)


class Device:
    """An accelerator as the host sees it: work is queued, reading a result waits for it."""

    def __init__(self, ms: float, read_every_step: bool) -> None:
        """Keep what is wrapped or measured."""
        self.ms, self.read = ms, read_every_step
        self.free_at = 0.0

    def launch(self) -> None:
        """Queue one step."""
        now = time.perf_counter()
        self.free_at = max(self.free_at, now) + self.ms * PACE / 1e3
        # a real queue is bounded too: more than one step ahead, launching itself waits
        pause(self.free_at - now - 2 * self.ms * PACE / 1e3)

    def synchronize(self) -> None:
        """Wait for the queue."""
        pause(self.free_at - time.perf_counter())

    def __call__(self, batch: Any) -> None:
        """Call what is wrapped, timed."""
        self.launch()
        if self.read:
            self.synchronize()


@plant("PIPE015", bound=None)
def synchronising_metric(planted: bool) -> Any:
    return torch_loader(Costs(plain=1.2), workers=0), Device(20, planted)


class ColdFirst(Dataset[Any]):
    """Every sample is slow the first time: a page cache in small."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms, self.seen = ms, set[int]()

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return 60 * BATCH

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        if i not in self.seen:
            nap(self.ms)
            self.seen.add(i)
        return torch.zeros(8)


@plant("PIPE016", bound=False)
def slow_first_epoch(planted: bool) -> Any:
    return DataLoader(ColdFirst(3.0 if planted else 0.0), BATCH), sleepy()


@plant("PIPE001")
def slow_read_generator(planted: bool) -> Any:
    return Stream(2.5 if planted else 0.0), sleepy()


class Stream:
    """A plain iterable, no DataLoader."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Iterate what is wrapped, timed."""
        while True:
            rows = [self.fetch_record() for _ in range(BATCH)]
            yield torch.stack(rows)

    def fetch_record(self) -> torch.Tensor:
        """One sample."""
        nap(self.ms)
        return torch.zeros(8)


class Threaded:
    """A stream that prepares batches in a thread of its own, two ahead."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def decode(self) -> torch.Tensor:
        """One sample."""
        nap(self.ms)
        return torch.zeros(8)

    def _prepare(self, done: queue.Queue[torch.Tensor], stop: threading.Event) -> None:
        while not stop.is_set():
            batch = torch.stack([self.decode() for _ in range(BATCH)])
            with contextlib.suppress(queue.Full):
                done.put(batch, timeout=1.0)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Batches without end."""
        done: queue.Queue[torch.Tensor] = queue.Queue(2)
        stop = threading.Event()
        threading.Thread(target=self._prepare, args=(done, stop), daemon=True).start()
        try:
            while True:
                yield done.get()
        finally:
            stop.set()


@plant("PIPE002")
def slow_decode_in_a_thread(planted: bool) -> Any:
    return Threaded(4.5 if planted else 0.0), sleepy()


class Records(torch.utils.data.IterableDataset[Any]):
    """A stream split over the workers."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Samples without end."""
        while True:
            Throttled(self.ms).read()
            yield torch.zeros(8)


@plant("PIPE001")
def slow_read_of_a_stream(planted: bool) -> Any:
    return DataLoader(Records(8.0 if planted else 0.0), BATCH, num_workers=2), sleepy()


class Shards(torch.utils.data.IterableDataset[Any]):
    """A stream that opens a shard now and then."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Samples without end."""
        for number in itertools.count():
            if number % 100 == 0:
                nap(self.ms)
            nap(0.5)
            yield torch.zeros(8)


@plant("PIPE009")
def shards_that_open_slowly(planted: bool) -> Any:
    return DataLoader(Shards(250.0 if planted else 0.0), BATCH, num_workers=1), sleepy()


class Arrays(Dataset[Any]):
    """Large numpy arrays: cheap to make here, and all their bytes go through a pipe."""

    def __init__(self, side: int) -> None:
        """Keep what is wrapped or measured."""
        self.array = np.zeros((side, side, 3), np.float32)

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __getitem__(self, i: int) -> Any:
        """One sample, timed."""
        return self.array


@plant("PIPE005")
def large_arrays_in_the_pipe(planted: bool) -> Any:
    dataset = Arrays(360 if planted else 8)
    return DataLoader(dataset, BATCH, num_workers=2, collate_fn=np.stack), sleepy()


class Locked(Dataset[Any]):
    """One database handle behind a lock that all workers share."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms, self.lock = ms, torch.multiprocessing.get_context("fork").Lock()

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        with self.lock:
            nap(self.ms)
        return torch.zeros(8)


@plant("PIPE025")
def lock_between_workers(planted: bool) -> Any:
    return DataLoader(Locked(4.0 if planted else 0.0), BATCH, num_workers=2), sleepy()


@plant("PIPE004")
def slow_collate_in_process(planted: bool) -> Any:
    light = Costs(read=0, decode=0, transform=0)
    return torch_loader(light, workers=0, collate_fn=SlowCollate(25 if planted else 0)), sleepy()


class Matmul:
    """A step that computes on the host."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms = ms

    def __call__(self, batch: Any) -> None:
        """Call what is wrapped, timed."""
        burn(self.ms)


@plant("PIPE012")
def contention(planted: bool) -> Any:
    costs = Costs(read=0, transform=0, decode=2.0 if planted else 0.0, cpu=True)
    return torch_loader(costs, workers=2), Matmul(18)


# -------------------------------------------------------------- epochs, and what steps do beside

LONG_EPOCH = 90  # longer than a quick window, short enough for whole epochs in the bare loop


def start_late(worker: int) -> None:
    nap(2000)


@plant("PIPE011")
def workers_that_start_in_each_epoch(planted: bool) -> Any:
    return torch_loader(
        Costs(),
        length=LONG_EPOCH * BATCH,
        worker_init_fn=start_late if planted else None,
        persistent_workers=not planted,
    ), sleepy()


class Labelled(Pictures):
    """A sample as a dictionary."""

    def __getitem__(self, i: int) -> Any:
        """One sample with its label."""
        return {"x": super().__getitem__(i), "labels": i}


def labelled_loader(costs: Costs, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(Labelled(costs), BATCH, num_workers=2, prefetch_factor=2, **kwargs)


def pops_labels(batch: Any) -> None:
    labels = batch.pop("labels")
    nap(20 if len(labels) == BATCH and batch["x"].ndim else 0)


@plant("PIPE001")
def step_that_pops_its_labels(planted: bool) -> Any:
    return labelled_loader(Costs(read=9.0 if planted else 0)), pops_labels


def works_in_place(batch: Any) -> None:
    batch.add_(1)
    nap(20 * float(batch.max()))  # a batch that was given before takes longer


@plant("PIPE003")
def step_in_place(planted: bool) -> Any:
    return torch_loader(Costs(transform=9.0 if planted else 0)), works_in_place


class Keeping:
    """A step that puts its state on the disk, in a function of no telling name."""

    def __init__(self, folder: str) -> None:
        """Keep in `folder`; nowhere if that is ''."""
        self.path = Path(folder) / "state" if folder else None

    def __call__(self, batch: Any) -> None:
        """Compute, then keep."""
        nap(12)
        if self.path:
            self.after(self.path)

    def after(self, path: Path) -> None:
        """Write and wait for the disk, twice as careful people do."""
        with path.open("wb") as file:
            for _ in range(2):
                file.write(bytes(65536))
                file.flush()
                os.fsync(file.fileno())


FOLDER = tempfile.TemporaryDirectory()


@plant("PIPE014", bound=False)
def fsync_in_the_step(planted: bool) -> Any:
    return torch_loader(Costs()), Keeping(FOLDER.name if planted else "")


class Augmenting:
    """A step that augments its batch in the training process."""

    def __init__(self, ms: float) -> None:
        """Keep what is measured."""
        self.ms = ms

    def augment(self, batch: Any) -> Any:
        """Python work a batch."""
        nap(self.ms)
        return batch

    def __call__(self, batch: Any) -> None:
        """Augment, then compute."""
        if self.ms:
            self.augment(batch)
        nap(14)


@plant("PIPE014", bound=False)
def augmentation_in_the_step(planted: bool) -> Any:
    return torch_loader(Costs()), Augmenting(6 if planted else 0)


class Jpegs(Dataset[Any]):
    """Pictures decoded by PIL, imported as everybody does."""

    def __init__(self, side: int) -> None:
        """Keep one encoded picture."""
        noise = np.random.default_rng(0).integers(0, 255, (side, side, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).save(file, "JPEG")
        self.blob = file.getvalue()

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        """One picture."""
        picture = Image.open(io.BytesIO(self.blob))
        picture.load()
        return torch.zeros(8)


@plant("PIPE002")
def pil_in_the_training_process(planted: bool) -> Any:
    return DataLoader(Jpegs(300 if planted else 8), BATCH), sleepy()


@plant("PIPE020")
def tf_shuffle_as_large_as_the_epoch(planted: bool) -> Any:
    samples = LONG_EPOCH * BATCH
    ds = tf_range().take(samples).map(tf_map(3.0), num_parallel_calls=2)
    return ds.shuffle(samples if planted else BATCH).batch(BATCH).prefetch(2), sleepy()


class ByTurns:
    """A step that is short or long by chance."""

    def __init__(self, short: float, long: float) -> None:
        """Milliseconds."""
        self.lengths, self.rng = (short, long), np.random.default_rng(0)

    def __call__(self, batch: Any) -> None:
        """Take one of both."""
        nap(self.lengths[self.rng.integers(2)])


@plant("PIPE000", bound=False)
def healthy_bimodal_step(planted: bool) -> Any:
    return torch_loader(Costs()), ByTurns(20, 60)


@plant("PIPE000", bound=False)
def healthy_short_epochs(planted: bool) -> Any:
    return torch_loader(Costs(), length=LONG_EPOCH * BATCH), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_slow_start_once(planted: bool) -> Any:
    return torch_loader(
        Costs(), length=LONG_EPOCH * BATCH, worker_init_fn=start_late, persistent_workers=True
    ), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_step_that_pops_its_labels(planted: bool) -> Any:
    return labelled_loader(Costs(read=0)), lambda batch: (pops_labels(batch), nap(30))[1]


@plant("PIPE000", bound=False)
def tf_healthy_epochs(planted: bool) -> Any:
    ds = tf_range().take(LONG_EPOCH * BATCH).map(tf_map(0.5), num_parallel_calls=2)
    return ds.shuffle(BATCH).batch(BATCH).prefetch(4), sleepy(50)


# ------------------------------------------------------------------ nothing wrong with the input


@plant("PIPE000", bound=False)
def healthy_two_workers(planted: bool) -> Any:
    return torch_loader(Costs()), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_one_worker(planted: bool) -> Any:
    return torch_loader(Costs(plain=0.5), workers=1), sleepy(70)


@plant("PIPE000", bound=False)
def healthy_short_step(planted: bool) -> Any:
    # the hand-over between processes is a tenth of this step: no fix, and no fault of the loader
    return torch_loader(Costs()), sleepy(12)


@plant("PIPE000", bound=False)
def healthy_in_memory(planted: bool) -> Any:
    return [torch.zeros(BATCH, 8)] * 500, sleepy(10)


@plant("PIPE000", bound=False)
def compute_bound_device(planted: bool) -> Any:
    return torch_loader(Costs(plain=2.0)), sleepy(60)


@plant("PIPE000", bound=False)
def compute_bound_host(planted: bool) -> Any:
    return torch_loader(Costs(), workers=1), Matmul(30)


@plant("PIPE000", bound=False)
def compute_bound_stream(planted: bool) -> Any:
    return Stream(0.0), sleepy(50)


# ------------------------------------------------------------------------------------ small ones


@plant("PIPE002", small=True)
def small_slow_decode(planted: bool) -> Any:
    costs = Costs(decode=0.6 if planted else 0.0, read=0, transform=0)
    return torch_loader(costs, workers=0), sleepy(40)


@plant("PIPE017", small=True)
def small_slow_sampler(planted: bool) -> Any:
    return torch_loader(Costs(), sampler=SlowSampler(0.3 if planted else 0)), sleepy(30)


# ------------------------------------------------------------------------------------- tf.data


def tf_map(ms: float) -> Callable[[Any], Any]:
    import tensorflow as tf

    def slow(x: Any) -> Any:
        def body(value: Any) -> Any:
            nap(ms)
            return value

        out = tf.py_function(body, [x], tf.int64)
        out.set_shape(())
        return out

    return slow


def tf_range() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(SAMPLES)


@plant("PIPE019")
def tf_without_prefetch(planted: bool) -> Any:
    import tensorflow as tf

    ds = tf_range().map(tf_map(1.2)).batch(BATCH)
    options = tf.data.Options()  # TensorFlow adds a prefetch by itself unless told not to
    options.experimental_optimization.apply_default_optimizations = False
    ds = ds if planted else ds.prefetch(4)
    return ds.with_options(options), sleepy()


@plant("PIPE018")
def tf_without_parallel_map(planted: bool) -> Any:
    ds = tf_range().map(tf_map(6.0), num_parallel_calls=None if planted else 8).batch(BATCH)
    return ds.prefetch(4), sleepy()


@plant("PIPE020")
def tf_shuffle_fill_each_epoch(planted: bool) -> Any:
    ds = tf_range().take(20 * BATCH).map(tf_map(1.5), num_parallel_calls=2)
    ds = ds.shuffle(18 * BATCH if planted else 18 * BATCH // 8).batch(BATCH)
    return ds.prefetch(2), sleepy()


@plant("PIPE000", bound=False)
def tf_healthy(planted: bool) -> Any:
    return tf_range().batch(BATCH).prefetch(4), sleepy()


# --------------------------------------------------------------------------------- measurement


Share = tuple[float, float, float]  # value and both ends of its interval


@dataclass
class Outcome:
    """One run of one plant: what was said, and the bare periods beside it."""

    name: str
    seed: int
    verdict: str
    first: str
    share: Share
    stall: Share
    causes: list[str]
    planted_s: float  # bare period
    twin_s: float
    seconds: float


def bare_period(loader: Any, step: Callable[[Any], Any], seconds: float) -> float:
    """Mean period (s) of an unwatched loop after a warm-up; whole epochs where they are short."""
    epoch = 1
    with contextlib.suppress(TypeError):  # a stream has no length
        epoch = len(loader) if len(loader) <= SHORT_EPOCH else 1
    done, start, count = 0, 0.0, 0
    deadline = time.perf_counter() + 4 * seconds + 5
    while time.perf_counter() < deadline:
        for batch in loader:
            step(batch)
            done += 1
            if done == WARM:
                start = time.perf_counter()
            elif done > WARM:
                count += 1
                if count % epoch == 0 and time.perf_counter() - start > seconds:
                    return (time.perf_counter() - start) / count
    return (time.perf_counter() - start) / max(count, 1)


def pair(p: Plant, seconds: float, planted_first: bool) -> tuple[float, float]:
    """Bare periods (planted, twin) measured right after each other."""
    if p.name == "slow_first_epoch":
        return epochs(p)
    periods = {}
    for planted in (planted_first, not planted_first):
        periods[planted] = bare_period(*p.make(planted), seconds)
    return periods[True], periods[False]


def epochs(p: Plant) -> tuple[float, float]:
    """The plant is the first pass: its twin is the second one of the same loader."""
    loader, step = p.make(True)
    walls = []
    for _ in range(2):
        start = time.perf_counter()
        for batch in loader:
            step(batch)
        walls.append(time.perf_counter() - start)
    return walls[0], walls[1]


def profile(p: Plant, seconds: float, seed: int, keep: Path | None = None) -> Outcome:
    """One diagnosis between two bare pairs (none where nothing is planted)."""
    begun = time.perf_counter()
    pairs = [(1.0, 1.0)] if p.codes == ("PIPE000",) else [pair(p, seconds / 9, seed % 2 == 0)]
    loader, step = p.make(True)
    # tf.data spends a third on interventions: it gets what --quick gives by default
    budget = QUICK_SECONDS if p.name.startswith("tf_") else seconds
    options = Options(quick=True, seconds=budget, seed=seed)
    session = measure_arms(Bench(lambda: loader, step), options)
    if keep is not None:
        session.save(keep / f"{p.name}-{seed}.json.gz")
    if p.codes != ("PIPE000",):
        pairs.append(pair(p, seconds / 9, seed % 2 == 1))
    planted, twin = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return Outcome(p.name, seed, *said(session), planted, twin, time.perf_counter() - begun)


def said(session: Session) -> tuple[str, str, Share, Share, list[str]]:
    """(verdict, first cause, its share, the stall, the first four causes) of a session."""
    found = verdict.diagnose_session(session)
    first = found.causes[0] if found.causes else None
    return (
        found.verdict,
        first.code if first else "none",
        _row(first.share) if first else (0.0, 0.0, 0.0),
        _row(found.stall),
        [f"{c.code} {c.share.value:.2f}" for c in found.causes[:4]],
    )


def judged_again(outcomes: list[Outcome], kept: Path) -> list[Outcome]:
    """The same measurements judged by the rules as they are now."""
    again = []
    for o in outcomes:
        path = kept / f"{o.name}-{o.seed}.json.gz"
        if path.exists():
            found = said(Session.load(path))
            again.append(Outcome(o.name, o.seed, *found, o.planted_s, o.twin_s, o.seconds))
    return again


def _row(share: Interval) -> Share:
    return share.value, share.low, share.high


# ------------------------------------------------------------------------------------ judging


def truths(outcomes: list[Outcome]) -> dict[str, float]:
    """Planted share of each pipeline over all its bare pairs."""
    sums: dict[str, list[float]] = {}
    for o in outcomes:
        row = sums.setdefault(o.name, [0.0, 0.0])
        row[0] += o.planted_s
        row[1] += o.twin_s
    return {name: 1 - twin / planted for name, (planted, twin) in sums.items()}


def judged(o: Outcome, p: Plant, truth: float) -> dict[str, bool]:
    """What of the targets this run met."""
    bound = o.verdict.startswith("input-bound")
    return {
        "right": o.first in p.codes and (p.bound is None or bound == p.bound),
        "inconclusive": o.verdict == "inconclusive",
        "wrongly_bound": p.bound is False and bound,
        "all_clear": p.bound is True and o.verdict == "not input-bound",
        "inside": p.codes == ("PIPE000",) or o.share[1] <= truth <= o.share[2],
    }


def table(outcomes: list[Outcome], plants: dict[str, Plant]) -> dict[str, Any]:
    """The four targets over all runs."""
    if not outcomes:
        return {}
    truth = truths(outcomes)
    rows = [(plants[o.name], judged(o, plants[o.name], truth[o.name])) for o in outcomes]
    planted = [row for p, row in rows if p.codes != ("PIPE000",)]
    n = len(rows)
    return {
        "pipelines": len({o.name for o in outcomes}),
        "runs": n,
        "planted_cause_first": counted([row["right"] for _, row in rows]),
        "inconclusive": counted([row["inconclusive"] for _, row in rows]),
        "wrongly_input_bound": counted([row["wrongly_bound"] for _, row in rows]),
        "false_all_clear": counted([row["all_clear"] for _, row in rows]),
        "share_inside_interval": counted([row["inside"] for row in planted]),
    }


def counted(rows: list[bool]) -> str:
    """n of N with Wilson's 95 % interval."""
    n, hits, z = len(rows), sum(rows), 1.96
    if not n:
        return "0 of 0"
    share, weight = hits / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / weight
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / weight
    return f"{hits} of {n} ({100 * (middle - half):.0f} to {100 * (middle + half):.0f} %)"


def show(o: Outcome, p: Plant, truth: float) -> None:
    """One line a run."""
    met = judged(o, p, truth)
    value, low, high = o.share
    print(
        f"{'ok ' if met['right'] else 'BAD'} {'in ' if met['inside'] else 'OUT'} {o.name:28s} "
        f"{o.verdict:20s} stall {o.stall[0]:.3f} [{o.stall[1]:.3f}, {o.stall[2]:.3f}] "
        f"first {o.first} {value:.3f} [{low:.3f}, {high:.3f}] truth {truth:.3f} "
        f"{o.seconds:.0f} s {o.causes}",
        flush=True,
    )


def saved(path: Path) -> list[Outcome]:
    """Outcomes of earlier runs; a line cut off by a crash is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError, TypeError):
            found.append(Outcome(**json.loads(line)))
    return found


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--seconds", type=float, default=14.0, help="budget of one profile")
    ap.add_argument("--which", choices=("all", "sleeping", "busy"), default="all")
    ap.add_argument("--only", default="", metavar="NAME,...")
    ap.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th pipeline from I on")
    ap.add_argument("--results", default="", metavar="F.jsonl", help="append to and resume from")
    ap.add_argument("--sessions", type=Path, metavar="DIR", help="keep each session here")
    ap.add_argument("--judge", action="store_true", help="judge the kept sessions again, and end")
    args = ap.parse_args()
    torch.set_num_threads(1)
    at, of = map(int, args.shard.split("/"))
    plants = {p.name: p for p in PLANTS}
    chosen = [p for p in PLANTS if not args.only or p.name in args.only.split(",")]
    if args.which != "all":
        chosen = [p for p in chosen if (p.name in BUSY) == (args.which == "busy")]
    chosen = chosen[at::of]
    path = Path(args.results) if args.results else None
    outcomes = saved(path) if path else []
    outcomes = [o for o in outcomes if o.name in plants]
    if args.judge:
        outcomes = judged_again(outcomes, args.sessions)
        for o in outcomes:
            show(o, plants[o.name], truths(outcomes)[o.name])
        print(json.dumps(summary(outcomes, plants)))
        return
    if args.sessions:
        args.sessions.mkdir(parents=True, exist_ok=True)
    done = {(o.name, o.seed) for o in outcomes}
    for seed, p in itertools.product(range(args.runs), chosen):
        if (p.name, seed) in done:
            continue
        o = profile(p, args.seconds, seed, args.sessions)
        outcomes.append(o)
        if path:
            with path.open("a") as file:
                file.write(json.dumps(asdict(o)) + "\n")
        show(o, p, truths(outcomes)[o.name])
    # a second shard may have written to the same file meanwhile
    outcomes = [o for o in saved(path) if o.name in plants] if path else outcomes
    print(json.dumps(summary(outcomes, plants)))


def summary(outcomes: list[Outcome], plants: dict[str, Plant]) -> dict[str, Any]:
    """The document of the last line."""
    truth = truths(outcomes)
    failed = []
    for o in outcomes:
        met = judged(o, plants[o.name], truth[o.name])
        if not (met["right"] and met["inside"]):
            failed.append(o.name)
    return {
        "benchmark": "planted_bottlenecks",
        "main": table([o for o in outcomes if not plants[o.name].small], plants),
        "small": table([o for o in outcomes if plants[o.name].small], plants),
        "targets": {"planted_cause_first": 0.9, "inconclusive": 0.1, "share_inside_interval": 0.9},
        "failed": {name: failed.count(name) for name in sorted(set(failed))},
    }


if __name__ == "__main__":
    main()
