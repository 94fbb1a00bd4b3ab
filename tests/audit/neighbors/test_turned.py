"""Hashes in eight orientations: the transform's symmetries, and what they find."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audit.neighbors.candidates import find_turned_pairs, hash_orientations
from audit.neighbors.synthetic import make_duplicate
from audit.picture.signatures import GREY_SIDE, make_signature, stack_signatures


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
