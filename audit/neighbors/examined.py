"""Candidates in great number: a score for each, and a map for the few that may be one picture.

Nine candidates in ten are strangers, of which nothing but the score is ever asked: 24 bytes each
instead of 104. Work goes in parts of `BATCH` pairs that carry what they need beside the rows of
their pictures, so that a part may be done wherever these can be fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.neighbors.groups import Pairs
from audit.neighbors.sharing import Advance, RowTable, Share, at_once, ignore_share
from audit.neighbors.verification import BATCH, NO_MATCH, Floats, VerifiedPairs, verify

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ExaminedPairs:
    """Pairs (m, 2) with their scores, and in full those at `places`: promising, or asked for."""

    pairs: Pairs
    score: Floats
    places: Places
    whole: VerifiedPairs


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the pairs, from place `start`; `background` of their pictures, in order of rows."""

    start: int
    pairs: Pairs
    background: Floats | None
    keep: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Examine:
    """Step: scores of the pairs of each part, with the first place, and the rows kept in full."""

    table: RowTable
    descriptors: RowTable
    least: float

    def __call__(
        self, parts: Sequence[_Part], advance: Advance = ignore_share
    ) -> list[tuple[int, Floats, Places, VerifiedPairs]]:
        found = []
        for done, part in enumerate(parts, start=1):
            rows, place = np.unique(part.pairs, return_inverse=True)
            verified = verify(
                self.table[rows], self.descriptors[rows], place.reshape(-1, 2),
                np.arange(len(rows)), background=part.background,
            )  # fmt: skip
            kept = np.flatnonzero((verified.score >= self.least) | part.keep)
            whole = replace(verified.take(kept), pairs=part.pairs[kept])
            found.append((part.start, verified.score, kept + part.start, whole))
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

    Pairs that score `least` are returned in full, and those of `keep` (m,) whatever they score.
    """
    parts = [
        _part(start, pairs[start : start + BATCH], background, keep[start : start + BATCH])
        for start in range(0, max(len(pairs), 1), BATCH)
    ]
    score = np.full(len(pairs), NO_MATCH)
    found = []
    for answers in share(_Examine(table, descriptors, least), parts, advance):
        for start, scores, places, whole in answers:
            score[start : start + len(scores)] = scores
            found.append((start, places, whole))
    found.sort(key=lambda one: one[0])
    places = np.concatenate([places for _, places, _ in found])
    return ExaminedPairs(pairs, score, places, VerifiedPairs.joined([w for _, _, w in found]))


def _part(
    start: int, pairs: Pairs, background: Floats | None, keep: npt.NDArray[np.bool_]
) -> _Part:
    around = None if background is None else background[np.unique(pairs)]
    return _Part(start, pairs, around, keep)
