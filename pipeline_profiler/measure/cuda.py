"""What only a GPU run has: starvation by events, synchronising lines, utilisation as a symptom.

Host and device clocks are never mixed in one ratio. Starvation: an event after the last enqueue
of a step and one before the first of the next; the gap between them on the device, but at most
the host's time in next(), is what the device idled for data. Events are read after the window, so
nothing synchronises inside it. NVML's utilisation is the share of time in which *some* kernel
ran: a symptom, never a cause. Without CUDA every row is None ("n/a"), not 0.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from pipeline_profiler.measure import environment
from pipeline_profiler.record.plan import SynchronisingLine

SAMPLE_S = 0.5
_OURS = ("pipeline_profiler", "torch/", "site-packages/")


class EventStarvation:
    """Pairs of CUDA events around next(); `share()` after the window resolves them."""

    def __init__(self) -> None:
        """Events on the current stream of the current device."""
        self._torch = sys.modules["torch"]
        self._marks: list[tuple[Any, Any, float]] = []
        self._end: Any = None
        self._first: Any = None

    def _event(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def step_ended(self) -> None:
        """After the last enqueue of a step, before next()."""
        self._end = self._event()
        self._first = self._first or self._end

    def batch_came(self, wait_ms: float) -> None:
        """Right after next() returned, before anything of the next step is enqueued."""
        if self._end is not None:
            self._marks.append((self._end, self._event(), wait_ms))

    def share(self) -> float | None:
        """Device idle for data / device time of the window; None before two steps."""
        if len(self._marks) < 2:
            return None
        self._torch.cuda.synchronize()
        exposed = sum(min(max(0.0, a.elapsed_time(b)), wait) for a, b, wait in self._marks)
        total = self._first.elapsed_time(self._marks[-1][1])
        return exposed / total if total > 0 else None


def watch_starvation(
    loader: Any, step: Callable[[Any], Any], clock: Callable[[], int], steps: int
) -> float | None:
    """Observed starvation of one warm loop with CUDA events; None without a GPU."""
    if not environment.has_cuda():
        return None
    events, done, iterator = EventStarvation(), 0, iter(loader)
    while done < steps:
        begin = clock()
        try:
            batch = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            continue
        events.batch_came((clock() - begin) / 1e6)
        step(batch)
        events.step_ended()
        done += 1
    return events.share()


def synchronising_lines(step: Callable[[], Any], times: int = 3) -> list[SynchronisingLine] | None:
    """Lines of the step that make the host wait for the device, by torch's own warning mode.

    torch does not see every kind of synchronisation (its documentation says so). None without CUDA.
    """
    if not environment.has_cuda():
        return None
    torch = sys.modules["torch"]
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(times):
                step()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return count_lines([(w.filename, w.lineno, str(w.message)) for w in caught], times)


def count_lines(caught: list[tuple[str, int, str]], times: int) -> list[SynchronisingLine]:
    """Synchronisations a step by line of the user's code, most frequent first."""
    hits = Counter(
        f"{file.rsplit('/', 1)[-1]}:{line}"
        for file, line, text in caught
        if "synchroniz" in text and not any(part in file for part in _OURS)
    )
    return [{"at": at, "per_step": count / times} for at, count in hits.most_common()]


class Utilisation:
    """NVML in the background, twice a second; `mean` is None where there is no NVML."""

    def __init__(self) -> None:
        """Open NVML where package and driver are there."""
        self.samples: list[int] = []
        self._stop = threading.Event()
        self._handle: Any = None
        try:
            import pynvml
        except ImportError:
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        except pynvml.NVMLError:
            self._handle = None

    def __enter__(self) -> Utilisation:
        """Start sampling."""
        if self._handle is not None:
            self._thread = threading.Thread(target=self._loop, daemon=True, name="nvml")
            self._thread.start()
        return self

    def _loop(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            try:
                self.samples.append(int(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu))
            except self._nvml.NVMLError:
                return

    def __exit__(self, *error: object) -> None:
        """Stop sampling."""
        self._stop.set()

    @property
    def mean(self) -> float | None:
        """Mean share of time in which some kernel ran; None unknown."""
        return sum(self.samples) / len(self.samples) / 100 if self.samples else None
