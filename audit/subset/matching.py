"""Which detection is of which object: the greedy assignment of COCO's evaluation, for all pictures.

As in pycocotools, detections of a picture and class are taken from the highest score down, at most
100; each takes the object left that it overlaps most, from a threshold of intersection over union
(IoU) on. Crowd regions and objects outside a range of areas are *left out*: a detection assigned to
one counts neither for nor against, and a crowd takes any number; so does an unassigned detection
outside the range. Among equal overlaps the later object wins, among equal scores the earlier
picture. One pass gives the answer at all ten thresholds and four ranges, as bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
TOGETHER = 4096
"""Objects whose detections are assigned together: 40 tables of that size stay in the cache."""


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

    def often(self, size: int) -> Ints:
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


def match_boxes(truth: Boxes, found: Boxes, pictures: int, classes: tuple[str, ...]) -> Matches:
    """Assign detections to objects; both number the same `pictures` and `classes`.

    `pictures` are numbered in the order that decides among equal scores: COCO's is by image id.
    """
    pair = found.picture * len(classes) + found.kind
    order = np.lexsort((-found.score, pair))  # stable: equal scores keep the order of the file
    starts = np.flatnonzero(np.diff(pair[order], prepend=-1))
    rank = np.arange(order.size) - np.repeat(starts, np.diff(starts, append=order.size))
    order, rank = order[rank < MOST], rank[rank < MOST]
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

    Within a picture and class detections lie best first, objects as the file has them. Pictures
    with alike numbers of objects take turns together: first their best detections, and so on.
    """
    bits = (1 << np.arange(thresholds.size)).astype(np.uint16)
    skip |= far * bits.sum(dtype=np.uint16)
    sizes, many = high - low, np.diff(begin)
    order = np.lexsort((-many, sizes))
    order = order[(many[order] > 0) & (sizes[order] > 0)]
    starts = np.flatnonzero(np.diff(sizes[order], prepend=0))
    for group in np.split(order, starts[1:]) if order.size else ():
        for part in np.array_split(group, len(group) * int(sizes[group[0]]) // TOGETHER + 1):
            of = low[part][:, None] + np.arange(sizes[part[0]])
            # shape (ranges of areas, thresholds, pictures, objects)
            counted = np.broadcast_to(counts[:, of][:, None], (len(counts), bits.size, *of.shape))
            taken = np.zeros(counted.shape, np.bool_)
            for rank in range(int(many[part[0]])):
                n = int((many[part] > rank).sum())
                at = begin[part[:n]] + rank
                overlap = _overlaps(found[at][:, None], truth[of[:n]], crowd[of[:n]])
                free = (overlap >= thresholds[:, None, None]) & ~(taken[:, :, :n] & ~crowd[of[:n]])
                # an object that counts goes first; of equal overlaps the later one
                best = np.where(free, overlap, -1.0)
                first = np.where(counted[:, :, :n], best, -1.0)
                best = np.where(first.max(axis=3, keepdims=True) >= 0, first, best)[..., ::-1]
                match = of.shape[1] - 1 - best.argmax(axis=3)[..., None]
                is_hit = best.max(axis=3) >= 0
                is_counted = np.take_along_axis(counted[:, :, :n], match, 3)[..., 0]
                was = np.take_along_axis(taken[:, :, :n], match, 3)
                np.put_along_axis(taken[:, :, :n], match, was | is_hit[..., None], 3)
                left_out = np.where(is_hit, ~is_counted, far[:, None, at])
                hit[:, at] = (is_hit * bits[:, None]).sum(axis=1, dtype=np.uint16)
                skip[:, at] = (left_out * bits[:, None]).sum(axis=1, dtype=np.uint16)


def _overlaps(found: Floats, truth: Floats, crowd: Flags) -> Floats:
    """Return the IoU of boxes (x, y, width, height); of a crowd, the share of the detection."""
    low = np.maximum(found[..., :2], truth[..., :2])
    high = np.minimum(found[..., :2] + found[..., 2:], truth[..., :2] + truth[..., 2:])
    w, h = np.moveaxis(high - low, -1, 0)
    own, other = (boxes[..., 2] * boxes[..., 3] for boxes in (found, truth))
    union = np.where(crowd, own, own + other - w * h)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((w > 0) & (h > 0) & (union > 0), w * h / union, 0.0)
