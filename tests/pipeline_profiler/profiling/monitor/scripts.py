"""Small training scripts as users write them, and how a test watches them."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.conftest import UNCOMPILED

HEAD = """
import argparse, os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from beside import N_CLASSES

class Items(Dataset):
    def __init__(self, length, seconds):
        self.length, self.seconds = length, seconds
    def __len__(self):
        return self.length
    def __getitem__(self, i):
        read_slowly(self.seconds)
        return torch.zeros(4), i % N_CLASSES

STEP_S = [0.0]  # the last step: what is slow is slow beside it, on any machine

def read_slowly(seconds):
    time.sleep(seconds and seconds + 3 * STEP_S[0])

def train(loader, step_s=0.004):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in loader:
        began = time.monotonic()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        time.sleep(step_s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        STEP_S[0] = time.monotonic() - began
    STEP_S[0] = 0.0
    return model
"""


def write_script(folder: Path, body: str, head: str = HEAD) -> Path:
    """`train.py` with `beside.py` next to it, in a folder that is not the working folder."""
    place = folder / "project"
    place.mkdir(exist_ok=True)
    (place / "beside.py").write_text("N_CLASSES = 2\n")
    path = place / "train.py"
    path.write_text(head + body)
    return path


def watch_line(*words: object) -> list[str]:
    """The command that watches."""
    return [sys.executable, "-m", "pipeline_profiler", "watch", *map(str, words)]


def environment(paths: str = UNCOMPILED) -> dict[str, str]:
    """One thread, no row in the user's table of runs."""
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "PIPELINE_PROFILER_RUNS": "off",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def watch(
    folder: Path, *words: object, paths: str = UNCOMPILED
) -> subprocess.CompletedProcess[str]:
    """Watch in `folder`; stdout and stderr as text."""
    return subprocess.run(
        watch_line(*words),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(paths),
        check=False,
    )


def results_of(path: Path) -> dict[str, object]:
    """What was concluded."""
    return Session.load(path).results
