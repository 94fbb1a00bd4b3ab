"""Ranks of pairs among others of their cell: uniform by chance, small for what looks alike."""

from __future__ import annotations

import numpy as np
import pytest

from audit.statistics.likeness import Looks, chain_p_values, pair_ranks, standardised


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


def test_of_no_picture_there_are_no_ranks() -> None:
    none = np.zeros(0, np.int64)
    ranks = pair_ranks(looks(0, 0), none, none, 10, 20)
    assert len(ranks) == 0
    assert chain_p_values(ranks, none, 2).tolist() == [1.0, 1.0]


def test_a_picture_and_its_neighbour_rank_first_however_odd_they_are() -> None:
    pictures = looks(200, 3)
    tones = pictures.tones.copy()
    tones[1] = tones[0] = 9.0  # far from all others
    bits = pictures.bits.copy()
    bits[1] = bits[0]
    alike = Looks(tones, bits, pictures.cell, pictures.place)
    (rank,) = pair_ranks(alike, np.array([0]), np.array([1]), 10, 20)
    assert rank == pytest.approx(1 / 199)  # of 198 others none is nearer


def test_neighbours_of_the_same_sequence_are_no_others() -> None:
    pictures = looks(60, 4)
    tones, bits, place = pictures.tones.copy(), pictures.bits.copy(), pictures.place.copy()
    tones[:30], bits[:30] = tones[0], bits[0]  # a film of one scene, half of the class
    place[:30] = np.stack([np.zeros(30), np.arange(30)], axis=1)
    film = Looks(tones, bits, pictures.cell, place)
    first, second = np.array([0]), np.array([1])
    assert pair_ranks(film, first, second, 40, 20)[0] == pytest.approx(1 / 31)
    assert pair_ranks(film, first, second, 0, 20)[0] > 0.4


def test_too_few_others_and_no_pairs_tell_nothing() -> None:
    assert np.isnan(pair_ranks(looks(15, 5), np.array([0]), np.array([1]), 10, 20)).all()
    none = np.array([], np.int64)
    assert pair_ranks(looks(15, 5), none, none, 10, 20).size == 0
    assert chain_p_values(np.array([np.nan]), np.array([1]), 3).tolist() == [1.0, 1.0, 1.0]
