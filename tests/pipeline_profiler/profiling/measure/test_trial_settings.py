"""Settings of a loader that `run --try` measures."""

import re

import pytest

from pipeline_profiler import ProfileError
from pipeline_profiler.profiling.measure import trial_settings
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.report import render
from tests.pipeline_profiler.fakes import FakeClock, SlowList


def test_a_serial_loader_has_one_setting_per_prefetch() -> None:
    settings = [{"workers": w, "prefetch": p} for w in (0, 1) for p in (1, 2)]
    kept = trial_settings._distinct(settings, {"workers": 2})
    assert kept == [{"workers": 0}, {"workers": 1, "prefetch": 1}, {"workers": 1, "prefetch": 2}]


def test_a_loader_without_settings_is_refused_with_the_way_out() -> None:
    clock = FakeClock()
    loader = SlowList(clock, [1.0] * 50)
    bench = Bench(lambda: loader, lambda batch: clock.advance(1), clock)
    with pytest.raises(ProfileError, match="leave --try out"):
        trial_settings.sweep(bench, Options(quick=True), {"workers": [1]})


@pytest.mark.slow
def test_sweep_shows_step_and_wait_of_each_setting_beside_the_step_without_loading() -> None:
    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(list(range(4000)), 4)
    bench = Bench(lambda: loader, lambda batch: torch.zeros(1))
    made = trial_settings.sweep(
        bench, Options(quick=True, seconds=1.0), {"workers": [0, 1], "prefetch": [1, 2]}
    )
    points = made.results["sweep"]
    assert [p["setting"] for p in points] == [
        "workers=0", "workers=1, prefetch=1", "workers=1, prefetch=2",
    ]  # fmt: skip
    for p in points:
        assert 0 < p["wait_ms"] <= p["measured_ms"] * 1.5
        assert 0 < p["wait_share"] <= 1
    assert len(made.arm(Arm.RESIDENT)) == 1
    text = render.to_text(made)
    assert re.search(rf"preloaded batches +{made.results['lowest_ms']:.2f} ms\n", text)
    assert "above the lowest step time" in made.results["sentence"]
    assert "predicted" not in text


POINT = {"batch_scale": 1.0}


def test_the_sentence_says_how_far_the_best_setting_is_from_the_step_without_loading() -> None:
    points = [
        POINT | {"setting": "workers=0", "measured_ms": 30.0},
        POINT | {"setting": "workers=2", "measured_ms": 22.0},
    ]
    said = trial_settings._sweep_sentence(points, 20.0)
    assert said == (
        "best of 2 settings: workers=2, 22.00 ms a step; 10.0% above the lowest step time "
        "(20.00 ms, preloaded batches)"
    )
    # of other batch sizes the fastest by sample is the best, and its lowest step time is unknown
    larger = POINT | {"setting": "batch_size=64", "measured_ms": 40.0, "batch_scale": 2.0}
    said = trial_settings._sweep_sentence([*points, larger], 20.0)
    assert said == "best of 3 settings: batch_size=64, 40.00 ms a step"
