"""The descriptor knows all eight orientations; the search for neighbours is exact, or says not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbors.dense import find_nearest, find_nearest_in, similarity_table
from audit.neighbors.descriptor import compare_orientations, describe
from audit.neighbors.orientations import ORIENTATIONS, orient
from audit.picture.signatures import SIGNATURE_DTYPE, make_signature, stack_signatures


def random_table(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = np.zeros(n, SIGNATURE_DTYPE)
    table["grey"] = rng.integers(0, 256, (n, 32, 32))
    table["colour"] = rng.integers(0, 256, (n, 8, 8, 3))
    table["size"] = 200
    return table


def laid_down(table: np.ndarray, k: int) -> np.ndarray:
    out = table.copy()
    for row in range(len(table)):
        out["grey"][row] = orient(table["grey"][row], k)
        out["colour"][row] = orient(table["colour"][row], k)
    return out


@pytest.mark.parametrize("k", range(len(ORIENTATIONS)))
def test_each_orientation_is_recognised(k: int) -> None:
    table = random_table(0, 8)
    # similarity k of (laid down, original): the original laid down that way is the first
    found = compare_orientations(describe(laid_down(table, k)), describe(table))
    assert (found.argmax(axis=1) == k).all()
    assert np.allclose(found[:, k], 1.0, atol=1e-4)


def test_brightness_and_contrast_hardly_matter() -> None:
    table = stack_signatures(
        [
            make_signature(p)
            for p in np.random.default_rng(1).integers(40, 200, (5, 64, 64, 3)).astype(np.uint8)
        ]
    )
    dimmed = table.copy()
    dimmed["grey"] = table["grey"] // 2 + 20
    dimmed["colour"] = table["colour"] // 2 + 20
    assert compare_orientations(describe(table), describe(dimmed))[:, 0].min() > 0.97


def brute(table: np.ndarray) -> np.ndarray:
    n = len(table)
    d = describe(table)
    first, second = (a.ravel() for a in np.indices((n, n)))
    return compare_orientations(d[first], d[second]).max(axis=1).reshape(n, n)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), n=st.integers(2, 60), k=st.integers(1, 12))
def test_the_exact_search_is_exact(seed: int, n: int, k: int) -> None:
    table = random_table(seed, n)
    all_pairs = brute(table)
    np.fill_diagonal(all_pairs, -9)
    found = find_nearest(describe(table), k)
    m = min(k, n - 1)
    assert np.allclose(found.similarity[:, :m], -np.sort(-all_pairs, axis=1)[:, :m], atol=4e-5)
    assert (found.index[:, m:] == -1).all()
    assert (found.index != np.arange(n)[:, None]).all()
    assert found.exact


@pytest.mark.slow
def test_blocks_join_without_a_seam() -> None:
    table = random_table(3, 2300)  # three blocks
    d = describe(table)
    found = find_nearest(d, 5)
    rows = np.array([0, 1023, 1024, 2047, 2048, 2299])
    truth = similarity_table(d[rows], d)
    truth[np.arange(len(rows)), rows] = -9
    assert np.allclose(found.similarity[rows], -np.sort(-truth, axis=1)[:, :5], atol=1e-5)


def test_the_approximate_search_measures_its_recall_and_finds_copies() -> None:
    table = random_table(4, 1500)
    copies = laid_down(table[:300], 1)
    d = describe(np.concatenate([table, copies]))
    found = find_nearest(d, 5, exact_limit=100)
    assert not found.exact
    assert 0.0 < found.recall < 1.0
    assert found.sample == 500
    hit = (found.index[:300] == np.arange(1500, 1800)[:, None]).any(axis=1)
    assert hit.mean() > 0.97


def test_queries_find_their_copies_in_a_library() -> None:
    table = random_table(5, 700)
    found = find_nearest_in(describe(laid_down(table[:50], 6)), describe(table), 3)
    assert found.index[:, 0].tolist() == list(range(50))
