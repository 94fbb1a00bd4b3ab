"""Throughput of the loader alone, with the step, and of the step alone; the time per epoch.

With the step, a loader is no faster than alone, and a step no faster than on preloaded batches. A
rate above these limits is capped within the noise, and an error of the measurement beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dataset_preflight.foundation.text import format_number
from pipeline_profiler.profiling.diagnose.intervals import Interval, geometric_mean, miss_of
from pipeline_profiler.profiling.diagnose.window import Windows
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session

MAX_EXCESS = 1.05  # times a limit, up to which a rate above it is noise
MIN_REPEATS = 3  # of an interval
MIN_STEPS = 8  # of a piece of the loader alone
READ_ONCE, MORE_TIME = "it can be read only once", "not enough time: give more --seconds"


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates in `unit`/s; a rate that is unknown is None."""

    unit: str  # samples, or batches where the batch size is unknown
    loader_alone: Interval | None
    with_step: Interval | None
    preloaded: Interval
    reason: str  # why `loader_alone` is None; "" in sessions without this measurement
    error: str  # why `with_step` is None: it contradicts a limit
    epoch_s: float | None
    epoch_size: int  # samples or batches; 0: unknown

    def as_dict(self) -> dict[str, Any]:
        """The key `throughput` of a session."""
        return asdict(self) | {"sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """The rates and the time per epoch in one line."""
        parts = [f"loader alone skipped ({self.reason})"] if self.reason else []
        named = {"loader alone": self.loader_alone, "with the step": self.with_step,
                 "preloaded batches": self.preloaded}  # fmt: skip
        parts += [f"{name} {_rate(rate)}" for name, rate in named.items() if rate]
        known = any(rate and rate.n >= MIN_REPEATS for rate in named.values())
        text = f"Throughput ({self.unit}/s{', 95% CI' * known}): {', '.join(parts)}."
        if self.epoch_s:
            seconds = format_number(self.epoch_s)
            text += f" Time per epoch {seconds} s ({self.epoch_size:,} {self.unit})."
        if self.error:
            text += f" Error of the measurement: the rate with the step is {self.error}."
        return text


def _rate(rate: Interval) -> str:
    """'1,840 (1,790 to 1,900)'; the value alone below `MIN_REPEATS` repeats."""
    ends = f" ({format_number(rate.low)} to {format_number(rate.high)})"
    return format_number(rate.value) + ends * (rate.n >= MIN_REPEATS)


def explain_excess(excess: Mapping[str, Interval]) -> str:
    """Return why a rate with the step is an error of the measurement, "" if it can hold.

    `excess`: this rate over each limit. The lower end of the 95% CI must exceed `MAX_EXCESS`.
    """
    above = [(name, ratio) for name, ratio in excess.items() if ratio.low > MAX_EXCESS]
    return " and ".join(f"{ratio.value:.2f} times the rate of {name}" for name, ratio in above)


def limit_rate(rate: Interval, limits: Sequence[Interval | None]) -> Interval:
    """Return the rate, its value and ends at most those of each limit."""
    for limit in limits:
        if limit is not None and limit.value < rate.value:
            high = max(limit.value, min(rate.high, limit.high))
            rate = Interval(limit.value, min(rate.low, limit.value), high, rate.n)
    return rate


def measure_throughput(session: Session, windows: Windows) -> Throughput | None:
    """Return the throughput of a session; None without the step on preloaded batches."""
    fed, preloaded = windows.periods(Arm.WARM), windows.periods(Arm.RESIDENT)
    if not fed or not preloaded:
        return None
    warm, pieces = windows.arm(Arm.WARM), windows.arm(Arm.ALONE)
    config = warm[0].run.config
    batch_size, workers = (max(0, int(config.get(k) or 0)) for k in ("batch_size", "workers"))
    unit, size = ("samples", batch_size) if batch_size else ("batches", 1)
    long_enough = {w.run.block for w in pieces if len(w) >= max(MIN_STEPS, workers)}
    alone = {n: ns for n, ns in windows.periods(Arm.ALONE).items() if n in long_enough}
    miss = miss_of(len(fed) + len(windows.left_out), session.plan.early_stop)

    def per_s(periods: Mapping[int, float]) -> Interval:
        return geometric_mean((size * 1e9 / ns for ns in periods.values()), miss)

    loader_alone = per_s(alone) if len(alone) >= MIN_REPEATS else None
    # a stream is timed at several positions, and alone at its begin
    begins, positions = ({w.run.totals.get("from_batch", 0) for w in ws} for ws in (pieces, warm))
    paired = alone if begins <= positions else {}
    limits = {"preloaded batches": preloaded, "the loader alone": paired}
    error = explain_excess(
        {name: geometric_mean(limit[n] / fed[n] for n in limit.keys() & fed.keys())
         for name, limit in limits.items()}
    )  # fmt: skip
    rate = limit_rate(per_s(fed), (loader_alone, per_s(preloaded)))
    epoch = size * max(window.epoch_steps for window in warm)
    samples = (session.probes.repeatable or {}).get("samples", 0) if batch_size else 0
    epoch = min(epoch, samples or epoch)
    planned = session.plan.alone_s is not None and loader_alone is None
    return Throughput(
        unit=unit,
        loader_alone=loader_alone,
        with_step=None if error else rate,
        preloaded=per_s(preloaded),
        reason=planned * (READ_ONCE if config.get("one_shot") else MORE_TIME),
        error=error,
        epoch_s=epoch / rate.value if epoch and not error else None,
        epoch_size=epoch,
    )


def step_rates(session: Session) -> dict[str, float]:
    """Return samples/s of the whole step (`whole`) and without the stall (`alone`), if known.

    `lost_s`: seconds of an epoch that the stall takes; absent where no epoch has a length.
    """
    measured = (session.results.get("arms") or {}).get(Arm.WARM) or {}
    config = session.runs[0].config if session.runs else {}
    share = (session.results.get("stall") or {}).get("share")
    rates = dict[str, float]()
    if not measured.get("period_ms") or share is None or share >= 1:
        return rates
    if size := config.get("batch_size"):
        rates["whole"] = 1e3 * size / measured["period_ms"]
        rates["alone"] = rates["whole"] / (1 - max(0.0, share))
    if steps := int(config.get("batches") or 0):
        rates["lost_s"] = steps * measured["period_ms"] / 1e3 * max(0.0, share)
    return rates
