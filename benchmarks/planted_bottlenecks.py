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
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import planted_pipelines_more  # noqa: F401 - adds its pipelines to PLANTS
import torch
from planted_pipelines import BUSY, PLANTS, Plant

from pipeline_profiler.diagnose import verdict
from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.measure.arms import QUICK_SECONDS, Bench, Options
from pipeline_profiler.measure.schedule import measure_arms
from pipeline_profiler.record.session import Session

WARM = 14  # bare steps before timing
SHORT_EPOCH = 100


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
