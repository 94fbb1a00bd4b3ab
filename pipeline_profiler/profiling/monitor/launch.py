"""Start a script as it would start by itself, with the hook on PYTHONPATH, and wait for it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline_profiler.profiling.monitor.process import VARIABLE, WatchOrder
from pipeline_profiler.profiling.record.errors import ProfileError

HOOK = Path(__file__).resolve().parent / "hook"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command_of(words: Sequence[str], python: str = "") -> list[str]:
    """Return the command to start: `train.py ARGS`, `-m module ARGS`, or a program as torchrun.

    `python` (default: this one) runs it, and its folder is searched first. Raises ProfileError.
    """
    if not words:
        raise ProfileError("There is no script: write `-- train.py` and the options of the script.")
    first = words[0]
    if first == "-m":
        return [python or sys.executable, *words]
    if Path(first).is_file() and (first.endswith(".py") or not os.access(first, os.X_OK)):
        return [python or sys.executable, *words]
    # beside this Python too, whose environment need not be the shell's
    places = [str(Path(python).parent)] if python else []
    places += [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    found = shutil.which(first, path=os.pathsep.join(filter(None, places)))
    program = None if first.endswith(".py") else found
    if program is None:
        raise ProfileError(f"{first} is no script and no program: give the path of a script.")
    return [program, *words[1:]]


def script_of(words: Sequence[str]) -> str:
    """Return the script of a command: its first Python file, `-m`'s module, or its first word."""
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return next((word for word in words if word.endswith(".py")), words[0])


def run_watched(command: Sequence[str], order: WatchOrder) -> int:
    """Start it, wait, return its exit code."""
    paths = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
    watched = {"PYTHONPATH": paths, VARIABLE: json.dumps(asdict(order))}
    return wait_for(subprocess.Popen(command, env={**os.environ, **watched}))


def wait_for(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child; 128 and the signal's number where one ended it."""
    code = _wait(child)
    return code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen[bytes]) -> int:
    if not hasattr(signal, "sigwaitinfo"):
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return child.wait()
        finally:
            signal.signal(signal.SIGINT, handler)
    signals = {*PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        while (code := child.poll()) is None:
            told = signal.sigtimedwait(signals, 1.0)
            # the terminal gives Ctrl-C to the script as well; what a process sends came to us alone
            if told and told.si_signo != signal.SIGCHLD and told.si_code <= 0:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(told.si_signo)
        while signal.sigpending() & set(PASSED_ON):
            signal.sigtimedwait(PASSED_ON, 0)  # the script has had it; we still have to judge
        return code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def saved_files(folder: str) -> list[Path]:
    """Where the watched processes have saved, ranks in order."""
    notes = Path(folder).glob("*.note")
    told = [line for note in notes for line in note.read_text().splitlines()]
    return sorted({Path(line) for line in told if Path(line).is_file()}, key=_without_suffix)


def _without_suffix(path: Path) -> str:
    """`profile` before `profile-loop2`, whatever is packed."""
    return path.name.removesuffix(".gz").removesuffix(".json")
