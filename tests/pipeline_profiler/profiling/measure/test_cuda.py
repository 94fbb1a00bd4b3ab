"""The CUDA path: pure parts everywhere, the rest where there is a GPU."""

import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline_profiler.profiling.adapters.device_gaps import DeviceGaps
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import arms, environment, probes
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.measure.preloaded_batches import Preloaded, as_given
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.session import Run
from tests.pipeline_profiler.fakes import MS, FakeClock, SlowList

pytestmark = [pytest.mark.slow, pytest.mark.cuda]

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_without_a_gpu_rows_are_unknown_not_zero() -> None:
    if environment.has_cuda():
        pytest.skip("there is a GPU")
    assert probes.synchronising_lines(lambda: None) is None
    with ExitStack() as stack:
        assert probes.sample_utilisation(stack) == []


def test_lines_are_counted_per_step_and_only_the_users() -> None:
    caught = [
        ("/srv/learn-torch/train.py", 88, "called a synchronizing CUDA operation"),
        ("/srv/learn-torch/train.py", 88, "called a synchronizing CUDA operation"),
        ("/x/site-packages/torch/nn.py", 5, "called a synchronizing CUDA operation"),
        (probes.__file__, 7, "called a synchronizing CUDA operation"),
        ("/srv/train.py", 9, "something else"),
    ]
    assert probes.count_lines(caught, 2) == [{"at": "train.py:88", "per_step": 1.0}]


def test_batches_keep_their_structure_when_moved() -> None:
    batch = {"x": torch.zeros(2), "rest": [torch.ones(1), ("name", 3)]}
    moved = Preloaded([batch]).moved(lambda tensor: tensor + 1)[0]
    assert moved["x"].tolist() == [1.0, 1.0]
    assert moved["rest"][0].tolist() == [2.0]
    assert moved["rest"][1] == ("name", 3)


class QueuedDevice:
    """A device with a queue of 200 ms: a step returns at once and is worked through in its turn."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.busy_until = 0.0  # milliseconds

    def now(self) -> float:
        return self.clock() / MS

    def launch(self, ms: float) -> None:
        self.busy_until = max(self.now(), self.busy_until) + ms
        self.synchronize(200.0)

    def synchronize(self, ahead: float = 0.0) -> None:
        self.clock.advance(max(0.0, self.busy_until - ahead - self.now()))

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        made = SimpleNamespace(at=0.0, query=lambda: made.at <= self.now())
        made.record = lambda: setattr(made, "at", max(self.now(), self.busy_until))
        made.elapsed_time = lambda later: later.at - made.at
        return made

    def is_initialized(self) -> bool:
        return True


def test_the_device_waits_no_longer_than_next_took() -> None:
    clock = FakeClock()
    gaps = DeviceGaps(device := QueuedDevice(clock))
    gaps.delivered(0, 9 * MS)  # no step was before it
    for number, idle_ms, next_ms in [(1, 4, 5), (2, 7, 3)]:
        device.launch(10)
        gaps.asked()
        clock.advance(10 + idle_ms)
        gaps.delivered(number, next_ms * MS)
    assert gaps.resolved() == [(1, 4 * MS), (2, 3 * MS)]
    assert gaps.resolved() == []


@pytest.mark.parametrize(
    ("loading_ms", "stall", "said"), [(1.0, 0.0, "not input-bound"), (30.0, 1 / 3, "input-bound")]
)
def test_a_step_that_goes_on_after_its_return_is_timed_by_its_device(
    loading_ms: float, stall: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 ms at next() a device that has 20 ms left to do waits for 10."""
    clock = FakeClock()
    device = QueuedDevice(clock)
    on_it = environment.describe() | {"torch": {"device": "a queue"}}
    monkeypatch.setattr(environment, "describe", lambda: on_it)
    monkeypatch.setattr(environment, "has_cuda", lambda: True)
    for name in ("Event", "synchronize", "is_initialized"):
        monkeypatch.setattr(torch.cuda, name, getattr(device, name))
    monkeypatch.setattr(probes, "synchronising_lines", lambda step: [])

    def step(batch: Any) -> None:
        clock.advance(0.2)
        device.launch(20.0)

    loader = SlowList(clock, [loading_ms] * 100)
    # the device's last step ends each window: long ones, as no machine is metered here
    options = Options(quick=True, seconds=60.0)
    session = measure_arms(Bench(lambda: loader, step, clock), options)
    found = diagnose_session(session)
    assert found.stall.value == pytest.approx(stall, abs=0.02)
    assert found.stall.high - found.stall.low < 0.05
    assert str(found.verdict.value).startswith(said)


def device_step(milliseconds: int) -> Any:
    size = torch.zeros(2048, 2048, device="cuda")

    def step(batch: Any) -> None:
        for _ in range(milliseconds):
            torch.matmul(size, size)

    return step


def trained(loader: Any) -> Run:
    """A window of 30 steps of the warm loader."""
    recorder = Recorder()
    recorder.run.warmup = 2  # before its first step a device has waited for none
    arms.drive(Bench(lambda: loader, device_step(2)), loader, recorder, 30)
    return recorder.run


@gpu
def test_starvation_is_seen_on_the_device() -> None:
    slow = [torch.zeros(1)] * 40

    def late() -> Any:
        for batch in slow:
            time.sleep(0.02)
            yield batch

    class Loader:
        def __iter__(self) -> Any:
            return late()

    starved, fed = Window.of(trained(Loader())), Window.of(trained(slow))
    assert starved.tells_of_device
    assert fed.tells_of_device
    assert starved.starvation.value > fed.starvation.value


@gpu
def test_the_synchronising_line_is_named() -> None:
    x = torch.ones(8, device="cuda")
    found = probes.synchronising_lines(lambda: float(x.sum().item()))
    assert found
    assert found[0]["at"].startswith("test_cuda.py:")


@gpu
def test_device_and_host_arms_hold_their_batches_where_they_say() -> None:
    kept = Preloaded([{"x": torch.zeros(4)}])
    assert kept.moved(lambda tensor: tensor.cuda()).hand_out(0)["x"].is_cuda
    given = as_given({"pinned": torch.zeros(4).pin_memory(), "pageable": torch.zeros(4)})
    assert (given["pinned"].is_pinned(), given["pageable"].is_pinned()) == (True, False)
