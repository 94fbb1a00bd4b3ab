"""Commands that run one after another, each in a process of its own, and only where needed.

A command that fails, hangs or is killed does not end the others. How each ended, with the hash of
its inputs, is in `steps.json`, so that a later call repeats only what changed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
END_S = 5.0  # from one signal to the next
MAX_OUTPUT = 20_000  # characters that are kept
LATE = -int(signal.SIGTERM)  # the exit code of a command that was ended at its limit


@dataclass(frozen=True)
class Step:
    """A command. `limit_s`: 0 for none; `inputs`: a hash, empty where unknown; `result`: a file.

    `needs`: a step; where that failed without a result, this one does not run and ends as it did.
    """

    name: str
    command: Sequence[str]
    limit_s: float
    inputs: str
    result: Path
    needs: Step | None = None


@dataclass(frozen=True)
class Outcome:
    """How a step ended; `output`: what it wrote to stdout and stderr, its end."""

    code: int
    seconds: float
    output: str
    inputs: str


def run_step(step: Step, progress: Callable[[str], None]) -> Outcome:
    """Run a command; `progress` is called each second.

    Standard input that is a file begins anew. Raises KeyboardInterrupt after the command and what
    it started were ended.
    """
    step.result.unlink(missing_ok=True)
    with suppress(OSError):
        os.lseek(0, 0, os.SEEK_SET)
    began = time.monotonic()
    with tempfile.TemporaryFile(prefix="dataset-preflight-") as log:
        child = subprocess.Popen(step.command, stdout=log, stderr=log, start_new_session=True)
        try:
            code = _wait(child, step, progress, began)
        finally:
            _end(child)
        log.seek(0)
        output = log.read().decode(errors="replace")[-MAX_OUTPUT:]
    return Outcome(code, time.monotonic() - began, output, step.inputs)


def run_steps(
    steps: Iterable[Step],
    before: Mapping[str, Outcome],
    outcomes: dict[str, Outcome],
    progress: Callable[[str], None],
    after: Callable[[], object],
) -> bool:
    """Run the steps whose inputs differ from `before`; fill `outcomes`; call `after` each time.

    Returns whether Ctrl-C ended them.
    """
    try:
        for step in steps:
            known = before.get(step.name)
            is_current = known is not None and known.inputs == step.inputs != ""
            first = step.needs
            if first and outcomes[first.name].code and not first.result.exists():
                outcomes[step.name] = outcomes[first.name]
            else:
                outcomes[step.name] = known if known and is_current else run_step(step, progress)
            after()
    except KeyboardInterrupt:
        return True
    return False


def _wait(
    child: subprocess.Popen[bytes], step: Step, progress: Callable[[str], None], began: float
) -> int:
    while True:
        try:
            return child.wait(1.0)
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - began
            progress(f"{step.name} ({seconds:.0f} s)")
            if step.limit_s and seconds > step.limit_s:
                return LATE


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in ENDINGS:
        if child.poll() is not None:
            return
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, number)
            child.wait(END_S)


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """Return how the steps of an earlier call ended; empty where that is not known."""
    try:
        rows = json.loads((folder / "steps.json").read_text())
        return {name: Outcome(**row) for name, row in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_outcomes(folder: Path, outcomes: dict[str, Outcome]) -> None:
    """Write how the steps ended, whole or not at all."""
    draft = folder / "steps.json.part"
    draft.write_text(json.dumps({name: asdict(row) for name, row in outcomes.items()}))
    draft.replace(folder / "steps.json")
