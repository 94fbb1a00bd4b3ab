"""Work in the background: a scan, a re-check or a new folder, in a process of its own.

    python -m audit.service.work scan RUN SOURCE ...      python -m audit.service.work recheck RUN
    python -m audit.service.work apply RUN FOLDER copy|hardlink

A scan takes all cores and must be stoppable at any moment. The worker reports lines of JSON to a
thread of the app, and ends when its pipes close.
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

from audit.checking.config import load_config
from audit.errors import AuditError, LockedError
from audit.exports.application import HOWS, apply_plan
from audit.exports.planning import plan_dataset
from audit.scanning import scanning
from audit.scanning.measuring import PHASE_WORDS, Progress
from audit.scanning.options import ScanOptions

PATIENCE_S = 10.0
AGAIN = "Its results are kept: start again to resume."
LOCKED = 75  # exit code of a worker whose run another process writes


@dataclass(frozen=True, slots=True)
class Stage:
    """A phase of a job: items done of all (0: unknown), bad files, items/s, seconds left."""

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
    """A scan, re-check or new folder: `state` is running, done, failed or cancelled.

    `said`: last message; `target`: the result, a run if `makes_run`; `followed`: output was read.
    """

    what: str
    target: Path
    process: subprocess.Popen[str]
    clock: Callable[[], float] = time.monotonic
    stage: Stage = field(default_factory=Stage)
    makes_run: bool = True
    said: str = ""
    state: str = "running"
    code: int = 0
    has_result: bool = False
    followed: threading.Event = field(default_factory=threading.Event)
    _began: dict[str, tuple[float, int]] = field(default_factory=dict)

    def follow(self, lines: IO[str] | Sequence[str]) -> None:
        """Read the worker's lines to the end, then settle the state."""
        for line in lines:
            with suppress(ValueError):
                self.hear(json.loads(line))
        self.code = self.process.wait()
        if self.state == "running":
            self.state = "done" if self.code == 0 and self.has_result else "failed"
            self.said = self.said or f"The worker stopped with code {self.code}. {AGAIN}"
        self.followed.set()

    def hear(self, facts: Mapping[str, Any]) -> None:
        """Take one line in."""
        if "phase" in facts:
            self.stage = self._stage(facts)
        self.has_result |= "result" in facts
        self.said = str(facts.get("error") or facts.get("result") or self.said)

    def _stage(self, facts: Mapping[str, Any]) -> Stage:
        phase, done, total = facts["phase"], int(facts["done"]), int(facts["total"])
        at, first = self._began.setdefault(phase, (self.clock(), done))
        seconds = self.clock() - at
        rate = (done - first) / seconds if seconds > 0.5 and done > first else None
        left = (total - done) / rate if rate and total else None
        word = PHASE_WORDS.get(phase, phase).capitalize()
        return Stage(word, done, total, int(facts["errors"]), rate, left)

    def cancel(self) -> None:
        """Stop the worker; what it measured is kept."""
        if self.state != "running":
            return
        self.state = "cancelled"
        self.said = f"Cancelled. {AGAIN}"
        assert self.process.stdin is not None
        self.process.stdin.close()  # however early: a signal is lost on a worker that only starts
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
    """Start the worker and a thread that follows it; `what` names the job, `makes` its folder."""
    pipes: Any = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, "text": True}
    line = [sys.executable, "-m", "audit.service.work", action, str(run), *more]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True, **pipes)
    job = Job(what, makes or run, process, makes_run=makes is None)
    threading.Thread(target=_follow, args=(job,), daemon=True).start()
    return job


def _follow(job: Job) -> None:
    with job.process:  # closes its pipes
        job.follow(job.process.stdout or ())


def tell(**facts: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def report_progress(step: Progress) -> None:
    """Tell where the work is."""
    tell(phase=step.phase, done=step.done, total=step.total, errors=step.errors)


def main(arguments: Sequence[str]) -> int:
    """Do the work; returns the exit code."""
    action, run, *source = arguments
    try:
        config = load_config(None)
        if action == "recheck":
            notice = scanning.recheck(Path(run), config=config, progress=report_progress)
            tell(result=f"The checks ran again on the measurements of the scan. {notice}".strip())
            return 0
        if action == "apply":
            tell(result=make_folder(Path(run), Path(source[0]), source[1]))
            return 0
        request = ScanOptions(config=config).prepare(source, Path(run))
        done = request.carry_out(report_progress)
        tell(result=f"{done.summary()} {done.notice}".strip())
    except AuditError as error:
        tell(error=str(error))
        return LOCKED if isinstance(error, LockedError) else 2
    except KeyboardInterrupt:
        return 130
    return 0


def end_with_the_app() -> None:
    """Interrupt this process when the other end of its input is gone, by a kill too."""

    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGINT)

    # A shell's background jobs ignore it, and so would the workers of an app there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=wait, daemon=True).start()


def make_folder(run: Path, folder: Path, how: str) -> str:
    """Make the decided dataset in a folder; its plan, and annotations, lie beside it."""
    path = folder.with_name(f"{folder.name}.plan.json")
    plan = plan_dataset(run, path, replace_file=True)
    chosen = next(h for h in HOWS if h == how)
    done = apply_plan(
        plan, folder, chosen, advance=lambda n, total: report_progress(Progress("apply", n, total))
    )
    there = f", {done.there:,} were there" if done.there else ""
    return f"{done.made:,} files made{there}; {path.name} beside the folder is their plan."


if __name__ == "__main__":
    if hasattr(os, "nice"):  # not on Windows
        os.nice(10)  # who looks at a page meanwhile comes first
    end_with_the_app()
    sys.exit(main(sys.argv[1:]))
