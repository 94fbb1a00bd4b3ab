"""Score a candidate pair: align the two images, then compute the log odds that they are copies.

The alignment is an inverse-compositional Lucas-Kanade search over affine maps (Baker and Matthews,
IJCV 2004), coarse to fine, with Cauchy weights. The score is a logistic regression with constant
weights; only the threshold is calibrated on the dataset (`calibrate`). Maps act on [-1, 1]: x' =
(1+p0) x + p1 y + p2 and y' = p3 x + (1+p4) y + p5 take a point of the template, the image with the
smaller content hash, to the other image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit.kernels.library import find_kernel
from audit.machine.sharing import (
    Advance,
    by_rows,
    ignore_share,
    in_threads,
    one_thread,
    row_blocks,
    thread_count,
)
from audit.neighbors.descriptor import Descriptors, compare_orientations
from audit.neighbors.gate import measure_contrast, pass_gate
from audit.neighbors.kernels import plain
from audit.neighbors.orientations import INVERSE, SWAP_AXES
from audit.picture.signatures import GREY_SIDE, Signatures, is_comparable

Pairs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_MATCH = -20.0
"""Score of a pair that was given up early, or that holds a flat or transparent picture."""
NOT_ALIGNED = -30.0
"""Score of a pair that the gate refused: nothing was measured that could be kept."""
LINKED = -2.5
"""Score of the signatures from which a pair is worth weighing, or a stranger a relative."""
ABANDON = 0.6
"""Coarse gradient correlation under which a pair is given up: 1 in 2,000 true pairs is lower."""
SECOND_ORIENTATION = 0.05
"""A second orientation is tried if its descriptor similarity is this close to the first's."""
CONVINCED = 3.0
HOPELESS = -4.0
"""Score under which the search is not tried from the other side."""
MOST_STRETCHED = np.log(3.0)
"""Ratio of the axes of a map from which it makes no copy: 16:9 and 2:1 squashed to a square do."""
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
    table: Signatures,
    descriptors: Descriptors,
    pairs: Pairs,
    ranks: npt.NDArray[np.int64],
    background: Floats | None = None,
) -> VerifiedPairs:
    """Score pairs of rows of `table` (`examine_pairs` takes many million).

    `descriptors` are `describe(table)`; `ranks` are `key_ranks` of the content hashes. With a
    `background` (see `measure_contrast`), pairs that the gate refuses are not aligned: they score
    `NOT_ALIGNED`. The score of (a, b) and of (b, a) is the same to the last bit.
    """
    if len(pairs) > BATCH:  # features and signatures of all at once would fill the memory
        parts = [pairs[part] for part in row_blocks(len(pairs), BATCH)]
        return VerifiedPairs.joined(
            [verify(table, descriptors, part, ranks, background) for part in parts]
        )
    pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
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
    inner, shared = (best.features[:, FEATURES.index(n)] for n in ("inner", "overlap_a"))
    turned = best.template, best.orientation, best.matrix
    return VerifiedPairs(pairs, best.score, inner, *turned, shared)


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
    grey, places = table["grey"][used], place.reshape(-1, 2).astype(np.int64)
    passed = np.zeros(len(pairs), np.bool_)
    for guess, wanted in enumerate((usable, usable & close)):
        rows = np.flatnonzero(wanted & ~passed)
        passed[rows] = pass_gate(
            grey, places[rows], np.ascontiguousarray(choice[rows, guess]), contrast[rows]
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
        rows = np.flatnonzero(wanted)
        if not len(rows):
            return
        pairs = self._ordered[rows, ::-1] if turn else self._ordered[rows]
        tried = (INVERSE[orientation] if turn else orientation)[rows]
        # signatures are gathered once, in order of first use, so that batches stay in cache
        used, place = np.unique(pairs, return_inverse=True)
        part, place = self._table[used], place.reshape(-1, 2).astype(np.int64)
        grey, colour = np.ascontiguousarray(part["grey"]), np.ascontiguousarray(part["colour"])
        matrix, features = align_pairs(grey, colour, place, tried)
        score = log_odds(features, matrix, tried, self._table[pairs])
        # the first two attempts replace at equal scores; the turned one must be better, so that
        # the template stays the picture of the smaller key
        better = score > self.score[rows] if turn else score >= self.score[rows]
        kept = rows[better]
        self.score[kept], self.orientation[kept] = score[better], tried[better]
        self.features[kept], self.matrix[kept] = features[better], matrix[better]
        if turn:
            self.template[kept] = 1 - self.template[kept]


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
    given_up |= columns["anisotropy"] > MOST_STRETCHED
    return np.asarray(np.where(given_up, NO_MATCH, score), np.float64)


def evidence_columns(
    features: Floats,
    matrix: Floats,
    orientation: npt.NDArray[np.int64],
    two: Signatures,
) -> dict[str, Floats]:
    """Name the columns that the weights multiply; correlations are stretched."""
    named = dict(zip(FEATURES, features.T, strict=True))
    inner, chroma = stretch_correlation(named["inner"]), stretch_correlation(named["chroma"])
    # about 10 levels of opponent colour make a picture colourful; two grey pictures get no vote
    colourful = np.tanh(np.maximum(named["chroma_energy"], 0) / 10)
    return {
        "whole": stretch_correlation(named["whole"]),
        # a hinge: below INNER_CONVINCES accidents are common, only the excess counts
        "inner_excess": np.maximum(inner - INNER_CONVINCES, 0.0),
        "inner_and_chroma": inner * colourful * chroma,
        "coarse_blocks": stretch_correlation(named["coarse_blocks"]),
        "concentration": named["concentration"],
        "textured": named["textured"] / 16,
        "chroma": colourful * chroma,
        "colourful": colourful,
        "turned": (orientation > 1).astype(np.float64),
        "mirrored": (orientation == 1).astype(np.float64),
        **_circumstances(matrix, orientation, two),
    }


def circumstance_odds(
    matrix: Floats, orientation: npt.NDArray[np.int64], two: Signatures
) -> Floats:
    """Return what is said of the log odds, whatever agrees, by the shape of the map and by the
    resolution.
    """
    columns = _circumstances(matrix, orientation, two)
    return np.asarray(sum(WEIGHTS[name] * column for name, column in columns.items()), np.float64)


def _circumstances(
    matrix: Floats, orientation: npt.NDArray[np.int64], two: Signatures
) -> dict[str, Floats]:
    rotation, anisotropy, _ = measure_geometry(matrix, orientation, two)
    # under 32 px a signature is blown up and its gradients are interpolation: less can agree
    side = kept_size(two).min(axis=(1, 2))
    return {
        # capped: beyond half a radian a map is odd, not odder
        "rotation": np.minimum(np.abs(rotation), 0.5),
        "anisotropy": anisotropy,
        "resolution": np.log(np.minimum(side, GREY_SIDE) / GREY_SIDE),
    }


def stretch_correlation(correlation: Floats) -> Floats:
    """Return -log(1.02 - c): from 0.9 to 0.95 says as much as from 0.8 to 0.9."""
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
    """Rotation (radians), anisotropy (log of the ratio of the axes), log zoom, in real pixels."""
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


# Lucas-Kanade climbs to the nearest optimum only, and a strong crop lies beyond it: the search
# begins at several zooms; shifts of a few pixels it finds by itself.
STARTS = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [-0.18, 0.0, 0.0, 0.0, -0.18, 0.0],
        [0.22, 0.0, 0.0, 0.0, 0.22, 0.0],
    ]
)
MARGINS = np.array([0, 2, 0, 0])
"""Where the search begins: as it is, as it is but for the frame (coarse pixels), zoomed out by
18 %, zoomed in by 22 % (strong crops)."""

CHUNK = 512
"""Pairs that a thread takes at a time."""

FEATURES = (
    "whole",
    "blocks",
    "good_blocks",
    "coarse",
    "grey",
    "overlap_a",
    "overlap_b",
    "textured",
    "chroma",
    "chroma_energy",
    "inner",
    "concentration",
    "coarse_inner",
    "coarse_blocks",
)


def align_pairs(
    grey: npt.NDArray[np.uint8],
    colour: npt.NDArray[np.uint8],
    pairs: npt.NDArray[np.int64],
    orientations: npt.NDArray[np.int64],
) -> tuple[Floats, Floats]:
    """Align pair after pair and return the maps (m, 6) and the features (m, 14) of `FEATURES`.

    `grey` (n, 32, 32) and `colour` (n, 8, 8, 3) are planes of signatures; `pairs` (m, 2) index
    them, the template first; `orientations` (m,) say how the second is laid down first. Pairs whose
    coarse gradient correlation stays under `ABANDON` keep -1 in the fine features.
    """
    maps = np.zeros((len(pairs), 6))
    # -1 is below every correlation that is reported: what was never reached stays recognisable
    scores = np.full((len(pairs), len(FEATURES)), -1.0)

    kernel = find_kernel("align_batch") or plain.align

    def align(part: slice) -> None:
        kernel(
            grey, colour, pairs[part], orientations[part], STARTS, MARGINS, ABANDON,
            maps[part], scores[part],
        )  # fmt: skip

    in_threads(align, row_blocks(len(pairs), CHUNK))
    return maps, scores


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


def examine_pairs(
    table: Signatures,
    descriptors: Descriptors,
    pairs: Pairs,
    *,
    background: Floats | None,
    keep: npt.NDArray[np.bool_],
    advance: Advance = ignore_share,
) -> ExaminedPairs:
    """Score pairs (m, 2) of rows, which are in the order of the keys; see `verify`.

    Of pairs that score `LINKED` all is kept, and of those of `keep` (m,) whatever they score.
    """
    n, n_kept, batches = len(pairs), 0, row_blocks(max(len(pairs), 1), BATCH)
    # room for all: what is not filled takes no memory
    score, places, packed = np.empty(n), np.empty(n, np.intp), np.empty(n, PACKED)

    def look(part: slice) -> VerifiedPairs:
        rows, at = np.unique(pairs[part], return_inverse=True)
        around, ranks = None if background is None else background[rows], np.arange(len(rows))
        return verify(table[rows], descriptors[rows], at.reshape(-1, 2), ranks, background=around)

    def look_alone(part: slice) -> VerifiedPairs:
        with one_thread():
            return look(part)

    few = len(batches) < 2 * thread_count()  # the pairs of a batch are shared instead
    found = map(look, batches) if few else by_rows(look_alone, n, BATCH)
    for done, (part, verified) in enumerate(zip(batches, found, strict=True), start=1):
        score[part] = verified.score
        kept = np.flatnonzero((verified.score >= LINKED) | keep[part])
        here = slice(n_kept, n_kept + len(kept))
        places[here] = kept + part.start
        for name in PACKED.names or ():
            packed[name][here] = getattr(verified, name)[kept]
        n_kept = here.stop
        advance(done / len(batches))
    return ExaminedPairs(pairs, score, places[:n_kept], packed[:n_kept])
