"""Candidates in great number: a score for each, and a map for the few that may be one picture.

Nine candidates in ten are strangers, of which nothing but the score is ever asked: 24 bytes each
instead of 104. Work goes in parts of `BATCH` pairs that carry what they need beside the rows of
their pictures, so that a part may be done wherever these can be fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from audit.neighbors.groups import Pairs
from audit.neighbors.sharing import Advance, RowTable, Share, at_once, ignore_share
from audit.neighbors.verification import BATCH, NO_MATCH, Floats, VerifiedPairs, verify

Places = npt.NDArray[np.intp]
PACKED = np.dtype(
    [
        ("similarity", np.float64), ("template", np.int8), ("orientation", np.int8),
        ("matrix", np.float64, 6), ("overlap", np.float64),
    ]
)  # fmt: skip
"""Of a verified pair what is neither its rows nor its score. Maps are exact: checks at full
resolution start from them, and one in a hundred ended elsewhere from a rounded one."""


@dataclass(frozen=True, slots=True)
class ExaminedPairs:
    """Pairs (m, 2) with their scores, and what else is known of those at `places` (`PACKED`):
    promising, or asked for.
    """

    pairs: Pairs
    score: Floats
    places: Places
    packed: npt.NDArray[np.void]

    def whole(self, rows: Places) -> VerifiedPairs:
        """Return some of those at `places` in full."""
        at, packed = self.places[rows], self.packed[rows]
        return VerifiedPairs(
            self.pairs[at],
            self.score[at],
            packed["similarity"].copy(),
            packed["template"].astype(np.int64),
            packed["orientation"].astype(np.int64),
            packed["matrix"].copy(),
            packed["overlap"].copy(),
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the pairs, from place `start`; `background` of their pictures, in order of rows."""

    start: int
    pairs: Pairs
    background: Floats | None
    keep: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Examine:
    """Step: scores of the pairs of each part, with the first place, and what is kept of some."""

    table: RowTable
    descriptors: RowTable
    least: float

    def __call__(
        self, parts: Sequence[_Part], advance: Advance = ignore_share
    ) -> list[tuple[int, Floats, Places, npt.NDArray[np.void]]]:
        found = []
        for done, part in enumerate(parts, start=1):
            rows, place = np.unique(part.pairs, return_inverse=True)
            verified = verify(
                self.table[rows], self.descriptors[rows], place.reshape(-1, 2),
                np.arange(len(rows)), background=part.background,
            )  # fmt: skip
            kept = np.flatnonzero((verified.score >= self.least) | part.keep)
            packed = np.empty(len(kept), PACKED)
            for name in PACKED.names or ():
                packed[name] = getattr(verified, name)[kept]
            found.append((part.start, verified.score, kept + part.start, packed))
            advance(done / len(parts))
        return found


def examine_pairs(
    table: RowTable,
    descriptors: RowTable,
    pairs: Pairs,
    *,
    background: Floats | None,
    least: float,
    keep: npt.NDArray[np.bool_],
    share: Share = at_once,
    advance: Advance = ignore_share,
) -> ExaminedPairs:
    """Score pairs (m, 2) of rows, which are in the order of the keys; see `verify`.

    Of pairs that score `least` all is kept, and of those of `keep` (m,) whatever they score.
    """
    score = np.full(len(pairs), NO_MATCH)
    found = []
    parts = _Parts(pairs, background, keep)
    for answers in share(_Examine(table, descriptors, least), parts, advance):
        for start, scores, places, packed in answers:
            score[start : start + len(scores)] = scores
            found.append((start, places, packed))
    found.sort(key=lambda one: one[0], reverse=True)
    places = np.concatenate([places for _, places, _ in reversed(found)])
    return ExaminedPairs(pairs, score, places, np.concatenate([p for _, _, p in reversed(found)]))


class _Parts(Sequence[_Part]):
    """Pairs in parts that are made when they are asked for."""

    def __init__(
        self, pairs: Pairs, background: Floats | None, keep: npt.NDArray[np.bool_]
    ) -> None:
        self.pairs, self.background, self.keep = pairs, background, keep

    def __len__(self) -> int:
        return -(-max(len(self.pairs), 1) // BATCH)

    @overload
    def __getitem__(self, number: int) -> _Part: ...
    @overload
    def __getitem__(self, number: slice) -> list[_Part]: ...
    def __getitem__(self, number: int | slice) -> _Part | list[_Part]:
        if isinstance(number, slice):
            return [self[k] for k in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        start = number * BATCH
        pairs = self.pairs[start : start + BATCH]
        around = None if self.background is None else self.background[np.unique(pairs)]
        return _Part(start, pairs, around, self.keep[start : start + BATCH])
