"""Loops in one process: evaluation in the middle of a step, two loaders, `break`, a queue."""

import mmap
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.recorder import Recorder, Source
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.profiling.watching import queues
from pipeline_profiler.profiling.watching.conclusion import judge_session, step_phases
from pipeline_profiler.profiling.watching.loop import Looks, Loop
from pipeline_profiler.profiling.watching.process import WatchedProcess, live_text


def begin(process: WatchedProcess, key: str, workers: int = 1) -> Loop:
    loop = process.loop_of(key, Source((), {"kind": "torch", "workers": workers, "batch_size": 4}))
    now = time.perf_counter_ns()
    process.open(loop, now, now)
    return loop


def after(seconds: float) -> Callable[[object], int]:
    def deliver(iterator: object) -> int:
        time.sleep(seconds)
        return 1

    return deliver


def end(process: WatchedProcess, loop: Loop) -> None:
    with pytest.raises(StopIteration):
        process.ask(loop, next, iter(()), trains=True)


def train(process: WatchedProcess) -> None:
    now = time.perf_counter_ns()
    process.train("backward", now, time.perf_counter_ns())


def saved(process: WatchedProcess) -> Session:
    process.end()
    (note,) = (Path(process.order.folder)).iterdir()
    return Session.load(note.read_text())


@pytest.mark.parametrize("how", ["to its end", "left by break"])
def test_an_evaluation_in_the_middle_of_a_step_is_cut_out(
    process: WatchedProcess, how: str
) -> None:
    began = time.perf_counter_ns()
    loop = begin(process, "train")
    for i in range(6):
        process.ask(loop, after(0), None, trains=True)
        train(process)
        if i == 3:
            inner = begin(process, "test")
            for _ in range(3):
                process.ask(inner, after(0.02), None, trains=False)
            if how == "to its end":
                end(process, inner)
    end(process, loop)
    elapsed = time.perf_counter_ns() - began
    session = saved(process)
    assert len(Window.of(session.runs[0])) == 6
    assert session.notes == ["3 batches were evaluated: they are no part of the training step."]
    assert session.runs[0].totals["evaluation_ns"] >= 60e6
    assert elapsed - Window.of(session.runs[0]).steps.period.sum() >= 60e6


def test_both_waits_count_where_two_loaders_feed_one_step(process: WatchedProcess) -> None:
    first, second = begin(process, "labelled"), begin(process, "unlabelled")
    for _ in range(5):
        process.ask(first, after(0), None, trains=True)
        process.ask(second, after(0.02), None, trains=True)
        train(process)
    end(process, first)
    end(process, second)
    assert (first.trained, second.trained) == (5, 5)
    run = first.recorder.snapshot()
    assert (Window.of(run).steps.wait >= 20e6).all()


def test_a_process_without_training_is_judged_by_its_longest_loop(process: WatchedProcess) -> None:
    for key, steps in (("a", 2), ("b", 5)):
        loop = begin(process, key)
        for _ in range(steps):
            process.ask(loop, after(0), None, trains=True)
        end(process, loop)
    assert process.main is process.loops["b"]
    text = live_text(process.main)
    assert text.startswith("watch: step 5 · wait ")
    assert "samples/s" in text


@pytest.mark.parametrize(("inside", "sessions"), [(False, 2), (True, 1)])
def test_loops_that_train_one_after_the_other_are_judged_apart(
    process: WatchedProcess, inside: bool, sessions: int
) -> None:
    """Planted: one loop after another, the first left by `break`. Null: one inside the other."""

    def steps(loop: Loop, wait: float) -> None:
        for _ in range(25):
            process.ask(loop, after(wait), None, trains=True)
            train(process)

    class Epoch:
        """An iterator of a loader."""

    first, epoch = begin(process, "a"), Epoch()
    process.follow(first, epoch)
    began = time.perf_counter()
    steps(first, 0.0)
    pace_s = (time.perf_counter() - began) / 25  # no wait of the first loop is longer
    if not inside:
        del epoch  # as `break` does
    second = begin(process, "b")
    steps(second, 2 * pace_s)
    end(process, second)
    assert (first in process.active) == inside
    assert len(process.sessions()) == sessions
    process.end()
    (note,) = Path(process.order.folder).iterdir()
    found = [Session.load(path) for path in note.read_text().splitlines()]
    assert len(found) == sessions
    waits = [Window.of(one.runs[0]).steps.wait.mean() for one in found]
    assert inside or (waits[0] <= pace_s * 1e9 < waits[1] and not found[0].notes)
    assert [one.runs[0].totals["trained_steps"] for one in found] == [25] * sessions


@pytest.mark.parametrize("workers", [0, 1])  # without any, most steps take the shortest way
def test_parts_of_short_steps_are_timed_now_and_then_and_told_of_all(
    process: WatchedProcess, workers: int
) -> None:
    loop, timed = begin(process, "a", workers), 0
    for _ in range(400):
        process.ask(loop, after(0), None, trains=True)
        if process.looking:
            timed += 1
            now = time.perf_counter_ns()
            process.train("backward", now, now + 100_000)
        else:
            process.trains()
    short = {len(step) for step in loop.recorder.held}
    end(process, loop)
    run = process.session().runs[0]
    assert loop.trained == 400
    assert Window.of(run).steps.batch.tolist() == list(range(400))
    assert (4 in short) == (not workers)
    assert 0 < timed == run.totals["looked_steps"]
    assert step_phases(run)["backward"] == pytest.approx(400 * 0.0001)
    process.rank = 1  # ranks are compared part by part, in every step
    process.ask(begin(process, "a"), after(0), None, trains=True)
    assert process.looking


def test_an_error_of_the_loader_is_noted_and_the_session_of_a_rank_has_its_number(
    process: WatchedProcess,
) -> None:
    def broken(iterator: object) -> int:
        raise OSError("disk gone")

    process.rank = 2
    loop = begin(process, "train")
    process.ask(loop, after(0), None, trains=True)
    with pytest.raises(OSError, match="disk gone"):
        process.ask(loop, broken, None, trains=True)
    process.save()
    path = Path(process.order.output).with_name("p-rank2.json")
    assert Session.load(path).runs[0].notes == ["step 1: OSError: disk gone"]


# ---- which steps have their CPU time read, and what the others are given ----

STEPS = 2000


class Machine:
    """Clocks of a loop whose thread has the core for a part of the time; reads are counted."""

    def __init__(self) -> None:
        self.now = self.used = self.reads = 0

    def cpu(self) -> int:
        self.reads += 1
        return self.used

    def spend(self, wall: int, share: float) -> int:
        self.now += wall
        self.used += round(wall * share)
        return wall


def run_loop(wait: int, step: int) -> tuple[Machine, float, float]:
    """CPU reads a step, and the sum of the waits' CPU time over the true one."""
    machine = Machine()
    looks = Looks(Recorder(lambda: machine.now, machine.cpu), workers=False)
    told, unseen = 0, list[int]()
    for number in range(STEPS):
        looks.left -= 1
        if looks.left < 0:
            looks.begin(machine.now, number)
        wall = machine.spend(wait * (1 + number % 3), 0.5)
        if looks.looking:
            told += looks.delivered(wall)[0]
        else:
            unseen.append(wall)
        wall = machine.spend(step, 1.0)
        if looks.looking:
            looks.stepped(wall)
    told += sum(looks.waited(wall)[0] for wall in unseen)
    return machine, machine.reads / STEPS, told / (wait * STEPS)


@pytest.mark.parametrize(
    ("wait", "step", "least", "most"),
    [(100_000, 100_000, 0.0, 0.5), (2_000_000, 8_000_000, 3.0, 3.0)],
    ids=["now and then", "steps of some milliseconds: all"],
)
def test_short_steps_are_looked_at_and_their_sum_is_right(
    wait: int, step: int, least: float, most: float
) -> None:
    _, reads, total = run_loop(wait, step)  # waits of once to thrice, half of it on a core
    assert least <= reads <= most
    assert total == pytest.approx(1.0, rel=0.01)


def test_a_training_that_keeps_memory_in_each_step_is_told_of(process: WatchedProcess) -> None:
    loop, kept = begin(process, "a"), list[mmap.mmap]()
    for _ in range(4):
        for _ in range(60):
            process.ask(loop, lambda _: 1, None, trains=True)
            kept.append(mmap.mmap(-1, 300_000))  # never out of memory that was freed before
            kept[-1].write(b"x" * 300_000)
            train(process)
        loop.recorder.snapshot()
    assert any("grows by 0.3" in note for note in process.session().notes)


# ---- batches drawn in a thread of the script's own: the wait is at get() of its queue ----


TAKEN, LOAD_S = 30, 0.01
Take = Callable[["queue.Queue[Any]"], Any]


def train_from_queue(process: WatchedProcess, take: Take) -> None:
    """Batches come through a queue, each 10 ms after the training has begun to wait for it."""
    handed, other = queue.Queue[Any](2), queue.Queue[Any]()  # from which no training takes

    def load(iterator: object) -> int:
        while not handed.not_empty._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        time.sleep(LOAD_S)
        return 1

    def draw() -> None:
        loop = process.loop_of("loader", Source((), {"kind": "torch", "workers": 0}))
        now = time.perf_counter_ns()
        process.open(loop, now, now)
        queues.hook_queues(process, loop, lambda: True)
        for number in range(TAKEN):
            handed.put(process.ask(loop, load, None, trains=True))
            other.put(number)

    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(TAKEN):
        take(handed)
        process.trains()
    thread.join()


@pytest.mark.parametrize(
    ("take", "told"),
    [
        (lambda handed: handed.get(), True),
        (lambda handed: handed.get(timeout=60), False),  # which may end for another reason
    ],
)
def test_the_wait_is_told_where_the_training_takes_its_batches(
    process: WatchedProcess, take: Take, told: bool
) -> None:
    plain = queue.Queue.get, queue.Queue.put
    train_from_queue(process, take)
    (session,) = process.sessions()
    judge_session(session)
    (run,) = session.runs
    assert (queues.AT_GET in run.notes) == told
    assert (session.results["stall"] is not None) == told
    said = "another thread than the one that trains"
    assert (said in session.results["sentence"]) != told
    if told:
        # one step more than was taken after the queue was known, of those that trained
        assert TAKEN - 3 <= run.totals["trained_steps"] < TAKEN
        assert (Window.of(run).steps.wait >= 0.9 * LOAD_S * 1e9).all()
        assert session.environment["loop_at"].startswith("test_process.py:")
    process.end()
    assert (queue.Queue.get, queue.Queue.put) == plain
