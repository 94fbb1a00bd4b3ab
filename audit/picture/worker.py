"""The program of a worker process: `python -m audit.picture.worker PIPE SHARED MEMORY`.

A decoder may crash, hang or fill the memory, so it runs in here (`audit.machine.workers`). With
`forks SOCKET` it is the process that forks workers (`audit.machine.fork_server`).
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

import cv2

import audit.picture.decode  # noqa: F401 - imported before the first question, not during it
from audit.machine.fork_server import serve_forks
from audit.machine.workers import serve_pipe


def run_worker(arguments: Sequence[str]) -> None:
    """Serve a caller, who gives two descriptors and the bytes of memory that may be taken."""
    if arguments[0] == "forks":
        prepare()
        serve(socket.socket(fileno=int(arguments[1])))
    else:
        pipe, shared, memory = map(int, arguments)
        cv2.setNumThreads(1)  # the processes are the parallelism
        _serve((pipe, shared), memory)


def prepare() -> None:
    """Load all that measuring needs, without a thread."""
    from audit.picture.measure import warm_up

    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    warm_up()
    cv2.setNumThreads(threads)


def serve(control: socket.socket) -> None:
    """Fork workers as `control` orders."""
    cv2.setNumThreads(1)
    serve_forks(control, _serve)


def _serve(descriptors: Sequence[int], memory: int) -> None:
    pipe, *shared = descriptors
    serve_pipe(Connection(pipe), shared[0] if shared else -1, memory)


if __name__ == "__main__":
    run_worker(sys.argv[1:])
