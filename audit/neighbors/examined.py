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
from audit.neighbors.verification import BATCH, Floats, VerifiedPairs, verify

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
    """Step: the first place of parts that follow each other, the scores of their pairs, and the
    places and `PACKED` of those that are kept.
    """

    table: RowTable
    descriptors: RowTable
    least: float

    def __call__(
        self, parts: Sequence[_Part], advance: Advance = ignore_share
    ) -> tuple[int, Floats, Places, npt.NDArray[np.void]]:
        # room for all: what is not filled takes no memory, and nothing is there twice at the end
        most = BATCH * len(parts)
        score, places, packed = np.empty(most), np.empty(most, np.intp), np.empty(most, PACKED)
        first = filled = n_kept = 0
        for done, part in enumerate(parts, start=1):
            rows, place = np.unique(part.pairs, return_inverse=True)
            verified = verify(
                self.table[rows], self.descriptors[rows], place.reshape(-1, 2),
                np.arange(len(rows)), background=part.background,
            )  # fmt: skip
            first = part.start if done == 1 else first
            score[filled : filled + len(part.pairs)] = verified.score
            kept = np.flatnonzero((verified.score >= self.least) | part.keep)
            here = slice(n_kept, n_kept + len(kept))
            places[here] = kept + part.start
            for name in PACKED.names or ():
                packed[name][here] = getattr(verified, name)[kept]
            filled, n_kept = filled + len(part.pairs), here.stop
            advance(done / len(parts))
        return first, score[:filled], places[:n_kept], packed[:n_kept]


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
    parts = _Parts(pairs, background, keep)
    found = sorted(share(_Examine(table, descriptors, least), parts, advance), key=lambda f: f[0])
    _, *columns = zip(*found, strict=True)
    # of one list, which is all there is in one process, no copy
    return ExaminedPairs(pairs, *(c[0] if len(c) == 1 else np.concatenate(c) for c in columns))


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
