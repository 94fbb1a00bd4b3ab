"""Sample sizes: published values, both directions, and the promise for every larger n."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.statistics import intervals as stats
from audit.subset import sizes


def test_connors_sizes():
    """Connor (1987), Biometrics 43:207, as tabulated by two public calculators: 23 and 155."""
    assert math.ceil(sizes.connor_n(0.40, 0.50)) == 23  # p10 = .45, p01 = .05
    assert math.ceil(sizes.connor_n(0.15, 0.45)) == 155  # p10 = .30, p01 = .15


@pytest.mark.parametrize("p", [0.5, 0.9, 0.97])
def test_every_larger_n_complies(p):
    width = 0.04
    n = sizes.proportion_n(width, p, 0.95)
    assert sizes.half_width(np.arange(n, n + 401), p, 0.95).max() <= width
    assert sizes.half_width(n - 1, p, 0.95)[0] > width


def test_exact_limits_take_over_at_half_of_the_set():
    at = sizes.half_width([499, 500], 0.3, population=1000)
    low, high = stats.hypergeometric_limits(150, 500, 1000)
    assert at[1] == pytest.approx((high - low) / 2000)
    assert at[0] < at[1]  # the jump that proportion_n must look past
    assert sizes.half_width(1000, 0.3, population=1000)[0] == 0


@given(st.floats(0.02, 0.9), st.floats(0.02, 0.9), st.sampled_from([0.8, 0.9]))
@settings(max_examples=80)
def test_connor_both_ways(discordant, fraction, power):
    difference = discordant * fraction
    n = sizes.connor_n(difference, discordant, 0.05, power)
    assert sizes.connor_difference(n, discordant, 0.05, power) == pytest.approx(difference)


def test_too_few_pairs_detect_nothing():
    assert np.isnan(sizes.connor_difference(5, 0.1))
    assert sizes.connor_difference(np.inf, 0.1) == 0


def test_mcnemar_power_is_the_sum_over_outcomes():
    n, d, psi = 40, 0.2, 0.4
    b, c = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    rest = n - b - c
    ok = rest >= 0
    from scipy.stats import multinomial

    chance = multinomial.pmf(
        np.stack([b[ok], c[ok], rest[ok]], 1), n, [(psi + d) / 2, (psi - d) / 2, 1 - psi]
    )
    expected = chance[stats.mcnemar(b[ok], c[ok]) <= 0.05].sum()
    assert sizes.mcnemar_power(n, d, psi) == pytest.approx(expected, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "psi"), [(0.02, 0.1), (0.05, 0.06), (0.1, 0.3), (0.2, 0.25)])
def test_planned_power_arrives(d, psi):
    n, why = sizes.paired_n(d, psi)
    assert abs(sizes.mcnemar_power(math.ceil(n), d, psi) - 0.8) <= 0.02
    assert ("enumeration" in why) == (d / psi > 0.75)


def test_label_noise_dilutes():
    d, psi = sizes.noisy_difference(0.05, 0.2, 0.1, 10, 0.05)
    assert d == pytest.approx(0.05 * (1 - 0.1 * 10 / 9))
    assert psi == pytest.approx(0.2 * (1 - 0.1 * 8 / 9) + 2 * 0.05 * 0.1 / 9)
    assert sizes.noisy_difference(0.05, 0.2, 0.0, 10, 0.05) == (0.05, 0.2)
    assert sizes.noise_bound(0.03, 0.2) == 0.06


@pytest.mark.slow
def test_label_noise_formula_by_simulation():
    """Uniform noise on simulated labels moves d and psi as the formula says (3 standard errors)."""
    rng, n, K, eta = np.random.default_rng(1), 2_000_000, 4, 0.15
    truth = rng.integers(0, K, n)
    a = np.where(rng.uniform(size=n) < 0.7, truth, (truth + rng.integers(1, K, n)) % K)
    b = np.where(rng.uniform(size=n) < 0.8, truth, (truth + rng.integers(1, K, n)) % K)
    right_a, right_b = a == truth, b == truth
    d, psi = right_b.mean() - right_a.mean(), (right_a != right_b).mean()
    both = (~right_a & ~right_b & (a != b)).mean()
    seen = np.where(rng.uniform(size=n) < eta, (truth + rng.integers(1, K, n)) % K, truth)
    change = (b == seen).astype(int) - (a == seen)
    expected = sizes.noisy_difference(d, psi, eta, K, both)
    assert abs(change.mean() - expected[0]) <= 3 * change.std() / math.sqrt(n)
    assert abs((change != 0).mean() - expected[1]) <= 3 * 0.5 / math.sqrt(n)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sizes.proportion_n(0.6), "between 0 and 0.5"),
        (lambda: sizes.connor_n(0.2, 0.1), "ask for a smaller --detect"),
        (lambda: sizes.connor_n(0.0, 0.1), "0 < D <= 1"),
        (lambda: sizes.noisy_difference(0.1, 0.2, 0.95, 10, 0), "leaves no signal"),
        (lambda: sizes.noisy_difference(0.1, 0.2, 0.1, 1, 0), "at least 2 classes"),
    ],
)
def test_bad_targets(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
