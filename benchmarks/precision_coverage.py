"""Do the intervals of the precision sweep hold 95 times in 100? Simulated hosts and trainers.

    python benchmarks/precision_coverage.py coverage [--runs 2000] [--seed 20261130]

A run measures one row against FP32 as the sweep does: in each round one window of two lead-in
and 9 timed steps of each, at a random time of the round; its value is the median period; after the
looks the row stops by its half-width. Periods of a launch-bound row have three parts:

- the pace of the host, which keeps one value for a time that is exponentially distributed;
- jitter of each step, Student's t with 3 degrees of freedom, and in 1 % of the steps a spike with
  a Pareto tail of up to 100 ms;
- with `trainer`, half of the variance belongs to the trainer, which is new for each window.

`sd` is the standard deviation of the log window, of pace and trainer together. FP32 has .003.

Targets, with three Monte-Carlo standard errors allowed for the coverage only: coverage 93 to 97 %;
median half-width at most 10 % at sd .20 and states of 1 s, at most 2 % at sd .003; at most 20 %
inconclusive at sd .20. Three kinds of rows are printed and not judged by that:

- `control` rows use a wrong design or estimator; they must fail, with a coverage below 90 %;
- `short` rows end before the stop rule allows it, as with too small a budget: coverage only;
- `limit` rows have states of 3 s in rounds of 3.3 s: six windows cannot show such a correlation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from bench import Document, hall, measures, told

from pipeline_profiler.precision import estimate
from pipeline_profiler.profiling.diagnose.intervals import Interval, mean_interval

app = hall(__doc__)
STEPS, FP32_MS, ROW_MS = 9, 18.0, 9.0
JITTER = 0.15  # scale of a step's jitter, in standard deviations of the log window
SPIKES, MAX_SPIKE_MS, TAIL = 0.01, 100.0, 1.2
DEVIATIONS = (0.003, 0.05, 0.10, 0.14, 0.20)
LOWEST, HIGHEST, CONTROL = 0.93, 0.97, 0.90
Array = np.ndarray
Ratio = Callable[[Mapping[int, float], Mapping[int, float]], Interval | None]


@dataclass(frozen=True)
class Host:
    """How long the pace lasts, how far apart rounds are, and what share the trainer has."""

    sd: float
    state_s: float = 1.0
    apart_s: float = 3.3
    trainer: float = 0.0
    trainer_stays: bool = False


@dataclass(frozen=True)
class Row:
    """A host, the number of rounds (0: by the stop rule), the estimator and how it is judged."""

    host: Host
    rounds: int = 0
    ratio: Ratio = estimate.paired_ratio
    estimator: str = "paired, stop rule"
    kind: str = "judged"


# ---- a simulated sweep ----


def window_medians(host: Host, step_ms: float, runs: int, rng: np.random.Generator) -> Array:
    """Return the medians of the windows of all rounds, ms, of shape (runs, rounds)."""
    rounds = estimate.LOOKS[-1]
    # a row's turn in a round is random, except where windows follow each other directly
    turn = rng.uniform(size=(runs, rounds)) if host.apart_s > 1 else np.zeros((runs, rounds))
    start = (np.arange(rounds) + turn) * host.apart_s
    times = start[:, :, None] + np.arange(STEPS) * step_ms / 1000
    pace = host_pace(times.reshape(runs, -1), host.state_s, rng).reshape(times.shape)
    trainers = rng.normal(size=(runs, 1 if host.trainer_stays else rounds, 1))
    logs = math.sqrt(1 - host.trainer) * pace + math.sqrt(host.trainer) * trainers
    logs += JITTER * rng.standard_t(3, times.shape)
    spikes = np.minimum(1 + rng.pareto(TAIL, times.shape), MAX_SPIKE_MS)
    periods = step_ms * np.exp(host.sd * logs) + spikes * (rng.uniform(size=times.shape) < SPIKES)
    return np.median(periods, axis=2)


def host_pace(times: Array, state_s: float, rng: np.random.Generator) -> Array:
    """Return the standard normal pace at each time of a row; states have no memory."""
    apart = np.diff(times, axis=1)
    changes = rng.uniform(size=apart.shape) < -np.expm1(-apart / state_s)
    state = np.pad(np.cumsum(changes, axis=1), ((0, 0), (1, 0)))
    return np.take_along_axis(rng.normal(size=(len(times), int(state.max()) + 1)), state, axis=1)


# ---- wrong estimators, for the controls ----


def plain_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Interval:
    """Return Student's t of the logarithms, without their autocorrelation."""
    logs = mean_interval([math.log(above[r] / below[r]) for r in above])
    return Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.n)


def bootstrap_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Interval:
    """Return the percentile bootstrap of the geometric mean over the rounds."""
    logs = np.array([math.log(above[r] / below[r]) for r in above])
    rng = np.random.default_rng(0)
    means = logs[rng.integers(0, len(logs), (500, len(logs)))].mean(axis=1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return Interval(math.exp(logs.mean()), float(low), float(high), len(logs))


def unpaired_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Interval:
    """Return the ratio of two samples whose rounds are not common: half as many of the second."""
    return estimate.unpaired_ratio(list(above.values()), list(below.values())[::2])


# ---- rows ----


def all_rows() -> list[Row]:
    quick = [Host(sd, trainer=share) for share in (0.0, 0.5) for sd in DEVIATIONS]
    slow = [Host(sd, 3.0, apart_s) for apart_s in (6.0, 3.3) for sd in DEVIATIONS[1:]]
    rows = [Row(h, kind="limit" if (h.state_s, h.apart_s) == (3.0, 3.3) else "judged")
            for h in quick + slow]  # fmt: skip
    worst = Host(0.20)
    rows += [Row(worst, estimate.LOOKS[-1], estimator="paired, 24 rounds")]
    rows += [Row(Host(sd), estimate.LOOKS[-1], unpaired_ratio, "unpaired, 24 and 12 windows")
             for sd in (0.14, 0.20)]  # fmt: skip
    rows += [Row(worst, n, estimator=f"paired, {n} rounds", kind="short") for n in (3, 5, 8)]
    kept = replace(worst, trainer=0.5, trainer_stays=True)
    return [
        *rows,
        Row(kept, estimator="one trainer for all windows", kind="control"),
        Row(replace(worst, apart_s=0.12), 24, plain_ratio, "back to back, plain t", "control"),
        Row(worst, 5, bootstrap_ratio, "bootstrap over 5 blocks", "control"),
    ]


def measure(row: Row, windows: Array, fp32: Array) -> tuple[Interval, int]:
    """Return the ratio of one run, and after how many rounds it ended."""
    interval = Interval(math.nan, -math.inf, math.inf)
    for rounds in (row.rounds,) if row.rounds else estimate.LOOKS:
        above, below = (dict(enumerate(w[:rounds].tolist())) for w in (fp32, windows))
        interval = row.ratio(above, below) or interval
        if not row.rounds and estimate.is_settled(interval, rounds):
            break
    return interval, rounds


def simulate(row: Row, runs: int, seed: int) -> Document:
    """Return the coverage of one row, its half-widths and what it took."""
    rng = np.random.default_rng(seed)
    windows = window_medians(row.host, ROW_MS, runs, rng)
    # a second row of the same host where no rounds are common, else FP32, bound by the device
    other = row.host if row.ratio is unpaired_ratio else replace(row.host, sd=0.003)
    fp32 = window_medians(other, FP32_MS, runs, rng)
    found = [measure(row, *pair) for pair in zip(windows, fp32, strict=True)]
    intervals = [interval for interval, _ in found]
    widths = np.array([estimate.relative_half_width(interval) for interval in intervals])
    truth = FP32_MS / ROW_MS
    return {
        "kind": row.kind, "estimator": row.estimator, "sd": row.host.sd,
        "state_s": row.host.state_s, "apart_s": row.host.apart_s, "trainer": row.host.trainer,
        "coverage": float(np.mean([i.low <= truth <= i.high for i in intervals])),
        "half_width": float(np.median(widths)), "p90": float(np.quantile(widths, 0.9)),
        "inconclusive": float(np.mean([estimate.is_inconclusive(i) for i in intervals])),
        "rounds": float(np.mean([rounds for _, rounds in found])),
    }  # fmt: skip


def missed_targets(row: Document, runs: int) -> list[str]:
    """Return the targets that a row misses; of a control, that it does not fail."""
    error = 3 * math.sqrt(0.05 * 0.95 / runs)
    if row["kind"] == "control":
        return [] if row["coverage"] < CONTROL else ["the control does not fail"]
    if row["kind"] == "limit":
        return []
    missed = []
    if not LOWEST - error <= row["coverage"] <= HIGHEST + error:
        missed.append("coverage")
    if row["kind"] == "short":
        return missed
    is_paired = row["estimator"].startswith("paired")
    if row["sd"] == 0.20 and row["inconclusive"] > 0.20:
        missed.append("inconclusive")
    if row["sd"] == 0.20 and row["state_s"] == 1 and is_paired and row["half_width"] > 0.10:
        missed.append("half-width")
    if row["sd"] == 0.003 and row["half_width"] > 0.02:
        missed.append("half-width of a device-bound row")
    return missed


@measures(app)
def coverage(runs: int = 2000, seed: int = 20261130) -> tuple[Document, bool]:
    """Print a line for each row, then the ranges of the judged rows and the targets missed."""
    rows = [simulate(row, runs, seed + number) for number, row in enumerate(all_rows())]
    missed = {told(row): targets for row in rows if (targets := missed_targets(row, runs))}
    for row in rows:
        print(told(row))
    for line, targets in missed.items():
        print(f"missed {', '.join(targets)}: {line}")
    ranges = {
        kind: [f(r["coverage"] for r in rows if r["kind"] == kind) for f in (min, max)]
        for kind in ("judged", "short", "limit", "control")
    }
    return {"runs": runs, "seed": seed, "coverage": ranges, "missed": len(missed)}, not missed


@app.callback()
def main() -> None:
    """Keep `coverage` a command: the benchmarks are called alike."""


if __name__ == "__main__":
    app()
