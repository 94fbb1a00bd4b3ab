"""Checks on logs against chance: how often noise alone is failed, and known values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipeline_profiler.checking.check import Answer, Judgement
from pipeline_profiler.checking.log_metrics import (
    better_is,
    error_of_mean,
    is_held_out,
    noise_of,
    smoothed,
)
from pipeline_profiler.checking.log_subject import LogSubject, Series
from pipeline_profiler.log_checks.chosen_best import ChosenBest, expected_luck, select_best
from pipeline_profiler.log_checks.equal_budget import EqualBudget
from pipeline_profiler.log_checks.plateau import Plateau

RUNS = 60


def correlated(rng: np.random.Generator, count: int, share: float) -> np.ndarray:
    noise, values = rng.normal(size=count), np.zeros(count)
    for i in range(1, count):
        values[i] = share * values[i - 1] + noise[i]
    return values * np.sqrt(1 - share**2)


def failures(judge: Callable[[np.random.Generator], Answer]) -> int:
    answers = [judge(np.random.default_rng(seed)).judgement for seed in range(RUNS)]
    return sum(judgement is Judgement.FAIL for judgement in answers)


def logged(name: str, values: np.ndarray, log: str = "") -> Series:
    return Series(name, np.arange(float(len(values))), values, log=log)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_run_that_still_gains_is_no_plateau(share: float) -> None:
    places = np.linspace(0, 1, 200)
    curve = np.where(places < 0.5, 2 * np.exp(-places * 12), 0) - 0.256 * np.clip(
        places - 0.5, 0, 1
    )

    def judge(rng: np.random.Generator) -> Answer:
        loss = logged("loss", curve + 0.02 * correlated(rng, 200, share))
        return Plateau().run(LogSubject([loss]))

    assert failures(judge) == 0


def test_quiet_evaluations_are_not_called_lucky() -> None:
    def judge(rng: np.random.Generator) -> Answer:
        values = 1 - np.exp(-np.arange(40) / 7) + 0.03 * rng.normal(size=40)
        return ChosenBest().run(LogSubject([logged("val_acc", values)]))

    assert failures(judge) == 0


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_equal_runs_of_unequal_length_are_not_told_apart(share: float) -> None:
    def judge(rng: np.random.Generator) -> Answer:
        made = [
            logged(
                "val_loss", np.exp(-np.arange(n) / 2) + 0.03 * correlated(rng, n, share), f"{n}.csv"
            )
            for n in (40, 70)
        ]
        return EqualBudget().run(LogSubject(made))

    assert failures(judge) == 0


@pytest.mark.parametrize(("count", "expected"), [(10, 1.539), (100, 2.508)])
def test_the_luck_of_equal_evaluations_is_the_expected_maximum(count: int, expected: float) -> None:
    """Expected largest of N normal numbers (Harter, 1961)."""
    assert expected_luck(np.zeros(count), 1.0) == pytest.approx(expected, abs=0.08)
    assert expected_luck(np.zeros(count), 0.0) == 0


def test_a_real_best_in_the_middle_is_right_to_choose() -> None:
    """Overfitting: the curve itself has its best there, so choosing it is no luck."""
    places = np.arange(60.0)
    rise = 0.5 + 0.3 * (places / 30) * np.exp(1 - places / 30)
    series = logged("val_acc", rise + 0.03 * np.random.default_rng(0).normal(size=60))
    assert ChosenBest().run(LogSubject([series])).judgement is not Judgement.FAIL
    assert 20 <= select_best(series).best <= 40


def test_noise_is_measured_beside_a_slope_and_an_outlier() -> None:
    rng = np.random.default_rng(0)
    values = 0.3 * np.arange(400.0) + rng.normal(0, 2.0, 400)
    values[100] = 1e6
    assert noise_of(values) == pytest.approx(2.0, rel=0.15)
    line = smoothed(np.arange(50.0))
    assert np.abs(line - np.arange(50)).max() < 1e-6  # a line is its own smooth curve


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_the_error_of_a_mean_covers_correlated_noise(share: float) -> None:
    means, errors = [], []
    for seed in range(60):
        values = correlated(np.random.default_rng(seed), 200, share)
        means.append(values[-5:].mean())
        errors.append(error_of_mean(values, 5))
    assert np.mean(errors) > 0.9 * np.std(means)
    assert np.mean(errors) < 2.5 * np.std(means)


@pytest.mark.parametrize(
    ("name", "sign", "held_out"),
    [
        ("train/loss", -1, False), ("val_accuracy", 1, True), ("evalLoss", -1, True),
        ("test/top-1", 1, True), ("lr", 0, False), ("glossary", 0, False), ("valMSE", -1, True),
        ("Validation mAP", 1, True), ("grad_norm", 0, False), ("box_loss", -1, False),
    ],
)  # fmt: skip
def test_names_say_what_is_better(name: str, sign: int, held_out: bool) -> None:
    assert (better_is(name), is_held_out(name)) == (sign, held_out)
