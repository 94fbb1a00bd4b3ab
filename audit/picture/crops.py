"""Crops: what boxes show, kept as signatures like those of whole pictures.

A picture is decoded once, in a worker, so its boxes are cut there. Beside them lie places of the
same sizes that no box touches: what the picture shows where nothing was annotated. A crop is
stored with the signatures, under a name that says all of it: the content of the picture, the boxes
that were asked for (a digest of them: other boxes, other background), what it is, and its corners.

Costs 50 microseconds a crop. Of a crop that is large in its picture the reduced picture is cut,
which has as many pixels as a signature asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audit.picture.pixels import Pixels
from audit.picture.signatures import (
    GREY_SIDE,
    SIGNATURE_DTYPE,
    Signatures,
    Thumbnails,
    make_signatures,
    shrink,
)

CROPS_VERSION = "1"
LEAST_BOXES = 50
"""Boxes of a dataset below which none is cut: nothing could be told of them."""
MOST_OF_PICTURE = 64
"""Boxes of a picture that are cut, the first of those asked for."""
LEAST_SIDE = 8
"""Pixels of a side below which a box shows too little of anything."""
GROUND_SHARE, LEAST_GROUND, GROUND_TRIES = 0.5, 2, 12
"""Places without a box: for each box cut, at least, and how often one is looked for."""
TOUCHING = 0.1
"""Share of the smaller of two rectangles from which a place counts as touched by a box."""
BOX, GROUND, NOTHING = "box", "background", "none"

Corners = tuple[int, int, int, int]
"""Left, top, right and bottom of a rectangle, px of the shown picture."""


@dataclass(frozen=True, slots=True)
class BoxesOf:
    """The boxes of one picture to cut: x, y, width and height, and whether these are shares of the
    size of the picture (1) or px (0). `digest` names them.
    """

    digest: str
    boxes: Sequence[Sequence[float]]

    def corners(self, width: int, height: int) -> list[Corners]:
        """Return the rectangles in a picture of this size, each once, the empty ones left out."""
        found = []
        for x, y, w, h, shares in self.boxes:
            across, down = (width, height) if shares else (1, 1)
            edges = x * across, y * down, x * across + w * across, y * down + h * down
            if all(map(math.isfinite, edges)):
                found.append(clip_corners(*edges, width, height))
        return [c for c in dict.fromkeys(found) if min(c[2] - c[0], c[3] - c[1]) >= LEAST_SIDE]


def clip_corners(
    left: float, top: float, right: float, bottom: float, width: int, height: int
) -> Corners:
    """Return whole px inside of a picture; halves go up, as `CORNERS_SQL` rounds too."""
    return (
        min(max(math.floor(left + 0.5), 0), width),
        min(max(math.floor(top + 0.5), 0), height),
        min(max(math.floor(right + 0.5), 0), width),
        min(max(math.floor(bottom + 0.5), 0), height),
    )


CORNERS_SQL = ", ".join(
    f"CAST(least(greatest(floor({edge} + 0.5), 0), {most}) AS INTEGER) AS {name}"
    for edge, most, name in (
        ("x", "picture_width", "x0"), ("y", "picture_height", "y0"),
        ("x + width", "picture_width", "x1"), ("y + height", "picture_height", "y1"),
    )
)  # fmt: skip
"""The same of a row of the table `boxes`, as four columns."""


def cut_crops(
    rgb: Pixels, small: Pixels, asked: BoxesOf, content: str
) -> tuple[list[str], Signatures]:
    """Return the names and signatures of the boxes of a picture and of places without any.

    `small` is its feature picture. One name without a crop says that there is nothing to cut.
    """
    height, width = rgb.shape[:2]
    every = asked.corners(width, height)
    boxes = every[:MOST_OF_PICTURE]
    seed = int.from_bytes(f"{content[:16]}{asked.digest}".encode(), "big")
    ground = list(find_ground(every, len(boxes), width, height, seed)) if boxes else []
    start = f"{content}/{asked.digest}"
    names = [
        f"{start}/{kind}/{','.join(map(str, corners))}"
        for kind, part in ((BOX, boxes), (GROUND, ground))
        for corners in part
    ]
    if not names:
        return [f"{start}/{NOTHING}/0,0,0,0"], np.zeros(1, SIGNATURE_DTYPE)
    cut = np.stack([_cut(rgb, small, corners) for corners in (*boxes, *ground)])
    sizes = np.array([(c[2] - c[0], c[3] - c[1]) for c in (*boxes, *ground)])
    made = Thumbnails(cut, np.zeros((len(cut), 4), np.int64), np.minimum(sizes, 65535))
    return names, make_signatures(made, np.ones(len(cut)))


def _cut(rgb: Pixels, small: Pixels, corners: Corners) -> Pixels:
    """Return a rectangle at the size of a signature, from the smallest picture that has as much."""
    left, top, right, bottom = corners
    across, down = small.shape[1] / rgb.shape[1], small.shape[0] / rgb.shape[0]
    if min((right - left) * across, (bottom - top) * down) >= GREY_SIDE:
        left, right = round(left * across), round(right * across)
        top, bottom = round(top * down), round(bottom * down)
        rgb = small
    return shrink(np.ascontiguousarray(rgb[top:bottom, left:right]), GREY_SIDE)


def find_ground(
    boxes: Sequence[Corners], cut: int, width: int, height: int, seed: int
) -> Iterator[Corners]:
    """Yield places of the sizes of the `cut` first boxes that touch neither a box nor each other.

    The same for one seed. Crowded pictures have few such places, or none.
    """
    rng, taken = np.random.default_rng(seed), np.array(boxes, np.float64)
    wanted = max(LEAST_GROUND, round(GROUND_SHARE * cut))
    sizes = (taken[:, 2:] - taken[:, :2])[rng.integers(0, cut, wanted * GROUND_TRIES)]
    start = np.floor(rng.random(sizes.shape) * (np.array([width, height]) - sizes + 1))
    tried = np.hstack([start, start + sizes])
    free = tried[(_touched(tried, taken) < TOUCHING).all(1)]
    while len(free) and wanted:
        left, top, right, bottom = (int(edge) for edge in free[0])
        yield left, top, right, bottom
        free = free[_touched(free, free[:1])[:, 0] < TOUCHING]
        wanted -= 1


def _touched(
    some: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    others: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return (n, m): what each two rectangles share, of the smaller one."""
    low = np.maximum(some[:, None, :2], others[:, :2])
    high = np.minimum(some[:, None, 2:], others[:, 2:])
    shared = np.maximum(high - low, 0).prod(2)
    area, other = ((r[:, 2:] - r[:, :2]).prod(1) for r in (some, others))
    return np.asarray(shared / np.maximum(np.minimum(area[:, None], other), 1))
