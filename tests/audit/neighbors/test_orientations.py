"""The eight orientations: one group of symmetries, in every form that the search uses."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest

from audit.neighbors.orientations import (
    INVERSE,
    ORIENTATIONS,
    compose,
    is_reflection,
    orient,
    orient_frequencies,
    parity_sign,
    source_place,
)

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
        k = ORIENTATIONS.index(f"turned by {degrees} degrees")
        assert (orient(np.ascontiguousarray(picture), k) == square()).all()
        assert not is_reflection(k)
    mirrored = ORIENTATIONS.index("mirrored")
    assert (orient(square()[:, ::-1], mirrored) == square()).all()
    assert is_reflection(mirrored)
