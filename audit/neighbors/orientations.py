"""The eight ways to lay a picture down: four quarter turns, each as it is or mirrored.

An orientation is a number of three bits, applied in this order: bit 0 mirrors x (left and right
change places), bit 1 mirrors y, bit 2 swaps the axes. `orient(other, k)` lays `other` down so that
it looks like the template; read from the template to the other picture, the change is
`ORIENTATIONS[k]`, turns clockwise. Only the two quarter turns are not their own inverse
(`INVERSE`).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)

MIRROR_X, MIRROR_Y, SWAP_AXES = 1, 2, 4
ORIENTATIONS = (
    "upright",
    "mirrored",
    "flipped",
    "rotated by 180 degrees",
    "transposed",
    "rotated by 90 degrees",
    "rotated by 270 degrees",
    "anti-transposed",
)
"""What was done to a picture that this orientation lays back over the original."""


def orient(picture: npt.NDArray[Scalar], orientation: int) -> npt.NDArray[Scalar]:
    """Lay a picture (height, width, ...) down in one of the eight `ORIENTATIONS`."""
    if orientation & MIRROR_X:
        picture = picture[:, ::-1]
    if orientation & MIRROR_Y:
        picture = picture[::-1]
    if orientation & SWAP_AXES:
        picture = np.swapaxes(picture, 0, 1)
    return np.ascontiguousarray(picture)


def parity_sign(orientation: int, parity: int) -> int:
    """Return the sign that mirroring gives a component of a parity.

    `parity`: bit 0, odd in x; bit 1, odd in y. Swapping the axes changes no sign.
    """
    return -1 if (orientation & parity).bit_count() % 2 else 1


def orient_frequencies(low: npt.NDArray[np.float32], orientation: int) -> npt.NDArray[np.float32]:
    """Return the cosine frequencies (n, k, k) of pictures laid down: the transform's `orient`."""
    signs = np.where(np.arange(low.shape[-1]) % 2, -1.0, 1.0).astype(np.float32)
    out = low * signs if orientation & MIRROR_X else low
    out = out * signs[:, None] if orientation & MIRROR_Y else out
    return out.transpose(0, 2, 1) if orientation & SWAP_AXES else out


INVERSE = np.array([0, 1, 2, 3, 4, 6, 5, 7])
"""Orientation that undoes each orientation: the quarter turns change places."""
