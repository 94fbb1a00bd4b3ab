"""Is this pair one picture? Alignment, then the odds that the agreement is no accident.

Each pair is aligned in its likeliest orientation (and in the second, where the first does not
convince), and what came out is turned into one number, the score: the logarithm of the odds for
"same picture". It adds up how well gradients agree (all of the overlap; beyond 0.91 without one
outer strip, for captions; by blocks at 16 px), how well colours agree, how much structure there
is to agree (two blank skies always do), and what the map between the two would have to be (a
rotated, sheared or mirrored map needs more evidence). The weights are those of a logistic
regression on synthetic and judged pairs of half of the benchmark's pictures, with signs constrained
so that better agreement never lowers the score; the other half reports. They are constants:
nothing is fitted to the data at hand. The *threshold* is what comes from the user's own pictures
(`calibrate`).

Symmetric by construction: the picture with the smaller key (content hash) is the template first,
and where that leaves doubt the other one as well, whichever was asked for first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit.neighbors.align import FEATURES, align_pairs
from audit.neighbors.descriptor import compare_orientations
from audit.neighbors.gate import measure_contrast, pass_gate, shrink_planes
from audit.neighbors.orientations import INVERSE, SWAP_AXES
from audit.neighbors.sharing import RowTable
from audit.neighbors.signatures import GREY_SIDE, Signatures, is_comparable

Pairs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_MATCH = -20.0
"""Score of a pair that was given up early, or that holds a flat or transparent picture."""
NOT_ALIGNED = -30.0
"""Score of a pair that the gate refused: nothing was measured that could be kept."""
ABANDON = 0.6
"""Coarse gradient correlation under which a pair is given up: 1 in 2,000 true pairs is lower."""
SECOND_ORIENTATION = 0.05
"""A second orientation is tried if its descriptor similarity is this close to the first's."""
CONVINCED = 3.0
HOPELESS = -6.0
"""Score under which the search is not tried from the other side."""
INNER_CONVINCES = 2.2
"""Inner correlation (stretched; 0.91 plain) from which it counts: accidents rarely get there."""

BATCH = 10_000
"""Pairs that are scored at a time: what is gathered of their pictures takes about 10 kB each."""

WEIGHTS = {
    "whole": 0.774,
    "inner_excess": 3.018,
    "inner_and_chroma": 0.788,
    "coarse_blocks": 0.392,
    "concentration": -7.873,
    "textured": 5.551,
    "chroma": 0.274,
    "colourful": 0.933,
    "rotation": -11.781,
    "anisotropy": -2.406,
    "turned": -1.492,
    "mirrored": -1.324,
    "resolution": -1.262,
}
BIAS = -3.698


@dataclass(frozen=True, slots=True)
class VerifiedPairs:
    """Scores of pairs and the maps behind them; all arrays have one row a pair.

    `pairs` (m, 2): as asked. `score`: log odds. `similarity`: gradient correlation over the
    overlap, without the outer strip that agrees least (-1 where given up). `template` (m,): which
    of the two columns was the template. `orientation`: how the other was laid down. `matrix`
    (m, 6): the map from template to the other, see `align_pairs`. `overlap`: share of the template
    that the other covers.
    """

    pairs: Pairs
    score: Floats
    similarity: Floats
    template: npt.NDArray[np.int64]
    orientation: npt.NDArray[np.int64]
    matrix: Floats
    overlap: Floats

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> VerifiedPairs:
        """Return some of the pairs."""
        return VerifiedPairs(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: Sequence[VerifiedPairs]) -> VerifiedPairs:
        """Return the pairs of all parts (at least one), one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in cls.__dataclass_fields__
            )
        )


def key_ranks(keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Rank of each key among the sorted keys: what decides which picture is the template."""
    order = sorted(range(len(keys)), key=lambda i: (keys[i], i))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


def verify(
    table: RowTable,
    descriptors: RowTable,
    pairs: Pairs,
    ranks: npt.NDArray[np.int64],
    batch: int = BATCH,
    background: Floats | None = None,
) -> VerifiedPairs:
    """Score pairs of rows of `table` (`examine_pairs` takes many million).

    `descriptors` are `describe(table)`; `ranks` are `key_ranks` of the content hashes. With a
    `background` (see `measure_contrast`), pairs that the gate refuses are not aligned: they score
    `NOT_ALIGNED`. The score of (a, b) and of (b, a) is the same to the last bit.
    """
    # features and gathered signatures of all candidates at once would fill the memory
    return VerifiedPairs.joined(
        [
            _verify(table, descriptors, pairs[start : start + batch], ranks, background)
            for start in range(0, max(len(pairs), 1), batch)
        ]
    )


def _verify(
    rows: RowTable,
    descriptors: RowTable,
    pairs: Pairs,
    ranks: npt.NDArray[np.int64],
    background: Floats | None,
) -> VerifiedPairs:
    """Score one batch."""
    asked = pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
    if not isinstance(rows, np.ndarray):
        # what is not at hand is fetched once
        used, place = np.unique(pairs, return_inverse=True)
        rows, descriptors, pairs = rows[used], descriptors[used], place.reshape(-1, 2)
        ranks, background = ranks[used], None if background is None else background[used]
    table: Signatures = np.asarray(rows)
    template = (ranks[pairs[:, 1]] < ranks[pairs[:, 0]]).astype(np.int64)
    ordered = np.where(template[:, None] == 1, pairs[:, ::-1], pairs)
    # the descriptor guesses the orientation; aligning all eight would cost eight times as much
    likeness = compare_orientations(descriptors[ordered[:, 0]], descriptors[ordered[:, 1]])
    choice = np.argsort(-likeness, axis=1, kind="stable")[:, :2].astype(np.int64)
    near = np.take_along_axis(likeness, choice, axis=1)
    usable = np.asarray(is_comparable(table)[ordered].all(axis=1), np.bool_)
    # a second guess only where the first was close: symmetric objects, plain skies
    close = near[:, 1] >= near[:, 0] - SECOND_ORIENTATION
    best = _Best(table, ordered, template)
    if background is not None:
        contrast = measure_contrast(near[:, 0].astype(np.float64), background, ordered)
        passed = _pass_gate(table, ordered, choice, contrast, usable, close)
        best.score[usable & ~passed] = NOT_ALIGNED
        usable &= passed
    best.attempt(choice[:, 0], usable)
    best.attempt(choice[:, 1], usable & close & (best.score < CONVINCED))
    # a search that went astray from one side often finds its way from the other
    best.attempt(best.orientation, (best.score > HOPELESS) & (best.score < CONVINCED), turn=True)
    return VerifiedPairs(
        asked,
        best.score,
        best.features[:, FEATURES.index("inner")],
        best.template,
        best.orientation,
        best.matrix,
        best.features[:, FEATURES.index("overlap_a")],
    )


def _pass_gate(
    table: Signatures,
    pairs: Pairs,
    choice: npt.NDArray[np.int64],
    contrast: Floats,
    usable: npt.NDArray[np.bool_],
    close: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Say which pairs to align: those that pass in one of the orientations that would be tried."""
    used, place = np.unique(pairs, return_inverse=True)
    planes, places = shrink_planes(table[used]), place.reshape(-1, 2).astype(np.int64)
    passed = np.zeros(len(pairs), np.bool_)
    for guess, wanted in enumerate((usable, usable & close)):
        rows = np.flatnonzero(wanted & ~passed)
        passed[rows] = pass_gate(
            planes, places[rows], np.ascontiguousarray(choice[rows, guess]), contrast[rows]
        )
    return passed


class _Best:
    """The best alignment found so far of each pair of a batch."""

    def __init__(self, table: Signatures, ordered: Pairs, template: npt.NDArray[np.int64]) -> None:
        n = len(ordered)
        self._table, self._ordered = table, ordered
        self.template = template
        self.score = np.full(n, NO_MATCH)
        self.features = np.full((n, len(FEATURES)), -1.0)
        self.matrix = np.zeros((n, 6))
        self.orientation = np.zeros(n, np.int64)

    def attempt(
        self,
        orientation: npt.NDArray[np.int64],
        wanted: npt.NDArray[np.bool_],
        *,
        turn: bool = False,
    ) -> None:
        """Align the wanted pairs, `turn`ed round where asked; keep what scores higher."""
        pairs = self._ordered[:, ::-1] if turn else self._ordered
        tried = INVERSE[orientation] if turn else orientation
        score, features, matrix = _aligned(self._table, pairs, tried, wanted)
        # the first two attempts replace at equal scores; the turned one must be better, so that
        # the template stays the picture of the smaller key
        better = wanted & (score > self.score if turn else score >= self.score)
        self.score[better] = score[better]
        self.features[better], self.matrix[better] = features[better], matrix[better]
        self.orientation[better] = tried[better]
        if turn:
            self.template = np.where(better, 1 - self.template, self.template)


def _aligned(
    table: Signatures,
    pairs: Pairs,
    orientation: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.bool_],
) -> tuple[Floats, Floats, Floats]:
    """Align the wanted pairs; return scores, features and maps of all."""
    score = np.full(len(pairs), NO_MATCH)
    features = np.full((len(pairs), len(FEATURES)), -1.0)
    matrix = np.zeros((len(pairs), 6))
    rows = np.flatnonzero(wanted)
    if len(rows):
        # signatures are gathered once, in order of first use, so that batches stay in cache
        used, place = np.unique(pairs[rows], return_inverse=True)
        part = table[used]
        matrix[rows], features[rows] = align_pairs(
            np.ascontiguousarray(part["grey"]),
            np.ascontiguousarray(part["colour"]),
            place.reshape(-1, 2).astype(np.int64),
            np.ascontiguousarray(orientation[rows]),
            abandon=ABANDON,
        )
        score[rows] = log_odds(features[rows], matrix[rows], orientation[rows], table[pairs[rows]])
    return score, features, matrix


def log_odds(
    features: Floats,
    matrix: Floats,
    orientation: npt.NDArray[np.int64],
    two: Signatures,
) -> Floats:
    """Turn features of `align_pairs` into the score; `two` (m, 2): signatures of the pairs."""
    columns = evidence_columns(features, matrix, orientation, two)
    score = BIAS + sum(WEIGHTS[name] * columns[name] for name in WEIGHTS)
    # pairs that alignment gave up have no fine features to weigh
    given_up = features[:, FEATURES.index("whole")] <= -1.0
    return np.asarray(np.where(given_up, NO_MATCH, score), np.float64)


def evidence_columns(
    features: Floats,
    matrix: Floats,
    orientation: npt.NDArray[np.int64],
    two: Signatures,
) -> dict[str, Floats]:
    """Name the columns that the weights multiply.

    Correlations c enter as -log(1.02 - c): from 0.9 to 0.95 says as much as from 0.8 to 0.9.
    """
    named = dict(zip(FEATURES, features.T, strict=True))
    inner, chroma = _stretch(named["inner"]), _stretch(named["chroma"])
    # about 10 levels of opponent colour make a picture colourful; two grey pictures get no vote
    colourful = np.tanh(np.maximum(named["chroma_energy"], 0) / 10)
    rotation, anisotropy, _ = measure_geometry(matrix, orientation, two)
    # under 32 px a signature is blown up and its gradients are interpolation: less evidence
    side = kept_size(two).min(axis=(1, 2))
    return {
        "whole": _stretch(named["whole"]),
        # a hinge: below INNER_CONVINCES accidents are common, only the excess counts
        "inner_excess": np.maximum(inner - INNER_CONVINCES, 0.0),
        "inner_and_chroma": inner * colourful * chroma,
        "coarse_blocks": _stretch(named["coarse_blocks"]),
        "concentration": named["concentration"],
        "textured": named["textured"] / 16,
        "chroma": colourful * chroma,
        "colourful": colourful,
        # capped: beyond half a radian a map is odd, not odder
        "rotation": np.minimum(np.abs(rotation), 0.5),
        "anisotropy": np.minimum(anisotropy, 1.0),
        "turned": (orientation > 1).astype(np.float64),
        "mirrored": (orientation == 1).astype(np.float64),
        "resolution": np.log(np.minimum(side, GREY_SIDE) / GREY_SIDE),
    }


def _stretch(correlation: Floats) -> Floats:
    # 1.02, not 1: two equal pictures would have infinite evidence
    return np.asarray(-np.log(np.clip(1.02 - correlation, 0.02, 2.5)), np.float64)


def kept_size(two: Signatures) -> npt.NDArray[np.int64]:
    """Width and height (pixels) without the border that was cut; shape (..., 2)."""
    trim = two["trim"].astype(np.int64)
    cut = np.stack([trim[..., 0] + trim[..., 2], trim[..., 1] + trim[..., 3]], axis=-1)
    return np.maximum(two["size"].astype(np.int64) - cut, 1)


def measure_geometry(
    matrix: Floats, orientation: npt.NDArray[np.int64], two: Signatures
) -> tuple[Floats, Floats, Floats]:
    """Rotation (radians), anisotropy (log of the ratio of the axes), log zoom, in real pixels.

    Thumbnails are squashed to squares; the true shapes come back from the sizes.
    """
    size = kept_size(two).astype(np.float64)
    # after a swap of the axes the other picture's width lies along the template's height
    swapped = (orientation & SWAP_AXES) > 0
    other = np.where(swapped[:, None], size[:, 1, ::-1], size[:, 1])
    linear = np.empty((len(matrix), 2, 2))
    linear[:, 0, 0] = (1 + matrix[:, 0]) * other[:, 0] / size[:, 0, 0]
    linear[:, 0, 1] = matrix[:, 1] * other[:, 0] / size[:, 0, 1]
    linear[:, 1, 0] = matrix[:, 3] * other[:, 1] / size[:, 0, 0]
    linear[:, 1, 1] = (1 + matrix[:, 4]) * other[:, 1] / size[:, 0, 1]
    # singular values: how much the map stretches along its two principal directions
    axes = np.linalg.svd(linear, compute_uv=False)
    anisotropy = np.log(np.maximum(axes[:, 0], 1e-6) / np.maximum(axes[:, 1], 1e-6))
    # the rotation nearest to the map (its polar factor), in closed form for 2x2
    rotation = np.arctan2(linear[:, 1, 0] - linear[:, 0, 1], linear[:, 0, 0] + linear[:, 1, 1])
    area = (1 + matrix[:, 0]) * (1 + matrix[:, 4]) - matrix[:, 1] * matrix[:, 3]
    return rotation, anisotropy, 0.5 * np.log(np.maximum(np.abs(area), 1e-6))
