"""Pipelines with one known cause each, their twins without it, and pipelines with nothing wrong.

A maker takes `planted` and returns a loader and a step; `plant` gives it the codes that name its
cause. `planted.py bottlenecks` measures them.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import itertools
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from pipeline_profiler.profiling.measure.arms import emulated_step

BATCH = 8
SAMPLES = 20_000
PACE = 0.6  # every millisecond below times this: the same shapes, sooner done


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


@plant("PIPE009", "PIPE007")
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
    """Every sample is slow the first time: what is decoded, compiled or kept at first use."""

    def __init__(self, ms: float) -> None:
        """Keep what is wrapped or measured."""
        self.ms, self.seen = ms, set[int]()

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return 20 * BATCH  # a first pass sees them all

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        if i not in self.seen:
            nap(self.ms)
            self.seen.add(i)
        return torch.zeros(8)


@plant("PIPE031", bound=False)
def slow_first_epoch(planted: bool) -> Any:
    # a step of 12 ms would make next() of this loader 5 % of it by itself
    return DataLoader(ColdFirst(6.0 if planted else 0.0), BATCH), sleepy(40)


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

LONG_EPOCH = 90  # longer than a quick window, short enough for whole epochs


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
