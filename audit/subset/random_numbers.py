"""Permanent random numbers: one fixed number in [0, 1) per unit and seed, the same everywhere.

A unit's number depends on its key and the seed alone: not on row order, library version, machine or
on which other units exist. That makes draws repeatable and nested, and keeps a draw almost
unchanged when data are added (Ohlsson 1995, "Coordination of samples using permanent random
numbers", in Business Survey Methods). The number is
``u = (splitmix64(h XOR splitmix64(seed)) >> 11) * 2**-53`` with h the first 8 bytes, little-endian,
of the BLAKE3 hash of the key's UTF-8 bytes. The key of a duplicate group is its smallest member
hash; the *minimum of the members' numbers* would favour large groups.

BLAKE3 of a key of up to 64 bytes (a content hash in hexadecimal is exactly that) is one
compression, compiled with numba in `blake3_kernel`. 10 million keys of 33 bytes took it 3.5 s of
processor time, and the blake3 package, with one call for each key, 14.8 s: twice the cost of a
whole plan and draw. Longer keys and small tables go through the package. Tests hold the two equal.
"""

from __future__ import annotations

import blake3
import numpy as np
import polars as pl
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
# Compiling the loop costs about as much as hashing this many keys one by one.
COMPILE_FROM_ROWS = 200_000
SLICE_ROWS = 1_000_000
_LOW_BITS = 11
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def splitmix64(x: U64) -> U64:
    """Return the splitmix64 output for each state: Steele, Lea and Flood (2014), OOPSLA."""
    z = np.asarray(x, np.uint64) + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return np.asarray(z ^ (z >> np.uint64(31)))


def permanent_numbers(keys: pl.Series, seed: int) -> NDArray[np.float64]:
    """Return one number in [0, 1) for each key, in order; `seed` is any integer of 64 bits."""
    salt = splitmix64(np.array([seed % 2**64], np.uint64))
    mixed = splitmix64(hash_keys(keys) ^ salt)
    return (mixed >> np.uint64(_LOW_BITS)).astype(np.float64) * 2.0**-53


def hash_keys(keys: pl.Series) -> U64:
    """Return the first 8 bytes of BLAKE3 of each key as little-endian integers."""
    result = np.empty(len(keys), np.uint64)
    compiled = len(keys) >= COMPILE_FROM_ROWS
    for start in range(0, len(keys), SLICE_ROWS):
        part = keys.slice(start, SLICE_ROWS)
        result[start : start + len(part)] = _compiled(part) if compiled else _by_package(part)
    return result


def _by_package(keys: pl.Series) -> U64:
    digests = b"".join(blake3.blake3(key.encode()).digest(8) for key in keys.to_list())
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _compiled(keys: pl.Series) -> U64:
    # Imported here: numba takes half a second, and only large sets pay for it.
    from audit.subset.blake3_kernel import first_words

    text = keys.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offset_buffer, data_buffer = text.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[text.offset : text.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(1, np.uint8)
    result = first_words(data, offsets)
    long = np.flatnonzero(np.diff(offsets) > 64)
    if long.size:
        result[long] = _by_package(keys.gather(pl.Series(long)))
    return np.asarray(result)
