"""Milliseconds that a watched step takes more than the same step bare, and those of TraceML's.

    python benchmarks/watch_overhead.py [--processes 2] [--blocks 5] [--python PATH]

A small training (linear model, DataLoader without workers, fixed CPU time in each step) runs bare,
under `pipeline-profiler watch`, with the recorder of `run` around its loop, and with TraceML in its
automatic and its manual mode. The processes of all ways run in random order; each trains several
blocks of each step length. A row has the medians over the blocks of the difference to a bare block,
with 95 % intervals from the order statistics: the CPU time of the training process a step (its
threads included), and the median wall time of a step, which other programs disturb. `--python`
names a Python that has torch and `traceml-ai`; without TraceML its rows are left out. Published for
TraceML: +0.17 to +0.58 ms automatic, +0.05 to +0.28 ms manual. About 5 minutes.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import ENVIRONMENT, Document, hall, measures, told
from profiler import median_interval

app = hall(__doc__)

STEPS = {1.4: 100, 2.4: 80, 5.0: 40, 10.0: 30, 50.0: 10}  # ms: steps of a block
SCRIPT = """
import json, os, statistics, time
import torch
from torch.utils.data import DataLoader

WAY, STEPS, BLOCKS = os.environ["WAY"], json.loads(os.environ["STEPS"]), int(os.environ["BLOCKS"])
BASE_MS, WARM = 0.4, 5
torch.set_num_threads(1)
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
if WAY.startswith("TraceML"):
    import traceml_ai as traceml
    traceml.init(mode=WAY.split()[1])
if WAY == "TraceML manual":
    model, optimizer = traceml.wrap_forward(model), traceml.wrap_optimizer(optimizer)
if WAY == "recorder":
    from pipeline_profiler import Recorder
    recorder = Recorder(save_to=os.environ["FOLDER"] + "/recorded.json")

def step(batch, ms):
    optimizer.zero_grad()
    loss = model(batch).sum()
    end = time.thread_time_ns() + int((ms - BASE_MS) * 1e6)
    while time.thread_time_ns() < end:
        pass
    if WAY == "TraceML manual":
        loss = traceml.wrap_backward(loss)
    loss.backward()
    optimizer.step()

def train(loader, ms):
    begun, ends = 0, []
    if WAY == "recorder":
        loader = recorder.watch(loader)
    elif WAY == "TraceML manual":
        loader = traceml.wrap_dataloader_fetch(loader)
    for number, batch in enumerate(loader):
        if number == WARM:
            begun = time.process_time()
        if WAY == "recorder":
            with recorder.step():
                step(batch, ms)
        elif WAY.startswith("TraceML"):
            with traceml.trace_step(model):
                step(batch, ms)
        else:
            step(batch, ms)
        ends.append(time.perf_counter())
    cpu = (time.process_time() - begun) / (number + 1 - WARM)
    wall = statistics.median(b - a for a, b in zip(ends[WARM:], ends[WARM + 1:]))
    return cpu * 1e3, wall * 1e3
rows = [torch.zeros(64)] * 4 * (max(STEPS.values()) + 2 * WARM)
train(DataLoader(rows[: 4 * 60], 4), 1.4)  # every hook has been called
found = {ms: [] for ms in STEPS}
for _ in range(BLOCKS):
    for ms, n in STEPS.items():
        found[ms].append(train(DataLoader(rows[: 4 * (n + WARM)], 4), float(ms)))
open(os.environ["FOLDER"] + "/found.json", "w").write(json.dumps(found))
"""
WAYS = ("bare", "watch", "recorder", "TraceML auto", "TraceML manual")


Blocks = dict[str, list[list[float]]]  # CPU and wall ms a step of each block, by step length


def run_way(way: str, python: str, blocks: int) -> Blocks:
    """Return what one process has measured."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(SCRIPT)
        words = [python, str(script)]
        if way == "watch":
            words[1:1] = ["-m", "pipeline_profiler", "watch", "--quiet", "-o", "p.json", "--"]
        elif way.startswith("TraceML"):
            words[:1] = [str(Path(python).with_name("traceml")), "run", "--logs-dir", folder]
        given = {"WAY": way, "STEPS": json.dumps(STEPS), "FOLDER": folder, "BLOCKS": str(blocks)}
        env = {**ENVIRONMENT, **given, "PIPELINE_PROFILER_RUNS": "off"}
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, check=False)
        found = Path(folder, "found.json")
        kept = {"bare": "found.json", "watch": "p.json", "recorder": "recorded.json"}
        recorded = any(Path(folder).rglob(kept.get(way, "final_summary.json")))
        if not found.is_file() or not recorded:
            raise SystemExit(f"{way}: nothing was recorded\n{done.stderr.decode()}")
        return dict(json.loads(found.read_text()))


def has_traceml(python: str) -> bool:
    """Whether that Python has TraceML and its command."""
    done = subprocess.run([python, "-c", "import traceml_ai"], capture_output=True, check=False)
    return not done.returncode and Path(python).with_name("traceml").is_file()


@measures(app)
def overhead(processes: int = 2, blocks: int = 5, python: str = sys.executable) -> Document:
    """What does watching add to a step, in ms and in per cent?"""
    ways = WAYS if has_traceml(python) else WAYS[:3]
    if ways != WAYS:
        print(f"TraceML is skipped: {python} does not have traceml-ai (--python names another).")
    rng, found = random.Random(0), {way: list[Blocks]() for way in ways}
    for _ in range(processes):
        for way in rng.sample(ways, len(ways)):
            found[way].append(run_way(way, python, blocks))
    rows: list[Document] = []
    for ms in map(str, STEPS):
        of = {way: [block for one in found[way] for block in one[ms]] for way in ways}
        for way in ways[1:]:
            row: Document = {"step_ms": statistics.median(b for _, b in of["bare"]), "way": way}
            for at, name in enumerate(("cpu", "wall")):
                pairs = zip(of[way], of["bare"], strict=True)
                cost = median_interval([mine[at] - bare[at] for mine, bare in pairs])
                row |= {f"{name}_ms": cost.value, f"{name}_ends": (cost.low, cost.high)}
                row[f"{name}_percent"] = 100 * cost.value / float(ms)
            rows.append(row)
            print(told(row), flush=True)
    return {"blocks": processes * blocks, "load_average": os.getloadavg()[1], "rows": rows}


if __name__ == "__main__":
    app()
