"""A process that forks workers: what they import and compile is loaded once. Linux only.

It has one thread and never runs polars, pyarrow or a thread pool, after which a fork hangs. Each
order has one answer. A forked worker stays a zombie until `ENDED`: no other gets its number.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

ORDER = struct.Struct("qq")  # what, and the bytes of memory or the number of a process
CODE = struct.Struct("q")
FORK, ENDED, USED = 0, 1, 2
ALIVE = 1 << 32
WAIT_S = 60.0  # for a process that has closed its pipe, and needs a core to end
SOON_S = 1.0  # from a fork to its number
IDLE_S = 300.0
THREADS = "/proc/self/task"


class ForkServer:
    """The process, as its caller sees it; threads may share one."""

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes] | Child]) -> None:
        """Start the process with its end of a socket; OSError without room for a process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._asked: deque[ForkedProcess] = deque()  # those whose numbers are still to come
        self._socket = ours
        with theirs:
            # 0 to 2 get others in the child
            number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 3)
        try:
            self.process = start(number)
        finally:
            os.close(number)

    @classmethod
    def of_program(cls, program: str, environment: dict[str, str]) -> ForkServer:
        """Start the program that forks."""

        def start(number: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", program, "forks", str(number)],
                pass_fds=[number],
                env={**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        return cls(start)

    @classmethod
    def of_this_process(cls, serve: Callable[[socket.socket], None]) -> ForkServer:
        """Fork it off this process, which must have one thread; it runs `serve(control)`."""

        def start(number: int) -> Child:
            gc.freeze()  # collecting would touch, and so copy, every page of the other
            if forked := os.fork():
                return Child(forked)
            try:
                _keep_only(number)
                serve(socket.socket(fileno=number))
                os._exit(0)
            finally:
                os._exit(1)

        return cls(start)

    def fork(self, descriptors: Sequence[int], memory: int) -> ForkedProcess:
        """Ask for a worker with these descriptors; OSError where the process has ended."""
        with self._lock:
            socket.send_fds(self._socket, [ORDER.pack(FORK, memory)], descriptors)
            self._asked.append(ForkedProcess(self))
            return self._asked[-1]

    def tell_number(self, process: ForkedProcess) -> None:
        """Read the numbers of forked processes up to this one, if they come soon."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.settimeout(SOON_S)
            while process in self._asked and (answer := self._socket.recv(CODE.size)):
                self._asked.popleft().pid = CODE.unpack(answer)[0]

    def ended(self, process: ForkedProcess) -> int:
        """Return how a process ended, negative for a signal; `ALIVE` if it did not, or unknown."""
        return self._ask(ENDED, process.pid, ALIVE)

    def cpu_s(self) -> float:
        """Return the CPU seconds that the process itself has used, 0 where it has ended."""
        return self._ask(USED, 0, 0) / 1e9

    def _ask(self, what: int, number: int, unknown: int) -> int:
        with self._lock, contextlib.suppress(OSError):
            self._socket.settimeout(None)
            self._socket.send(ORDER.pack(what, number))
            while answer := self._socket.recv(CODE.size):
                (told,) = CODE.unpack(answer)
                if not self._asked:
                    return int(told)
                self._asked.popleft().pid = told
        return unknown

    def stop(self) -> None:
        """End the process; workers end when their pipes close."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


class Child:
    """A child of this process, with the methods of `Popen` that are used here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, None where it did not."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        """Return how it ended."""
        return self._wait(0)

    def kill(self) -> None:
        """End it now."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            found, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if found else None
        return self._code


class ForkedProcess:
    """A forked worker with the methods of `Popen` that its caller uses; `pid` is 0 until forked."""

    def __init__(self, server: ForkServer) -> None:
        self.pid = 0
        self._server = server
        self._code = ALIVE

    def kill(self) -> None:
        """End it now; its pipe is closed."""
        self._server.tell_number(self)
        # its number is its own as long as its parent has not asked how it ended
        if self.pid and self._code == ALIVE and self._server.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, 0 where that is not known."""
        self._server.tell_number(self)
        if self.pid and self._code == ALIVE:
            self._code = self._server.ended(self)
        return 0 if self._code == ALIVE else self._code


def _keep_only(number: int) -> None:
    """Close every descriptor but this one; the streams lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    for other in map(int, os.listdir("/proc/self/fd")):  # not up to the limit: it may be 2^30
        if other > 2 and other != number:
            with contextlib.suppress(OSError):  # that of the folder that was listed
                os.close(other)


def serve_forks(control: socket.socket, work: Callable[[Sequence[int], int], None]) -> None:
    """Fork a process for `work(descriptors, memory)` at each order; RuntimeError with threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (threads := count_threads()) > 1:
        raise RuntimeError(f"{threads} threads")
    gc.collect()
    gc.freeze()  # collecting would touch, and so copy, every page in each worker
    control.settimeout(IDLE_S)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(control, ORDER.size, 2)
        except TimeoutError:  # the caller may be gone while a fork of it holds the socket
            if _has_children():
                continue
            return
        if not message:
            return
        order, number = ORDER.unpack(message)
        if order != FORK:
            told = _ending(number) if order == ENDED else time.process_time_ns()
            control.send(CODE.pack(told))
            continue
        forked = 0  # where there is no room: the caller sees its pipe close
        with contextlib.suppress(BlockingIOError):
            forked = os.fork()
            if forked == 0:
                try:
                    control.close()
                    work(descriptors, number)
                    os._exit(0)
                finally:
                    os._exit(1)
        control.send(CODE.pack(forked))
        for descriptor in descriptors:
            os.close(descriptor)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _ending(number: int) -> int:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            found, status = os.waitpid(number, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return ALIVE


def count_threads() -> int:
    """Return how many threads this process has."""
    return len(os.listdir(THREADS))


def can_fork() -> bool:
    """Say whether this system can: it has Linux's way to count threads."""
    return sys.platform == "linux" and Path(THREADS).is_dir()
