"""Places: what is measured of the parts of a picture: its frame and its tint.

All from signatures, for all pictures of a chunk at once. What a camera, a scanner or a web site
adds lies at the edge, or over everything; the subject lies in the middle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.picture.signatures import COLOUR_SIDE, Signatures
from audit.records import Column

Floats = npt.NDArray[np.float64]
STEP = 24
"""Grey levels by which the picture differs from a frame where this ends."""
UNEVEN = 0.15
"""Share of a frame's width by which its two sides may differ; 2 px in any case."""
DARK = 2.0
"""Added to means of colours (levels): below that a ratio is rounding."""

PLACES: tuple[Column, ...] = (
    Column("frame", "DOUBLE", "share of the image in a one-colour border, 0..1", version=2),
    Column("cast_red", "DOUBLE", "log(red / green) of a colour cast; 0: none", version=2),
    Column("cast_blue", "DOUBLE", "the same of blue over green, 0 none", version=2),
)


def measure_places(records: Signatures, border: Floats) -> dict[str, Any]:
    """Return the columns of `PLACES` for n signatures; `border` (n,) is the border's luma, 0..1."""
    return {"frame": _frames(records, border), **_casts(records["colour"].astype(np.float32))}


def _frames(records: Signatures, border: Floats) -> Floats:
    """Return the share that the frame takes; a ground that the subject only touches is none."""
    size, trim = records["size"].astype(np.float64), records["trim"].astype(np.float64)
    kept = (size[:, 0] - trim[:, 0] - trim[:, 2]) * (size[:, 1] - trim[:, 1] - trim[:, 3])
    share = 1 - kept / np.maximum(size.prod(1), 1)
    found = np.flatnonzero(records["trim"].any(axis=1))
    grey = records["grey"][found]
    ends = np.stack([grey[:, :, 0], grey[:, 0], grey[:, :, -1], grey[:, -1]], axis=1)
    apart = np.abs(ends - 255 * border[found, None, None]) > STEP
    cut = trim[found] > 0
    edges = (apart.mean(2) * cut).sum(1) / cut.sum(1)
    low, high = np.sort(trim[found].reshape(-1, 2, 2), axis=1).swapaxes(0, 1)
    even = (low <= 1) | (high - low <= np.maximum(UNEVEN * high, 2))
    frames = np.zeros(len(records))
    frames[found] = np.where((edges > 0.6) & even.all(1), share[found], 0.0)
    return frames


def _casts(colour: npt.NDArray[np.float32]) -> dict[str, Floats]:
    """Return the least of three tints where all agree in sign: one object has not all of them."""
    cells = colour.reshape(len(colour), COLOUR_SIDE * COLOUR_SIDE, 3)
    rim = np.ones((COLOUR_SIDE, COLOUR_SIDE), bool)
    rim[1:-1, 1:-1] = False
    parts = np.stack([cells.max(1), cells.mean(1), cells[:, rim.ravel()].mean(1)], axis=1) + DARK
    ratios = np.log(parts[:, :, (0, 2)] / parts[:, :, 1:2]).astype(np.float64)
    low, high = ratios.min(1), ratios.max(1)
    shared = np.where(low > 0, low, np.where(high < 0, high, 0.0))
    return {"cast_red": shared[:, 0], "cast_blue": shared[:, 1]}
