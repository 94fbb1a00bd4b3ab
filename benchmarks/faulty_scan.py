"""A scan or recheck that kills itself at one of its events: what `benchmarks/faults.py` runs.

    python benchmarks/faulty_scan.py scan|recheck DATA RUN KIND NUMBER

KIND is one of `EVENTS`, or `count-` and one of them, which prints how many there are.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

from audit import measuring, scanning
from audit.run import store
from audit.sources import open_source

EVENTS: dict[str, list[tuple[Any, str]]] = {
    "sync": [(os, "fsync")],
    "rename": [(os, "replace"), (os, "rename"), (pathlib.Path, "rename"), (shutil, "rmtree")],
    "statement": [(store.Store, "execute"), (store.Store, "append")],
    "answer of a worker": [(multiprocessing.connection.Connection, "recv")],
}


class Countdown:
    """Counts events, and kills this process at one of them."""

    def __init__(self, at: int) -> None:
        """Kill at event number `at`, from 0; never where it is negative."""
        self.at, self.seen = at, 0

    def watch(self, owner: Any, name: str) -> None:
        """Count the calls of a function."""
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            if self.seen == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.seen += 1
            return original(*arguments, **named)

        setattr(owner, name, counted)


def main(verb: str, data: str, run: str, kind: str, number: str) -> None:
    """Scan or recheck, and die on the way."""
    counting = kind.startswith("count-")
    countdown = Countdown(-1 if counting else int(number))
    for owner, name in EVENTS[kind.removeprefix("count-")]:
        countdown.watch(owner, name)
    measuring.APPEND_ROWS = measuring.CHUNK_FILES = 4  # several appends in a small dataset
    work: dict[str, Callable[[], object]] = {
        "scan": lambda: scanning.scan(open_source([data]), pathlib.Path(run)),
        "recheck": lambda: scanning.recheck(pathlib.Path(run)),
    }
    work[verb]()
    print(countdown.seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
