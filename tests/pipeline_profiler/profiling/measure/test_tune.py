"""Recommendations, sweep and compare from exact runs."""

import time
from typing import Any

import pytest

from pipeline_profiler import ProfileError
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import tune
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import MS, FakeClock, SlowList, made_run, made_session, schedule


def run_of(cost: Any, workers: int, prefetch: int, step: float = 20.0) -> Any:
    rows = schedule(160, workers, prefetch, step, cost)
    config = {"workers": workers, "prefetch": prefetch, "in_order": True, "persistent": False}
    run = made_run(rows, **config)
    run.warmup = 8
    return run


@pytest.mark.parametrize(
    ("cost", "workers", "start_ms", "change", "gain"),
    [
        (50.0, 1, 0, {"workers": 3}, 2.5),
        (50.0, 1, 10_000, {"workers": 3, "persistent": True}, 100 / 20),
        (30.0, 2, 4_000, {"persistent": True}, 2.0),
    ],
    ids=["the smallest sufficient number", "two settings together", "a start in each epoch"],
)
def test_settings_are_recommended(
    cost: float, workers: int, start_ms: int, change: dict[str, Any], gain: float
) -> None:
    run = run_of(lambda j: cost, workers, 2)
    if start_ms:
        run.config["batches"] = 200
        run.spans.columns["start"][run.spans.stages.index("iter")] -= start_ms * MS
    found = tune.recommend(Window.of(run), cores=2)[0]
    assert found == (change, pytest.approx(gain, rel=0.03))


def test_cpu_bound_loading_is_not_sent_beyond_the_cores() -> None:
    rows = schedule(160, 1, 2, 20.0, lambda j: 50.0, cpu=50.0)
    run = made_run(rows, workers=1, prefetch=2, in_order=True, persistent=False)
    workers = [c["workers"] for c, _ in tune.recommend(Window.of(run), cores=2) if "workers" in c]
    assert max(workers) == 2


def test_nothing_is_recommended_for_a_healthy_loader() -> None:
    offers = tune.recommend(Window.of(run_of(lambda j: 5.0, 2, 2)), cores=2)
    assert all(gain < 1 + tune.NOISE for _, gain in offers)


def test_a_serial_loader_has_one_setting_per_prefetch() -> None:
    settings = [{"workers": w, "prefetch": p} for w in (0, 1) for p in (1, 2)]
    kept = tune._distinct(settings, {"workers": 2})
    assert kept == [{"workers": 0}, {"workers": 1, "prefetch": 1}, {"workers": 1, "prefetch": 2}]


def session(cost: float) -> Session:
    rows = schedule(60, 1, 2, 20.0, lambda j: cost)
    made: Session = made_session(rows, 20.0, jitter=0.05, workers=1, prefetch=2)
    return made


def test_compare_states_how_many_times_faster_with_an_interval() -> None:
    result = tune.compare(session(60.0), session(40.0))
    assert result["speedup"]["low"] < 1.5 < result["speedup"]["high"]
    assert "times faster than A (95% CI)" in result["sentence"]
    slower = tune.compare(session(40.0), session(60.0))
    assert "times slower than A" in slower["sentence"]


def test_compare_needs_repeats() -> None:
    with pytest.raises(ProfileError, match=r"measure\.repeats=3"):
        tune.compare(Session(), Session())


def test_loaders_without_settings_are_refused_with_the_way_out() -> None:
    clock = FakeClock()
    loader = SlowList(clock, [1.0] * 50)
    bench = Bench(lambda: loader, lambda batch: clock.advance(1), clock)
    with pytest.raises(ProfileError, match="leave --try out"):
        tune.sweep(bench, Options(quick=True), {"workers": [1]})
    with pytest.raises(ProfileError, match="this loader has none"):
        tune.tune_loader(bench, Options(quick=True))


@pytest.mark.slow
def test_sweep_prints_predicted_beside_measured_for_each_setting() -> None:
    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(list(range(4000)), 4)
    bench = Bench(lambda: loader, lambda batch: torch.zeros(1))
    made = tune.sweep(
        bench, Options(quick=True, seconds=1.0), {"workers": [0, 1], "prefetch": [1, 2]}
    )
    points = made.results["sweep"]
    assert [p["setting"] for p in points] == [
        "workers=0", "workers=1, prefetch=1", "workers=1, prefetch=2",
    ]  # fmt: skip
    for p in points:
        assert p["error"] == pytest.approx(p["predicted_ms"] / p["measured_ms"] - 1)
        assert p["low_ms"] <= p["predicted_ms"] <= p["high_ms"]


class Sleeping:
    """Samples that are waited for, not computed: workers help on any number of cores."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        time.sleep(0.003)
        return index


@pytest.mark.slow
def test_tuning_a_real_loader_keeps_only_what_was_measured_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune, "ROUNDS", 2)
    from torch.utils.data import DataLoader

    loader = DataLoader(Sleeping(), 4)
    bench = Bench(lambda: loader, lambda batch: None)
    made = tune.tune_loader(bench, Options(quick=True, seconds=1.0, repeats=2))
    trials = made.results["trials"]
    assert trials, "four samples of 3 ms in turn: more workers must be worth a trial"
    assert trials[0]["predicted"] > 1 + tune.NOISE
    settings: dict[str, Any] = {}
    for trial in trials:
        kept = trial["decision"] == "kept"
        assert kept == (trial["speedup"]["low"] > 1 + tune.NOISE)
        settings |= trial["setting"] if kept else {}
    assert made.results["kept"] == settings
    assert made.results["verdict"] == "tuned"
