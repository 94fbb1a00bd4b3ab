"""What an earlier search found, so that the next one need not repeat the work.

Each part says on what it depends. A score depends on its two pictures alone, so a rejected pair
stays rejected; the gate's answer stands while the surroundings of both pictures are the same, and a
weight while the strangers of its template are. Neighbours stand but for pictures that came or went.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Fingerprints = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
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
class KnownNeighbours:
    """The nearest (n, k) of pictures with these `codes` (n,), by place among them, -1 for none."""

    codes: Fingerprints
    index: npt.NDArray[np.int32]
    similarity: npt.NDArray[np.float32]

    def carried_over(self, codes: Fingerprints) -> tuple[Indices, Floats, Flags, Flags]:
        """Return neighbours and similarities of pictures with `codes` (m,), by place among these;
        which of them are new, and which have lost a neighbour.
        """
        order, other = np.argsort(codes, kind="stable"), np.argsort(self.codes, kind="stable")
        before = places_of(codes, self.codes[other], other)
        now = np.append(places_of(self.codes, codes[order], order), -1)
        index = now[self.index[before]]
        new = before < 0
        lost = ((index < 0) & (self.index[before] >= 0)).any(axis=1) & ~new
        return index, self.similarity[before], new, lost


def places_of(wanted: Fingerprints, in_sorted: Fingerprints, order: Indices) -> Indices:
    """Return where each of `wanted` is, in the order that `order` sorted; -1 for nowhere."""
    there = find_contained(wanted, in_sorted)
    at = np.minimum(np.searchsorted(in_sorted, wanted), max(len(in_sorted) - 1, 0))
    return np.where(there, order[at] if len(order) else -1, -1)


@dataclass(frozen=True, slots=True)
class KnownPairs:
    """Pairs that came near, by fingerprints (m,), sorted: their `score`; `weighed` against
    `strangers` (a digest of these), NaN where they were not; `packed`, what else is known of them.
    """

    prints: Fingerprints
    score: npt.NDArray[np.float64]
    weighed: npt.NDArray[np.float64]
    packed: npt.NDArray[np.void]
    strangers: Fingerprints


@dataclass(frozen=True, slots=True)
class KnownCodes:
    """Hashes (n,), sorted and distinct, and their pairs (m,) within a `radius`, by value."""

    codes: Fingerprints
    first: Fingerprints
    second: Fingerprints
    distance: npt.NDArray[np.uint8]
    radius: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KnownCentres:
    """Codes (n,) of pictures whose middles were compared, and the pairs (m,), the later picture
    first, of at least the similarity `floor`.
    """

    codes: Fingerprints
    first: Fingerprints
    second: Fingerprints
    similarity: npt.NDArray[np.float32]
    floor: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PairCache:
    """Decided pairs of keys.

    `rechecks`: (smaller key, larger key) -> the contrast of two pictures that a full-resolution
    check saw to be the same, 0 of others, NaN where it could not decide. `rejected_pairs`: sorted
    fingerprints (`pair_fingerprints`) of pairs that can never be called the same. `recall`: as
    measured on copies of the pictures. `neighbours`, `pairs`, `hashes` and `centres` are of up to
    `EXACT_LIMIT` pictures; `words` say what turns one picture into the other, by pixel hashes, with
    their similarity and overlap.
    """

    rechecks: Mapping[tuple[bytes, bytes], float] = field(default_factory=dict)
    rejected_pairs: Fingerprints = field(default_factory=lambda: np.zeros(0, np.uint64))
    recall: KnownRecall | None = None
    neighbours: KnownNeighbours | None = None
    pairs: KnownPairs | None = None
    hashes: KnownCodes | None = None
    centres: KnownCentres | None = None
    words: Mapping[tuple[str, str, float, float], str] = field(default_factory=dict)


def key_codes(keys: Sequence[bytes]) -> Fingerprints:
    """Return 64 bits of each key."""
    digests = (hashlib.blake2b(key, digest_size=8).digest() for key in keys)
    return np.frombuffer(b"".join(digests), np.uint64)


def pair_fingerprints(codes: Fingerprints, pairs: npt.NDArray[np.int64]) -> Fingerprints:
    """Return 64 bits of each pair (m, 2) of rows, the one of the smaller key first."""
    first, second = codes[pairs[:, 0]], codes[pairs[:, 1]]
    mixed = first * MIX_1 ^ ((second << np.uint64(31)) | (second >> np.uint64(33)))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIX_2
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def surrounded_codes(codes: Fingerprints, background: npt.NDArray[np.float64]) -> Fingerprints:
    """Return codes of pictures together with their surroundings (see `measure_contrast`)."""
    mixed = (codes ^ background.view(np.uint64)) * MIX_2
    return np.asarray(mixed ^ (mixed >> np.uint64(29)), np.uint64)


def find_contained(values: Numbers, in_sorted: Numbers) -> npt.NDArray[np.bool_]:
    """Return for each value whether a sorted array holds it."""
    if not len(in_sorted):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(in_sorted, values), len(in_sorted) - 1)
    return np.asarray(in_sorted[place] == values, np.bool_)
