"""The descriptor and the hashes in eight orientations, and the search for neighbours by them."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbors.candidates import find_turned_pairs, hash_orientations
from audit.neighbors.dense import find_nearest, find_nearest_in, similarity_table
from audit.neighbors.descriptor import compare_orientations, describe
from audit.neighbors.orientations import (
    INVERSE,
    ORIENTATIONS,
    compose,
    is_reflection,
    orient,
    orient_frequencies,
    parity_sign,
)
from audit.neighbors.synthetic import make_duplicate
from audit.picture.signatures import GREY_SIDE, SIGNATURE_DTYPE, make_signature, stack_signatures


def source_place(y: int, x: int, n: int, orientation: int) -> tuple[int, int]:
    """Return the (row, column) of an n x n picture that `orient` moves to (y, x)."""
    v, u = (x, y) if orientation & 4 else (y, x)
    if orientation & 1:
        u = n - 1 - u
    if orientation & 2:
        v = n - 1 - v
    return v, u


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


ALL = range(len(ORIENTATIONS))


def square(seed: int = 0, n: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n * n).reshape(n, n).astype(np.float32)


def test_they_are_eight_different_ones() -> None:
    assert len({orient(square(), k).tobytes() for k in ALL}) == len(ORIENTATIONS) == 8


@pytest.mark.parametrize(("first", "second"), list(itertools.product(ALL, ALL)))
def test_two_in_a_row_are_their_composition(first: int, second: int) -> None:
    both = orient(orient(square(), first), second)
    assert (both == orient(square(), compose(first, second))).all()


@pytest.mark.parametrize("k", ALL)
def test_the_inverse_leads_back(k: int) -> None:
    assert (orient(orient(square(), k), int(INVERSE[k])) == square()).all()


@pytest.mark.parametrize("k", ALL)
def test_places_are_those_of_the_picture(k: int) -> None:
    picture, laid = square(), orient(square(), k)
    for y, x in itertools.product(range(6), range(6)):
        assert laid[y, x] == picture[source_place(y, x, 6, k)]


@pytest.mark.parametrize("k", ALL)
def test_frequencies_and_signs_follow_the_picture(k: int) -> None:
    before, after = cv2.dct(square()), cv2.dct(orient(square(), k))
    assert np.allclose(orient_frequencies(before[None], k)[0], after, atol=1e-3)
    for v, u in itertools.product(range(6), range(6)):
        place = (u, v) if k & 4 else (v, u)
        signed = parity_sign(k, (u % 2) + 2 * (v % 2)) * before[v, u]
        assert after[place] == pytest.approx(signed, abs=1e-3)


def test_names_say_what_is_undone_clockwise() -> None:
    turned = {90: np.rot90(square(), -1), 180: np.rot90(square(), 2), 270: np.rot90(square())}
    for degrees, picture in turned.items():
        k = ORIENTATIONS.index(f"rotated by {degrees} degrees")
        assert (orient(np.ascontiguousarray(picture), k) == square()).all()
        assert not is_reflection(k)
    mirrored = ORIENTATIONS.index("mirrored")
    assert (orient(square()[:, ::-1], mirrored) == square()).all()
    assert is_reflection(mirrored)


def table_of_grey(*thumbnails: np.ndarray) -> np.ndarray:
    table = stack_signatures([make_signature(np.zeros((40, 40, 3), np.uint8))] * len(thumbnails))
    for row, grey in enumerate(thumbnails):
        table["grey"][row] = grey
    return table


@given(st.integers(0, 2**32 - 1), st.integers(0, 7))
def test_the_code_of_a_turned_picture_is_the_turned_code(seed: int, orientation: int) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, (GREY_SIDE, GREY_SIDE), np.uint8)
    turned = grey[:, ::-1] if orientation & 1 else grey
    turned = turned[::-1] if orientation & 2 else turned
    turned = turned.T if orientation & 4 else turned
    codes = hash_orientations(table_of_grey(grey, turned))
    # rounding may decide a frequency that equals the median
    assert int(np.bitwise_count(codes[orientation, 0] ^ codes[0, 1])) <= 1


def test_every_way_up_is_found(scenes: list[np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    changed = [
        make_duplicate(scenes[k], kind, rng) for k, kind in enumerate(("mirror", "rotate_90"))
    ]
    flipped = np.ascontiguousarray(scenes[2][::-1])
    table = stack_signatures([make_signature(p) for p in (*scenes[:6], *changed, flipped)])
    pairs = find_turned_pairs(table, 4).tolist()
    assert [0, 6] in pairs
    assert [1, 7] in pairs
    assert [2, 8] in pairs
    assert len(pairs) == 3


def test_one_picture_has_no_pair(scenes: list[np.ndarray]) -> None:
    assert find_turned_pairs(stack_signatures([make_signature(scenes[0])]), 4).shape == (0, 2)
