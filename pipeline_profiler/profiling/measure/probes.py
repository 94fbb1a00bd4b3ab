"""Probes beside the configurations: what a stopwatch around the loop cannot measure."""

from __future__ import annotations

import functools
import itertools
import statistics
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any

from pipeline_profiler.profiling.adapters import tf_data, tf_graph, torch_loader
from pipeline_profiler.profiling.adapters.torch_loader import path_of
from pipeline_profiler.profiling.diagnose.stalls import slowest_samples, stalled_by_sample
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.arms import Bench, Options, TimeLimit, drive
from pipeline_profiler.profiling.measure.preloaded_batches import (
    Preloaded,
    changes_sentence,
    parts_of,
    try_step,
)
from pipeline_profiler.profiling.measure.watchdog import is_own_code
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import (
    Repeatable,
    SlowSample,
    SynchronisingLine,
)
from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.recorder_live import (
    MAIN_INTERVAL_S,
    WORKER_INTERVAL_S,
    Repeated,
    hand_over_cost,
)
from pipeline_profiler.profiling.record.session import Run, Session
from pipeline_profiler.profiling.record.stack_sampler import StackSampler
from pipeline_profiler.profiling.record.stages import median_ns

SAMPLE_S = 0.5


def synchronising_lines(step: Callable[[], Any], times: int = 3) -> list[SynchronisingLine] | None:
    """Return lines of the step that make the host wait for the device, by torch's warning mode."""
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
        if "synchroniz" in text and is_own_code(file)
    )
    return [{"at": at, "per_step": count / times} for at, count in hits.most_common()]


def sample_utilisation(stack: ExitStack) -> list[int]:
    """Return a GPU's utilisation (%), which NVML adds to twice a second until `stack` ends."""
    samples: list[int] = []
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)

        def look() -> None:
            with suppress(pynvml.NVMLError):
                samples.append(int(pynvml.nvmlDeviceGetUtilizationRates(card).gpu))

        stack.callback(Repeated(look, SAMPLE_S, "nvml").end)
    return samples


PROBED, LOADED_ALONE = 3, 3  # slowest samples that are loaded alone, and how often each
HANDED_OVER, WARMING = 30, 8  # batches, and those of them that are still waited for
LONGEST_PAUSE_NS = 2e7
MOST_PARTS = 200  # of a list that are looked at, evenly
STACK_SHARE = 0.12  # of a shorter budget
TRYING_SHARE, QUICK_TRYING_SHARE = 0.3, 0.12  # of the budget, for changes of a tf.data graph
PREFIX_SHARE = 0.05  # of the budget, for the prefixes of a tf.data graph
LEAST_TRIED = tf_graph.WARM_STEPS + tf_graph.LEAST_TIMED  # steps of an intervention


def stack_seconds(options: Options) -> float:
    """How long the run with stack samples takes."""
    return min(2.0 if options.quick else 6.0, STACK_SHARE * options.budget)


def sample_stacks(bench: Bench, options: Options, session: Session) -> Run:
    """One short run with stack samples, in the trainer and in every worker; a GPU's utilisation."""
    recorder = Recorder(bench.clock, arm=Arm.STACKS)
    recorder.sample_stacks = True
    calls_back = bench.settings().get("kind") == "tf"  # a map with tf.numpy_function does
    sampler = StackSampler.start_here(lambda: recorder.phase, calls_back)
    with ExitStack() as stack:
        samples = sample_utilisation(stack) if environment.has_cuda() else []
        try:
            drive(bench, bench.loader(), recorder, 400, TimeLimit(stack_seconds(options)))
        finally:
            keep_stacks(recorder, sampler)
    session.probes.utilisation_symptom = statistics.fmean(samples) / 100 if samples else None
    recorder.run.spans = type(recorder.run.spans)()  # its times are disturbed: keep the names only
    return recorder.run


def sample_beside(recorder: Recorder) -> StackSampler:
    """Stack samples beside a run that is timed: as rare as those of `watch`."""
    recorder.sample_stacks = WORKER_INTERVAL_S
    return StackSampler.start_beside(lambda: recorder.phase, MAIN_INTERVAL_S)


def keep_stacks(recorder: Recorder, sampler: StackSampler | None) -> None:
    """End the samples and put them into the run."""
    if sampler is not None:
        sampler.stop()
        for place, hits in sampler.drain():
            recorder.run.stacks[place] = recorder.run.stacks.get(place, 0) + hits


def probe_device(bench: Bench, preloaded: Preloaded, session: Session) -> None:
    """With CUDA: synchronising lines; else nothing (n/a)."""
    if not environment.has_cuda():
        return
    outcome = session.probes
    outcome.synchronising_lines = synchronising_lines(lambda: bench.step(preloaded.hand_out(0)))
    outcome.on_device = True


def probe_step(bench: Bench, preloaded: Preloaded, options: Options, session: Session) -> None:
    """What two steps do to their batch: fields they never look at, take out, or change in place."""
    if options.emulate_ms is not None:
        return
    outcome = session.probes
    outcome.batch_bytes = sum(getattr(part, "nbytes", 0) for _, part in parts_of(preloaded[0]))
    seen: list[Touched] = []

    def step(batch: Any) -> None:
        if type(batch) is not dict:
            bench.step(batch)
            return
        seen.append(Touched(batch))
        bench.step(seen[-1])
        for key in batch.keys() - seen[-1].keys():
            del batch[key]

    taken = try_step(preloaded, step)
    session.notes += filter(None, [changes_sentence(preloaded.in_place, taken)])
    if not seen:
        return
    touched = {str(key) for batch in seen for key in batch.touched}
    sizes = {str(k): _bytes(v) for k, v in preloaded[0].items()}
    outcome.unused_fields = {k: n for k, n in sizes.items() if k not in touched}
    outcome.batch_bytes = sum(sizes.values())


FAST_NS = 5e6  # of next(), up to which the cost of the recorder in it matters


def recording_ns(bench: Bench, count: int = 60) -> float:
    """What the recorder adds to a step over batches in hand, in nanoseconds."""

    def watched() -> None:
        recorder = Recorder(bench.clock)
        for _, _ in zip(range(count), recorder.watch(itertools.repeat(None)), strict=False):
            with recorder.step():
                pass

    return median_ns(watched, bench.clock) / count


def loading_ns(bench: Bench, wait_ns: float, count: int = 30) -> float:
    """Return what the recorder adds to next() of a fast DataLoader without workers (ns)."""
    settings = bench.settings()
    if settings.get("kind") != "torch" or settings.get("workers") or wait_ns > FAST_NS:
        return 0.0

    def pace(batches: Iterable[Any]) -> float:
        start = bench.clock()
        deque(itertools.islice(batches, count), maxlen=0)
        return (bench.clock() - start) / count

    ways = (lambda: Recorder(bench.clock).watch(bench.loader()), bench.loader)
    watched, plain = (min(pace(way()) for _ in range(2)) for way in ways)
    return max(0.0, watched - plain)


def hand_over(bench: Bench, preloaded: list[Any], step_ns: float) -> dict[str, int]:
    """Return the ns that one worker would cost a loader without workers, for these batches."""
    settings = bench.settings()
    if settings.get("kind") != "torch" or settings.get("workers"):
        return {}
    priced = hand_over_cost(preloaded[0])
    if not priced:
        return {}
    pause, waits = min(step_ns, LONGEST_PAUSE_NS) / 1e9, []
    batches = iter(torch_loader.kept_loader(bench.loader(), preloaded, HANDED_OVER))
    with suppress(StopIteration):
        while True:
            begin = bench.clock()
            next(batches)
            waits.append(bench.clock() - begin)
            bench.guard.pulse.steps += 1
            time.sleep(pause)
    return priced | {"hand_over_ns": int(statistics.median(waits[WARMING:] or [0]))}


def piped_bytes(bench: Bench, preloaded: list[Any]) -> float | None:
    """Bytes of a batch that go through a worker's pipe: all but tensors; None without workers."""
    by_pipe = bench.settings().get("kind") == "torch" and bench.settings().get("workers")
    return _piped(preloaded[0]) if by_pipe else None


def _piped(value: Any) -> float:
    """Bytes of a value without its tensors, which travel in shared memory; long lists by sample."""
    if hasattr(value, "is_cuda"):
        return 0.0
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if not isinstance(value, (list, tuple, set)):
        return float(_bytes(value))
    parts = list(value)
    looked = parts[:: max(1, len(parts) // MOST_PARTS)]
    return sum(map(_piped, looked)) * len(parts) / max(1, len(looked))


class Touched(dict[Any, Any]):
    """A batch that notes which of its fields are read; reading all at once counts for all."""

    def __init__(self, batch: dict[Any, Any]) -> None:
        super().__init__(batch)
        self.touched: set[Any] = set()


def _noting(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def read(batch: Touched, *args: Any) -> Any:
        batch.touched |= set(args[:1] or batch)
        return plain(batch, *args)

    return read


for _name in ("__getitem__", "get", "pop", "items", "values"):
    setattr(Touched, _name, _noting(_name))


def _bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) else sys.getsizeof(value)


def trying_seconds(options: Options) -> float:
    """Return how long changes of a tf.data graph are tried."""
    return (QUICK_TRYING_SHARE if options.quick else TRYING_SHARE) * options.budget


def try_interventions(bench: Bench, options: Options, session: Session) -> None:
    """tf.data: time the prefixes of the graph, then every intervention that applies."""
    dataset, budget, outcome = bench.loader(), options.budget, session.probes
    period = Window.of(session.arm(Arm.PILOT)[0]).period_ns / 1e9
    if 2 * LEAST_TRIED * period > trying_seconds(options):
        session.notes.append(f"No change of tf.data was tried: a step takes {period:.1f} s.")
        return
    outcome.prefixes = tf_data.prefix_costs(dataset, budget / 60, bench.clock)

    def step(batch: Any) -> None:
        bench.guard.pulse.steps += 1
        bench.step(batch)

    rows, notes = tf_graph.try_all(
        dataset,
        step,
        budget / 40,
        tuple(outcome.unused_fields or {}),
        clock=bench.clock,
        seed=options.seed,
        limit_s=trying_seconds(options),
    )
    outcome.interventions = rows
    session.notes += notes


def repeatable(bench: Bench) -> Repeatable:
    """Return whether two samples are equal when loaded twice, and their size; empty if unknown."""
    settings = bench.settings()
    if settings.get("kind") != "torch" or settings["iterable_dataset"]:
        return {}
    dataset = bench.loader().dataset
    with suppress(Exception):  # a probe of the user's code may fail: then its result is unknown
        begin, count = bench.clock(), len(dataset)
        firsts = {0: _flat(dataset[0])}
        if not bench.has_time(3 * (bench.clock() - begin) / 1e9):
            return {}
        firsts.setdefault(count // 2, _flat(dataset[count // 2]))
        pairs = [(first, _flat(dataset[i])) for i, first in firsts.items()]
        if all(first for first, _ in pairs):
            size = sum(len(blob) for first, _ in pairs for blob in first) / len(pairs)
            return {"same": all(a == b for a, b in pairs), "bytes": size, "samples": count}
    return {}


def _flat(sample: Any) -> list[bytes]:
    """The arrays of a sample as bytes; numbers and strings by their repr."""
    if isinstance(sample, dict):
        return [blob for value in sample.values() for blob in _flat(value)]
    if isinstance(sample, (list, tuple)):
        return [blob for value in sample for blob in _flat(value)]
    array = sample.numpy() if hasattr(sample, "numpy") else sample
    return [array.tobytes() if hasattr(array, "tobytes") else repr(array).encode()]


def slow_samples(bench: Bench, session: Session) -> list[SlowSample]:
    """Return the slowest samples with their paths; the worst are loaded once more, alone."""
    windows = [Window.of(run) for run in session.arm(Arm.WARM)]
    rows = slowest_samples(windows)
    if not rows or bench.settings().get("kind") != "torch":
        return rows
    loader = bench.loader()
    for row in rows:
        row["path"] = path_of(loader, row["key"])
    again = sorted(rows, key=lambda row: -min(row["seen"], 2))  # seen slow twice comes first
    worst = [row["key"] for row in again[:PROBED] if isinstance(row["key"], int)]
    typical = [k for k in windows[0].run.slow_keys[-PROBED:] if isinstance(k, int)]
    seconds = 2 * LOADED_ALONE * PROBED * max(row["worst_ms"] for row in rows) / 1e3
    suspicious = bool(stalled_by_sample(windows)) and bench.has_time(seconds)
    if suspicious and worst and not bench.settings()["iterable_dataset"]:
        slow, usual = (_load_alone(bench, loader.dataset, keys) for keys in (worst, typical))
        for window in windows:
            if slow and usual:  # one that is slow again is enough: others may be a busy machine's
                ratio = int(100 * slow[-1] / max(usual[len(usual) // 2], 1))
                window.run.totals["probe_ratio_percent"] = ratio
    return rows


def _load_alone(bench: Bench, dataset: Any, keys: list[int]) -> list[float]:
    """Sorted median nanoseconds of dataset[key] in this process; [] where it cannot be done."""

    def load(key: int) -> None:
        dataset[key]
        bench.guard.pulse.steps += 1  # the watchdog sees that something happens

    try:
        loads = [functools.partial(load, key) for key in keys]
        return sorted(median_ns(act, bench.clock, LOADED_ALONE) for act in loads)
    except (Exception, SystemExit):  # noqa: BLE001 - it may fail here alone
        return []
