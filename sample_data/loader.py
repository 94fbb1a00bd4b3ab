"""A small image loader to profile, as one would write it before knowing any framework.

It reads this folder's images with Pillow, one thread preparing batches ahead of the step: the
plainest loader that overlaps at all. With a step of 4 ms it does not keep up, which is what the
demo shows; it needs the core installation alone::

    pipeline-profiler run sample_data/loader.py:make_loader --quick --emulate-step-ms 4

`make_torch_loader` is the same data behind a DataLoader with two workers. The two recorded sessions
in sample_data/sessions/ come from it; to record them again, on an idle machine, in two minutes::

    python sample_data/loader.py

Costs: a batch of 16 images at 160 x 160 takes about 7 ms of one core.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ROOT = Path(__file__).resolve().parent
BATCH, SIDE, AHEAD = 16, 160, 2
ENDINGS = (".jpg", ".jpeg", ".png")
BROKEN = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
Batch = tuple[NDArray[np.uint8], list[str]]


def image_files() -> list[str]:
    """Images of the train split that can be decoded, relative to this folder."""
    paths = sorted(p for p in (ROOT / "train").rglob("*") if p.suffix.lower() in ENDINGS)
    return [p.relative_to(ROOT).as_posix() for p in paths if _readable(p)]


def _readable(path: Path) -> bool:
    try:
        decode(path)
    except BROKEN:
        return False
    return True


def decode(path: Path) -> Image.Image:
    """The image as RGB."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd files are here on purpose
        with Image.open(path) as image:
            return image.convert("RGB")


def resize(image: Image.Image) -> NDArray[np.uint8]:
    """(160, 160, 3), bicubic."""
    return np.array(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


class Loader:
    """Batches of images and labels in a new order each epoch, prepared by threads of its own."""

    def __init__(self, threads: int = 1, repeats: int = 4) -> None:
        """`repeats`: how often an epoch goes through the few images there are."""
        self.files, self.threads = image_files() * repeats, threads
        self.epoch = 0

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.files) // BATCH

    def __iter__(self) -> Iterator[Batch]:
        """One epoch; leaving it early ends the threads."""
        self.epoch += 1
        order = np.random.default_rng(self.epoch).permutation(len(self.files))
        todo: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        for at in range(len(self)):
            todo.put(order[at * BATCH : (at + 1) * BATCH].tolist())
        done: queue.Queue[Batch] = queue.Queue(AHEAD)
        stop = threading.Event()
        for _ in range(self.threads):
            threading.Thread(target=self._prepare, args=(todo, done, stop), daemon=True).start()
        try:
            for _ in range(len(self)):
                yield done.get()
        finally:
            stop.set()

    def _prepare(
        self, todo: queue.SimpleQueue[list[int]], done: queue.Queue[Batch], stop: threading.Event
    ) -> None:
        while not stop.is_set():
            try:
                batch = self.load_batch(todo.get_nowait())
            except queue.Empty:
                return
            while not stop.is_set():
                try:
                    done.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    continue

    def load_batch(self, indices: list[int]) -> Batch:
        """(16, 160, 160, 3) pixels and the folder names as labels."""
        names = [self.files[i] for i in indices]
        pixels = np.stack([resize(decode(ROOT / name)) for name in names])
        return pixels, [Path(name).parent.name for name in names]


def make_loader() -> Loader:
    """One thread: too slow for a step of 4 ms."""
    return Loader(threads=1)


def make_faster_loader() -> Loader:
    """Two threads, for `pipeline-profiler report --against`."""
    return Loader(threads=2)


class Photos:
    """The same images one by one, for a DataLoader."""

    def __init__(self) -> None:
        """List the images; a slow sample is named by its path."""
        self.files = image_files() * 4

    def __len__(self) -> int:
        """Images in an epoch."""
        return len(self.files)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """(160, 160, 3) pixels."""
        return resize(decode(ROOT / self.files[index]))


def make_torch_loader() -> Any:
    """A DataLoader with two workers over the same images."""
    from torch.utils.data import DataLoader

    return DataLoader(Photos(), BATCH, shuffle=True, num_workers=2)  # type: ignore[arg-type]


def record(name: str, step_ms: float, seconds: float) -> str:
    """Profile the DataLoader beside a step of so many ms; returns the verdict's sentence."""
    from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
    from pipeline_profiler.profiling.measure.arms import Bench, Options, emulated_step
    from pipeline_profiler.profiling.measure.schedule import measure_arms

    options = Options(quick=True, emulate_ms=step_ms, seconds=seconds)
    session = measure_arms(Bench(make_torch_loader, emulated_step(step_ms)), options)
    session.results = diagnose_session(session).as_results()
    session.save(ROOT / "sessions" / f"{name}.json.gz")
    return str(session.results["sentence"])


if __name__ == "__main__":
    (ROOT / "sessions").mkdir(exist_ok=True)
    print("torch-input-bound:", record("torch-input-bound", 4.0, 25.0))
    print("torch-healthy:", record("torch-healthy", 120.0, 50.0))
