"""Intervals and tests against published tables and against statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from audit.errors import UsageError
from audit.statistics import intervals as stats
from audit.subset import sizes

# Newcombe (1998), Statistics in Medicine 17:857, table I.
NEWCOMBE = [
    (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
    (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
    (0, 20, (0.0000, 0.1611), (0.0000, 0.1684)),
    (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
]


@pytest.mark.parametrize(("k", "n", "score", "exact"), NEWCOMBE)
def test_newcombes_table(k, n, score, exact):
    assert np.allclose(stats.wilson(k, n), score, atol=5e-5)
    assert np.allclose(stats.clopper_pearson(k, n), exact, atol=5e-5)


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
@settings(max_examples=60)
def test_intervals_equal_statsmodels(n, share, confidence):
    k = round(n * share)
    for ours, method in ((stats.wilson, "wilson"), (stats.clopper_pearson, "beta")):
        theirs = proportion_confint(k, n, 1 - confidence, method)
        assert np.allclose(ours(k, n, confidence), theirs, atol=1e-9)


@pytest.mark.parametrize("n", [60, 100, 300])
def test_a_share_is_covered_wherever_it_lies(n):
    """Summed over all outcomes: Wilson's limits alone cover 84 % next to 0 and 1."""
    k = np.arange(n + 1)
    low, high = sizes.share_limits(k / n, n)
    for p in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.98, 0.995):
        held = binom.pmf(k, n, p)[(low <= p) & (p <= high)].sum()
        assert held >= 0.932, p
    assert (high - low > 0).all()
    assert np.allclose(low, 1 - high[::-1])


def test_hypergeometric_limits_published():
    """Manitz et al., samplingbook (R, 2020), README: 45 and 2 of 100 from N = 300.

    That program prints the outermost counts which the test still rejects: [110, 161] and [2, 19].
    The limits are the counts next to them that are not rejected; 2 is the least possible.
    """
    low, high = stats.hypergeometric_limits([45, 2], 100, 300)
    assert (low - [1, 0]).tolist() == [110, 2]
    assert (high + 1).tolist() == [161, 19]


@given(st.integers(2, 60), st.data())
@settings(max_examples=60)
def test_hypergeometric_limits_are_the_test_inverted(total, data):
    n = data.draw(st.integers(1, total))
    k = data.draw(st.integers(0, n))
    low, high = (int(v) for v in stats.hypergeometric_limits(k, n, total))
    possible = np.arange(k, total - n + k + 1)

    def accepted(tail: float) -> list[int]:
        return [
            int(m)
            for m in possible
            if hypergeom.sf(k - 1, total, m, n) > tail and hypergeom.cdf(k, total, m, n) > tail
        ]

    # one of forty is 0.025 exactly: the last digit of a tie may fall on either side
    strict, loose = accepted(0.025 + 1e-12), accepted(0.025 - 1e-12)
    assert loose[0] <= low <= strict[0]
    assert strict[-1] <= high <= loose[-1]


def test_hypergeometric_limits_cover():
    total, n = 60, 25
    low, high = stats.hypergeometric_limits(np.arange(n + 1), n, total)
    for m in range(total + 1):
        chance = hypergeom.pmf(np.arange(n + 1), total, m, n)
        assert chance[(low <= m) & (m <= high)].sum() >= 0.95


def test_nothing_left_to_guess_at_the_whole_set():
    assert stats.hypergeometric_limits(7, 20, 20) == (7, 7)
    assert stats.effective_n(20, 20) == np.inf
    low, high = stats.wilson_share(0.35, np.inf)
    assert low == high == 0.35
    assert stats.paired_difference(0.1, 0.04, np.inf) == (pytest.approx(0.06), pytest.approx(0.06))


def test_effective_n():
    assert stats.effective_n(374, 1000) == pytest.approx(374 * 999 / 626)


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60)
def test_mcnemar_equals_statsmodels(b, c):
    table = [[10, b], [c, 10]]
    theirs = reference_mcnemar(table, exact=False, correction=False).pvalue if b + c else 1.0
    assert stats.mcnemar(b, c) == pytest.approx(theirs)


def test_midp_mcnemar():
    """Fagerland et al. (2013), BMC Med Res Methodol 13:91: b = 1, c = 7 gives mid-p 0.039."""
    assert stats.mcnemar(1, 7, "midp") == pytest.approx(0.0391, abs=5e-5)
    assert stats.mcnemar(4, 4, "midp") == pytest.approx(1 - binom.pmf(4, 8, 0.5))


def test_paired_difference_holds_its_level():
    """The interval's exact coverage over all outcomes of 60 pairs."""
    n, gain, loss = 60, 0.12, 0.05
    b, c = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    chance = binom.pmf(b, n, gain) * binom.pmf(c, n - b, loss / (1 - gain))
    low, high = stats.paired_difference(b / n, c / n, n)
    held = chance[(low <= gain - loss) & (gain - loss <= high) & (b + c <= n)].sum()
    assert 0.94 <= held <= 0.985


def test_false_discovery_rate_equals_statsmodels():
    p = np.random.default_rng(0).uniform(size=30) ** 2
    assert np.allclose(stats.benjamini_hochberg(p), multipletests(p, method="fdr_bh")[1])
    assert stats.benjamini_hochberg([]).size == 0


def test_error_rate_shared_among_looks():
    assert stats.alpha_for_looks(0.95, 5) == pytest.approx(0.01)
    with pytest.raises(UsageError, match="at least 1"):
        stats.alpha_for_looks(0.95, 0)


def test_intraclass_correlation():
    """Snedecor and Cochran's formula on a table worked by hand: MSB 4.5, MSW 0.5, m = 2."""
    values, units = [1, 2, 3, 4, 2, 3], [0, 0, 1, 1, 2, 2]
    msb, msw = 2.0, 0.5
    assert stats.intraclass_correlation(values, units) == pytest.approx(
        (msb - msw) / (msb + (2 - 1) * msw)
    )
    assert stats.intraclass_correlation([1, 0, 1], [0, 1, 2]) != stats.intraclass_correlation(
        [1, 1, 0], [0, 0, 1]
    )
    assert stats.intraclass_correlation([1, 0, 0, 1], [0, 0, 1, 1]) == 0.0


def test_effect_sizes():
    assert stats.total_variation([1, 1], [3, 1]) == pytest.approx(0.25)
    assert stats.cramers_v([[50, 0], [0, 50]]) == pytest.approx(1.0, abs=0.01)
    assert stats.cramers_v([[25, 25], [25, 25]]) == 0.0


def test_levels_are_checked():
    with pytest.raises(UsageError, match="between 0 and 1"):
        stats.wilson(1, 2, 95)
    with pytest.raises(UsageError, match="larger than the set"):
        stats.hypergeometric_limits(1, 30, 20)


def test_hypergeometric_tails_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    size = rng.integers(1, 60_000, 2000)
    marked = (rng.random(2000) * (size + 1)).astype(int)
    draws = (rng.random(2000) * (size + 1)).astype(int)
    least, most = np.maximum(0, draws + marked - size), np.minimum(draws, marked)
    inside = least + (rng.random(2000) * (most - least + 1)).astype(int)
    inside[:500] = np.clip(draws * marked // size, least, most)[:500]
    lower, upper = stats.hypergeometric_tails(inside, draws, marked, size)
    assert lower == pytest.approx(hypergeom.cdf(inside, size, marked, draws), abs=1e-9)
    assert upper == pytest.approx(hypergeom.sf(inside - 1, size, marked, draws), abs=1e-9)
    small = upper < 1e-6
    assert upper[small] == pytest.approx(
        hypergeom.sf(inside - 1, size, marked, draws)[small], rel=1e-6
    )


@pytest.mark.parametrize(("counts", "tails"), [((0, 0, 0, 5), (1, 1)), ((3, 3, 3, 3), (1, 1))])
def test_hypergeometric_tails_where_there_is_one_outcome(
    counts: tuple[int, ...], tails: tuple[int, int]
) -> None:
    assert tuple(map(float, stats.hypergeometric_tails(*counts))) == tails
