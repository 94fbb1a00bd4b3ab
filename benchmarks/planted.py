"""Scripts with a planted defect, and their twins without it: what does the profiler say of each?

    python benchmarks/planted.py bottlenecks [--which sleeping|busy]
    python benchmarks/planted.py defects [--kinds loaders,streams,trainings,scripts,more,...]
    python benchmarks/planted.py watch [--runs 3] [--kinds plain,keras,ranks,lightning,trainer]

All three take [--runs 5] [--only WORD,...] [--shard 0/2] [--results F.jsonl] [--first-seed 0]. With
--results rows are appended to a file as they come; what is in it is not run again, so that a suite
can be stopped, resumed and split. The last line is one JSON document over all rows of the file.

`bottlenecks`: pipelines with one known cause. The truth is measured, not assumed: planted and twin
run bare (no recorder), one right after the other, before and after each diagnosis, and
1 - T_twin / T_planted over all pairs of a pipeline is the planted share. The profiler sees the
planted pipeline only. Targets: planted cause first in at least 90 % of the runs, at most 10 %
inconclusive, no false all-clear, healthy and compute-bound pipelines never called input-bound,
planted share inside the stated interval in at least 90 %. About 20 s a pipeline and run; with
--seconds 0 it profiles as --quick does, and a row has the number of blocks. Most
pipelines sleep: on two idle cores two shards of them may run side by side, the busy ones alone::

    B="python benchmarks/planted.py bottlenecks --results planted.jsonl"
    $B --which sleeping --shard 0/2 & $B --which sleeping --shard 1/2; wait; $B --which busy

`defects`: loaders and trainings. A defect counts as named where one of its codes is the first or
second failed check; a healthy twin counts as failed where any check fails.

`watch`: `watch -- script` beside `run` over the same loader and step, with a loader that keeps up
and with one that turns every picture over until the training waits. What watching costs is the step
that the script itself prints, by turns without and with `watch`, medians of --runs pairs. Kinds
that are not installed are left out. About 4 minutes for the first three.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import planted_pipelines_more  # noqa: F401 - adds its pipelines to PLANTS
import torch
from bench import ROOT, Document, hall, measures, save_row, saved_rows, shard_of
from planted_pipelines import BUSY, PLANTS, Plant
from planted_watched import KINDS as WATCHED
from planted_watched import Kind

from audit.statistics.intervals import wilson
from pipeline_profiler.checks.check import select_checks
from pipeline_profiler.checks.keras_subject import choose_subject
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.runner import run_checks
from pipeline_profiler.checks.user_code import seed_everything
from pipeline_profiler.profiling.diagnose import verdict
from pipeline_profiler.profiling.measure.arms import QUICK_SECONDS, Bench, Options
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session

WARM = 14  # bare steps before timing
SHORT_EPOCH = 100
BARE_SECONDS = 14.0
CHECK_SECONDS = 120.0  # for all checks of one subject
STEPS = 120  # of a watched script
BOUND = ("input-bound moderate", "input-bound high")
PIPELINES = {p.name: p for p in PLANTS}
app = hall(__doc__)


# ---- every suite ----


def run_suite(
    names: Iterable[str],
    measure: Callable[[str, int], Document],
    show: Callable[[Document, list[Document]], None],
    seeds: Iterable[int],
    only: str,
    shard: str,
    results: Path | None,
) -> list[Document]:
    """Measure each name with each seed, but for rows that are there; return all rows of the names.

    `only` has words of which a name must hold one; `show` gets a new row and all rows so far.
    """
    names = list(names)
    rows = [row for row in saved_rows(results) if row["name"] in names]
    done = {(row["name"], row["seed"]) for row in rows}
    chosen = shard_of([n for n in names if any(word in n for word in only.split(","))], shard)
    for seed, name in itertools.product(seeds, chosen):
        if (name, seed) not in done:
            rows.append({"name": name, "seed": seed} | measure(name, seed))
            save_row(results, rows[-1])
            show(rows[-1], rows)
    # a second shard may have written to the same file meanwhile
    return [row for row in saved_rows(results) if row["name"] in names] if results else rows


def counted(hits: Sequence[bool]) -> str:
    """Return n of N with Wilson's 95 % interval."""
    if not hits:
        return "0 of 0"
    low, high = wilson(sum(hits), len(hits))
    return f"{sum(hits)} of {len(hits)} ({100 * low:.0f} to {100 * high:.0f} %)"


# ---- bottlenecks ----


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


def profile(p: Plant, seconds: float, seed: int) -> Document:
    """One diagnosis between two bare pairs (none where nothing is planted)."""
    begun = time.perf_counter()
    bare = (seconds or BARE_SECONDS) / 9
    pairs = [(1.0, 1.0)] if p.codes == ("PIPE000",) else [pair(p, bare, seed % 2 == 0)]
    loader, step = p.make(True)
    # tf.data spends a third on interventions: it gets what --quick gives by default
    budget = QUICK_SECONDS if p.name.startswith("tf_") else seconds
    options = Options(quick=True, seconds=budget, seed=seed)
    started = time.perf_counter()
    session = measure_arms(Bench(lambda: loader, step), options)
    ended = time.perf_counter()
    if p.codes != ("PIPE000",):
        pairs.append(pair(p, bare, seed % 2 == 1))
    planted, twin = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    found = verdict.diagnose_session(session)
    share = astuple(found.causes[0].share)[:3] if found.causes else (0.0, 0.0, 0.0)
    return {
        "verdict": found.verdict, "first": found.causes[0].code if found.causes else "none",
        "share": share, "stall": astuple(found.stall)[:3],
        "causes": [f"{c.code} {c.share.value:.2f}" for c in found.causes[:4]],
        "planted_s": planted, "twin_s": twin, "seconds": time.perf_counter() - begun,
        "blocks": len(session.arm(Arm.WARM)), "profiled_s": ended - started,
    }  # fmt: skip


def truths(rows: list[Document]) -> dict[str, float]:
    """Planted share of each pipeline over all its bare pairs."""
    sums: dict[str, list[float]] = {}
    for row in rows:
        both = sums.setdefault(row["name"], [0.0, 0.0])
        both[0] += row["planted_s"]
        both[1] += row["twin_s"]
    return {name: 1 - twin / planted for name, (planted, twin) in sums.items()}


def judged(row: Document, truth: float) -> dict[str, bool]:
    """What of the targets this run met."""
    p, bound = PIPELINES[row["name"]], row["verdict"].startswith("input-bound")
    return {
        "right": row["first"] in p.codes and (p.bound is None or bound == p.bound),
        "inconclusive": row["verdict"] == "inconclusive",
        "wrongly_bound": p.bound is False and bound,
        "all_clear": p.bound is True and row["verdict"] == "not input-bound",
        "planted": p.codes != ("PIPE000",),
        "inside": p.codes == ("PIPE000",) or row["share"][1] <= truth <= row["share"][2],
        "small": p.small,
    }


def table(met: list[dict[str, bool]]) -> Document:
    """The four targets over all runs."""
    return {
        "runs": len(met),
        "planted_cause_first": counted([row["right"] for row in met]),
        "inconclusive": counted([row["inconclusive"] for row in met]),
        "wrongly_input_bound": counted([row["wrongly_bound"] for row in met]),
        "false_all_clear": counted([row["all_clear"] for row in met]),
        "share_inside_interval": counted([row["inside"] for row in met if row["planted"]]),
    }


def show(row: Document, rows: list[Document]) -> None:
    truth = truths(rows)[row["name"]]
    met = judged(row, truth)
    share, stall = ("{:.3f} [{:.3f}, {:.3f}]".format(*row[of]) for of in ("share", "stall"))
    print(
        f"{'ok ' if met['right'] else 'BAD'} {'in ' if met['inside'] else 'OUT'} {row['name']:28s} "
        f"{row['verdict']:20s} stall {stall} first {row['first']} {share} truth {truth:.3f} "
        f"{row['seconds']:.0f} s {row['causes']}",
        flush=True,
    )


@measures(app)
def bottlenecks(
    runs: int = 5,
    first_seed: int = 0,
    only: str = "",
    shard: str = "0/1",
    results: Path | None = None,
    which: str = "all",
    seconds: float = BARE_SECONDS,
) -> Document:
    """Is the first cause the planted one, and does its interval hold? SECONDS: of a profile."""
    torch.set_num_threads(1)
    chosen = [n for n in PIPELINES if which == "all" or (n in BUSY) == (which == "busy")]

    def measure(name: str, seed: int) -> Document:
        return profile(PIPELINES[name], seconds, seed)

    seeds = range(first_seed, first_seed + runs)
    rows = run_suite(chosen, measure, show, seeds, only, shard, results)
    truth = truths(rows)
    met = [judged(row, truth[row["name"]]) for row in rows]
    failed = Counter(
        row["name"]
        for row, one in zip(rows, met, strict=True)
        if not (one["right"] and one["inside"])
    )
    return {
        "benchmark": "planted bottlenecks",
        "pipelines": len(truth),
        "main": table([one for one in met if not one["small"]]),
        "small": table([one for one in met if one["small"]]),
        "targets": {"planted_cause_first": 0.9, "inconclusive": 0.1, "share_inside_interval": 0.9},
        "failed": dict(failed),
    }


# ---- defects in loaders and trainings ----

DEFECTS = {
    "loaders": ("LOAD", "planted_loaders"),
    "streams": ("LOAD", "planted_streams"),
    "trainings": ("TRAIN", "planted_trainings"),
    "scripts": ("TRAIN", "planted_scripts"),
    "more": ("TRAIN", "planted_scripts_more"),
    "unseen": ("TRAIN", "planted_scripts_unseen"),
    "unseen2": ("TRAIN", "planted_scripts_unseen_second"),
    "keras": ("TRAIN", "planted_keras"),
}


def subject_of(family: str, maker: Callable[[int], Any], seed: int) -> Any:
    """What the command would make of the user's file."""
    if family == "TRAIN":
        return choose_subject({"make_training": lambda: maker(seed)}, seed)
    seed_everything(seed)
    make, options = maker(seed)
    return LoaderSubject(make, seed=seed, **options)


def check_script(
    family: str, codes: set[str] | None, maker: Callable[[int], Any], seed: int
) -> Document:
    """Return the failed checks, causes first, and the checks of ours that broke."""
    subject = subject_of(family, maker, seed)
    report = run_checks(select_checks(family), subject, CHECK_SECONDS, seed)
    for result in report.broken:
        print(result.broken, file=sys.stderr)
    failed = [r.check.code for r in report.failed]
    return {
        "twin": codes is None, "failed": failed, "hit": bool(codes and codes & set(failed[:2])),
        "broken": [r.check.code for r in report.broken],
        "unsaid": [r.answer.sentence for r in report.results if r.users],
    }  # fmt: skip


def show_script(row: Document, _: list[Document]) -> None:
    """Print what the checks said of a script; `!` marks what they should have said otherwise."""
    good = not row["failed"] if row["twin"] else row["hit"]
    note = f" [{row['unsaid'][0]}]" if row["unsaid"] else ""
    said = " ".join(row["failed"]) or "-"
    healthy = " (healthy)" * row["twin"]
    print(f"{'  ' if good else '! '}{row['name']}{healthy}: {said}{note}", flush=True)


@measures(app)
def defects(
    runs: int = 5,
    first_seed: int = 0,
    only: str = "",
    shard: str = "0/1",
    results: Path | None = None,
    kinds: str = ",".join(DEFECTS),
) -> Document:
    """Is each planted defect named first or second, and does no healthy twin fail?"""
    torch.set_num_threads(1)
    found = {}
    for kind in kinds.split(","):
        family, module = DEFECTS[kind]
        made: Any = importlib.import_module(module)
        scripts = {f"{kind}: {n}": (codes, maker) for n, codes, maker in made.DEFECTS}
        scripts |= {f"{kind}: {n}": (None, maker) for n, maker in made.TWINS}

        def measure(name: str, seed: int, family: str = family, of: Any = scripts) -> Document:
            return check_script(family, *of[name], seed)

        started, seeds = time.monotonic(), range(first_seed, first_seed + runs)
        rows = run_suite(scripts, measure, show_script, seeds, only, shard, results)
        planted, twins = ([r for r in rows if r["twin"] == twin] for twin in (False, True))
        found[kind] = {
            "named": counted([r["hit"] for r in planted]),
            "failed_twins": counted([bool(r["failed"]) for r in twins]),
            "broken": sum(len(r["broken"]) for r in rows),
            "missed": sorted({r["name"] for r in planted if not r["hit"]}),
            "alarms": sorted({r["name"] for r in twins if r["failed"]}),
            "seconds": round(time.monotonic() - started),
        }
    return found


# ---- `watch` beside `run` ----


class Trial:
    """One script in a folder of its own; its loader is "slow" or "healthy"."""

    def __init__(self, kind: Kind, folder: Path, loader: str) -> None:
        """Write the script."""
        folder.mkdir(parents=True)
        self.folder, self.script = folder, folder / "train.py"
        self.script.write_text(kind.text)
        self.settings = {
            **os.environ, "LOADER": loader, "STEPS": str(STEPS), "OMP_NUM_THREADS": "1",
            "PICTURES": str(ROOT / "sample_data" / "train"), "PYTHONPATH": str(ROOT),
            "PIPELINE_PROFILER_RUNS": str(folder / "runs.sqlite"), "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        own = kind.launcher and (sys.executable, "-m", "torch.distributed.run")
        self.plain = (*(own or (sys.executable,)), *kind.launcher[1:], str(self.script))
        self.profiler = (sys.executable, "-m", "pipeline_profiler")
        self.under_watch = (*self.profiler, "watch", "--", *kind.launcher, str(self.script))

    def said(self, *line: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            line, cwd=self.folder, env=self.settings, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(line)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def verdicts(self) -> tuple[str, str]:
        """The verdict of `watch` (of ranks the first one's), and of `run` on loader and step."""
        self.said(*self.under_watch)
        names = (f"{self.script}:make_loader", "--step", f"{self.script}:make_step")
        self.said(*self.profiler, "run", *names, "-o", "run.json")
        files = (min(self.folder.glob("profile*.json")), self.folder / "run.json")
        watched, measured = (str(Session.load(file).results["verdict"]) for file in files)
        return watched, measured

    def step_ms(self, *, watched: bool) -> float:
        """The median step that the script prints."""
        found = re.search(
            r"STEP_MS ([\d.]+)", self.said(*(self.under_watch if watched else self.plain))
        )
        assert found, "the script printed no step"
        return float(found[1])


def alike(watched: str, measured: str) -> bool:
    """Whether both say bound, or both not; the bands of one loop and of arms may differ."""
    return watched == measured or (watched in BOUND and measured in BOUND)


def show_watched(row: Document, _: list[Document]) -> None:
    for loader in ("healthy", "slow"):
        said = f"watch: {row[loader]['watch']}; run: {row[loader]['run']}"
        print(f"{row['name']:10} {loader:8} {said}", flush=True)
    print(f"{row['name']:10} step {row['step_ms']} ms, watched {row['watched_ms']} ms", flush=True)


@measures(app)
def watch(
    runs: int = 3,
    first_seed: int = 0,
    only: str = "",
    shard: str = "0/1",
    results: Path | None = None,
    kinds: str = ",".join(WATCHED),
) -> Document:
    """Does `watch -- script` give the verdict of `run`, and what does it cost a step?"""
    there = [n for n in kinds.split(",") if all(map(importlib.util.find_spec, WATCHED[n].needs))]
    print(*(f"{n}: left out, not installed" for n in kinds.split(",") if n not in there), sep="\n")

    def measure(name: str, seed: int) -> Document:
        row: Document = {}
        with tempfile.TemporaryDirectory() as work:
            for loader in ("healthy", "slow"):
                trial = Trial(WATCHED[name], Path(work) / loader, loader)
                watched, measured = trial.verdicts()
                same = alike(watched, measured)
                row[loader] = {"watch": watched, "run": measured, "same": same}
                if loader == "healthy":
                    steps = [[trial.step_ms(watched=w) for w in (False, True)] for _ in range(runs)]
                    medians = (statistics.median(column) for column in zip(*steps, strict=True))
                    row["step_ms"], row["watched_ms"] = (round(ms, 2) for ms in medians)
        return row

    return {"rows": run_suite(there, measure, show_watched, [first_seed], only, shard, results)}


if __name__ == "__main__":
    app()
