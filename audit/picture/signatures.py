"""The signature: what is kept of a picture so that pairs can be judged without opening files again.

A 32x32 grey and an 8x8 colour plane, the size, the uniform border that was cut away and a few
flags: 1,233 bytes an image, about 0.1 ms to make from a 256-px picture. 32 px is a choice that
was measured: on photographs bigger planes do not separate duplicates from look-alikes better,
they only cost more; where 32 px cannot decide, the two files are opened (`check_full_size`).

Uniform borders go first, because a frame moves every pixel of the grey plane and nothing else about
the picture; what was cut is recorded, so it can be reported ("border removed") and never silently
eats a picture that is mostly background.
"""

from __future__ import annotations

from enum import IntFlag
from typing import cast

import numpy as np
import numpy.typing as npt

from audit.machine.sharing import RowTable

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


def make_signature(picture: npt.NDArray[np.uint8], *, opaque_share: float = 1.0) -> np.void:
    """Return the signature of one picture.

    `picture` is uint8 RGB (height, width, 3), best about 256 px on its longer side; grey (height,
    width) is accepted. `opaque_share` is the share of pixels with alpha above one half (1 where
    the file has no alpha). Raises ValueError on an empty picture.
    """
    import cv2

    if picture.size == 0:
        raise ValueError("This picture has no pixels; leave it out before asking for a signature.")
    if picture.ndim == 2:
        picture = cv2.cvtColor(picture, cv2.COLOR_GRAY2RGB)
    left, top, right, bottom = find_border(picture)
    height, width = picture.shape[:2]
    inner = picture[top : height - bottom, left : width - right]
    small = shrink(inner, GREY_SIDE)
    record = np.zeros((), SIGNATURE_DTYPE)
    record["grey"] = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    record["colour"] = cv2.resize(small, (COLOUR_SIDE, COLOUR_SIDE), interpolation=cv2.INTER_AREA)
    record["size"] = min(width, 65535), min(height, 65535)
    record["trim"] = left, top, right, bottom
    record["flags"] = _flags(record, opaque_share)
    return cast(np.void, record[()])


def stack_signatures(records: list[np.void]) -> Signatures:
    """Stack single signatures into one array."""
    return np.array(records, dtype=SIGNATURE_DTYPE)


def is_comparable(table: RowTable) -> npt.NDArray[np.bool_]:
    """Say which signatures hold something to compare: neither flat nor transparent."""
    return np.asarray((table["flags"] & (Flag.FLAT | Flag.TRANSPARENT)) == 0, np.bool_)


def shrink(picture: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    """Resize to side x side: area averaging downwards, bilinear where the picture is smaller."""
    import cv2

    shrinking = min(picture.shape[:2]) >= side
    method = cv2.INTER_AREA if shrinking else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(picture, (side, side), interpolation=method), dtype=np.uint8)


def find_border(picture: npt.NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return how many pixels of uniform border lie left, above, right and below (pixels).

    A row is border when its averages over 32 pieces agree within the tolerance, and with the
    outermost row: averaging along the row makes the test indifferent to noise, not to content.
    """
    import cv2

    # most pictures have no border: four outermost lines say so at a hundredth of the cost
    if not any(_is_uniform(line) for line in _outline(picture)):
        return 0, 0, 0, 0
    height, width = picture.shape[:2]
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    along = (min(width, GREY_SIDE), height)
    top, bottom = _uniform_ends(cv2.resize(grey, along, interpolation=cv2.INTER_AREA))
    rest = grey[top : height - bottom]
    across = (width, min(rest.shape[0], GREY_SIDE))
    turned = cv2.transpose(cv2.resize(rest, across, interpolation=cv2.INTER_AREA))
    left, right = _uniform_ends(turned)
    return left, top, right, bottom


def _outline(picture: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], ...]:
    """The outermost rows and columns, each (1, length, 3)."""
    columns = np.ascontiguousarray(picture[:, [0, -1]].transpose(1, 0, 2))
    return picture[:1], picture[-1:], columns[:1], columns[1:]


def _is_uniform(line: npt.NDArray[np.uint8]) -> bool:
    """Could this line be border: do its averages over 32 pieces agree?"""
    import cv2

    grey = cv2.cvtColor(line, cv2.COLOR_RGB2GRAY)
    pieces = cv2.resize(grey, (min(line.shape[1], GREY_SIDE), 1), interpolation=cv2.INTER_AREA)
    low, high, _, _ = cv2.minMaxLoc(pieces)
    return bool(high - low <= BORDER_TOLERANCE)


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
    """Length of the run of rows that stay within the tolerance of the first row's middle level.

    One pixel more is cut where anything is: the last row of a frame is blurred into the picture.
    """
    level = (int(high[0]) + int(low[0])) / 2
    inside = (high - level <= BORDER_TOLERANCE / 2) & (level - low <= BORDER_TOLERANCE / 2)
    run = int(inside.argmin()) if not inside.all() else len(high)
    return run + 1 if run >= 2 and len(high) > 48 else run


def _flags(record: npt.NDArray[np.void], opaque_share: float) -> int:
    """Set the flags from the finished planes."""
    import cv2

    contrast = float(cv2.meanStdDev(record["grey"])[1][0, 0])
    colour = record["colour"].astype(np.int16)
    flags = Flag(0)
    if contrast < FLAT_CONTRAST:
        flags |= Flag.FLAT
    if contrast < FAINT_CONTRAST:
        flags |= Flag.FAINT
    if opaque_share < 0.02:
        flags |= Flag.TRANSPARENT
    if record["trim"].any():
        flags |= Flag.TRIMMED
    if int(np.ptp(colour, axis=2).max()) <= 8:
        flags |= Flag.GREYSCALE
    return int(flags)
