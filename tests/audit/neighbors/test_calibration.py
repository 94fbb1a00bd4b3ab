"""The threshold follows what the user's own strangers score, and nothing below that."""

from __future__ import annotations

import numpy as np
import pytest

from audit.neighbors.calibration import (
    FALSE_IN_A_SET,
    HIGHEST_SLOPE,
    HIGHEST_THRESHOLD,
    LOOK_ALIKE,
    LOWEST_THRESHOLD,
    START,
    Calibration,
    calibrate,
    fit_tail,
    measure_recall,
)
from audit.neighbors.descriptor import describe
from audit.neighbors.verification import NO_MATCH, NOT_ALIGNED
from audit.picture.signatures import make_signature, stack_signatures


def strangers(n: int, slope: float, seed: int = 0) -> np.ndarray:
    """Scores of strangers, exponential from the start of the tail."""
    return START + np.random.default_rng(seed).exponential(1 / slope, n)


def test_look_alikes_raise_the_threshold() -> None:
    few, many = calibrate(strangers(5, 1.5)), calibrate(strangers(2000, 0.7))
    assert LOWEST_THRESHOLD <= few.threshold < many.threshold <= HIGHEST_THRESHOLD
    assert many.threshold >= LOOK_ALIKE
    assert any("are very similar" in line for line in many.sentences())
    assert not any("are very similar" in line for line in few.sentences())
    # the tail says how many pairs of a set like this one lie above
    assert few.false_expected <= FALSE_IN_A_SET
    assert (strangers(5, 1.5, 1) < few.threshold).all()


def test_what_lies_below_the_tail_moves_nothing() -> None:
    scores = strangers(60, 1.0)
    low = np.concatenate([scores, np.full(50, NOT_ALIGNED), np.full(9, NO_MATCH), [-9.0, -3.01]])
    assert calibrate(scores) == calibrate(low)


def test_copies_do_not_raise_it() -> None:
    scores = strangers(60, 1.0)
    copies = np.random.default_rng(1).uniform(4, 14, 400)
    with_copies = calibrate(np.concatenate([scores, copies]))
    # where many pairs are reported, some more of them may be false
    assert with_copies.threshold <= calibrate(scores).threshold


def bulk(n: int, copies: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a set whose strangers are alike (most at 0, some at 5), and of copies in it."""
    rng = np.random.default_rng(seed)
    return rng.gumbel(-1, 0.8, n), rng.uniform(-1, 17, copies)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "copies"), [(2000, 0), (20_000, 0), (2000, 500), (20_000, 1500)])
def test_amid_many_strangers_the_tail_is_looked_for_beyond_most(
    n: int, copies: int, seed: int
) -> None:
    different, same = bulk(n, copies, seed)
    found = calibrate(np.concatenate([different, same]))
    called = int((same >= found.threshold).sum())
    assert (different >= found.threshold).sum() <= max(2, 0.02 * called)
    # no higher than what any stranger reaches asks for
    assert found.threshold < different.max() + 7


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("n", "copies", "highest"),
    # as many copies as in a set that was changed hard, a large set, and one of film stills
    [(1500, 1000, 9.0), (40_000, 5000, 10.0), (1500, 5000, 9.0)],
)
def test_many_copies_are_no_tail_of_strangers(
    n: int, copies: int, highest: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    different = rng.gumbel(-1, 0.8, n)
    same = rng.uniform(0, 12.5, copies) if n < copies * 2 else rng.triangular(4, 13, 13.5, copies)
    found = calibrate(np.concatenate([different, same]))
    assert found.threshold < highest
    assert (different >= found.threshold).sum() <= max(3, 0.02 * (same >= found.threshold).sum())


@pytest.mark.parametrize("top", [9.0, 11.0, 13.5])
def test_scores_that_rise_to_the_top_have_a_threshold(top: float) -> None:
    rising = np.random.default_rng(0).triangular(-3.5, top, 14, 20_000)
    assert LOWEST_THRESHOLD <= calibrate(rising).threshold <= HIGHEST_THRESHOLD


def test_the_tail_of_a_known_distribution_is_recovered() -> None:
    tail = fit_tail(strangers(3000, 1.5))
    # the last hundred of them, shrunk towards what is usual
    assert tail.start > START
    assert 1.0 < tail.slope <= HIGHEST_SLOPE
    threshold = float(tail.threshold(np.array([0.3]))[0])
    assert abs(threshold - (START + np.log(3000 / 0.3) / 1.5)) < 2 * tail.uncertainty(threshold)
    assert np.isclose(tail.rate(threshold), 0.3)
    errors = [fit_tail(strangers(200, 1.5, seed)) for seed in range(40)]
    asked = np.array([float(one.threshold(np.array([0.3]))[0]) for one in errors])
    assert 0.5 < asked.std() / np.mean([one.uncertainty(a) for one, a in zip(errors, asked)]) < 2  # noqa: B905


def test_hardly_any_pictures_get_a_threshold() -> None:
    for n in (0, 1, 2):
        found = calibrate(np.full(n, NO_MATCH))
        assert LOWEST_THRESHOLD <= found.threshold < 1.0
        assert len(found.sentences()) == 3


@pytest.mark.slow
def test_recall_is_counted_per_transformation(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(p) for p in scenes])
    lowest, pool = calibrate(np.zeros(0)), np.arange(len(table))
    found = measure_recall(lowest, table, describe(table), enumerate(scenes), pool=pool)
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
        pool=pool,
    )
    assert strict.overall_recall == 0.0
    assert strict.synthetic_copies == len(strict.recall)
