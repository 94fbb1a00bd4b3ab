"""Permanent random numbers: published vectors, the package as reference, what depends on what."""

from __future__ import annotations

import blake3
import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from audit.subset import random_numbers as numbers


def test_splitmix64_published():
    """First outputs of the reference C code for seed 1234567 (Vigna, prng.di.unimi.it)."""
    gamma = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + i * gamma) % 2**64 for i in range(3)], np.uint64)
    assert numbers.splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_blake3_published():
    """BLAKE3's test vector for the empty input: af1349b9f5f9a1a6..."""
    value = int(numbers.hash_keys(pl.Series([""]))[0])
    assert value.to_bytes(8, "little").hex() == "af1349b9f5f9a1a6"


@given(st.lists(st.text(max_size=40), min_size=1, max_size=50))
@settings(max_examples=50, deadline=None)
def test_compiled_hash_equals_the_package(keys):
    series = pl.Series(keys, dtype=pl.String)
    expected = [int.from_bytes(blake3.blake3(k.encode()).digest(8), "little") for k in keys]
    assert numbers._compiled(series).tolist() == expected
    assert numbers.hash_keys(series).tolist() == expected


def test_compiled_hash_at_the_block_edge():
    keys = ["x" * n for n in (0, 1, 3, 4, 5, 63, 64, 65, 200)]
    series = pl.Series(keys).slice(1)  # an offset into the buffer, too
    expected = [int.from_bytes(blake3.blake3(k.encode()).digest(8), "little") for k in keys[1:]]
    assert numbers._compiled(series).tolist() == expected


def test_the_formula():
    key, seed = "abc", 7
    h = int.from_bytes(blake3.blake3(b"abc").digest(8), "little")
    salt = int(numbers.splitmix64(np.array([seed], np.uint64))[0])
    mixed = int(numbers.splitmix64(np.array([h ^ salt], np.uint64))[0])
    assert numbers.permanent_numbers(pl.Series([key]), seed)[0] == (mixed >> 11) * 2.0**-53


def test_fixed_for_all_time():
    """These values must never change: a subset drawn last year must be drawn again today."""
    found = numbers.permanent_numbers(pl.Series(["a", "b", "0" * 64]), 42)
    assert found.tolist() == FIXED


FIXED = [0.7718093125981255, 0.521205514359919, 0.6261089148078374]


def test_uniform_and_independent_of_order():
    keys = pl.Series([f"key {i}" for i in range(20_000)])
    u = numbers.permanent_numbers(keys, 1)
    assert kstest(u, "uniform").pvalue > 1e-4
    assert numbers.permanent_numbers(keys.reverse(), 1).tolist() == u[::-1].tolist()
    other = numbers.permanent_numbers(keys, 2)
    assert abs(np.corrcoef(u, other)[0, 1]) < 0.03
    assert len(numbers.permanent_numbers(keys.head(0), 1)) == 0


def test_negative_seeds_are_seeds():
    keys = pl.Series(["a", "b"])
    assert (numbers.permanent_numbers(keys, -1) != numbers.permanent_numbers(keys, 1)).all()
