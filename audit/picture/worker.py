"""The program of a worker process: `python -m audit.picture.worker PIPE SHARED MEMORY`.

Whatever decodes files that nobody has looked at yet runs in here, because a decoder may crash, hang
or fill the memory. It imports what decoding needs and nothing else, so that it starts in 0.3 s;
how it is spoken to is said in `audit.workers`.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

import cv2

import audit.picture.decode  # noqa: F401 - imported before the first question, not during it
from audit.workers import serve_pipe


def run_worker(arguments: list[str]) -> None:
    """Serve a caller, who gives two descriptors and the bytes of memory that may be taken."""
    cv2.setNumThreads(1)  # the processes are the parallelism
    pipe, shared, memory = map(int, arguments)
    serve_pipe(Connection(pipe), shared, memory)


if __name__ == "__main__":
    run_worker(sys.argv[1:])
