"""One worker process: how it starts, communicates and stops, and the loop inside it.

The caller's modules are not imported, so scripts need no guard and notebooks work. A socket pair
carries a function and items; 16 bytes of shared memory name the item begun.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib
import math
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from audit.errors import MachineError, error_text, find_machine_error
from audit.machine.fork_server import WAIT_S, ForkedProcess, ForkServer, can_fork, count_threads

PROGRAM = "audit.picture.worker"
IDLE_S = 300.0
STARTED = "started"
# Bytes for imports, thread stacks and the compiler, beside the images.
OVERHEAD = 3 << 30
# Index of the item begun last (-1: none yet), and when (s, monotonic).
MARK = struct.Struct("qd")

FORKS = can_fork()
# A process that was forked after one of them has run may hang.
THREADED = {"polars", "pyarrow", "duckdb", "torch", "tensorflow"}

_idle: dict[int, list[Worker]] = {}
_idle_lock = threading.Lock()
_servers: dict[str, ForkServer] = {}  # by the path that modules are found on: one, the latest
_servers_lock = threading.Lock()
_cpu_s: list[float] = [0.0]


class Worker:
    """A child process that runs functions; `memory` bounds what it may allocate, bytes."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.ready = False
        self._cpu_s = 0.0
        self._sent = time.monotonic()
        ours, theirs = socket.socketpair()
        try:
            # Descriptors from 3 on: 0 to 2 are replaced in the child.
            pipe = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 3)
            shared = _shared_memory()
            self._mark = mmap.mmap(shared, MARK.size) if shared >= 0 else None
            self.process = _start(pipe, shared, memory)
        except OSError as error:
            ours.close()
            raise MachineError(
                f"A worker process could not be started ({error.strerror or error}): close other "
                "programs or raise the limit on processes, then run the same command again."
            ) from None
        finally:
            theirs.close()
        self.pipe = Connection(ours.detach())

    def send(self, work: Callable[[Sequence[Any]], object], items: Sequence[Any], s: float) -> None:
        """Ask for `work(items)`; after twice `s` seconds the worker ends itself."""
        self._sent = time.monotonic()
        if self._mark is not None:
            MARK.pack_into(self._mark, 0, -1, self._sent)
        # one that just died is noticed when its answer is collected
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send((work, items, 2 * s + 30))

    def item_begun(self) -> tuple[int, float]:
        """Return the index of the item at work (-1: none or unknown), and since when (s)."""
        return (-1, self._sent) if self._mark is None else MARK.unpack_from(self._mark)

    def is_preparing(self) -> bool:
        """Say whether it has begun no item yet, as far as the system can tell."""
        return self._mark is not None and self.item_begun()[0] < 0

    def note_cpu(self, cpu_s: float) -> None:
        """Take in the CPU seconds that the process has used since it was made."""
        with _idle_lock:
            _cpu_s[0] += cpu_s - self._cpu_s
        self._cpu_s = cpu_s

    def is_alive(self) -> bool:
        """Say whether a worker that waits can be given work; the pipe of a dead one has ended."""
        return not self.pipe.poll()

    def exit_code(self) -> int:
        """Return how the process ended, negative for a signal; waits for it a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=WAIT_S)
        return 0

    def stop(self) -> None:
        """End the process now, whatever it does."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()


def worker_cpu_s() -> float:
    """Return the CPU seconds that workers had used when they answered last, and what forks them."""
    with _servers_lock:
        forking = sum(server.cpu_s() for server in _servers.values())
    return _cpu_s[0] + forking


def fork_ahead() -> None:
    """Fork the fork server off this process, before it loads anything; else do nothing."""
    if not FORKS or _servers or THREADED & sys.modules.keys() or count_threads() > 1:
        return
    program = importlib.import_module(PROGRAM)
    program.prepare()
    if count_threads() == 1:
        with _servers_lock, contextlib.suppress(OSError):
            _servers[module_path()] = ForkServer.of_this_process(program.serve)


def take_worker(memory: int) -> Worker:
    """Return a worker that waits, or a new one."""
    while True:
        with _idle_lock:
            waiting = _idle.get(memory)
            worker = waiting.pop() if waiting else None
        if worker is None:
            return Worker(memory)
        if worker.is_alive():
            return worker
        worker.stop()


def give_back(worker: Worker, keep: int) -> None:
    """Keep a worker for later, unless `keep` of its kind wait already."""
    with _idle_lock:
        waiting = _idle.setdefault(worker.memory, [])
        if len(waiting) < keep:
            waiting.append(worker)
            return
    worker.stop()


@atexit.register
def stop_idle_workers() -> None:
    """End every worker that waits, and the process that forks them."""
    with _idle_lock:
        waiting = [worker for workers in _idle.values() for worker in workers]
        _idle.clear()
    for worker in waiting:
        worker.stop()
    with _servers_lock:
        for server in _servers.values():
            server.stop()
        _servers.clear()


# The pipes belong to the process that made them: two that talk to one worker would mix answers.
os.register_at_fork(after_in_child=_idle.clear)
os.register_at_fork(after_in_child=_servers.clear)


def _shared_memory() -> int:
    """Return a descriptor of shared memory for the mark, -1 where the system has no such files."""
    if not hasattr(os, "memfd_create"):
        return -1
    made = os.memfd_create("mark")
    descriptor = fcntl.fcntl(made, fcntl.F_DUPFD, 3)
    os.close(made)
    os.ftruncate(descriptor, MARK.size)
    return descriptor


def module_path() -> str:
    """Return the PYTHONPATH with which another process finds the modules of this process."""
    return os.pathsep.join(str(Path(entry or ".").absolute()) for entry in sys.path)


def _start(pipe: int, shared: int, memory: int) -> subprocess.Popen[bytes] | ForkedProcess:
    descriptors = [number for number in (pipe, shared) if number >= 0]
    environment = {**os.environ, "PYTHONPATH": module_path()}
    try:
        if FORKS and (forked := _fork(descriptors, memory, environment)) is not None:
            return forked
        # `-P`: a folder that is called numpy where the user happens to stand is not imported.
        command = [sys.executable, "-P", "-m", PROGRAM, str(pipe), str(shared), str(memory)]
        return subprocess.Popen(
            command,
            pass_fds=descriptors,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    finally:
        for number in descriptors:
            os.close(number)


def _fork(
    descriptors: Sequence[int], memory: int, environment: dict[str, str]
) -> ForkedProcess | None:
    path = environment["PYTHONPATH"]
    with _servers_lock:
        server = _servers.get(path)
        if server is None or server.process.poll() == 0:  # it ends when it was idle for long
            for other in _servers.values():
                other.stop()
            _servers.clear()
            server = _servers[path] = ForkServer.of_program(PROGRAM, environment)
        with contextlib.suppress(OSError):
            return server.fork(descriptors, memory)
    return None


def serve_pipe(pipe: Connection, shared: int, memory: int) -> None:
    """Work until the pipe closes or nobody asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who closes the pipe
    _limit_memory(memory)
    mark = mmap.mmap(shared, MARK.size) if shared >= 0 else None
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(STARTED)
        while pipe.poll(IDLE_S):
            work, items, limit_s = pipe.recv()
            # The default action of the alarm ends the process, in the middle of a decoder too.
            signal.alarm(math.ceil(limit_s))
            answer = _answer(work, items if mark is None else _Marked(items, mark))
            signal.alarm(0)
            pipe.send((*answer, time.process_time()))


class _Marked(list[Any]):
    """A list that notes in shared memory which of its items was begun."""

    def __init__(self, items: Sequence[Any], mark: mmap.mmap) -> None:
        super().__init__(items)
        self._mark = mark

    def __iter__(self) -> Iterator[Any]:
        for place, item in enumerate(super().__iter__()):
            MARK.pack_into(self._mark, 0, place, time.monotonic())
            yield item


def _answer(work: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> tuple[bool, Any]:
    try:
        return True, work(items)
    except Exception as error:  # noqa: BLE001 - a bug in `work` is raised in the caller
        found = find_machine_error(error) or error
        try:
            pickle.loads(pickle.dumps(found))
        except Exception:  # noqa: BLE001 - any error may be unable to travel
            return False, RuntimeError(error_text(found))
        return False, found


def _limit_memory(memory: int) -> None:
    """Let allocations fail in here before the system has to choose which process to kill."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return
    wanted = pages * resource.getpagesize() + memory + OVERHEAD
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (soft, hard, wanted) if limit != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
