"""The threshold follows the user's own non-pairs and stays within its bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from audit.neighbors.calibration import (
    HIGHEST_THRESHOLD,
    LOWEST_THRESHOLD,
    TRUNCATE_AT,
    Calibration,
    calibrate,
    fit_tail,
    measure_recall,
)
from audit.neighbors.descriptor import describe
from audit.neighbors.signatures import make_signature, stack_signatures
from audit.neighbors.synthetic import make_duplicate
from audit.neighbors.verification import verify


def digit(seed: int) -> np.ndarray:
    """A wandering stroke on black: all look alike."""
    rng = np.random.default_rng(seed)
    board = np.zeros((28, 28, 3), np.uint8)
    points = np.array([[8, 6], [18, 5], [12, 14], [19, 20], [9, 23]]) + rng.normal(0, 1.0, (5, 2))
    cv2.polylines(board, [points.astype(np.int32)], False, (255, 255, 255), 2, cv2.LINE_AA)
    return board


def calibrated(pictures: list[np.ndarray], seed: int = 0) -> Calibration:
    table = stack_signatures([make_signature(p) for p in pictures])
    return calibrate(table, describe(table), np.arange(len(table)), seed=seed)


@pytest.mark.slow
def test_look_alikes_raise_the_threshold(scenes: list[np.ndarray]) -> None:
    varied = calibrated(scenes)
    alike = calibrated([digit(k) for k in range(150)])
    assert varied.threshold == LOWEST_THRESHOLD
    assert varied.threshold < alike.threshold <= HIGHEST_THRESHOLD
    assert alike.random_pairs == 150 * 149 // 2


@pytest.mark.slow
def test_copies_among_the_random_pairs_do_not_raise_it(
    scene: Callable[..., np.ndarray],
) -> None:
    originals = [scene(k) for k in range(80)]
    copies = [
        make_duplicate(p, "jpeg_50", np.random.default_rng(k)) for k, p in enumerate(originals)
    ]
    assert calibrated(originals + copies).threshold <= calibrated(originals).threshold + 1.0


def test_the_tail_of_a_known_distribution_is_recovered() -> None:
    rng = np.random.default_rng(0)
    drawn = 2_000_000
    scores = -9 + rng.exponential(1 / 1.5, 20_000)
    copies = rng.uniform(2, 12, 40)
    tail = fit_tail(np.concatenate([scores[scores < TRUNCATE_AT], copies]), drawn)
    assert tail is not None
    # P(score > t) = 0.01 exp(-1.5 (t + 9)), so one in a million lies at -9 + log(1e4) / 1.5
    assert abs(tail.threshold(1e-6) - (-9 + np.log(1e4) / 1.5)) < 0.4
    assert tail.rate(tail.threshold(1e-7)) == np.float64(1e-7) or np.isclose(
        tail.rate(tail.threshold(1e-7)), 1e-7
    )


def test_hardly_any_pictures_get_the_lowest_threshold(scenes: list[np.ndarray]) -> None:
    nothing = stack_signatures([])
    for n in (0, 1, 2):
        found = (
            calibrated(scenes[:n])
            if n
            else calibrate(nothing, describe(nothing), np.zeros(0, np.int64))
        )
        assert found.threshold == LOWEST_THRESHOLD
        assert len(found.sentences()) == 2


@pytest.mark.slow
def test_the_sample_is_the_same_for_any_order(scenes: list[np.ndarray]) -> None:
    pictures = [digit(k) for k in range(80)] + scenes[:20]
    table = stack_signatures([make_signature(p) for p in pictures])
    ranks = np.random.default_rng(0).permutation(len(table))
    order = np.random.default_rng(1).permutation(len(table))
    straight = calibrate(table, describe(table), ranks)
    shuffled = calibrate(table[order], describe(table[order]), ranks[order])
    assert abs(straight.threshold - shuffled.threshold) < 1e-9


def test_verified_pairs_are_not_aligned_again(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(p) for p in scenes[:25]])
    descriptors, ranks = describe(table), np.arange(len(table))
    every = np.stack(np.triu_indices(len(table), 1), axis=1)
    # either way round, in any order; only half of them, so that the rest has to be aligned
    half = verify(table, descriptors, every[::-2, ::-1], ranks)
    apart = calibrate(table, descriptors, ranks)
    assert calibrate(table, descriptors, ranks, verified=half) == apart
    wrong = replace(half, score=np.linspace(-4.0, 0.9, len(half.pairs)))
    assert calibrate(table, descriptors, ranks, verified=wrong) != apart
    # what was remembered from an earlier search changes nothing: the first scan has the same result
    few = calibrate(table, descriptors, ranks, wanted=100)
    assert calibrate(table, descriptors, ranks, verified=half, wanted=100) == few


@pytest.mark.slow
def test_recall_is_counted_per_transformation(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(p) for p in scenes])
    found = measure_recall(calibrated(scenes), table, describe(table), enumerate(scenes))
    # nearly all copies of three pictures are found: that says enough
    assert found.synthetic_copies == 3 * len(found.recall)
    assert found.recall["mirror"] == 1.0
    assert 0.85 <= found.overall_recall <= 1.0
    assert "Expected recall on synthetic copies" in found.sentences()[-1]
    strict = measure_recall(
        Calibration(1e9, 0.0, 0.0, 0, "no pair passes"),
        table,
        describe(table),
        [(0, scenes[0])],
    )
    assert strict.overall_recall == 0.0
    assert strict.synthetic_copies == len(strict.recall)
    # a threshold that loses a third of the copies needs more of them
    partly = replace(strict, threshold=11.0)
    unsure = measure_recall(partly, table, describe(table), enumerate(scenes), uncertainty_band=0.0)
    assert 0.2 < unsure.overall_recall < 0.95
    assert unsure.synthetic_copies > found.synthetic_copies
