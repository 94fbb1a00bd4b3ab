"""A Ray cluster as executor: chunks go to its nodes, where a process of its own opens the files.

On a node a chunk is done as on one machine (`audit.machine.executors.Processes`). Ray gives the
chunk of a lost node to another; each chunk is answered once. Every node needs the same version of
this package, and must see the files under the same addresses.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event, Thread
from typing import Any, TypeVar

from audit.errors import MachineError, UsageError
from audit.machine.executors import MEMORY, Failure, Processes

Item = TypeVar("Item")
Result = TypeVar("Result")

KNOCK_S = 10.0
RETRIES = 3  # of a chunk whose node or process was lost, by Ray itself
LOST = 2  # times that a chunk is given out again when Ray gave it up
AHEAD = 2  # chunks in flight for each core of the cluster
WATCH_S = 2.0
LEAST_KNOCKS = 4
"""The head of the cluster is lost when so many knocks in a row were not answered: Ray itself waits
for a minute, and then ends this process without a word."""
NO_HEAD = (
    "The head node of the Ray cluster at {address} was lost: start the cluster again, then run "
    "the same command again. Finished work is kept."
)
NO_NODES = (
    "The nodes of the Ray cluster were lost {n} times during one chunk: check `ray status`, then "
    "run the same command again. Finished work is kept."
)


class RayCluster:
    """Chunks spread over the cores of a cluster; an item may take `timeout_s` and `memory` bytes.

    `address` is that of a cluster (`auto`: the one this machine belongs to), None for a new one of
    this machine alone.
    """

    def __init__(
        self, address: str | None = "auto", timeout_s: float = 60.0, memory: int = MEMORY
    ) -> None:
        """Connect; raises UsageError with the fix where there is no ray or no such cluster."""
        self.timeout_s, self.memory = timeout_s, memory
        self._ray = _connected(address)

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        """Yield chunks with their results as they finish; guilty items alone, with a Failure.

        Raises MachineError where the nodes, not an item, are what failed.
        """
        task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(do_chunk)
        source = iter(chunks)
        waiting: dict[Any, tuple[Sequence[Item], int]] = {}
        head = _Head(self._ray)

        def begin(chunk: Sequence[Item], lost: int) -> None:
            waiting[task.remote(work, chunk, self.timeout_s, self.memory)] = chunk, lost

        try:
            while True:
                while len(waiting) < head.wanted and (chunk := next(source, None)) is not None:
                    begin(chunk, 0)
                if not waiting:
                    return
                ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=WATCH_S)
                head.check()
                for done in ready:
                    answer = self._answer(done, head)
                    chunk, lost = waiting.pop(done)
                    if answer is not None:
                        yield from answer
                    elif lost < LOST:
                        begin(chunk, lost + 1)
                    else:
                        raise MachineError(NO_NODES.format(n=(lost + 1) * (RETRIES + 1)))
        finally:
            head.stop()
            for reference in () if head.lost else waiting:
                self._ray.cancel(reference, force=True)

    def _answer(self, reference: Any, head: _Head) -> list[tuple[Sequence[Any], Any]] | None:
        """Return what a task answered, None where its node or process was lost."""
        errors = self._ray.exceptions
        gone = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError)
        while True:
            try:
                answer: list[tuple[Sequence[Any], Any]]
                answer = self._ray.get(reference, timeout=WATCH_S)
            except errors.GetTimeoutError:
                head.check()
                continue
            except (*gone, errors.OutOfMemoryError):
                return None
            except errors.RayTaskError as error:
                raise (error.cause or error) from None
            return answer


class _Head:
    """Watches the head of the cluster from threads: asking it anything may take a minute."""

    def __init__(self, ray: Any) -> None:
        self.address = str(ray.get_runtime_context().gcs_address)
        self.lost = False
        self._ray, self._ended = ray, Event()
        self._count()
        for work in (self._knock_often, self._count_often):
            Thread(target=work, name="ray-head", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def check(self) -> None:
        if self.lost:
            _forget(self._ray)
            raise MachineError(NO_HEAD.format(address=self.address))

    def _knock_often(self) -> None:
        missed = 0
        while missed < LEAST_KNOCKS:
            if self._ended.wait(WATCH_S):
                return
            try:
                _knock(self.address, WATCH_S)
                missed = 0
            except OSError:
                missed += 1
        self.lost = True

    def _count_often(self) -> None:
        while not self._ended.wait(WATCH_S):
            self._count()

    def _count(self) -> None:
        """Count how many chunks should be in flight: nodes come and go."""
        self.wanted = AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))


def _forget(ray: Any) -> None:
    """Leave the cluster without a farewell, which would wait for the head for a minute.

    Ray's library cannot be unloaded then without a crash: the process ends before that, with the
    exit code of a machine that gave out (`MachineError`), whatever else it does until its end.
    """
    atexit.unregister(ray.shutdown)
    atexit.register(_end_now)


def _end_now() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(4)


def do_chunk(
    work: Callable[[Sequence[Item]], Result],
    chunk: Sequence[Item],
    timeout_s: float,
    memory: int,
) -> list[tuple[Sequence[Item], Result | Failure]]:
    """Do a chunk on this node, in a process that may die of it."""
    return list(Processes(1, timeout_s, memory).run(work, [chunk]))


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(
            "The executor ray needs Ray: pip install 'dataset-preflight[ray]' on every node."
        ) from None
    if ray.is_initialized():
        return ray
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError) as error:
        raise UsageError(
            f"There is no Ray cluster at {address}: start one (`ray start --head`), or set its "
            f"address with --set scan.address=... ({error})."
        ) from None
    return ray


def _knock(address: str | None, timeout_s: float = KNOCK_S) -> None:
    """Raise OSError where nobody listens at `host:port`: Ray itself would wait for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "//" not in host:
        socket.create_connection((host, int(port)), timeout=timeout_s).close()
