"""The full-resolution check: two files compared at 128 px, where their signatures cannot decide.

The registration is continued two octaves up from the map of the signatures, and gradients are
correlated in 8x8 blocks; where that map is wrong or absent, ORB keypoints and RANSAC propose
another [Rublee et al., ICCV 2011]. It opens two files, so checks are counted and bounded: the pairs
nearest to the threshold first. Decoders change process-wide state, so files are opened one at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock

import cv2
import numpy as np
import numpy.typing as npt

from audit.machine.sharing import in_threads
from audit.neighbors.affine import Plane, lay_over, map_in_pixels, refine_map
from audit.neighbors.candidates import contains_pairs
from audit.neighbors.dense import STRETCH
from audit.neighbors.drawings import CLOSELY, agree_everywhere, is_drawn, seem_drawn, to_square
from audit.neighbors.drawings import SIDE as CHECK_SIDE
from audit.neighbors.orientations import orient
from audit.neighbors.verification import NO_MATCH, Floats, VerifiedPairs, kept_size
from audit.picture.signatures import Signatures, find_border

Picture = npt.NDArray[np.uint8]
LEAST_SIDE = 48
"""Shorter side (pixels, border cut) from which a file can show more than its signature."""
SAME_ABOVE = 0.6
"""Contrast and inner correlation from which two pictures are the same; non-pairs reach 0.3."""
CONFIRMED = 1.0
"""Log odds that a check which finds two pictures the same adds. No more: what two pages of one form
share it finds as well."""
MOST_STRANGERS, NEAR, MARGIN = 12, 4.0, 0.02
"""Strangers that are checked to see what contrast they reach, how near to the threshold (log odds)
they are taken from, and by how much a copy has to surpass them."""
SURE_AT_ONCE = 100
"""Pairs of a high score that are checked until of so many none is refused: what agrees by one dark
spot, as cloth with a hole, reaches any score."""
LEAST_OVERLAP = 0.35
LEAST_TEXTURED = 10
"""Textured blocks of 64 under which a picture is too plain: the signatures' score stands."""
PROMISING = 0.25
"""Median block correlation after the coarse step from which the fine one is worth its price."""
# Few steps: the signatures' map is nearly right, and where it is wrong more steps do not repair it.
ECC_STEPS, ECC_PRECISION = 25, 1e-4


@dataclass(frozen=True, slots=True)
class FullSizeCheck:
    """What a full-resolution check found.

    `contrast` is the median over textured blocks of the gradient correlation at 128 px, rescaled
    so that 0 is what the same two pictures reach when laid 12 px apart and 1 is identity (not
    rescaled where it is too low either way). `decided` is False where the pictures are too small or
    too plain to tell.
    """

    same: bool
    decided: bool
    contrast: float = 0.0


UNDECIDED, REFUSED = FullSizeCheck(False, False), FullSizeCheck(False, True)
EQUAL, SAME_DRAWING, DOUBTED = 1.0, 0.98, -1.0
"""Contrast of drawings: closely equal; equal as far as compression leaves them; one only if one of
them was mirrored, cropped or relit, which may be what it means. These stay at the threshold."""
REFUSAL, DOUBT, CERTAIN = -1.0, 0.5, 3.0
"""Verdicts; the last also the log odds beyond the threshold of what is closely equal."""


def check_full_size(
    picture_a: Picture,
    picture_b: Picture,
    orientation: int = 0,
    matrix: npt.NDArray[np.float64] | None = None,
) -> FullSizeCheck:
    """Compare two pictures (uint8 RGB, any size) at 128 px.

    `orientation` and `matrix` are what `verify` found on the signatures, in the same order of the
    two pictures: the one of the smaller content hash first.
    """
    drawn = is_drawn(picture_a) or is_drawn(picture_b)
    if drawn and (contrast := _compare_frames(picture_a, picture_b)):
        return FullSizeCheck(same=True, decided=True, contrast=contrast)
    first, second = _prepare(picture_a), _prepare(picture_b)
    if first is None or second is None:
        return REFUSED if drawn else UNDECIDED
    laid = orient(second, orientation)
    start = map_in_pixels(np.zeros(6) if matrix is None else matrix, CHECK_SIDE)
    best = UNDECIDED
    proposals = _proposals(first, laid, start.astype(np.float32))
    for warp in islice(proposals, 2 if drawn else None):
        check = _compare(first, laid, warp)
        if drawn and check.same:
            check = _compare_drawn(picture_a, picture_b, orientation, warp)
        best = max(best, check, key=lambda one: (one.same, one.decided, one.contrast))
        if best.same:
            break
    return best if best.same or not drawn else REFUSED


def _compare_frames(first: Picture, second: Picture) -> float:
    """Return the contrast of drawings that are equal as they are, in another light, or in a frame
    of another size (what lies elsewhere in one of the same size was moved); 0 for others.
    """
    if agree_everywhere(first, second):
        return EQUAL if agree_everywhere(first, second, share=CLOSELY) else SAME_DRAWING
    framed = first.shape != second.shape and agree_everywhere(_cut(first), _cut(second), relit=True)
    return DOUBTED if framed or agree_everywhere(first, second, relit=True) else 0.0


def _compare_drawn(a: Picture, b: Picture, orientation: int, warp: Plane) -> FullSizeCheck:
    """Ask of drawings that agree on the whole whether they do so at every place."""
    first, second = _cut(a), _cut(b)
    side = min(*first.shape[:2], *second.shape[:2])
    moved, inside = _lay(orient(to_square(second), orientation).astype(np.float32), warp)
    over = np.clip(moved, 0, 255).astype(np.uint8)
    same = agree_everywhere(to_square(first), over, inside, side=side, relit=True)
    return FullSizeCheck(same, decided=True, contrast=DOUBTED)


def _proposals(first: Plane, second: Plane, start: Plane) -> Iterator[Plane]:
    """Maps to try, the cheapest first; most pairs that are the same need the first or second."""
    yield start
    yield _refine(first, second, start, None)
    # a caption pulls the whole picture towards it: register by the middle alone
    middle = np.zeros(second.shape, np.uint8)
    rim = CHECK_SIDE // 6
    middle[rim:-rim, rim:-rim] = 255
    yield _refine(first, second, start, middle)
    proposed = _keypoint_map(first, second)
    if proposed is not None:
        yield _refine(first, second, proposed, None)


def _prepare(picture: Picture) -> Plane | None:
    """Cut the border, make grey, 128x128; None where there is too little to see."""
    inner = _cut(picture)
    if min(inner.shape[:2]) < LEAST_SIDE:
        return None
    grey = cv2.cvtColor(to_square(inner), cv2.COLOR_RGB2GRAY).astype(np.float32)
    # under 2 levels there is sensor noise and nothing else, which correlates with anything
    return grey if float(grey.std()) > 2.0 else None


def _cut(picture: Picture) -> Picture:
    left, top, right, bottom = find_border(picture)
    height, width = picture.shape[:2]
    return picture[top : height - bottom, left : width - right]


def _refine(first: Plane, second: Plane, warp: Plane, mask: npt.NDArray[np.uint8] | None) -> Plane:
    """Register at 64 px, then at 128 where that promises something; keep the last map."""
    # a map from 32 px may be off by a pixel of those, four of these: the coarser step comes first
    for side in (CHECK_SIDE // 2, CHECK_SIDE):
        scale = side / CHECK_SIDE
        if side == CHECK_SIDE and _agreement(first, *_lay(second, warp))[0] < PROMISING:
            break
        a, b, counted = first, second, mask
        if side < CHECK_SIDE:
            a, b = cv2.pyrDown(first), cv2.pyrDown(second)
            counted = None if mask is None else np.ascontiguousarray(mask[::2, ::2])
        scaled = warp.copy()
        scaled[:, 2] = warp[:, 2] * scale
        refined = refine_map(a, b, scaled, steps=ECC_STEPS, precision=ECC_PRECISION, mask=counted)
        if refined is not None and _is_plausible(refined):
            warp = refined.copy()
            warp[:, 2] = refined[:, 2] / scale
    return warp


def _is_plausible(warp: Plane) -> bool:
    """No collapse and no more than a threefold zoom in area."""
    return 0.3 < abs(float(np.linalg.det(warp[:, :2]))) < 3.3


def _keypoint_map(first: Plane, second: Plane) -> Plane | None:
    """Propose a map from ORB matches that RANSAC finds consistent, or None."""
    # small patches and few levels: at 128 px the usual 31-px patch would not fit near an edge
    orb = cv2.ORB.create(nfeatures=300, edgeThreshold=8, patchSize=16, fastThreshold=8, nlevels=4)
    points_a, words_a = orb.detectAndCompute(first.astype(np.uint8), None)
    points_b, words_b = orb.detectAndCompute(second.astype(np.uint8), None)
    if words_a is None or words_b is None or min(len(points_a), len(points_b)) < 8:
        return None
    matches = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(words_a, words_b)
    if len(matches) < 8:
        return None
    source = np.array([points_a[m.queryIdx].pt for m in matches], np.float32)
    target = np.array([points_b[m.trainIdx].pt for m in matches], np.float32)
    # RANSAC draws from OpenCV's global generator: seeded, or two scans would differ
    cv2.setRNGSeed(0)
    warp, inside = cv2.estimateAffine2D(source, target, ransacReprojThreshold=3.0)
    if warp is None or int(inside.sum()) < 8 or not _is_plausible(warp):
        return None
    return np.asarray(warp, np.float32)


def _compare(first: Plane, second: Plane, warp: Plane) -> FullSizeCheck:
    """Correlate gradients of the two through the map, whole and by 8x8 blocks of 16 px."""
    moved, inside = _lay(second, warp)
    if float(inside.mean()) < LEAST_OVERLAP:
        return FullSizeCheck(same=False, decided=True)
    blocks, inner, textured = _agreement(first, moved, inside)
    if textured < LEAST_TEXTURED:
        return UNDECIDED
    if min(blocks, inner) < SAME_ABOVE:  # what is taken away below can only lower it
        return FullSizeCheck(False, True, blocks)
    # what lines of writing or a fence agree when laid wrongly is no evidence: take that away.
    # 12 px is beyond the width of a stroke at this size, so nothing agrees by being blurred
    chance = max(
        _agreement(first, np.roll(moved, shift, axis), inside)[0]
        for shift in (-12, 12)
        for axis in (0, 1)
    )
    chance = min(max(chance, 0.0), 0.95)
    contrast = (blocks - chance) / (1 - chance)
    return FullSizeCheck(contrast >= SAME_ABOVE, True, contrast)


def _lay(second: Plane, warp: Plane) -> tuple[Plane, npt.NDArray[np.bool_]]:
    """Lay a picture over its template; return it, and which pixels count."""
    moved, reached = lay_over(second, warp, (CHECK_SIDE, CHECK_SIDE))
    # the repeated edge makes gradients that neither picture has: two pixels along it are left out
    return moved, cv2.erode(reached.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0


def _agreement(a: Plane, b: Plane, inside: npt.NDArray[np.bool_]) -> tuple[float, float, int]:
    """Median block correlation, correlation without the worst outer strip, textured blocks."""
    blocks = (CHECK_SIDE // 16, 16) * 2
    planes = (*_products(a, b, inside), inside.astype(np.float64))
    ab, aa, bb, area = (plane.reshape(blocks).sum(axis=(1, 3)) for plane in planes)
    energy = aa / max(aa.sum(), 1e-9) + bb / max(bb.sum(), 1e-9)
    # 100 of a block's 256 pixels: fewer and one edge decides its correlation
    covered = area >= 100
    if not covered.any():
        return 0.0, 0.0, 0
    # a sky correlates with any other sky by its noise: only blocks with texture have a vote
    textured = covered & (energy >= 0.25 * energy[covered].mean())
    if not textured.any():
        return 0.0, 0.0, 0
    # the median: a caption may spoil a third of the blocks and change nothing
    local = ab[textured] / np.sqrt(np.maximum(aa * bb, 1e-9))[textured]
    return float(np.median(local)), _inner(ab, aa, bb), int(textured.sum())


def _inner(
    ab: npt.NDArray[np.float64], aa: npt.NDArray[np.float64], bb: npt.NDArray[np.float64]
) -> float:
    """Best correlation of the whole or of the whole less a quarter of it on one side."""
    cut = len(ab) // 4
    parts = [slice(None), slice(cut, None), slice(None, -cut)]
    correlations = [
        float(both.sum() / np.sqrt(max(one.sum() * other.sum(), 1e-9)))
        for across in (False, True)
        for part in parts
        for both, one, other in [
            tuple((plane.T if across else plane)[part] for plane in (ab, aa, bb))
        ]
    ]
    return max(correlations)


def _products(
    a: Plane, b: Plane, inside: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], ...]:
    """Pixelwise gradient products a.b, a.a and b.b, after light smoothing, zero outside."""
    planes = []
    for picture in (a, b):
        smooth = cv2.GaussianBlur(picture, (0, 0), 1.0)
        planes.append((cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)))
    (ax, ay), (bx, by) = planes
    return tuple(
        np.where(inside, value, 0.0).astype(np.float64)
        for value in (ax * bx + ay * by, ax * ax + ay * ay, bx * bx + by * by)
    )


Opener = Callable[[int], Picture | None]
"""Row number -> picture (uint8 RGB, about 256 px), or None where it cannot be read any more."""


def select_rechecks(
    table: Signatures,
    verified: VerifiedPairs,
    threshold: float,
    band: float,
    beyond: float = -np.inf,
) -> npt.NDArray[np.intp]:
    """Pairs that a check decides, of drawings or whose files hold more than signatures, nearest
    first: within `band` above the threshold, and those below that it may lift; only those
    `beyond` another band.
    """
    away = verified.score - threshold
    rows = np.flatnonzero((away >= -CONFIRMED) & (away <= band) & (away > beyond))
    away = np.abs(away)
    used, place = np.unique(verified.pairs[rows], return_inverse=True)
    shows = _asked_of(
        table, used,
        lambda some: (kept_size(some).min(axis=1) >= LEAST_SIDE) | seem_drawn(some),
    )  # fmt: skip
    checked = rows[shows[place].reshape(-1, 2).all(axis=1)]
    return np.asarray(checked[np.argsort(away[checked], kind="stable")], np.intp)


def pairs_of_drawings(table: Signatures, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Say of which pairs (m, 2) of rows both pictures seem drawn, by their signatures."""
    used, place = np.unique(pairs, return_inverse=True)
    drawn = _asked_of(table, used, seem_drawn)
    return np.asarray(drawn[place.reshape(-1, 2)].all(axis=1), np.bool_)


def _asked_of(
    table: Signatures, rows: npt.NDArray[np.int64],
    ask: Callable[[Signatures], npt.NDArray[np.bool_]],
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Ask of the signatures in some rows, a stretch at a time: all would be copied at once."""
    found = np.zeros(len(rows), np.bool_)
    for start in range(0, len(rows), STRETCH):
        part = slice(start, start + STRETCH)
        found[part] = ask(table[rows[part]])
    return found


def recheck_limit(wanted: int | None, images: int) -> int:
    """Most full-resolution checks: as wanted, else 500 or one image in fifty."""
    return max(500, images // 50) if wanted is None else wanted


def recheck_pairs(
    verified: VerifiedPairs, rows: npt.NDArray[np.intp], opener: Opener
) -> list[FullSizeCheck | None]:
    """Check several pairs (see `recheck_pair`) on all cores; files are opened one at a time."""
    lock = Lock()

    def open_one(row: int) -> Picture | None:
        with lock:
            return opener(row)

    return in_threads(lambda row: recheck_pair(verified, int(row), open_one), rows.tolist())


def recheck_pair(verified: VerifiedPairs, row: int, opener: Opener) -> FullSizeCheck | None:
    """Open both files of a pair and compare; None where one cannot be read: another time it may."""
    first, second = (int(r) for r in verified.pairs[row])
    if verified.template[row] == 1:
        first, second = second, first
    pictures = opener(first), opener(second)
    if pictures[0] is None or pictures[1] is None:
        return None
    return check_full_size(
        pictures[0], pictures[1], int(verified.orientation[row]), verified.matrix[row]
    )


def measure_strangers(
    table: Signatures, verified: VerifiedPairs, threshold: float, opener: Opener
) -> float:
    """Return the contrast that a check has to see here: more than that of any of the pairs that
    only just fail; these are strangers, where strangers are many.
    """
    below = verified.take(verified.score < threshold - CONFIRMED)
    rows = select_rechecks(table, below, threshold - NEAR, NEAR)[::-1][:MOST_STRANGERS]
    checks = recheck_pairs(below, rows, opener)
    seen = max((c.contrast for c in checks if c and c.decided), default=0.0)
    return min(seen + MARGIN, SAME_DRAWING)


class Overruled:
    """What has the last word on a pair of rows: full-resolution checks, and middles that are one.

    `keys`: of the rows, in their order. `framed`: similarity of the middles of pairs that only
    share these.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        known: Mapping[tuple[bytes, bytes], float],
        framed: Mapping[tuple[int, int], float],
    ) -> None:
        """Begin with what earlier checks saw (`PairCache.rechecks`): it counts where one is due."""
        self._keys, self.framed = keys, framed
        self.verdicts: dict[tuple[int, int], float] = {}
        self._seen: dict[tuple[int, int], float] = {}
        row = {key: k for k, key in enumerate(keys)} if known else {}
        for (a, b), contrast in known.items():
            if a in row and b in row:
                self._seen[min(row[a], row[b]), max(row[a], row[b])] = contrast

    def check(
        self,
        verified: VerifiedPairs,
        places: npt.NDArray[np.intp],
        opener: Opener | None,
        least: float = SAME_ABOVE,
    ) -> int:
        """Check pairs at full resolution, if there is an opener; return how many are decided.

        `least`: contrast from which two pictures are the same (`measure_strangers`).
        """
        if opener is None:
            return 0
        pairs = [tuple(sorted(pair)) for pair in verified.pairs[places].tolist()]
        fresh = [k for k, pair in enumerate(pairs) if pair not in self._seen]
        checks = recheck_pairs(verified, places[fresh], opener)
        for k, check in zip(fresh, checks, strict=True):
            if check is not None:
                contrast = check.contrast if check.same else 0.0
                self._seen[pairs[k]] = contrast if check.decided else np.nan
        for pair in self._seen.keys() & set(pairs):
            contrast = self._seen[pair]
            same = 1.0 if contrast >= least else REFUSAL
            fixed = {DOUBTED: DOUBT, EQUAL: CERTAIN}.get(contrast, same)
            self.verdicts[pair] = 0.0 if np.isnan(contrast) else fixed
        # what was seen before counts against the bound too, or each scan would check 500 more
        return len(places)

    def check_sure(
        self, verified: VerifiedPairs, places: npt.NDArray[np.intp], opener: Opener, most: int
    ) -> int:
        """Check pairs of a high score, nearest first, while checks refuse any; return how many.

        At most so many; where that is the end and half were refused or doubted, so are the rest.
        """
        seen: list[float] = []
        for start in range(0, min(len(places), most), SURE_AT_ONCE):
            part = places[start : min(start + SURE_AT_ONCE, most)]
            self.check(verified, part, opener)
            pairs = np.sort(verified.pairs[part], axis=1).tolist()
            seen += [self.verdicts.get((a, b), 0.0) for a, b in pairs]
            if not {REFUSAL, DOUBT} & set(seen[start:]):
                return len(seen)
        refused, doubted = seen.count(REFUSAL), seen.count(DOUBT)
        if 2 * (refused + doubted) >= max(len(seen), 1):
            for a, b in np.sort(verified.pairs[places[most:]], axis=1).tolist():
                self.verdicts.setdefault((a, b), REFUSAL if refused >= doubted else DOUBT)
            self.find_equal_drawings(verified, places[most:][::-1][:most], opener)
        return len(seen)

    def find_equal_drawings(
        self, verified: VerifiedPairs, places: npt.NDArray[np.intp], opener: Opener
    ) -> None:
        """Look which of some pairs of drawings are equal, though others of the set are as alike."""
        for first, second in np.sort(verified.pairs[places], axis=1).tolist():
            a, b = opener(first), opener(second)
            if a is None or b is None or not (is_drawn(a) or is_drawn(b)):
                continue
            if agree_everywhere(a, b, share=CLOSELY):
                self._seen[first, second], self.verdicts[first, second] = EQUAL, CERTAIN

    def scores(self, verified: VerifiedPairs, threshold: float) -> Floats:
        """Return the scores, overruled where something else decides."""
        score = verified.score.copy()
        for k in np.flatnonzero(self.concerns(verified.pairs)).tolist():
            a, b = sorted(verified.pairs[k].tolist())
            verdict = self.verdicts.get((a, b))
            if (a, b) in self.framed:
                # whatever the whole says: the frame is what differs there
                score[k] = max(score[k], threshold)
            elif verdict == CERTAIN:
                score[k] = max(score[k] + CONFIRMED, threshold + CERTAIN)
            elif verdict == DOUBT:
                score[k] = min(score[k], threshold)
            elif verdict:
                score[k] = score[k] + CONFIRMED if verdict > 0 else NO_MATCH
        return score

    def concerns(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say for which pairs (m, 2) something else may decide."""
        known = np.array([*self.framed, *self.verdicts], np.int64).reshape(-1, 2)
        return contains_pairs(pairs, known)

    def by_check(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say which pairs (m, 2) a full-resolution check decided."""
        decided = [bool(self.verdicts.get((min(p), max(p)))) for p in pairs.tolist()]
        return np.array(decided, np.bool_)

    def by_keys(self) -> dict[tuple[bytes, bytes], float]:
        """Return what checks saw by keys, for the next search."""
        return {(self._keys[a], self._keys[b]): v for (a, b), v in self._seen.items()}
