"""A worker writes its stack into a file when it is asked to, even while it hangs in C.

A forked worker inherits the handler; a spawned one registers here, from the environment.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal

DUMP_SIGNAL = getattr(signal, "SIGUSR1", signal.SIGTERM)
DUMP_VARIABLE = "PIPELINE_PROFILER_STACKS"
_files: list[object] = []  # kept open as long as the process lives


def offer_stack_dump() -> None:
    """Register in this process where the watching one asked for it and the signal is free."""
    path = os.environ.get(DUMP_VARIABLE)
    if not path or _files or multiprocessing.parent_process() is None:
        return
    if not hasattr(faulthandler, "register") or signal.getsignal(DUMP_SIGNAL) != signal.SIG_DFL:
        return
    try:
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        return
    _files.append(file)
    faulthandler.register(DUMP_SIGNAL, file, all_threads=True)
