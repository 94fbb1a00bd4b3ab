"""The replay against schedules worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose import predict
from pipeline_profiler.profiling.diagnose.predict import Costs, crowd, replay, shared
from pipeline_profiler.profiling.diagnose.window import Window
from tests.pipeline_profiler.fakes import MS, made_run


def costs(fetch: list[float], cpu: float = 0.0, loop: float = 10.0, overhead: float = 0.0) -> Costs:
    f = np.array(fetch)
    none, steps = np.zeros(len(f)), np.full(len(f), loop)
    return Costs(f * (1 - cpu), f * cpu, none, steps, 0.0, overhead, overhead)


@pytest.mark.parametrize(("workers", "period"), [(0, 25.0), (1, 24.0), (2, 12.0), (4, 10.0)])
def test_a_device_works_while_its_host_loads(workers: int, period: float) -> None:
    """Loading takes 24 ms and launching 1: a step of 10 ms on the device hides behind them."""
    on_device = replace(costs([24.0] * 40, loop=1.0), device=10.0)
    found = shared(on_device, {"workers": workers, "prefetch": 2}, cores=8)
    assert found == pytest.approx(period, rel=0.03)


@pytest.mark.parametrize(
    ("fetch", "workers", "period"),
    [(8.0, 0, 18.0), (8.0, 1, 10.0), (30.0, 1, 30.0), (30.0, 2, 15.0), (30.0, 4, 10.0)],
)
def test_slow_workers_set_the_pace_and_others_hide_behind_the_step(
    fetch: float, workers: int, period: float
) -> None:
    assert replay(np.full(80, fetch), workers, 2, 10.0) == pytest.approx(period)
    serial = replay(np.full(50, 8.0), 0, 0, 10.0, overhead=0.5)
    assert serial == pytest.approx(18.5)


def test_a_hand_worked_schedule_with_a_straggler() -> None:
    # w=2, P=1, t=10: batch 2 (worker 0) takes 40, all others 5.
    # batch 0: 0-5 got 5; 1: 0-5 got 15; 2: 5-45 got 45 (wait 20); 3: dispatched 15, 15-20 got 55
    # the next three are there in time: of batch 2 on, 20 of wait and 40 of steps
    period = replay(np.array([5.0, 5, 40, 5, 5, 5]), 2, 1, 10.0)
    assert period == pytest.approx((20.0 + 4 * 10.0) / 4)


def test_delivery_out_of_order_steps_over_the_straggler() -> None:
    fetch = np.array([5.0] * 10 + [60.0] + [5.0] * 29)
    ordered, free = replay(fetch, 2, 2, 10.0), replay(fetch, 2, 2, 10.0, in_order=False)
    assert ordered > 10.0
    assert free == 10.0


def test_more_prefetch_never_slows_the_replay() -> None:
    rng = np.random.default_rng(0)
    fetch = rng.lognormal(3, 1, 200)
    periods = [replay(fetch, 2, p, 20.0) for p in (1, 2, 4, 8)]
    assert periods == sorted(periods, reverse=True)


def test_a_crowd_slows_only_beyond_the_cores() -> None:
    assert crowd([1.0], 2) == 1.0
    assert crowd([1.0, 1.0, 1.0], 2) == 2.0
    assert crowd([0.5, 0.5], 2) == pytest.approx(0.25 * 1.5 + 0.75)


def test_cpu_bound_workers_share_the_cores() -> None:
    c = costs([20.0] * 60, cpu=1.0, loop=1.0)
    assert shared(c, {"workers": 2, "prefetch": 2}, 2) == pytest.approx(10.0, rel=0.05)
    four = shared(c, {"workers": 4, "prefetch": 2}, 2)
    assert four == pytest.approx(10.0, rel=0.1)
    blocked = costs([20.0] * 60, cpu=0.0, loop=1.0)
    assert shared(blocked, {"workers": 4, "prefetch": 2}, 2) == pytest.approx(5.0, rel=0.05)


def test_costs_are_read_off_a_run() -> None:
    rows = [
        {"entry": at + 10, "got": at + 21, "end": at + 30, "worker": 0, "start": at}
        | {"fetch": 18, "cpu": 6, "queued": 0, "sent": at + 20, "pickle": 1}
        for at in range(0, 600, 20)
    ]
    found = predict.measured_costs(Window.of(made_run(rows, workers=1, prefetch=2)))
    assert found.fetch.tolist() == [18 * MS] * 30
    assert found.cpu.tolist() == [6 * MS] * 30
    assert found.serialise.tolist() == [2 * MS] * 30
    assert found.overhead == 1 * MS
    assert found.loop.tolist() == [9 * MS] * 30
