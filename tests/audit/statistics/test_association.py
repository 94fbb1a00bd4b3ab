"""Rank tests within strata, weighted distances, and a classifier that never saw its rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp, mannwhitneyu, poisson

from audit.statistics.association import (
    auc_limits,
    binned,
    class_effects,
    fold_scores,
    level_p_values,
    midranks,
    two_sided,
    unit_folds,
    weighted_shifts,
)
from audit.statistics.intervals import rarity


def test_auc_and_p_value_equal_those_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(0, 2, (90, 2)))  # with ties
    classes = rng.integers(0, 3, 90)
    effects = class_effects(values, classes, np.zeros(90, np.int64), 3)
    for k in range(3):
        for column in range(2):
            inside, outside = values[classes == k, column], values[classes != k, column]
            test = mannwhitneyu(inside, outside, use_continuity=False, method="asymptotic")
            assert effects.auc[k, column] == pytest.approx(
                test.statistic / len(inside) / len(outside)
            )
            assert two_sided(effects.z)[k, column] == pytest.approx(test.pvalue)


def test_only_what_is_below_its_expectation_is_rare() -> None:
    chance = rarity([0, 5, 9, 3], [4, 5, 3, 3.5])
    assert chance == pytest.approx([4 * np.exp(-4), 1, 1, min(1, 4 * poisson.cdf(3, 3.5))])
    assert rarity([], []).shape == (0,)


def test_what_differs_between_strata_alone_is_no_effect() -> None:
    rng = np.random.default_rng(1)
    strata = np.repeat([0, 1], 400)
    values = rng.normal(0, 1, (800, 1)) + 3 * strata[:, None]
    classes = (rng.random(800) < np.where(strata == 1, 0.9, 0.1)).astype(int)
    together = class_effects(values, classes, np.zeros(800, np.int64), 2)
    apart = class_effects(values, classes, strata, 2)
    assert together.auc[1, 0] > 0.85
    assert apart.auc[1, 0] == pytest.approx(0.5, abs=0.05)
    assert abs(apart.z[1, 0]) < 3


def test_a_class_of_one_stratum_or_none_and_a_constant_have_no_effect() -> None:
    classes, strata = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    effects = class_effects(np.ones((4, 1)), classes, strata, 3)
    assert effects.auc.tolist() == [[0.5], [0.5], [0.5]]
    assert effects.z.tolist() == [[0.0], [0.0], [0.0]]
    assert effects.rest.tolist() == [0, 0, 0]


def test_unknown_values_have_the_middle_rank() -> None:
    assert midranks(np.array([[5.0], [np.nan], [1.0]])).ravel().tolist() == [2.5, 2.0, 1.5]


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_limits_of_the_auc_cover_it(shift: float) -> None:
    from scipy.stats import norm

    rng = np.random.default_rng(2)
    truth, covered = norm.cdf(shift / np.sqrt(2)), 0
    for _ in range(300):
        values = np.concatenate([rng.normal(shift, 1, 30), rng.normal(0, 1, 100)])[:, None]
        classes = np.repeat([1, 0], [30, 100])
        effects = class_effects(values, classes, np.zeros(130, np.int64), 2)
        low, high = auc_limits(effects.auc[1, 0], effects.n[1], effects.rest[1])
        covered += bool(low <= truth <= high)
    assert covered >= 0.92 * 300
    low, _ = auc_limits(np.array(1.0), np.array(10.0), np.array(90.0))
    assert 0.5 < low < 0.9  # ten pictures, wholly apart, prove no more


def test_a_rare_value_is_judged_exactly() -> None:
    args = [np.array([float(x)]) for x in (4, 10, 5, 100)]
    assert level_p_values(*args)[0] == pytest.approx(2 * 2.51e-4, rel=0.02)


def test_distances_equal_those_of_scipy_and_weights_take_out_the_mix() -> None:
    rng = np.random.default_rng(3)
    there, here = rng.normal(0, 1, (300, 1)), rng.normal(0.3, 1, (200, 1))
    found = weighted_shifts(there, here, np.ones(300))
    expected = ks_2samp(there[:, 0], here[:, 0], method="asymp")
    assert found.distance[0] == pytest.approx(expected.statistic)
    assert found.p_value[0] == pytest.approx(expected.pvalue, rel=0.3)
    # two classes, one brighter; the mix differs and nothing else does
    labels, labels_here = np.repeat([0, 1], [250, 50]), np.repeat([0, 1], [50, 150])
    there, here = rng.normal(3 * labels, 1)[:, None], rng.normal(3 * labels_here, 1)[:, None]
    weights = np.where(labels == 1, 150 / 50, 50 / 250)
    assert weighted_shifts(there, here, np.ones(300)).p_value[0] < 1e-6
    assert weighted_shifts(there, here, weights).p_value[0] > 0.01


def test_the_classifier_learns_and_units_stay_in_one_fold() -> None:
    rng = np.random.default_rng(4)
    units = np.repeat(np.arange(60), 4)
    folds = unit_folds(units)
    assert all(len(set(folds[units == u])) == 1 for u in range(60))
    classes = rng.integers(0, 3, 240)
    values = np.stack([classes + rng.normal(0, 0.3, 240), rng.random(240)], axis=1)
    values[::9, 1] = np.nan
    columns = binned(values, np.zeros(2, bool))
    assert np.isfinite(columns).all()
    guessed = np.full(240, -1)
    for rows, scores in fold_scores(columns, classes, folds, 3):
        guessed[rows] = scores.argmax(1)
    assert (guessed == classes).mean() > 0.8
    # labels by unit, dealt at random: what is known of a unit's other files must not help
    by_unit = rng.integers(0, 3, 60)[units]
    own = (units[:, None] == np.arange(60)).astype(float)
    for rows, scores in fold_scores(own, by_unit, folds, 3):
        guessed[rows] = scores.argmax(1)
    assert (guessed == by_unit).mean() < 0.55
