"""Objects drawn on pixels: boxes, outlines and keypoints, a colour a class, others in grey."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from audit.browse.boxes import Box, Points
from audit.picture.pixels import Pixels

COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0),
           (204, 121, 167))  # fmt: skip
GREY = (150, 150, 150)
FAR = 20_000.0  # px: beyond it nothing is seen, and the drawing library overflows


def draw_boxes(
    pixels: Pixels,
    scale: float,
    boxes: Sequence[Box],
    names: Sequence[str] = (),
    chosen: Callable[[Box], bool] | None = None,
    thickness: int = 2,
) -> Pixels:
    """Return the picture with boxes, whose coordinates are multiplied by `scale`.

    `names` are the classes in the order of their colours (default: of these boxes, by name);
    boxes that are not `chosen` are thin and grey, below the others.
    """
    canvas = np.ascontiguousarray(pixels).copy()
    order = list(names) or sorted({box.label for box in boxes})
    ranked = sorted(boxes, key=lambda box: chosen is None or chosen(box))
    for box in ranked:
        lit = chosen is None or chosen(box)
        colour = colour_of(box.label, order) if lit else GREY
        _draw_one(canvas, scale, box, colour, thickness if lit else 1)
    return canvas


def colour_of(label: str, names: Sequence[str]) -> tuple[int, int, int]:
    """Return the colour of a class: by its place in the list, grey where it is not in it."""
    return COLOURS[names.index(label) % len(COLOURS)] if label in names else GREY


def _draw_one(
    canvas: Pixels, scale: float, box: Box, colour: tuple[int, int, int], thickness: int
) -> None:
    corners = (box.x, box.y, box.x + box.width, box.y + box.height)
    left, top, right, bottom = (_px(v, scale) for v in corners)
    # A dark line below the coloured one: it shows on any picture.
    cv2.rectangle(canvas, (left, top), (right, bottom), (0, 0, 0), thickness + 1)
    cv2.rectangle(canvas, (left, top), (right, bottom), colour, thickness)
    for ring in box.rings:
        if len(ring) >= 4:
            cv2.polylines(canvas, [_ring(ring, scale)], True, (0, 0, 0), thickness + 1)
            cv2.polylines(canvas, [_ring(ring, scale)], True, colour, max(thickness - 1, 1))
    for x, y, seen in zip(*(box.keypoints[i::3] for i in range(3)), strict=True):
        if seen > 0:
            place = (_px(x, scale), _px(y, scale))
            cv2.circle(canvas, place, thickness + 2, (0, 0, 0), -1)
            cv2.circle(canvas, place, thickness + 1, colour, -1 if seen >= 2 else 1)


def _px(value: float, scale: float) -> int:
    if not math.isfinite(value):
        return 0
    return round(min(max(value * scale, -FAR), FAR))


def _ring(ring: Points, scale: float) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    flat = [_px(value, scale) for value in ring[: len(ring) - len(ring) % 2]]
    return np.asarray(flat, np.int32).reshape(-1, 1, 2)
