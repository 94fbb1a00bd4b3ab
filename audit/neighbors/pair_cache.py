"""Pairs that an earlier search decided, so that the next one need not repeat the work.

Two things cost time: aligning candidates (about 0.1 ms a pair) and opening files (10 ms), for
full-resolution checks and to measure the recall. Checks are kept with their verdict, and so is the
recall. Of alignments only the rejected pairs are kept, those that scored so low that no threshold
would let them pass nor ask for a check: nine candidates in ten, 8 bytes each. A verified pair is
aligned again: pairs are few.

A rejected pair stays rejected whatever else the dataset holds: a score depends on its two pictures
alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Fingerprints = npt.NDArray[np.uint64]
Numbers = Fingerprints | npt.NDArray[np.int64]
# Odd constants of splitmix64 [Steele, Lea and Flood, OOPSLA 2014].
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class KnownRecall:
    """The recall that an earlier search measured, by change, on so many synthetic copies.

    `changed`: pictures that came or went since.
    """

    recall: Mapping[str, float]
    copies: int
    changed: int


@dataclass(frozen=True, slots=True)
class PairCache:
    """Decided pairs of keys.

    `rechecks`: (smaller key, larger key) -> +1 the same picture, -1 not, 0 it cannot be told, by a
    full-resolution check. `rejected_pairs`: fingerprints (`pair_fingerprints`) of pairs that can
    never be called the same, sorted. `recall`: what was measured on copies of the pictures.
    """

    rechecks: Mapping[tuple[bytes, bytes], float] = field(default_factory=dict)
    rejected_pairs: Fingerprints = field(default_factory=lambda: np.zeros(0, np.uint64))
    recall: KnownRecall | None = None


def key_codes(keys: Sequence[bytes]) -> Fingerprints:
    """Return 64 bits of each key."""
    digests = (hashlib.blake2b(key, digest_size=8).digest() for key in keys)
    return np.frombuffer(b"".join(digests), np.uint64)


def pair_fingerprints(codes: Fingerprints, pairs: npt.NDArray[np.int64]) -> Fingerprints:
    """Return 64 bits of each pair (m, 2) of rows, the one of the smaller key first.

    Two of n pairs share one by accident with probability n^2 / 2^65: one in 370,000 at ten
    million pairs.
    """
    first, second = codes[pairs[:, 0]], codes[pairs[:, 1]]
    mixed = first * MIX_1 ^ ((second << np.uint64(31)) | (second >> np.uint64(33)))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIX_2
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def find_contained(values: Numbers, in_sorted: Numbers) -> npt.NDArray[np.bool_]:
    """Return for each value whether a sorted array holds it."""
    if not len(in_sorted):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(in_sorted, values), len(in_sorted) - 1)
    return np.asarray(in_sorted[place] == values, np.bool_)
