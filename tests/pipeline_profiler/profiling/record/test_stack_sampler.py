"""Labels for measured time: words to stages, lines to kinds of work."""

import gc
import operator
import signal
import statistics
import sys
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pipeline_profiler import Recorder
from pipeline_profiler.profiling.adapters.torch_worker import CollateProxy
from pipeline_profiler.profiling.diagnose.rules import compute
from pipeline_profiler.profiling.measure.arms import Bench, drive
from pipeline_profiler.profiling.record import stack_sampler
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.stack_sampler import INTERVAL_S, StackSampler, stage_of


@pytest.mark.parametrize(
    ("names", "stage"),
    [
        ([".nap", ".Throttled.read", ".decode"], "read"),
        ([".nap", ".Pictures.decode", ".Pictures.__getitem__"], "decode"),
        ([".RandomCrop.__call__", ".load_sample"], "transform"),
        ([".pad_sequence"], "collate"),
        ([".Dataset.__getitem__"], ""),
        ([".spread", ".already", ".thread_time"], ""),
    ],
)
def test_the_innermost_telling_name_decides(names: list[str], stage: str) -> None:
    assert stage_of(names) == stage


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("train.py:8 step: loss.item()", "sync"),
        ("train.py:8 nap: time.sleep(1) < Device.synchronize < Device.__call__", "sync"),
        ("train.py:8 nap: time.sleep(1) < Trainer.write_log < Trainer.__call__", "side"),
        ("train.py:8 nap: time.sleep(1) < train_step < save_all", ""),
        ("train.py:8 forward: x = self.conv(x)", ""),
        ("train.py:8 catalogue: pass", ""),
        ("train.py:8 step: log.write(row); os.fsync(log)", "side"),
        ("train.py:8 step: print(loss)", "side"),
        ("train.py:8 step: x = blueprint(x)", ""),
    ],
)
def test_lines_tell_waiting_from_side_work(place: str, kind: str) -> None:
    assert compute._kind(place) == kind


def test_what_follows_the_forward_pass_prepares_no_data() -> None:
    metric = "train.py:31 score: n = cv2.connectedComponents(mask) < Step.__call__:14"
    augment = "train.py:24 flip: x = cv2.flip(x, 1) < Step.__call__:9"
    begins = compute._forward_lines([metric, augment, "train.py:11 Step.__call__: y = model(x)"])
    assert begins == {"Step.__call__": 11}
    assert compute.kind_in_step(metric, begins) == "side"
    assert compute.kind_in_step(augment, begins) == "preparing"
    assert compute.kind_in_step(metric, {}) == "preparing"  # no model was seen


def decode_everything(step: Callable[[int], None]) -> None:
    """Its name would give the step's time to decoding."""
    drive(Bench(lambda: [1], step), [1], Recorder(arm=Arm.STACKS), 1)


def place_here(*_: object) -> str:
    return stack_sampler.describe(sys._getframe())


def test_who_calls_the_measurement_is_no_part_of_a_place() -> None:
    places: list[str] = []

    def step(batch: int) -> None:
        places.append(place_here())

    decode_everything(step)
    assert places[0].startswith("|test_stack_sampler.py:")
    assert "decode_everything" not in places[0]


def test_a_place_names_file_line_source_and_callers() -> None:
    base = SimpleNamespace(execute=operator.call)  # as a database's is: no frame of its own

    def load_image() -> str:
        return place_here()

    text = load_image()
    assert text.startswith("read|test_stack_sampler.py:")
    assert "place_here: return stack_sampler.describe(sys._getframe())" in text
    assert " < " in text
    assert "load_image" in text

    def row() -> str:
        place: str = base.execute(stack_sampler.describe, sys._getframe())
        return place

    assert row().startswith("read|test_stack_sampler.py:")  # the line that calls it
    joined: list[str] = []
    CollateProxy(lambda rows: joined.append(place_here()))([1])  # known by where it runs
    assert joined[0].startswith("collate|test_stack_sampler.py:")


def test_a_thread_is_sampled_from_outside_and_stopping_restores_the_switch_interval() -> None:
    before, found = sys.getswitchinterval(), []

    def work() -> None:
        sampler = StackSampler.start_here(lambda: "wait")
        while not sampler.weights:
            sum(range(1000))
        sampler.stop()
        found.extend(sampler.drain())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=300)
    assert found
    assert all(key.startswith("wait|") for key, _ in found)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_the_main_thread_is_sampled_by_its_own_alarm() -> None:
    before = signal.getsignal(signal.SIGALRM)
    sampler = StackSampler.start_here(lambda: "step")
    while not sampler.weights:
        sum(range(1000))
    sampler.stop()
    assert signal.getsignal(signal.SIGALRM) == before
    assert sum(weight for _, weight in sampler.drain()) > 0
    assert sampler.drain() == ()


def test_samples_keep_no_beat_that_a_loop_may_share(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[float] = []
    again: list[float] = []

    def note(which: int, seconds: float, interval: float = 0.0) -> None:
        set_to.append(seconds)
        again.append(interval)

    monkeypatch.setattr(signal, "setitimer", note)
    sampler = StackSampler.start_here(lambda: "step")
    take = signal.getsignal(signal.SIGALRM)
    assert callable(take)
    for _ in range(200):
        take(signal.SIGALRM, None)
    sampler.stop()
    take(signal.SIGALRM, None)  # one that was on its way: it sets no timer
    *drawn, off = set_to
    assert (len(drawn), off) == (201, 0.0)
    assert min(again[:-1]) > 0  # the interpreter may lose an alarm: another one follows
    assert statistics.pstdev(drawn) > 0.2 * INTERVAL_S
    assert statistics.fmean(drawn) == pytest.approx(INTERVAL_S, rel=0.1)


def test_a_loaders_own_thread_is_seen_while_the_trainer_waits() -> None:
    going, begun = [True], threading.Event()

    def decode() -> None:
        while going[0]:
            pass

    def prefetch() -> None:
        begun.set()
        decode()

    helper = threading.Thread(target=prefetch)
    helper.start()
    begun.wait()
    try:
        main, seen = threading.get_ident(), ""
        while "decode" not in seen:  # from set() to the loop it takes a few instructions
            frames = stack_sampler._busy_threads(main)
            seen = " ".join(stack_sampler.describe(f) for _, f in frames)
    finally:
        going[0] = False
        helper.join()
    assert seen.startswith("decode|test_stack_sampler.py")


class Held:
    """Something a caller's frame holds."""


def test_looking_at_the_threads_keeps_no_caller_alive() -> None:
    # a loader's iterator kept alive so would be inherited, and torn down, by the next workers
    def caller() -> weakref.ref[Held]:
        held = Held()
        stack_sampler._busy_threads(-1)
        return weakref.ref(held)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
