"""Rank tests, mixes of classes, fits of boxes, recurring pixels and slices."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import ks_2samp, mannwhitneyu, poisson

from audit.statistics import mixes
from audit.statistics.association import (
    auc_limits,
    auc_of,
    binned,
    class_effects,
    fold_scores,
    level_p_values,
    midranks,
    two_sided,
    unit_folds,
    weighted_shifts,
)
from audit.statistics.box_fit import (
    DIRECTIONS,
    SIDE,
    Floats,
    Ints,
    better_elsewhere,
    fit_of_boxes,
    gains_elsewhere,
    integral_planes,
)
from audit.statistics.intervals import rarity
from audit.statistics.likeness import Looks, chain_p_values, pair_ranks, standardised
from audit.statistics.mixes import compare_mixes, never_drawn
from audit.statistics.recurring import PARTS, find_recurring, fine_detail
from audit.statistics.slices import LEVEL, NONE, SCHEMA, find_slices, slice_rows


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
    distance, p_value = weighted_shifts(there, here, np.ones(300))
    expected = ks_2samp(there[:, 0], here[:, 0], method="asymp")
    assert distance[0] == pytest.approx(expected.statistic)
    assert p_value[0] == pytest.approx(expected.pvalue, rel=0.3)
    # two classes, one brighter; the mix differs and nothing else does
    labels, labels_here = np.repeat([0, 1], [250, 50]), np.repeat([0, 1], [50, 150])
    there, here = rng.normal(3 * labels, 1)[:, None], rng.normal(3 * labels_here, 1)[:, None]
    weights = np.where(labels == 1, 150 / 50, 50 / 250)
    assert weighted_shifts(there, here, np.ones(300))[1][0] < 1e-6
    assert weighted_shifts(there, here, weights)[1][0] > 0.01


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


BOXES = 60


def objects_on_grounds(n: int, seed: int) -> tuple[Floats, Floats]:
    """Summed planes of n grounds with one object each, and the corners of its box in cells."""
    rng = np.random.default_rng(seed)
    grey = rng.normal(120, 12, (n, SIDE, SIDE))
    low = rng.integers(0, 22, (n, 2))
    boxes = np.concatenate([low, low + rng.integers(6, 10, (n, 2))], axis=1).astype(float)
    for k, (x0, y0, x1, y1) in enumerate(boxes.astype(int)):
        grey[k, y0:y1, x0:x1] += rng.choice([-50, 50])
    planes = grey.clip(0, 255).astype(np.uint8)
    return integral_planes(planes, np.repeat(planes[:, ::4, ::4, None], 3, axis=3)), boxes


@pytest.fixture(scope="module")
def scenes() -> tuple[Floats, Ints, Floats]:
    """Such planes, the pictures of the boxes, and these."""
    sums, boxes = objects_on_grounds(BOXES, seed=4)
    return sums, np.arange(BOXES), boxes


def best(scenes: tuple[Floats, Ints, Floats], picture: Ints, boxes: Floats) -> tuple[str, float]:
    gains = gains_elsewhere(scenes[0], picture, boxes)
    found = max(better_elsewhere(gains, picture), key=lambda a: a.z)
    return found.name, found.z


def test_boxes_that_lie_right_fit_nowhere_better(scenes: tuple[Floats, Ints, Floats]) -> None:
    assert best(scenes, scenes[1], scenes[2])[1] < -3


@pytest.mark.parametrize("name", DIRECTIONS)
def test_a_move_is_told_by_the_way_back(scenes: tuple[Floats, Ints, Floats], name: str) -> None:
    dx, dy = DIRECTIONS[name]
    said, z = best(scenes, scenes[1], scenes[2] - 4 * np.array([dx, dy, dx, dy]))
    # half of these boxes is as much
    assert said in (f"12% further {name}", f"half a box further {name}")
    assert z > 4


@pytest.mark.parametrize(("size", "said"), [(2.0, "half as large"), (0.6, "twice as large")])
def test_a_wrong_size_is_told(scenes: tuple[Floats, Ints, Floats], size: float, said: str) -> None:
    sides = np.tile(scenes[2][:, 2:] - scenes[2][:, :2], 2)
    name, z = best(scenes, scenes[1], scenes[2] + (size - 1) / 2 * sides * [-1, -1, 1, 1])
    assert (name, z > 4) == (said, True)
    # a centre that is read as a corner
    assert best(scenes, scenes[1], scenes[2] + sides / 2)[0] == "half a box further left and up"


def test_mirrored_boxes_and_those_of_another_picture_are_told(
    scenes: tuple[Floats, Ints, Floats],
) -> None:
    _, picture, boxes = scenes
    x0, y0, x1, y1 = boxes.T
    said, z = best(scenes, picture, np.stack([SIDE - x1, y0, SIDE - x0, y1], axis=1))
    assert (said, z > 4) == ("mirrored", True)
    said, z = best(scenes, (picture + 1) % BOXES, boxes)
    assert (said, z > 4) == ("on the previous image", True)


def test_scenes_count_once_and_a_box_without_ground_around_it_not_at_all(
    scenes: tuple[Floats, Ints, Floats],
) -> None:
    found = better_elsewhere(gains_elsewhere(*scenes), scenes[1] // 2)
    assert {one.n for one in found} <= {BOXES // 2}
    whole = np.array([[0.0, 0.0, SIDE, SIDE], [4.0, 4.0, 5.0, 5.0]])
    assert np.isnan(fit_of_boxes(scenes[0], np.zeros(2, np.int64), whole)).all()


N = 160


def textures(seed: int, n: int = N) -> np.ndarray:
    """Pictures (n, 32, 32) that have nothing in common."""
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(120, 30, (n, 32, 32)), 0, 255).astype(np.uint8)


LABEL = (np.arange(N) % 4 == 0).astype(np.int64)


@pytest.mark.parametrize("part", PARTS)
def test_a_stamp_is_found_where_it_is_and_in_the_class_that_has_it(part: str) -> None:
    grey = textures(1)
    rows, columns = PARTS[part]
    at = (slice(rows.start + 3, rows.start + 5), slice(columns.start + 3, columns.start + 6))
    marked = LABEL == 1
    grey[(marked, *at)] = 250
    found = find_recurring(fine_detail(grey), LABEL, 2, 0.8)
    assert [(one.label, one.part) for one in found] == [(1, part)]
    assert auc_of(found[0].scores, marked) > 0.95
    assert auc_of(found[0].scores, np.ones(N, bool)) == 0.5  # without one side
    assert auc_of(np.arange(4.0), np.arange(4) > 1) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_pictures_without_a_stamp_have_none(seed: int) -> None:
    assert find_recurring(fine_detail(textures(seed)), LABEL, 2, 0.7) == []


def test_many_small_classes_have_none_by_chance() -> None:
    grey = textures(7, 4000)
    label = np.random.default_rng(8).permutation(np.repeat(np.arange(200), 20))
    grey[label == 3, 2:6, 2:8] = 250
    found = [(one.label, one.part) for one in find_recurring(fine_detail(grey), label, 200, 0.65)]
    assert (3, "top left") in found
    assert len(found) < 4  # where an AUC of .65 is enough, 20 are


@pytest.mark.parametrize(
    ("seed", "rows", "columns", "marked"),
    [
        (2, slice(12, 20), slice(12, 20), LABEL == 1),
        (5, slice(10, 28, 3), slice(4, 28, 3), LABEL == 1),
        (3, slice(28, 30), slice(20, 26), LABEL >= 0),
    ],
    ids=["in the middle", "a subject that reaches the rim", "what all classes have"],
)
def test_what_is_no_mark_of_a_class(
    seed: int, rows: slice, columns: slice, marked: np.ndarray
) -> None:
    grey = textures(seed)
    grey[marked, rows, columns] = 250
    assert find_recurring(fine_detail(grey), LABEL, 2, 0.7) == []


def test_a_stamp_beside_a_subject_that_recurs_is_found() -> None:
    grey = textures(6)
    faint = grey[LABEL == 1, 10:22:2, 10:22:2] // 2 + 60
    grey[LABEL == 1, 10:22:2, 10:22:2] = faint
    grey[LABEL == 1, 27:29, 3:9] = 250
    found = find_recurring(fine_detail(grey), LABEL, 2, 0.7)
    assert [one.part for one in found] == ["bottom left"]


def test_a_few_classes_dealt_to_coarse_pictures_have_none_by_chance() -> None:
    rng = np.random.default_rng(4)
    coarse = rng.normal(128, 40, (200, 16, 16)).repeat(2, 1).repeat(2, 2)
    detail = fine_detail(np.clip(coarse, 0, 255).astype(np.uint8))
    deals = [rng.permutation(np.arange(200) % 5) for _ in range(40)]
    # their AUCs spread 1.3 times as far as those of strangers: 4 would be found
    assert [find_recurring(detail, deal, 5, 0.65) for deal in deals] == [[]] * 40


PLANTED = (
    ("label", "c3"), ("label", "c9"), ("camera", "b"), ("camera", NONE), ("pixels", "200"),
    ("cluster", "7"), ("brightness", "at most"), ("sharpness", "at least"), ("f1", "at most"),
    ("contrast", "at least"),
)  # fmt: skip


def sliced(seed: int, n: int = 2500) -> tuple[np.random.Generator, pl.DataFrame]:
    """Columns of which some are related: a cluster is mostly one class, contrast follows light."""
    rng = np.random.default_rng(seed)
    label, light = rng.integers(0, 10, n), rng.normal(120, 30, n)
    cluster = np.where(rng.random(n) < 0.8, label, rng.integers(0, 10, n))
    cameras = rng.choice(list("abcd-"), n).tolist()
    numbers = {f"f{k}": rng.normal(size=n) for k in range(4)}
    light[:5] = np.nan
    return rng, pl.DataFrame({
        "label": [f"c{i}" for i in label], "cluster": [str(i) for i in cluster],
        "camera": [None if v == "-" else v for v in cameras], "brightness": light,
        "contrast": light * 0.4 + rng.normal(0, 20, n), "sharpness": rng.lognormal(5, 1, n),
        "pixels": rng.choice([100, 200, 400], n), **numbers,
    })  # fmt: skip


def planted(columns: pl.DataFrame, column: str, value: str) -> np.ndarray:
    x = columns[column]
    if not value.startswith("at "):
        return (x.cast(pl.String).fill_null(NONE) == value).to_numpy()
    share = 0.1 if value == "at most" else 0.9
    bound = float(x.fill_nan(None).quantile(share) or 0)
    inside = x <= bound if value == "at most" else (x >= bound) & ~x.is_nan()
    return inside.to_numpy()


def test_a_planted_slice_comes_first_and_errors_at_random_make_none() -> None:
    first = 0
    for seed, (column, value) in enumerate(PLANTED):
        rng, columns = sliced(seed)
        inside = planted(columns, column, value)
        found = find_slices(rng.random(len(columns)) < np.where(inside, 0.3, 0.1), columns)
        assert found.schema == SCHEMA
        assert found["q"].max() <= LEVEL  # type: ignore[operator]
        top = found.row(0, named=True)
        rows = slice_rows(columns, top)
        assert rows.sum() == top["n"]
        overlap = (rows & inside).sum() / (rows | inside).sum()
        first += top["column"] == column and overlap > 0.4
        assert top["low"] < top["share"] < top["high"]
        assert top["elsewhere"] < top["low"]
    assert first >= 9
    worlds = [sliced(seed) for seed in range(40)]
    by_chance = [find_slices(rng.random(len(c)) < 0.12, c).height for rng, c in worlds]
    assert sum(n > 0 for n in by_chance) <= 1  # LEVEL of 40


def test_several_slices_are_each_told_once() -> None:
    rng, columns = sliced(77, 8000)
    both = [planted(columns, *PLANTED[0]), planted(columns, *PLANTED[6])]
    wrong = rng.random(len(columns)) < 0.08 + 0.3 * both[0] + 0.3 * both[1]
    found = find_slices(wrong, columns)
    # the cluster that holds the class, and the contrast that follows the light, say nothing new
    assert sorted(found["column"]) == ["brightness", "label"]


def test_weights_make_few_heavy_rows_no_evidence() -> None:
    rng, columns = sliced(5)
    inside = planted(columns, "label", "c3")
    wrong = rng.random(len(columns)) < np.where(inside, 0.3, 0.1)
    plain = find_slices(wrong, columns)
    even = find_slices(wrong, columns, np.full(len(columns), 7.0))
    assert plain["p"].to_list() == pytest.approx(even["p"].to_list())
    heavy = np.where(rng.random(len(columns)) < 0.02, 500.0, 1.0)
    assert find_slices(wrong, columns, heavy).is_empty()


@pytest.mark.parametrize("wrong", [np.zeros(60, bool), np.ones(60, bool)])
def test_a_model_that_is_always_right_or_wrong_has_no_slice(wrong: np.ndarray) -> None:
    columns = pl.DataFrame({"x": range(60), "all": ["a"] * 60, "ids": map(str, range(60))})
    assert find_slices(wrong, columns).is_empty()
    assert find_slices(wrong[:0], columns.head(0)).is_empty()
