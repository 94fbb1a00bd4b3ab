"""Labels for measured time: words to stages, lines to kinds of work."""

import sys
import threading
from types import FrameType

import pytest

from pipeline_profiler import rules_compute, stack_sampler
from pipeline_profiler.stack_sampler import StackSampler, stage_of


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
    ],
)
def test_lines_tell_waiting_from_side_work(place: str, kind: str) -> None:
    assert rules_compute._kind(place) == kind


def here() -> FrameType:
    return sys._getframe()


def test_a_place_names_file_line_source_and_callers() -> None:
    def load_image() -> FrameType:
        return here()

    text = stack_sampler.describe(load_image())
    assert text.startswith("read|test_stack_sampler.py:")
    assert "here: return sys._getframe()" in text
    assert " < " in text
    assert "load_image" in text


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
    thread.join(timeout=30)
    assert found
    assert all(key.startswith("wait|") for key, _ in found)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_the_main_thread_is_sampled_by_its_own_alarm() -> None:
    import signal

    before = signal.getsignal(signal.SIGALRM)
    sampler = StackSampler.start_here(lambda: "step")
    while not sampler.weights:
        sum(range(1000))
    sampler.stop()
    assert signal.getsignal(signal.SIGALRM) == before
    assert sum(weight for _, weight in sampler.drain()) > 0
    assert sampler.drain() == ()
