"""Which detection is of which object: the greedy assignment of COCO's evaluation, for all pictures.

COCO (T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014; its evaluation as in
pycocotools) looks at each picture and class alone. Detections are taken from the highest score
down, at most 100 of them; each takes the object left that it overlaps most, from a threshold of
intersection over union (IoU) on. Crowd regions and objects outside a range of areas are *left out*:
a detection assigned to one counts neither for nor against, and a crowd takes any number. So does an
unassigned detection whose own area lies outside the range. Among equal overlaps the later object
wins, among equal scores the earlier picture.

All of that is in integers and exact comparisons, so the average precision made of it
(`audit.subset.precision`) is pycocotools' to the last bits. One pass gives the answer at all ten
thresholds and four ranges, as bits. Cost: about a second for 5,000 pictures with 36,000 objects and
300,000 detections, after compiling once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.kernels.library import find_kernel
from audit.statistics.intervals import Floats, Ints

Bits = NDArray[np.uint16]
Flags = NDArray[np.bool_]

THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
"""COCO's ten thresholds of IoU; bit k of a detection's answers belongs to the k-th."""
# px^2, both ends included, as COCO's areaRng: all, small, medium, large
SIZES = ("all", "small", "medium", "large")
AREAS: Floats = np.array([[0, 1e10], [0, 32**2], [32**2, 96**2], [96**2, 1e10]], float)
MOST = 100
"""Detections of a class in a picture that count."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of a set, one entry each: `picture` and `kind` (class) are numbers from 0.

    `box`: x, y, width, height in px, shape (n, 4); `area` in px^2, of the mask where there is one;
    `score`: of a detection, 0 for an object; `crowd`: a region with many objects.
    """

    picture: Ints
    kind: Ints
    box: Floats
    area: Floats
    score: Floats
    crowd: Flags


@dataclass(frozen=True)
class Matches:
    """What became of each detection and object of a set, for each range of areas in `AREAS`.

    Detections lie by class, best first: `picture`, `kind`, `score`, `rank` (from 0 within picture
    and class); `hit` and `skip`, shape (4, detections): bits by threshold, assigned to an object,
    and left out. Objects: `owner` (picture), `owned` (class), and `counts`, shape (4, objects).
    """

    pictures: int
    classes: tuple[str, ...]
    picture: Ints
    kind: Ints
    score: Floats
    rank: Ints
    hit: Bits
    skip: Bits
    owner: Ints
    owned: Ints
    counts: Flags

    @property
    def seen(self) -> Ints:
        """Pictures with a detection."""
        return np.unique(self.picture)

    def present(self, size: int) -> Ints:
        """Return the classes with objects that count in a range of areas."""
        return np.unique(self.owned[self.counts[size]])

    def often(self, size: int) -> Ints | None:
        """Return how many pictures hold objects of each class that count."""
        owned, owner = (v[self.counts[size]] for v in (self.owned, self.owner))
        pair = np.unique(owned * self.pictures + owner)
        return np.bincount(pair // self.pictures, minlength=len(self.classes))

    def among(self, pictures: Ints) -> Matches:
        """Return what lies in some pictures, which are numbered by their place in `pictures`."""
        place = np.full(self.pictures, -1, np.int64)
        place[pictures] = np.arange(pictures.size)
        d, g = place[self.picture] >= 0, place[self.owner] >= 0
        return Matches(
            pictures.size, self.classes, place[self.picture[d]], self.kind[d], self.score[d],
            self.rank[d], self.hit[:, d], self.skip[:, d], place[self.owner[g]], self.owned[g],
            self.counts[:, g],
        )  # fmt: skip


def match_boxes(
    truth: Boxes, found: Boxes, pictures: int, classes: tuple[str, ...], most: int = MOST
) -> Matches:
    """Assign detections to objects; both number the same `pictures` and `classes`.

    `pictures` are numbered in the order that decides among equal scores: COCO's is by image id.
    """
    pair = found.picture * len(classes) + found.kind
    order = np.lexsort((-found.score, pair))  # stable: equal scores keep the order of the file
    starts = np.flatnonzero(np.diff(pair[order], prepend=-1))
    rank = np.arange(order.size) - np.repeat(starts, np.diff(starts, append=order.size))
    order, rank = order[rank < most], rank[rank < most]
    pair = pair[order]
    pairs, begin = np.unique(pair, return_index=True)
    own = truth.picture * len(classes) + truth.kind
    objects = np.argsort(own, kind="stable")
    low = np.asarray(np.searchsorted(own[objects], pairs, "left"), np.int64)
    high = np.asarray(np.searchsorted(own[objects], pairs, "right"), np.int64)
    outside = (truth.area < AREAS[:, :1]) | (truth.area > AREAS[:, 1:])
    counts = ~(outside | truth.crowd)
    area = found.area[order]
    far = (area < AREAS[:, :1]) | (area > AREAS[:, 1:])
    hit, skip = (np.zeros((len(AREAS), order.size), np.uint16) for _ in range(2))
    assign(
        np.append(begin, order.size), low, high, found.box[order], truth.box[objects],
        truth.crowd[objects], np.ascontiguousarray(counts[:, objects]), far,
        np.minimum(THRESHOLDS, 1 - 1e-10), hit, skip,
    )  # fmt: skip
    # By class, best first; equal scores by picture, then by rank, as they already lie.
    kind = found.kind[order]
    place = np.lexsort((-found.score[order], kind))
    return Matches(
        pictures, classes, found.picture[order][place], kind[place], found.score[order][place],
        rank[place], hit[:, place], skip[:, place], truth.picture, truth.kind, counts,
    )  # fmt: skip


def assign(
    begin: Ints, low: Ints, high: Ints, found: Floats, truth: Floats, crowd: Flags, counts: Flags,
    far: Flags, thresholds: Floats, hit: Bits, skip: Bits,
) -> None:  # fmt: skip
    """Fill `hit` and `skip`; detections begin[k]:begin[k + 1] may have objects low[k]:high[k].

    Within a picture and class detections lie best first, objects as the file has them.
    """
    kernel = find_kernel("assign_detections")
    if kernel is None:
        _assign(begin, low, high, found, truth, crowd, counts, far, thresholds, hit, skip)
        return
    most = int((high - low).max(initial=0))
    table = np.empty(int((np.diff(begin) * (high - low)).max(initial=0)))
    order, taken = np.empty(most, np.int64), np.empty(most, np.bool_)
    numbers = (np.ascontiguousarray(boxes, np.float64) for boxes in (found, truth))
    kernel(
        low, high, begin, *numbers, crowd, counts, far, thresholds, hit, skip, table, order, taken
    )


def _assign(
    begin: Ints, low: Ints, high: Ints, found: Floats, truth: Floats, crowd: Flags, counts: Flags,
    far: Flags, thresholds: Floats, hit: Bits, skip: Bits,
) -> None:  # fmt: skip
    """Do the same in plain Python."""
    most = 1
    for k in range(low.size):
        most = max(most, high[k] - low[k])
    taken, order = np.zeros(most, np.bool_), np.zeros(most, np.int64)
    for k in range(low.size):
        n, m, first, g0 = begin[k + 1] - begin[k], high[k] - low[k], begin[k], low[k]
        overlap = np.zeros((n, m))
        for i in range(n):
            for j in range(m):
                overlap[i, j] = _overlap(found[first + i], truth[g0 + j], crowd[g0 + j])
        for a in range(counts.shape[0]):
            plain = 0  # objects that count come first
            for j in range(m):
                if counts[a, g0 + j]:
                    order[plain] = j
                    plain += 1
            behind = plain
            for j in range(m):
                if not counts[a, g0 + j]:
                    order[behind] = j
                    behind += 1
            for t in range(thresholds.size):
                bit = np.uint16(1 << t)
                taken[:m] = False
                for i in range(n):
                    best, match = thresholds[t], -1
                    for o in range(m):
                        j = order[o]
                        if taken[j] and not crowd[g0 + j]:
                            continue
                        if o >= plain and match >= 0 and counts[a, g0 + match]:
                            break  # it has an object that counts: none that does not may take it
                        if overlap[i, j] >= best:
                            best, match = overlap[i, j], j
                    if match >= 0:
                        taken[match] = True
                        hit[a, first + i] |= bit
                        if not counts[a, g0 + match]:
                            skip[a, first + i] |= bit
                    elif far[a, first + i]:
                        skip[a, first + i] |= bit


def _overlap(d: Floats, g: Floats, crowd: bool) -> float:
    w = min(d[0] + d[2], g[0] + g[2]) - max(d[0], g[0])
    h = min(d[1] + d[3], g[1] + g[3]) - max(d[1], g[1])
    if w <= 0 or h <= 0:
        return 0.0
    own = d[2] * d[3]
    union = own if crowd else own + g[2] * g[3] - w * h
    return w * h / union if union > 0 else 0.0
