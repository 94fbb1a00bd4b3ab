"""Executors: every item comes back exactly once, whatever its worker went through."""

import errno
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from audit.errors import MachineError, find_machine_error
from audit.machine import workers
from audit.machine.executors import KILLED, Failure, Processes, Serial
from audit.picture.measure import warm_up
from tests.conftest import ROOT

FORKS = workers.FORKS


@pytest.fixture(autouse=True, params=["forked", "started"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways to make a worker; those of one way are not used again by the other."""
    workers.stop_idle_workers()
    monkeypatch.setattr(workers, "FORKS", request.param == "forked")
    yield request.param
    workers.stop_idle_workers()


def double(chunk: Sequence[int]) -> list[int]:
    return [2 * item for item in chunk]


def sleeping(chunk: Sequence[int]) -> list[int]:
    time.sleep(600 if chunk != [0] else 0)
    return list(chunk)


def fragile(chunk: Sequence[int]) -> list[int]:
    """Dies of 13, hangs on 17."""
    if 13 in chunk:
        os.kill(os.getpid(), signal.SIGSEGV)
    if 17 in chunk:
        time.sleep(600)
    return double(chunk)


def fragile_in_order(chunk: Sequence[int]) -> list[int]:
    """As `fragile`, one item after the other: so the worker knows which one it has begun."""
    return [fragile([item])[0] for item in chunk]


def buggy(chunk: Sequence[int]) -> list[int]:
    raise ValueError(f"bug with {chunk[0]}")


def killed(chunk: Sequence[str]) -> list[str]:
    """Dies of "z" and with several items, as the system kills where memory is used up."""
    if len(chunk) > 1 or "z" in chunk:
        os.kill(os.getpid(), signal.SIGKILL)
    return list(chunk)


def without_disk(chunk: Sequence[int]) -> list[int]:
    if 3 in chunk:
        raise OSError(errno.ENOSPC, "No space left on device")
    return double(chunk)


def greedy(chunk: Sequence[int]) -> list[int]:
    """Asks for more memory than any worker has, for item 3."""
    return [len(bytearray(1 << 40)) if item == 3 else 2 * item for item in chunk]


def process_ids(chunk: Sequence[int]) -> list[int]:
    return [os.getpid() for _ in chunk]


def told(outcomes: Iterable[tuple[Sequence[Any], Any]]) -> tuple[dict[Any, str], list[Any]]:
    """Return the kind of failure of each item that failed, and the items that are done."""
    found = list(outcomes)
    failed = [(chunk, r.kind) for chunk, r in found if isinstance(r, Failure)]
    done = [i for chunk, r in found if not isinstance(r, Failure) for i in chunk]
    assert all(len(chunk) == 1 for chunk, _ in failed)
    return {chunk[0]: kind for chunk, kind in failed}, sorted(done)


pytestmark = pytest.mark.slow
# What the caller does with answers is the same for both kinds of workers.
ONCE = pytest.mark.parametrize("kind", ["forked"], indirect=True)
CHUNKS = [list(range(start, start + 5)) for start in range(0, 40, 5)]


@pytest.mark.parametrize("executor", [Serial(), Processes(2)], ids=["serial", "processes"])
def test_every_item_once(executor: Serial | Processes) -> None:
    outcomes = list(executor.run(double, CHUNKS))
    assert sorted(item for chunk, _ in outcomes for item in chunk) == list(range(40))
    assert all(result == [2 * i for i in chunk] for chunk, result in outcomes)


def test_the_item_that_kills_or_hangs_its_worker_is_found_and_the_rest_is_done() -> None:
    failed, done = told(Processes(2, timeout_s=3.0).run(fragile_in_order, CHUNKS))
    assert failed == {13: "crashed", 17: "timeout"}
    assert done == [i for i in range(40) if i not in (13, 17)]


@ONCE
def test_where_nothing_tells_which_item_was_begun_halves_do() -> None:
    failed, done = told(Processes(2).run(fragile, [[*range(8, 17)]]))
    assert (list(failed), done) == ([13], [8, 9, 10, 11, 12, 14, 15, 16])


@ONCE
def test_a_hanging_item_costs_its_own_time_once(tmp_path: Path) -> None:
    failed, _ = told(Processes(1, timeout_s=3.0).run(Noting(tmp_path), [[*range(12, 44)]]))
    assert sorted(failed) == [13, 17]
    tries = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert tries == 32 + 1 + 3, "the chunk, and again what was before 13, and between 13 and 17"


@dataclass(frozen=True)
class Noting:
    """`fragile_in_order`, and a file that grows by one byte at each try of an item."""

    folder: Path

    def __call__(self, chunk: Sequence[int]) -> list[int]:
        done = []
        for item in chunk:
            with (self.folder / str(item)).open("a") as file:
                file.write("x")
            done += fragile([item])
        return done


@ONCE
def test_a_bug_is_raised_here_and_a_full_disk_stops_the_work_after_a_second_try() -> None:
    with pytest.raises(ValueError, match="bug with 0"):
        list(Processes(1).run(buggy, [[0]]))
    results = Processes(1).run(without_disk, [[1, 2], [3, 4], [5]])
    assert [next(results)[0], next(results)[0]] == [[1, 2], [5]], "the rest comes first"
    with pytest.raises(MachineError, match="the disk is full"):
        list(results)


@ONCE
def test_a_worker_that_the_system_killed_says_nothing_of_its_items() -> None:
    outcomes = list(Processes(2).run(killed, [["a", "b", "c"], ["d"]]))
    assert sorted(item for _, result in outcomes for item in result) == ["a", "b", "c", "d"]
    with pytest.raises(MachineError, match="killed twice by the system"):
        list(Processes(1).run(killed, [["z"]]))


@ONCE
def test_a_file_that_takes_more_than_its_worker_may_is_told_from_a_full_machine() -> None:
    failed, _ = told(Processes(1, memory=64 << 20).run(greedy, [[1, 2, 3], [4]]))
    assert failed == {3: "memory"}
    with pytest.raises(MachineError, match="no memory left"):
        list(Processes(1, memory=1 << 60).run(greedy, [[3]]))


def ending_late(chunk: Sequence[int]) -> list[int]:
    """Killed by the system, on a machine so busy that the process ends long after its pipe."""
    os.closerange(3, 1024)
    time.sleep(2.5)
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_a_worker_that_the_system_kills_is_no_fault_of_its_file_however_late_it_ends() -> None:
    with pytest.raises(MachineError, match=re.escape(KILLED)):
        list(Processes(1).run(ending_late, [[1]]))


@ONCE
def test_the_machine_is_found_behind_an_error_of_a_library() -> None:
    behind = ValueError("cannot identify image file")
    behind.__cause__ = OSError(errno.EMFILE, "Too many open files")
    assert "too many files" in str(find_machine_error(behind))
    quoted = RuntimeError('IO Error: Could not write file "x.duckdb": No space left on device')
    assert "the disk is full" in str(find_machine_error(quoted))
    assert find_machine_error(OSError(errno.EIO, "Input/output error")) is None
    assert find_machine_error(OSError("image file is truncated")) is None


def test_workers_are_used_again() -> None:
    def worker() -> int:
        ((_, (pid,)),) = Processes(1).run(process_ids, [[0]])
        return pid

    first = worker()
    assert worker() == first
    os.kill(first, signal.SIGKILL)
    while Path(f"/proc/{first}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    assert worker() != first, "a worker that died while it waited is replaced"


def test_abandoning_the_results_stops_the_workers_at_work() -> None:
    list(Processes(2).run(double, [[1]]))  # one that waits afterwards
    before = children()
    results = Processes(2).run(sleeping, [[0], [1], [2]])
    assert next(iter(results))[0] == [0]
    assert len(children() - before) >= 1
    results.close()
    assert children() <= before


def children() -> set[int]:
    """The workers of this process: its children, or those of the process that forks."""

    def listed(parent: int) -> set[int]:
        words = ["pgrep", "-P", str(parent), "-f", "audit.picture.worker"]
        out = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return set(map(int, out.split()))

    found = listed(os.getpid())
    forking = {one.process.pid for one in workers._servers.values()}
    return (found - forking).union(*(listed(one) for one in forking & found))


@ONCE
def test_the_process_that_forks_has_one_thread_and_its_end_costs_no_work() -> None:
    assert [r for _, r in Processes(2).run(double, [[1], [2]])] != []
    (server,) = workers._servers.values()
    assert len(os.listdir(f"/proc/{server.process.pid}/task")) == 1
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "numpy" in loaded
    assert not re.search("polars|pyarrow|duckdb", loaded)
    # Killed, with a worker at work: the rest is done by workers that are started.
    results = Processes(1).run(double, [[1], [2], [3]])
    assert next(results)[1] == [2]
    server.process.kill()
    server.process.wait()
    workers.take_worker(2 << 30).stop()
    assert [r for _, r in results] == [[4], [6]]
    assert [r for _, r in Processes(2).run(double, [[5]])] == [[10]]


SCRIPT = """
import sys
from audit.machine.executors import Processes
print(sum(len(chunk) for chunk, _ in Processes(2).run(len, [[1, 2], [3]])))
"""


def test_a_script_without_a_guard_a_pipe_and_closed_streams_work(tmp_path: Path) -> None:
    """The caller's own program is never imported again, and a worker needs none of its streams."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words in (str(script), "-", f"{script} <&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"exec {sys.executable} -P {words}"], input=SCRIPT, text=True,
            capture_output=True, check=False, cwd=tmp_path, env=environment,
        )  # fmt: skip
        assert done.stdout == "3\n", done.stderr


AHEAD = """
import os, sys, threading
if sys.argv[1] == "thread":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if sys.argv[1] == "polars":
    import polars
    if forked := os.fork():  # of its threads none is left, and what they held stays held
        os.waitpid(forked, 0)
        os._exit(0)
lock = open(sys.argv[2], "w")
from audit.machine import workers
workers.fork_ahead()
forked = [server.process.pid for server in workers._servers.values()]
from audit.machine.executors import Processes
print(sum(len(chunk) for chunk, _ in Processes(2).run(len, [[1, 2], [3]])))
used = [server.process.pid for server in workers._servers.values()]
print(forked == used)
if forked:
    of = f"/proc/{forked[0]}"
    loaded = open(f"{of}/maps").read()
    print(len(os.listdir(f"{of}/task")), "numpy" in loaded, "polars" in loaded, "arrow" in loaded)
    workers.worker_cpu_s()  # answered when the descriptors of the last worker are closed
    print(len({os.readlink(f"{of}/fd/{n}") for n in os.listdir(f"{of}/fd")}))
    print(forked[0], flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@ONCE
@pytest.mark.skipif(not FORKS, reason="of systems that can fork workers")
def test_what_forks_workers_is_forked_off_a_process_that_may(tmp_path: Path) -> None:
    def printed(how: str) -> list[str]:
        line = [sys.executable, "-c", AHEAD, how, str(tmp_path / "lock")]
        return subprocess.run(
            line, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
            text=True, check=False,
        ).stdout.split("\n")  # fmt: skip

    warm_up()  # where kernels are to be compiled, another process does that
    for how in ("plainly", "killed"):
        count, same, loaded, descriptors, pid, _ = printed(how)
        assert (count, same) == ("3", "True")
        assert loaded == "1 True False False"
        assert descriptors == "2", "nothing, and the socket: a lock is not held on"
        until = time.monotonic() + 300
        while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not Path(f"/proc/{pid}").exists(), "it ends with its caller"
    for how in ("thread", "polars"):
        assert printed(how)[:2] == ["3", "False"]


ARENAS = """
import sys
from threading import Barrier, Thread
import numpy as np
from audit.machine.executors import keep_no_freed_memory

if sys.argv[1] == "at once":
    keep_no_freed_memory()
kept, gate = [], Barrier(6)

def work():
    gate.wait()
    for _ in range(3):
        large = [np.ones(600_000) for _ in range(4)]
        kept.append(np.ones(12_000))
        del large

threads = [Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(open("/proc/self/statm").read().split()[1])
"""


@ONCE
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's arenas")
def test_what_threads_freed_is_given_back_at_once() -> None:
    later, at_once = (
        int(subprocess.check_output([sys.executable, "-c", ARENAS, when]))
        for when in ("later", "at once")
    )
    assert at_once < later / 2
