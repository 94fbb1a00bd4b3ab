"""The mathematics of wrong labels, each part against another way to the same number."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.optimize import minimize as scipy_minimize
from scipy.stats import binom, norm

from audit.embeddings.label_noise import (
    WEIGHT_LIMIT,
    _Likelihood,
    find_hump,
    find_strays,
    fit_noise_model,
    law_weights,
    minimise,
)

K, N = 4, 120


def problem(seed: int = 0) -> _Likelihood:
    """The likelihood of labels of which a tenth was set at random, with two witnesses."""
    rng = np.random.default_rng(seed)
    true = rng.integers(K, size=N)
    witnesses = [3 * np.eye(K)[true] + rng.normal(size=(N, K)) for _ in range(2)]
    labels = np.where(rng.random(N) < 0.1, rng.integers(K, size=N), true)
    return _Likelihood(witnesses, rng.normal(size=N), labels, K)


@pytest.mark.parametrize(("clean", "likeness"), [(True, 0.0), (False, 0.0), (False, 0.5)])
@pytest.mark.parametrize("capped", [False, True])
def test_the_gradient_is_that_of_finite_differences(
    clean: bool, likeness: float, capped: bool
) -> None:
    likelihood = problem()
    point = np.random.default_rng(1).normal(0, 0.5, 2 * (2 + K) + 1)
    if capped:
        point[0] = WEIGHT_LIMIT + 1  # beyond it a weight has no effect
    found = likelihood.loss(point, clean, likeness)[1]
    expected = approx_fprime(point, lambda p: likelihood.loss(p, clean, likeness)[0], 1e-7)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.abs(found).max() > 1e-3


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    low, high = x[:-1], x[1:]
    gradient = np.zeros_like(x)
    gradient[:-1] = -400 * low * (high - low**2) - 2 * (1 - low)
    gradient[1:] += 200 * (high - low**2)
    return float((100 * (high - low**2) ** 2 + (1 - low) ** 2).sum()), gradient


def test_the_descent_ends_where_that_of_scipy_does() -> None:
    start = np.linspace(-1.5, 1.5, 6)
    point, value = minimise(rosenbrock, start, 1000)
    np.testing.assert_allclose(point, 1.0, atol=1e-3)
    assert value < 1e-6
    likelihood, origin = problem(2), np.zeros(2 * (2 + K) + 1)
    for law in ((True, 0.0), (False, 0.0), (False, 0.5)):
        _, ours = minimise(lambda p, how=law: likelihood.loss(p, *how), origin)
        theirs = scipy_minimize(likelihood.loss, origin, law, "L-BFGS-B", jac=True)
        assert ours == pytest.approx(theirs.fun, abs=1e-5)


def test_a_share_of_labels_set_at_random_is_estimated() -> None:
    rng = np.random.default_rng(3)
    true = rng.integers(K, size=3000)
    witness = (4 * np.eye(K)[true] + rng.normal(size=(3000, K))).astype(np.float32)
    wrong = rng.random(3000) < 0.1
    labels = np.where(wrong, (true + rng.integers(1, K, 3000)) % K, true)
    _, laws = fit_noise_model([witness], np.zeros(3000), labels, K)
    weights = law_weights(laws)
    assert weights[0] > 0.99  # errors that fall on any class alike
    assert laws[0].gain > 50
    p = laws[0].probabilities([witness], np.zeros(3000))
    assert laws[0].error_chances(p, labels).mean() == pytest.approx(wrong.mean(), abs=0.02)


def test_errors_towards_what_looks_alike_are_told_from_blind_ones() -> None:
    rng = np.random.default_rng(4)
    true = rng.integers(K, size=6000)
    logits = 2.5 * np.eye(K)[true] + rng.normal(size=(6000, K))  # what the witness sees
    seen = np.exp(3 * logits)
    seen /= seen.sum(1, keepdims=True)
    labels = (seen.cumsum(1) < rng.random((6000, 1))).sum(1)  # labels follow it, but for a part
    law = seen**0.5
    law /= law.sum(1, keepdims=True)
    astray = rng.random(6000) < 0.3
    labels[astray] = (law.cumsum(1) < rng.random((6000, 1))).sum(1)[astray]
    _, laws = fit_noise_model([logits.astype(np.float32)], np.zeros(6000), labels, K)
    best = max(laws, key=lambda law: law.gain)
    assert best.likeness > 0
    assert best.gain > laws[0].gain


def margins(*values: tuple[float, int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of two classes: so many pictures of class 0 at each margin."""
    own = np.concatenate([np.full(n, m) for m, n in values])
    labels = np.append(np.zeros(len(own), np.int64), np.ones(50, np.int64))
    logits = np.zeros((len(labels), 2))
    logits[: len(own), 0] = own
    logits[len(own) :, 1] = np.linspace(3, 5, 50)
    return logits, labels


def test_a_hump_is_counted_against_a_ninth() -> None:
    # the middle of the class is 4, so its tail begins 2 below it and ends 6 below it
    logits, labels = margins((4.1, 45), (3.9, 45), (0.0, 6), (-4.0, 5))
    hump = find_hump(logits, labels)
    assert np.flatnonzero(hump.beyond).tolist() == list(range(96, 101))
    chance_of_tail = binom.sf(4, 11, 1 / 9)
    assert hump.gain == pytest.approx(norm.isf(chance_of_tail) ** 2 / 2)
    assert hump.chance == pytest.approx(1 - 6 / 8 / 5)  # an eighth of those on the way is the tail


@pytest.mark.parametrize("index", [2.0, 3.0])
def test_a_tail_of_finite_variance_is_no_hump(index: float) -> None:
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        below = 4 - 0.5 * rng.pareto(index, 2000)
        labels = np.zeros(2000, np.int64)
        gains.append(find_hump(np.stack([below, np.zeros(2000)], axis=1), labels).gain)
    assert np.mean(np.array(gains) >= 4.0) <= 0.1


def test_without_anything_beyond_there_is_no_hump() -> None:
    hump = find_hump(*margins((4.1, 45), (3.9, 45), (0.0, 6)))
    assert (hump.gain, hump.chance, hump.beyond.any()) == (0.0, 0.0, False)


def filed(seed: int, wrong: int, *, deep: bool = True) -> tuple[list[np.ndarray], np.ndarray]:
    """Two witnesses and labels of 8 classes of 33, of which a tenth lies half way to another.

    The first `wrong` pictures are filed under another class; those that are not `deep` only as far
    over the border as classes overlap.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(264) % 8
    seen = np.where(np.arange(264) < wrong, (labels + 3) % 8, labels)
    way = np.where(rng.random(264) < 0.1, rng.uniform(0.4, 0.8, 264), 1)
    way[:wrong] = 1 if deep else 0.3
    found = [
        (way[:, None] * np.eye(8)[seen] + 0.12 * rng.normal(size=(264, 8))).astype(np.float32)
        for _ in range(2)
    ]
    return found, labels


@pytest.mark.parametrize("seed", range(3))
def test_a_few_pictures_that_are_typical_of_another_class_are_strays(seed: int) -> None:
    witnesses, labels = filed(seed, 6)
    strays = find_strays(witnesses, labels)
    assert strays.gain > 4
    assert strays.chance > 0.8
    assert strays.beyond[:6].sum() >= 3
    assert not strays.beyond[6:].any()


@pytest.mark.parametrize(("wrong", "deep"), [(0, True), (6, False)])
def test_who_only_lies_over_the_border_is_no_stray(wrong: int, deep: bool) -> None:
    for seed in range(10):
        assert find_strays(*filed(seed, wrong, deep=deep)).gain < 4


def test_a_witness_that_does_not_agree_clears_a_stray() -> None:
    (one, other), labels = filed(1, 6)
    other[:6, :] = other[:6].mean(1, keepdims=True)  # its neighbours are of all classes
    assert find_strays([one], labels).gain > 4
    assert not find_strays([one, other], labels).beyond.any()


def test_strays_of_a_tail_that_thins_out_steadily_are_expected() -> None:
    reported = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        labels = np.arange(600) % 2
        margin = 1 - rng.laplace(0, 0.35, 600)  # exponential to both sides
        score = np.stack([np.where(labels, -margin, margin), np.zeros(600)], 1).astype(np.float32)
        reported += find_strays([score], labels).gain >= 4
    assert reported <= 2  # p = 0.002 each
