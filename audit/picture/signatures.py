"""The signature: what is kept of a picture so that pairs can be judged without opening files again.

A 32x32 grey and an 8x8 colour plane, the size, the uniform border that was cut away and a few
flags: 1,233 bytes an image. On photographs larger planes do not separate duplicates better; where
32 px cannot decide, the two files are opened (`check_full_size`). Uniform borders are cut first,
because a frame moves every pixel of the grey plane, and what was cut is recorded.
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from audit.picture.pixels import Pixels

GREY_SIDE = 32
COLOUR_SIDE = 8
SIGNATURE_VERSION = 1

SIGNATURE_DTYPE = np.dtype(
    [
        ("grey", np.uint8, (GREY_SIDE, GREY_SIDE)),
        ("colour", np.uint8, (COLOUR_SIDE, COLOUR_SIDE, 3)),
        ("size", np.uint16, (2,)),
        ("trim", np.uint16, (4,)),
        ("flags", np.uint8),
    ]
)
"""One signature: two planes, width and height of the picture that was given (pixels), pixels cut
from its left, top, right and bottom, and `Flag` bits."""

Signatures = npt.NDArray[np.void]
"""A 1-D array of `SIGNATURE_DTYPE`: it stacks, slices and saves as .npy like any other array."""

BORDER_TOLERANCE = 12
"""Grey levels within which a row or column counts as border: JPEG at quality 30 stays below 8."""
FLAT_CONTRAST = 2.0
"""Standard deviation of the grey plane (levels) below which there is nothing to compare."""
FAINT_CONTRAST = 6.0
LEAST_KEPT = 0.2
"""Share of a side that trimming must leave; beyond that the picture is background, not border."""


class Flag(IntFlag):
    """What is special about a picture before it is compared."""

    FLAT = 1
    """One colour, or nearly: compared with nothing."""
    FAINT = 2
    """Little contrast (standard deviation under 6 grey levels): compared, with care."""
    TRANSPARENT = 4
    """Hardly an opaque pixel: what a decoder shows is the background, so compared with nothing."""
    TRIMMED = 8
    """A uniform border was cut."""
    GREYSCALE = 16
    """No colour to speak of."""


def make_signature(picture: Pixels, *, opaque_share: float = 1.0) -> np.void:
    """Return the signature of one image, RGB or grey; raises ValueError for an empty one."""
    if picture.size == 0:
        raise ValueError("This image has no pixels; leave it out before asking for a signature.")
    if picture.ndim == 2:
        picture = np.repeat(picture[:, :, None], 3, axis=2)
    made = cut_and_shrink(np.ascontiguousarray(picture)[None])
    return cast(np.void, make_signatures(made, np.array([opaque_share]))[0])


class Thumbnails(NamedTuple):
    """What signatures of n pictures of any sizes are made of."""

    small: Pixels  # (n, 32, 32, 3), without the border
    trims: npt.NDArray[np.int64]  # (n, 4)
    sizes: npt.NDArray[np.int64]  # (n, 2): width and height


def cut_and_shrink(stack: Pixels) -> Thumbnails:
    """Return the thumbnails of pictures of one size, uint8 RGB (n, height, width, 3)."""
    n, height, width = stack.shape[:3]
    trims = _find_borders(stack)
    small = np.empty((n, GREY_SIDE, GREY_SIDE, 3), np.uint8)
    for at, (left, top, right, bottom) in enumerate(trims.tolist()):
        small[at] = shrink(stack[at, top : height - bottom, left : width - right], GREY_SIDE)
    return Thumbnails(small, trims, np.full((n, 2), (min(width, 65535), min(height, 65535))))


def make_signatures(made: Thumbnails, opaque_shares: npt.NDArray[np.float64]) -> Signatures:
    """Return the signatures of n images; `opaque_shares` (n,): pixels with alpha above one half."""
    import cv2

    n = len(made.small)
    records = np.zeros(n, SIGNATURE_DTYPE)
    rows = made.small.reshape(-1, GREY_SIDE, 3)
    coloured = cv2.resize(rows, (COLOUR_SIDE, n * COLOUR_SIDE), interpolation=cv2.INTER_AREA)
    records["grey"] = cv2.cvtColor(rows, cv2.COLOR_RGB2GRAY).reshape(n, GREY_SIDE, GREY_SIDE)
    records["colour"] = coloured.reshape(n, COLOUR_SIDE, COLOUR_SIDE, 3)
    records["size"], records["trim"] = made.sizes, made.trims
    records["flags"] = _flags(records, opaque_shares)
    return records


def stack_signatures(records: list[np.void]) -> Signatures:
    """Stack single signatures into one array."""
    return np.array(records, dtype=SIGNATURE_DTYPE)


def is_comparable(table: Signatures) -> npt.NDArray[np.bool_]:
    """Say which signatures hold something to compare: neither flat nor transparent."""
    return np.asarray((table["flags"] & (Flag.FLAT | Flag.TRANSPARENT)) == 0, np.bool_)


def shrink(picture: Pixels, side: int) -> Pixels:
    """Resize RGB to side x side: means of areas downwards, bilinear for smaller pictures."""
    import cv2

    if picture.shape[:2] == (side, side):
        return picture
    way = cv2.INTER_LINEAR if min(picture.shape[:2]) < side else cv2.INTER_AREA
    return np.asarray(cv2.resize(picture, (side, side), interpolation=way), np.uint8)


def _find_borders(stack: Pixels) -> npt.NDArray[np.int64]:
    """Return (n, 4): how many pixels of uniform border lie left, above, right and below."""
    n = len(stack)
    trims = np.zeros((n, 4), np.int64)
    # Most pictures have no border: the outermost lines say so at a hundredth of the cost.
    rows = _are_uniform(np.concatenate([stack[:, 0], stack[:, -1]])).reshape(2, n)
    columns = _are_uniform(np.concatenate([stack[:, :, 0], stack[:, :, -1]])).reshape(2, n)
    for at in np.flatnonzero(rows.any(axis=0) | columns.any(axis=0)):
        trims[at] = find_border(stack[at])
    return trims


def find_border(picture: npt.NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return how many pixels of uniform border lie left, above, right and below (pixels).

    A row is border when its averages over 32 pieces agree within the tolerance, and with the
    outermost row: averaging along the row makes the test indifferent to noise, not to content.
    """
    import cv2

    height, width = picture.shape[:2]
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    along = (min(width, GREY_SIDE), height)
    top, bottom = _uniform_ends(cv2.resize(grey, along, interpolation=cv2.INTER_AREA))
    rest = grey[top : height - bottom]
    across = (width, min(rest.shape[0], GREY_SIDE))
    turned = cv2.transpose(cv2.resize(rest, across, interpolation=cv2.INTER_AREA))
    left, right = _uniform_ends(turned)
    return left, top, right, bottom


def _are_uniform(lines: Pixels) -> npt.NDArray[np.bool_]:
    """Could these lines, (n, length, 3), be border: do the averages over 32 pieces agree?"""
    import cv2

    grey = cv2.cvtColor(lines, cv2.COLOR_RGB2GRAY)
    pieces = (min(lines.shape[1], GREY_SIDE), len(lines))
    means = cv2.resize(grey, pieces, interpolation=cv2.INTER_AREA)
    return np.asarray(np.ptp(means, axis=1) <= BORDER_TOLERANCE)


def _uniform_ends(rows: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Count uniform rows at the start and at the end; none where hardly anything would be left."""
    import cv2

    high = cv2.reduce(rows, 1, cv2.REDUCE_MAX).ravel().astype(np.int16)
    low = cv2.reduce(rows, 1, cv2.REDUCE_MIN).ravel().astype(np.int16)
    first = _run_length(high, low)
    last = _run_length(high[::-1], low[::-1])
    n = rows.shape[0]
    if n - first - last < max(LEAST_KEPT * n, 4):
        return 0, 0
    return first, last


def _run_length(high: npt.NDArray[np.int16], low: npt.NDArray[np.int16]) -> int:
    """Length of the run of rows that stay within the tolerance of the first row's middle level."""
    level = (int(high[0]) + int(low[0])) / 2
    inside = (high - level <= BORDER_TOLERANCE / 2) & (level - low <= BORDER_TOLERANCE / 2)
    run = int(inside.argmin()) if not inside.all() else len(high)
    return run + 1 if run >= 2 and len(high) > 48 else run


def _flags(records: Signatures, opaque_shares: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Return the flags from the finished planes."""
    # whole numbers: the deviation has the rounding of one root
    grey = records["grey"].reshape(len(records), -1).astype(np.int64)
    mean = grey.mean(axis=1)
    contrast = np.sqrt(np.maximum((grey * grey).mean(axis=1) - mean * mean, 0.0))
    colour = np.ptp(records["colour"], axis=3).max(axis=(1, 2))
    facts = {
        Flag.FLAT: contrast < FLAT_CONTRAST,
        Flag.FAINT: contrast < FAINT_CONTRAST,
        Flag.TRANSPARENT: opaque_shares < 0.02,
        Flag.TRIMMED: records["trim"].any(axis=1),
        Flag.GREYSCALE: colour <= 8,
    }
    total = sum(int(flag) * true.astype(np.uint8) for flag, true in facts.items())
    return np.asarray(total, np.uint8)
