"""The way of a newcomer: profile a loader, do what is advised, compare: as it is printed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from pipeline_profiler.cli.main import command_line
from pipeline_profiler.profiling.measure import schedule as measuring
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import made_session, schedule

pytestmark = pytest.mark.slow
COMMAND = re.compile(r"pipeline-profiler (.+?)(?=   |,|`|$)", re.MULTILINE)
LOADER = """
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((3, 8, 8), index % 7, dtype=torch.float32), index % 10


def make_loader():
    return DataLoader(Pictures(), batch_size=8)
"""


STEP_MS, BATCH_MS = 30.0, 40.0


def measured(bench: Bench, options: Options) -> Session:
    """The session of a loader of the file on a machine where samples take what they sleep."""
    settings = bench.settings()
    rows = schedule(120, settings["workers"], 2, STEP_MS, lambda j: BATCH_MS)
    session: Session = made_session(rows, STEP_MS, **settings | {"prefetch": 2})
    return session


def test_profile_apply_the_advice_and_compare_by_printed_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "off")
    # what is advised after a measurement of this machine is a matter of what else runs on it
    monkeypatch.setattr(measuring, "measure_arms", measured)
    file = tmp_path / "pets.py"
    file.write_text(LOADER)
    measure = shlex.split(f"run pets.py:make_loader --emulate-step-ms {STEP_MS}")
    assert command_line([*measure, "-o", "before.json"]) == 0
    screen = capsys.readouterr().out
    (advised,) = re.findall(r"-> num_workers=(\d+)", screen)
    told = [shlex.split(words) for words in COMMAND.findall(screen)]
    (report,) = (words for words in told if words[0] == "report" and "-o" in words)
    assert command_line(report) == 0
    assert (tmp_path / report[-1]).stat().st_size > 10_000
    (compare,) = (words for words in told if "--against" in words)
    file.write_text(LOADER.replace("size=8)", f"size=8, num_workers={advised})"))
    del sys.modules["pets"]  # a command of its own reads the file anew
    assert command_line([*measure, "-o", compare[-1]]) == 0
    capsys.readouterr()
    assert command_line(compare) == 0
    assert re.match(r"B is .* times ", capsys.readouterr().out)
