"""A job in the background: started, followed and cancelled from any page; no Streamlit in here.

A thread reads the worker's lines and keeps the latest; a page only looks. Cancelling interrupts the
worker as Ctrl-C would, and ends it where that does not help in time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

WORKER = "audit.ui.work"
PATIENCE_S = 10.0
KEPT = "What it did is kept"
WORDS = {
    "list": "Listing files", "measure": "Reading images",
    "prepare": "Compiling the search, once after an installation",
    "relate": "Comparing pictures", "judge": "Running checks", "apply": "Making files",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a job is: the phase in words, items done of all (0: unknown), files not whole so far,
    items a second and seconds left (None: not known yet).
    """

    phase: str = "Starting"
    done: int = 0
    total: int = 0
    errors: int = 0
    rate: float | None = None
    left_s: float | None = None

    @property
    def share(self) -> float:
        """Share of the phase that is done, 0..1."""
        return min(1.0, self.done / self.total) if self.total else 0.0


@dataclass
class Job:
    """A scan, a re-check or a folder made: `state` is running, done, failed or cancelled; `said`
    the last word; `target` what is made, a run where it `makes_run`.

    `followed` is set when everything that the worker wrote was read.
    """

    what: str
    target: Path
    process: subprocess.Popen[str]
    clock: Callable[[], float] = time.monotonic
    stage: Stage = field(default_factory=Stage)
    makes_run: bool = True
    said: str = ""
    state: str = "running"
    followed: threading.Event = field(default_factory=threading.Event)
    _began: dict[str, tuple[float, int]] = field(default_factory=dict)

    def follow(self, lines: IO[str] | Sequence[str]) -> None:
        """Read the worker's lines to the end, then settle the state."""
        for line in lines:
            with suppress(ValueError):
                self.hear(json.loads(line))
        code = self.process.wait()
        if self.state == "running":
            self.state = "done" if code == 0 else "failed"
            self.said = self.said or self._why(code)
        self.followed.set()

    def hear(self, facts: Mapping[str, Any]) -> None:
        """Take one line in."""
        if "phase" in facts:
            self.stage = self._stage(facts)
        self.said = str(facts.get("error") or facts.get("result") or self.said)

    def _stage(self, facts: Mapping[str, Any]) -> Stage:
        phase, done, total = facts["phase"], int(facts["done"]), int(facts["total"])
        at, first = self._began.setdefault(phase, (self.clock(), done))
        seconds = self.clock() - at
        rate = (done - first) / seconds if seconds > 0.5 and done > first else None
        left = (total - done) / rate if rate and total else None
        return Stage(WORDS.get(phase, phase), done, total, int(facts["errors"]), rate, left)

    def _why(self, code: int) -> str:
        return (
            f"The worker stopped with code {code} before it was done. {KEPT}: start again, and it "
            "goes on from there."
        )

    def cancel(self) -> None:
        """Stop the worker; what it measured is kept."""
        if self.state != "running":
            return
        self.state = "cancelled"
        self.said = f"Cancelled. {KEPT}: start again, and it goes on from there."
        self.process.send_signal(signal.SIGINT)
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def start_job(
    what: str, action: str, run: Path, more: Sequence[str] = (), makes: Path | None = None
) -> Job:
    """Start the worker and a thread that follows it; `what` names the job to people.

    `more` follows the run on its command line; `makes` is a folder that is made, and no run.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER, action, str(run), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    job = Job(what, makes or run, process, makes_run=makes is None)
    threading.Thread(target=_follow, args=(job,), daemon=True).start()
    return job


def _follow(job: Job) -> None:
    assert job.process.stdout is not None
    with job.process.stdout as lines:
        job.follow(lines)
