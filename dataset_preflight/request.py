"""What the page is asked to look at, checked before a part runs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from audit.errors import UsageError
from dataset_preflight.foundation.terminal import nearest_path
from pipeline_profiler.profiling.monitor.launch import command_of, script_of


@dataclass(frozen=True)
class Request:
    """What to look at. `script`: the words after `--`; `loader`, `step`: `FILE.py:FUNCTION`."""

    data: tuple[str, ...]
    run: str
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
    def name(self) -> str:
        """What the sentences call the script or the loader."""
        return os.path.basename(script_of(self.script)) if self.script else self.loader


def check_request(request: Request) -> None:
    """Raise UsageError or ProfileError for input that no part can use."""
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
        command_of(list(request.script))
