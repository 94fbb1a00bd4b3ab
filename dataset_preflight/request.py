"""What the page is asked to look at, checked before a part runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from audit.errors import UsageError
from audit.scanning.options import RUNS
from audit.sources.source import describe_sources
from dataset_preflight.foundation.terminal import nearest_path
from dataset_preflight.foundation.tree_hash import hash_code, hash_data
from pipeline_profiler.profiling.monitor.launch import command_of, script_of


@dataclass(frozen=True)
class Request:
    """What to look at. `script`: the words after `--`; `loader`, `step`: `FILE.py:FUNCTION`."""

    data: tuple[str, ...]
    run: str = ""
    script: tuple[str, ...] = ()
    loader: str = ""
    step: str = ""
    step_ms: float = 0.0
    predictions: str = ""
    min_difference: float = 0.0
    quick: bool = False
    again: bool = False
    yes: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the results of the parts."""
        return Path(self.run, "preflight")

    @property
    def name(self) -> str:
        """What the sentences call the script or the loader."""
        return os.path.basename(script_of(self.script)) if self.script else self.loader


def hash_inputs(r: Request) -> tuple[str, str]:
    """Return the hash of data and options (empty where unknown), and that of the code."""
    _, roots = describe_sources(r.data)
    data = hash_data(roots, r.run)
    if data:
        data += repr((r.data, r.script, r.loader, r.step, r.step_ms, r.predictions, r.quick))
    word = script_of(r.script) if r.script else r.loader.partition(":")[0]
    folder = os.path.dirname(os.path.abspath(word)) if word.endswith(".py") else os.getcwd()
    python = command_of(r.script)[0] if r.script else sys.executable
    return data, hash_code(folder, [*roots, r.run], python) if word else ""


def check_request(request: Request) -> Request:
    """Return the request with the folder of its run, as `audit scan` chooses it.

    Raises UsageError or ProfileError for input that no part can use.
    """
    script = script_of(request.script) if request.script else ""
    if script and request.loader:
        raise UsageError("Give a script after `--` or --loader, not both.")
    if (request.step or request.step_ms) and not request.loader:
        raise UsageError("--step belongs to --loader FILE.py:FUNCTION: give it, too.")
    if notebook := next((word for word in request.script if word.endswith(".ipynb")), ""):
        raise UsageError(
            f"{notebook} is a notebook: run `jupyter nbconvert --to script {notebook}` first."
        )
    if len(request.data) > 1 and not all("=" in word for word in request.data):
        raise UsageError("Two datasets: look at one at a time, or name the splits: train=A test=B.")
    if script.endswith(".py") and not os.path.isfile(script):
        raise UsageError(f"{script} does not exist.{nearest_path(script)}")
    if script:
        command_of(request.script)
    name, _ = describe_sources(request.data)
    return replace(request, run=request.run or str(RUNS / name))
