"""Loops in one process: evaluation in the middle of a step, two loaders, `break`, a queue."""

import functools
import mmap
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.monitor import queues
from pipeline_profiler.profiling.monitor.conclusion import judge_session, step_phases
from pipeline_profiler.profiling.monitor.loop import Looks, Loop
from pipeline_profiler.profiling.monitor.process import WatchedProcess, live_text
from pipeline_profiler.profiling.record.recorder import Recorder, Source
from pipeline_profiler.profiling.record.session import Session


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
    (note,) = Path(process.order.folder).glob("*.note")
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
    (note,) = Path(process.order.folder).glob("*.note")
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
Batches = Any  # a queue.Queue, or what else has its put() and get()
Take = Callable[[Batches], Any]


def poll(handed: Batches) -> Any:
    while True:
        try:
            return handed.get_nowait()
        except queue.Empty:
            time.sleep(0.001)


def look(handed: Batches) -> Any:
    while handed.empty():
        time.sleep(0.001)
    return handed.get()


class Handed:
    """A deque behind a condition, as scripts write it themselves."""

    def __init__(self, size: int) -> None:
        self.items, self.changed = list[Any](), threading.Condition()

    def put(self, item: Any) -> None:
        with self.changed:
            self.items.append(item)
            self.changed.notify()

    def get(self) -> Any:
        with self.changed:
            self.changed.wait_for(lambda: self.items)
            return self.items.pop(0)


class Asked:
    """The batches of a thread, each 10 ms after the training has begun to wait for it."""

    def __init__(self, process: WatchedProcess, key: str, handed: Batches) -> None:
        self.process, self.key, self.handed = process, key, handed
        self.other = queue.Queue[Any]()  # from which no training takes
        self.wanted = threading.Semaphore(0)

    def load(self, iterator: object) -> list[int]:
        self.wanted.acquire()
        time.sleep(LOAD_S)
        return [1]

    def draw(self, loop: Loop | None = None) -> None:
        loop = loop or begin(self.process, self.key, 0)
        for number in range(TAKEN):
            self.handed.put(self.process.ask(loop, self.load, None, trains=True))
            self.other.put(number)
        self.handed.put(None)

    def batches(self, take: Take, in_main: bool) -> Iterator[Any]:
        loop = begin(self.process, self.key, 0) if in_main else None
        thread = threading.Thread(target=self.draw, args=(loop,))
        thread.start()
        self.wanted.release()
        while (batch := take(self.handed)) is not None:
            yield batch
            self.wanted.release()
        thread.join()


def judged(process: WatchedProcess) -> Session:
    (session,) = process.sessions()
    judge_session(session)
    return session


TAKES: list[Take] = [lambda handed: handed.get(), lambda handed: handed.get(timeout=60), poll, look]


@pytest.mark.parametrize("in_main", [True, False], ids=["iter() in main", "iter() in the thread"])
@pytest.mark.parametrize("take", TAKES, ids=["get", "timeout", "poll", "look"])
def test_the_wait_is_at_get_of_the_queue_that_a_thread_fills(
    process: WatchedProcess, take: Take, in_main: bool
) -> None:
    plain = dict(vars(queue.Queue))
    for _ in range(2):  # epochs, each with a queue of its own
        for _ in Asked(process, "loader", queue.Queue(2)).batches(take, in_main):
            time.sleep(LOAD_S)
            process.trains()
    session = judged(process)
    (run,) = session.runs
    steps = Window.of(run).steps
    assert run.notes == [queues.AT_GET]
    assert session.notes == []
    assert session.results["stall"], session.results["sentence"]
    assert session.results["stall"]["share"] == pytest.approx(0.5, abs=0.1)
    assert 2 * TAKEN - 3 <= len(steps.wait) <= 2 * TAKEN + 2
    assert np.median(steps.wait) >= 0.9 * LOAD_S * 1e9
    assert session.environment["loop_at"].startswith("test_process.py:")
    assert run.totals["trained_steps"] == len(Window.whole_of(run))
    process.end()
    assert dict(vars(queue.Queue)) == plain


def test_an_evaluation_from_a_queue_is_no_part_of_the_training(process: WatchedProcess) -> None:
    take = TAKES[0]
    for _ in range(3):
        for _ in Asked(process, "loader", queue.Queue(2)).batches(take, in_main=True):
            time.sleep(LOAD_S)
            process.trains()
        for _ in Asked(process, "test", queue.Queue(2)).batches(lambda q: q.get(), in_main=True):
            time.sleep(LOAD_S)
    session = judged(process)
    steps = Window.of(session.runs[0]).steps
    assert (steps.loop >= 0).all()
    assert steps.period.max() < TAKEN * LOAD_S * 1e9  # no epoch of the evaluation is in a step
    assert session.results["stall"]["share"] == pytest.approx(0.5, abs=0.1)
    assert session.runs[0].totals["evaluation_ns"] >= 3 * TAKEN * LOAD_S * 1e9
    assert len(session.notes) == 1
    process.end()


@pytest.mark.parametrize("take", TAKES[:3])
def test_a_script_without_training_waits_at_its_queue(process: WatchedProcess, take: Take) -> None:
    for _ in Asked(process, "loader", queue.Queue(2)).batches(take, in_main=True):
        time.sleep(3 * LOAD_S)
    assert judged(process).results["stall"]["share"] == pytest.approx(0.25, abs=0.1)


def test_a_script_without_training_that_looks_into_its_queue_is_inconclusive(
    process: WatchedProcess,
) -> None:
    for _ in Asked(process, "loader", queue.Queue(2)).batches(look, in_main=True):
        pass
    assert "no training shows" in judged(process).results["sentence"]


@pytest.mark.parametrize("made", [queue.SimpleQueue, Handed])
@pytest.mark.parametrize(
    ("trains", "why"),
    [(True, "another thread than the one that trains"), (False, "no training shows")],
)
@pytest.mark.parametrize("in_main", [True, False])
def test_a_wait_that_is_not_known_is_inconclusive(
    process: WatchedProcess, made: type[Batches], trains: bool, why: str, in_main: bool
) -> None:
    handed = made() if made is queue.SimpleQueue else made(2)
    for number, _ in enumerate(Asked(process, "loader", handed).batches(TAKES[0], in_main)):
        if trains:
            process.trains()
        if number == 20 and trains:  # an evaluation in the main thread is none of the training
            inner = begin(process, "test")
            for _ in range(6):
                process.ask(inner, after(0), None, trains=False)
            end(process, inner)
    session = judged(process)
    assert session.results["stall"] is None
    assert why in session.results["sentence"]
    assert " wait " not in live_text(process.main)
    assert trains == (session.runs[0].totals["elsewhere_steps"] > 0)


def test_a_training_in_a_thread_that_reports_by_a_queue_is_judged_by_its_loader(
    process: WatchedProcess,
) -> None:
    reports = queue.Queue[Any]()

    def run() -> None:
        loop = begin(process, "loader", 0)
        for number in range(TAKEN):
            process.ask(loop, after(LOAD_S), None, trains=True)
            time.sleep(LOAD_S)
            process.trains()
            reports.put(number)

    thread = threading.Thread(target=run)
    thread.start()
    assert [reports.get() for _ in range(TAKEN)] == list(range(TAKEN))
    thread.join()
    session = judged(process)
    assert process.main is process.loops["loader"]
    assert session.runs[0].totals["elsewhere_steps"] == 0
    assert session.results["stall"]["share"] == pytest.approx(0.5, abs=0.1)


def test_a_thread_that_draws_the_first_batch_only_hands_the_training_over(
    process: WatchedProcess,
) -> None:
    for _ in range(3):
        loop = begin(process, "loader", 0)
        ask = functools.partial(process.ask, loop, after(0), None, trains=True)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        for _ in range(TAKEN):
            process.trains()
            ask()
    run = judged(process).runs[0]
    assert run.totals["elsewhere_steps"] <= 3
    assert run.totals["trained_steps"] >= 3 * (TAKEN - 1)


def test_batches_without_a_backward_pass_count_too(process: WatchedProcess) -> None:
    """A loss of four batches; what ends the epoch is no step."""
    for _ in range(2):
        batches = Asked(process, "loader", queue.Queue(2)).batches(TAKES[0], in_main=True)
        for number, _ in enumerate(batches):
            time.sleep(LOAD_S)
            if number % 4 == 3:
                process.trains()
        time.sleep(20 * LOAD_S)
    session = judged(process)
    assert session.results["stall"]["share"] == pytest.approx(0.5, abs=0.1)
    assert Window.of(session.runs[0]).steps.period.max() < 20 * LOAD_S * 1e9


def test_batches_pass_two_threads(process: WatchedProcess) -> None:
    first, second = queue.Queue[Any](2), queue.Queue[Any](2)
    asked = Asked(process, "loader", first)

    def pass_on() -> None:
        while (batch := first.get()) is not None:
            second.put(batch)
        second.put(None)

    threads = [threading.Thread(target=asked.draw), threading.Thread(target=pass_on)]
    for thread in threads:
        thread.start()
    asked.wanted.release()
    while second.get() is not None:
        time.sleep(LOAD_S)
        process.trains()
        asked.wanted.release()
    for thread in threads:
        thread.join()
    session = judged(process)
    assert session.runs[0].totals["elsewhere_steps"] == 0
    assert session.results["stall"]["share"] == pytest.approx(0.5, abs=0.1)
