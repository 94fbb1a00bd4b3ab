"""The way of a newcomer: profile a loader, do what is advised, compare: as it is printed."""

from __future__ import annotations

import math
import re
import shlex
import sys
from pathlib import Path

import pytest

from pipeline_profiler.cli.main import command_line

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


def test_profile_apply_the_advice_and_compare_by_printed_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "off")
    # other tests run on this machine: where they take the cores, nothing would be advised
    monkeypatch.setattr("pipeline_profiler.profiling.diagnose.verdict.BUSY", math.inf)
    file = tmp_path / "pets.py"
    file.write_text(LOADER)
    measure = shlex.split(
        "run pets.py:make_loader --emulate-step-ms 30 --seconds 8 --set measure.steps=10 "
        "--set measure.repeats=3"
    )
    for _ in range(2):  # once more where other tests took all of a window
        assert command_line([*measure, "-o", "before.json"]) == 0
        screen = capsys.readouterr().out
        if found := re.findall(r"-> num_workers=(\d+)", screen):
            break
    (advised,) = found
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
    # How much it bought is a matter of the machine, on which other tests run.
    assert re.match(r"B is .* times |inconclusive: B is", capsys.readouterr().out)
