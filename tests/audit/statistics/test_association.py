"""Rank tests within strata, mixes of classes, ranks of pairs, and a classifier of unseen rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp, mannwhitneyu, poisson

from audit.statistics import mixes
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
from audit.statistics.likeness import Looks, chain_p_values, pair_ranks, standardised
from audit.statistics.mixes import compare_mixes, never_drawn


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


def world(seed: int, units: int = 300, classes: int = 5) -> tuple[np.ndarray, ...]:
    """Units that hold many objects of few classes: far from objects of their own."""
    rng = np.random.default_rng(seed)
    there = rng.random((units, classes)) < 0.3
    unit, label = there.nonzero()
    return unit, label, 1 + rng.poisson(rng.gamma(0.5, 8, len(unit))), rng.random(units) < 0.3


@pytest.mark.parametrize("dealt", [5000, 0], ids=["dealt out", "normal"])
def test_a_random_split_is_no_shift_and_a_shift_is_one(
    dealt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixes, "DEALT", dealt)
    monkeypatch.setattr(mixes, "DRAWS", 500)
    p = [compare_mixes(*world(seed), 5).p for seed in range(60)]
    assert sum(x <= 0.1 for x in p) <= 12
    assert 0.35 < np.mean(p) < 0.65
    unit, label, n, here = world(0)
    moved = compare_mixes(unit, label, n * (1 + 9 * (here[unit] & (label == 1))), here, 5)
    assert moved.p < 0.01
    assert moved.total_variation > 3 * moved.by_chance
    assert moved.here.sum() + moved.there.sum() == (n * (1 + 9 * (here[unit] & (label == 1)))).sum()


def test_never_drawn_is_the_share_of_all_draws() -> None:
    draws = list(combinations(range(9), 4))
    for marked in range(10):
        share = np.mean([not set(draw) & set(range(marked)) for draw in draws])
        assert never_drawn(np.array([marked]), np.array([4]), 9)[0] == pytest.approx(share)


def looks(n: int, seed: int, cells: int = 1) -> Looks:
    rng = np.random.default_rng(seed)
    return Looks(
        standardised(rng.standard_normal((n, 5)) * [1, 9, 0.1, 3, 1]),
        rng.integers(0, 256, (n, 32)).astype(np.uint8),
        np.arange(n) % cells,
        np.full((n, 2), -1, np.int64),
    )


def test_ranks_of_pairs_at_random_are_uniform_and_chains_of_them_too() -> None:
    ranks, p_values = [], []
    for seed in range(60):
        pictures = looks(400, seed, cells=2)
        order = np.random.default_rng([seed, 1]).permutation(400)[:21]
        found = pair_ranks(pictures, order[:-1], order[1:], 10, 20)
        ranks += found.tolist()
        p_values.append(float(chain_p_values(found, np.zeros(20, np.int64), 1)[0]))
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.03)
    assert np.mean(np.asarray(ranks) <= 0.1) == pytest.approx(0.1, abs=0.03)
    assert np.mean(np.asarray(p_values) <= 0.05) <= 0.12


def alike(pictures: Looks, n: int, **changes: Any) -> Looks:
    """Return these pictures, the first `n` of which look like the first."""
    tones, bits = pictures.tones.copy(), pictures.bits.copy()
    tones[:n], bits[:n] = tones[0], bits[0]
    return replace(pictures, tones=tones, bits=bits, **changes)


def test_a_picture_and_its_neighbour_rank_first_however_odd_they_are() -> None:
    pictures = looks(200, 3)
    pictures.tones[0] = 9.0  # far from all others
    (rank,) = pair_ranks(alike(pictures, 2), np.array([0]), np.array([1]), 10, 20)
    assert rank == pytest.approx(1 / 199)  # of 198 others none is nearer


def test_neighbours_of_the_same_sequence_are_no_others() -> None:
    pictures = looks(60, 4)
    place = pictures.place.copy()
    place[:30] = np.stack([np.zeros(30), np.arange(30)], axis=1)
    film = alike(pictures, 30, place=place)  # of one scene, half of the class
    first, second = np.array([0]), np.array([1])
    assert pair_ranks(film, first, second, 40, 20)[0] == pytest.approx(1 / 31)
    assert pair_ranks(film, first, second, 0, 20)[0] > 0.4


def test_too_few_others_and_no_pairs_tell_nothing() -> None:
    assert np.isnan(pair_ranks(looks(15, 5), np.array([0]), np.array([1]), 10, 20)).all()
    none = np.array([], np.int64)
    for n in (0, 15):
        assert pair_ranks(looks(n, 5), none, none, 10, 20).size == 0
    assert chain_p_values(np.array([]), none, 2).tolist() == [1.0, 1.0]
    assert chain_p_values(np.array([np.nan]), np.array([1]), 3).tolist() == [1.0, 1.0, 1.0]
