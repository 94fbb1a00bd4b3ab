"""Loaders of a user's file, as text: sound ones, ones that raise, and ones that hang."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

SOURCE = '''
import itertools, sys, time

EPOCHS = [0]
# However slow the machine, a profile begins five epochs: the first look, one along the epoch, and
# in two repeats the loader, once without a recorder. Each takes more than five batches.
MIDDLE, LATE = 3, 4


def counted(epoch, then, batch=5):
    """Batches of one loader; from one in one epoch on, `then` is called."""
    class Loader:
        def __iter__(self):
            EPOCHS[0] += 1
            for i in range(300):
                time.sleep(0.002)
                if (EPOCHS[0], i) >= (epoch, batch):
                    then()
                yield i
    return Loader()


def make_loader():
    return counted(10**9, None)

def make_step():
    return lambda batch: time.sleep(0.002)

def sleep_for_ever():
    time.sleep(1000)

def swallow_all():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass

def hold_the_interpreter():
    sum(itertools.repeat(0))

def fail():
    raise OSError("disk \\x1b[31m3\\x1b[0m is gone")

def hang_in_next():
    return counted(LATE, sleep_for_ever)

def hang_at_once():
    return counted(1, sleep_for_ever, batch=0)

def hang_deaf():
    return counted(MIDDLE, swallow_all)

def hang_in_c():
    return counted(MIDDLE, hold_the_interpreter)

def leave():
    return counted(MIDDLE, lambda: sys.exit(0))

def broken():
    return counted(MIDDLE, fail)

def hang_in_close():
    class Loader:
        closed = 0
        def __iter__(self):
            try:
                yield from range(300)
            finally:
                Loader.closed += 1
                if Loader.closed == 3:
                    time.sleep(1000)
    return Loader()

def broken_maker():
    raise RuntimeError("no such bucket")
'''

TORCH_SOURCE = """
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Numbers(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        if i >= 40 and get_worker_info() is not None:
            load_slowly()
        return torch.zeros(3)


def load_slowly():
    time.sleep(1000)

def make_loader():
    return DataLoader(Numbers(), 4, num_workers=1)

def wait_at_start(number):
    time.sleep(1000)

def make_stuck():
    return DataLoader(Numbers(), 4, num_workers=1, worker_init_fn=wait_at_start)
"""

FAST = (
    *("--quick", "--set", "measure.repeats=3", "--set", "measure.steps=20", "--seconds", "2"),
    *("--emulate-step-ms", "2"),
)


def write_source(folder: Path, text: str = SOURCE) -> Path:
    """A module of its own for each test: imports are kept by name."""
    path = folder / f"train_{abs(hash(str(folder)))}.py"
    path.write_text(text)
    return path


def profile(*argv: Any, cwd: Path, **streams: Any) -> subprocess.CompletedProcess[str]:
    """`pipeline-profiler` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pipeline_profiler", *map(str, argv)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        check=False,
        **(streams or {"capture_output": True}),
    )


def interrupt_when(folder: Path, words: str, *argv: Any) -> tuple[int, str]:
    """Run a command and send Ctrl-C once stderr has said `words`; (exit code, the rest of it)."""
    command = [sys.executable, "-m", "pipeline_profiler", *map(str, argv)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    # what runs in the background ignores Ctrl-C, and so would what it starts
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env, cwd=folder
    ) as process:
        signal.signal(signal.SIGINT, before)
        assert process.stderr is not None
        for line in process.stderr:
            if words in line:
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        return process.wait(), rest
