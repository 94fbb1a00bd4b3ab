"""Do the profiler's 95 % intervals hold 95 % of the time? Counted on simulated arms.

Sessions are made of drawn step times, whose true stall is known: a step that is steady, one that is
short or long by turns (bimodal), a loader that lets the step wait or not. Blocks drift together,
runs differ by themselves. Counted is how often the stated interval of the stall holds the true one,
with 3, 4, 5 and 8 repeats, how often a verdict is false, and how often `compare` tells two sessions
of one pipeline apart. Targets: 93 to 97 %, no more than 5 % told apart.

    python benchmarks/profile_coverage.py [--draws 400] [--steps 60] [--repeats 3 4 5 8]

About two minutes of CPU. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from pipeline_profiler.diagnose.evidence import gather
from pipeline_profiler.diagnose.verdict import verdict_of
from pipeline_profiler.measure.tune import compare
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.session import MAIN, Run, Session

REPEATS = (3, 4, 5, 8)
BLOCK_DRIFT, RUN_NOISE = 0.05, 0.015  # sigma of a factor on every time of a block, of a run
WARMUP = 2


@dataclass(frozen=True)
class Pipeline:
    """Milliseconds: the step's two lengths, and the mean wait of a step."""

    short: float
    long: float
    wait: float

    @property
    def stall(self) -> float:
        """The true share."""
        step = (self.short + self.long) / 2
        return self.wait / (step + self.wait)


PIPELINES = {
    "steady, high": Pipeline(20, 20, 10),
    "steady, none": Pipeline(20, 20, 0.2),
    "bimodal, none": Pipeline(10, 30, 0.2),
    "bimodal, high": Pipeline(10, 30, 10),
}


def drawn_run(p: Pipeline, arm: Arm, block: int, drift: float, steps: int, rng: Any) -> Run:
    """One run of an arm."""
    run = Run(arm=arm, block=block, warmup=WARMUP, config={"kind": "iterable"})
    run.slow_keys = rng.integers(0, 1 << 30, 20).tolist()  # other samples in every run
    count = steps + WARMUP
    factor = 1e6 * drift * math.exp(rng.normal(0, RUN_NOISE))
    loops = np.where(rng.random(count) < 0.5, p.short, p.long) * rng.lognormal(-0.005, 0.1, count)
    waits = rng.exponential(p.wait, count) if arm == Arm.WARM else np.zeros(count)
    loops, waits = ((x * factor).astype(np.int64) for x in (loops, waits))
    starts = np.concatenate([[0], np.cumsum(loops + waits)])
    rows = zip(starts[:-1].tolist(), waits.tolist(), loops.tolist(), strict=True)
    for i, (start, wait, loop) in enumerate(rows):
        run.spans.add("wait", i, MAIN, start, wait, 0)
        run.spans.add("loop", i, MAIN, start + wait, loop, 0)
    return run


def drawn_session(p: Pipeline, repeats: int, steps: int, rng: Any) -> Session:
    """Both main arms in blocks."""
    session = Session(environment={"cores": 2})
    for block in range(repeats):
        drift = math.exp(rng.normal(0, BLOCK_DRIFT))
        for arm in (Arm.RESIDENT, Arm.WARM):
            session.runs.append(drawn_run(p, arm, block, drift, steps, rng))
    return session


def counted(p: Pipeline, repeats: int, draws: int, steps: int, rng: Any) -> dict[str, float]:
    """Shares of the draws: intervals that hold the truth, false verdicts, equal ones told apart."""
    held = false = inconclusive = told = 0
    before: Session | None = None
    for _ in range(draws):
        session = drawn_session(p, repeats, steps, rng)
        stall = gather(session).stall
        verdict, _ = verdict_of(stall)
        held += stall.low <= p.stall <= stall.high
        inconclusive += verdict == "inconclusive"
        false += verdict.bound != (p.stall > 0.05) and verdict != "inconclusive"
        told += before is not None and "times" in compare(before, session)["sentence"]
        before = session
    rates = {"held": held, "false_verdicts": false, "inconclusive": inconclusive}
    return {k: v / draws for k, v in rates.items()} | {"told_apart": told / (draws - 1)}


def main() -> None:
    """Print one line a pipeline and number of repeats, then the document."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--draws", type=int, default=400)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--repeats", type=int, nargs="+", default=REPEATS)
    args = ap.parse_args()
    rng, rows = np.random.default_rng(0), {}
    for name, p in PIPELINES.items():
        for repeats in args.repeats:
            row = counted(p, repeats, args.draws, args.steps, rng)
            rows[f"{name}, {repeats} repeats"] = row
            print(f"{name:14s} {repeats} repeats", {k: round(v, 3) for k, v in row.items()})
    error = 1.96 * math.sqrt(0.05 * 0.95 / args.draws)
    targets = {"held": [0.93, 0.97], "told_apart": 0.05, "false_verdicts": 0.0}
    document = {"benchmark": "profile_coverage", "draws": args.draws, "rows": rows}
    print(json.dumps(document | {"error_of_a_rate": round(error, 3), "targets": targets}))


if __name__ == "__main__":
    main()
