"""Probes beside the arms: what a stopwatch around the loop cannot tell.

Stack samples name lines of code; a batch that notes its reads tells unused fields; the slowest
samples are loaded once more, alone; a suspected setting is changed and measured as the trial
setting; a tf.data graph is timed prefix by prefix and tried with each intervention.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from pipeline_profiler.diagnose.samples import slowest_samples, stalled_by_sample
from pipeline_profiler.diagnose.window import Window
from pipeline_profiler.measure import cuda, environment
from pipeline_profiler.measure.arms import Bench, Options, drive
from pipeline_profiler.measure.kept_batches import KeptBatches, changes_sentence, try_step
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.plan import Reason, Repeatable, SlowSample
from pipeline_profiler.record.recorder import Recorder
from pipeline_profiler.record.session import Run, Session
from pipeline_profiler.record.stack_sampler import StackSampler

PROBED = 3
MOST_PARTS = 200  # of a list that are looked at, evenly
STACK_SHARE = 0.12  # of a shorter budget


def stack_seconds(options: Options) -> float:
    """How long the run with stack samples takes."""
    return min(3.0 if options.quick else 6.0, STACK_SHARE * options.budget)


def sample_stacks(bench: Bench, options: Options) -> Run:
    """One short run with stack samples, in the trainer and in every worker."""
    recorder = Recorder(bench.clock, arm=Arm.STACKS)
    recorder.sample_stacks = True
    sampler = StackSampler.start_here(lambda: recorder.phase)
    try:
        drive(bench, bench.loader(), recorder, 400, stack_seconds(options))
    finally:
        sampler.stop()
    for place, hits in sampler.drain():
        recorder.run.stacks[place] = recorder.run.stacks.get(place, 0) + hits
    recorder.run.spans = type(recorder.run.spans)()  # its times are disturbed: keep the names only
    return recorder.run


def probe_device(bench: Bench, kept_batches: KeptBatches, session: Session) -> None:
    """With CUDA: starvation by events, synchronising lines, utilisation; else nothing (n/a)."""
    if not environment.has_cuda():
        return
    outcome, steps = session.probes, session.plan.steps
    with cuda.Utilisation() as symptom:
        outcome.starvation = cuda.watch_starvation(bench.loader(), bench.step, bench.clock, steps)
    outcome.synchronising_lines = cuda.synchronising_lines(
        lambda: bench.step(kept_batches.hand_out(0))
    )
    outcome.utilisation_symptom = symptom.mean
    outcome.on_device = True


def probe_step(bench: Bench, kept_batches: KeptBatches, options: Options, session: Session) -> None:
    """What two steps do to their batch: fields they never look at, take out, or change in place."""
    if options.emulate_ms is not None:
        return
    seen: list[Touched] = []

    def step(batch: Any) -> None:
        if type(batch) is not dict:
            bench.step(batch)
            return
        seen.append(Touched(batch))
        bench.step(seen[-1])
        for key in batch.keys() - seen[-1].keys():
            del batch[key]

    taken = try_step(kept_batches, step)
    session.notes += filter(None, [changes_sentence(kept_batches.in_place, taken)])
    if not seen:
        return
    touched, outcome = {str(key) for batch in seen for key in batch.touched}, session.probes
    sizes = {str(k): _bytes(v) for k, v in kept_batches[0].items()}
    outcome.unused_fields = {k: n for k, n in sizes.items() if k not in touched}
    outcome.batch_bytes = sum(sizes.values())


def recording_ns(bench: Bench, count: int = 300) -> float:
    """What the recorder adds to a step over batches in hand: a loop with it and one without."""
    recorder, begin = Recorder(bench.clock), bench.clock()
    for _, _ in zip(range(count), recorder.watch(itertools.repeat(None)), strict=False):
        with recorder.step():
            pass
    watched = bench.clock()
    for _ in range(count):
        pass
    return max(0.0, 2 * watched - begin - bench.clock()) / count


def piped_bytes(bench: Bench, kept_batches: list[Any]) -> float | None:
    """Bytes of a batch that go through a worker's pipe: all but tensors; None without workers."""
    if bench.settings().get("kind") != "torch" or not bench.settings().get("workers"):
        return None
    return _piped(kept_batches[0])


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
        """Copy the batch."""
        super().__init__(batch)
        self.touched: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        """One field."""
        self.touched.add(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """One field, or the default."""
        self.touched.add(key)
        return super().get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        """One field, taken out."""
        self.touched.add(key)
        return super().pop(key, *default)

    def items(self) -> Any:
        """All fields."""
        self.touched |= set(self)
        return super().items()

    def values(self) -> Any:
        """All fields."""
        self.touched |= set(self)
        return super().values()


def _bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) else sys.getsizeof(value)


def try_interventions(bench: Bench, options: Options, session: Session) -> None:
    """tf.data: time the prefixes of the graph, then every intervention that applies."""
    from pipeline_profiler.adapters import tf_data, tf_interventions

    dataset, budget, outcome = bench.loader(), options.budget, session.probes
    outcome.prefixes = tf_data.prefix_costs(dataset, budget / 60, bench.clock)
    rows, notes = tf_interventions.try_all(
        dataset,
        bench.step,
        budget / 40,
        tuple(outcome.unused_fields or {}),
        clock=bench.clock,
        seed=options.seed,
    )
    outcome.interventions = rows
    session.notes += notes


def try_a_change(bench: Bench, session: Session) -> bool:
    """Where the first block points at a setting, the trial arm measures it from then on."""
    from pipeline_profiler.diagnose.verdict import diagnose_session

    causes = diagnose_session(session).causes
    change = dict(causes[0].change or {}) if causes else {}
    if not change or bench.settings().get("kind") != "torch":
        return False
    setting = ", ".join(f"{k}={v}" for k, v in change.items())
    text = f"The trial setting (the real loader with {setting}) tests the first suspicion."
    session.probes.change = change
    session.plan = session.plan.with_trial(Reason(text, (Arm.TRIAL,)))
    bench.tell(text)
    return True


def repeatable(bench: Bench) -> Repeatable:
    """Is a prepared sample the same every time, and how large is it?

    Two samples are loaded twice each; equal bytes mean that the work of every epoch could be done
    once. Empty where the loader has no map-style dataset or a sample cannot be compared.
    """
    settings = bench.settings()
    if settings.get("kind") != "torch" or settings["iterable_dataset"]:
        return {}
    dataset = bench.loader().dataset
    try:
        count = len(dataset)
        pairs = [(_flat(dataset[i]), _flat(dataset[i])) for i in {0, count // 2}]
    except Exception:  # noqa: BLE001 - a probe of the user's code may fail; then it tells nothing
        return {}
    if not all(first for first, _ in pairs):
        return {}
    size = sum(len(blob) for first, _ in pairs for blob in first) / len(pairs)
    return {"same": all(a == b for a, b in pairs), "bytes": size, "samples": count}


def _flat(sample: Any) -> list[bytes]:
    """The arrays of a sample as bytes; numbers and strings by their repr."""
    if isinstance(sample, dict):
        return [blob for value in sample.values() for blob in _flat(value)]
    if isinstance(sample, (list, tuple)):
        return [blob for value in sample for blob in _flat(value)]
    array = sample.numpy() if hasattr(sample, "numpy") else sample
    return [array.tobytes() if hasattr(array, "tobytes") else repr(array).encode()]


def slow_samples(bench: Bench, session: Session) -> list[SlowSample]:
    """The slowest samples with their paths; the worst are loaded once more, alone.

    If they are fast then, it is not the samples: something stops the loader now and then.
    """
    windows = [Window.of(run) for run in session.arm(Arm.WARM)]
    rows = slowest_samples(windows)
    if not rows or bench.settings().get("kind") != "torch":
        return rows
    from pipeline_profiler.adapters import torch_loader

    loader = bench.loader()
    for row in rows:
        row["path"] = torch_loader.path_of(loader, row["key"])
    again = sorted(rows, key=lambda row: -min(row["seen"], 2))  # seen slow twice comes first
    worst = [row["key"] for row in again[:PROBED] if isinstance(row["key"], int)]
    typical = [
        k for window in windows[:1] for k in window.run.slow_keys[-PROBED:] if isinstance(k, int)
    ]
    suspicious = bool(stalled_by_sample(windows))
    if suspicious and worst and not bench.settings()["iterable_dataset"]:
        slow, usual = (_load_alone(bench, loader.dataset, keys) for keys in (worst, typical))
        for window in windows:
            if slow and usual:  # one that is slow again is enough: others may be a busy machine's
                ratio = 100 * slow[-1] // max(usual[len(usual) // 2], 1)
                window.run.totals["probe_ratio_percent"] = ratio
    return rows


def _load_alone(bench: Bench, dataset: Any, keys: list[int]) -> list[int]:
    """Sorted nanoseconds of dataset[key] in this process; [] where it cannot be done."""
    walls = []
    for key in keys:
        start = bench.clock()
        try:
            dataset[key]
        except Exception:  # noqa: BLE001 - a second look may fail where the worker did not
            return []
        walls.append(bench.clock() - start)
    return sorted(walls)
