"""Perceptual hashes of a picture in its eight orientations, from its thumbnail alone.

The hash keeps the signs of 64 low frequencies against their median. Mirroring a picture changes
the sign of its odd frequencies and turning it swaps the axes, so that one cosine transform of the
thumbnail gives all eight hashes. Mirror images and quarter turns are then as completely searched
as plain copies are, at eight times the codes: on request, because the dense descriptor already
proposes nearly all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit.neighbors.hamming import Codes, within_radius
from audit.neighbors.thumbnails import GREY_SIDE, Signatures

SIDE = 8
ORIENTATIONS = 8
BATCH = 20_000
PLACES = np.uint64(1) << np.arange(63, -1, -1, dtype=np.uint64)


def turned_codes(table: Signatures) -> npt.NDArray[np.uint64]:
    """Return (8, n) codes: row 0 as is, then mirrored and turned in all ways.

    The hash is pHash [Zauner 2010] of the grey thumbnail, borders cut; it differs by a few bits
    from the hash of the whole picture, so its codes are compared with each other only.
    """
    out = np.empty((ORIENTATIONS, len(table)), np.uint64)
    for start in range(0, len(table), BATCH):
        rows = slice(start, start + BATCH)
        low = _low_frequencies(table["grey"][rows])
        for k in range(ORIENTATIONS):
            out[k, rows] = _codes(_turn(low, k))
    return out


def within_radius_turned(table: Signatures, radius: int) -> npt.NDArray[np.int64]:
    """Return every pair of rows (m, 2), first < second, within `radius` bits in some orientation.

    Rows whose codes are equal are each paired with the first of them only.
    """
    n = len(table)
    if n < 2:
        return np.zeros((0, 2), np.int64)
    codes: Codes = turned_codes(table).ravel()
    rows, _ = within_radius(codes, radius).rows(chain_equal=True)
    pairs = np.sort(rows % n, axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def _low_frequencies(grey: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the 8x8 lowest cosine frequencies (n, 8, 8) of thumbnails."""
    at = (2 * np.arange(GREY_SIDE) + 1) * np.pi / (2 * GREY_SIDE)
    basis = np.cos(np.arange(SIDE)[:, None] * at[None, :]).astype(np.float32)
    return np.asarray(basis @ grey.astype(np.float32) @ basis.T, np.float32)


def _turn(low: npt.NDArray[np.float32], orientation: int) -> npt.NDArray[np.float32]:
    """Bit 0: mirror, bit 1: flip, bit 2: swap the axes."""
    signs = np.where(np.arange(SIDE) % 2, -1.0, 1.0).astype(np.float32)
    out = low * signs if orientation & 1 else low
    out = out * signs[:, None] if orientation & 2 else out
    return out.transpose(0, 2, 1) if orientation & 4 else out


def _codes(low: npt.NDArray[np.float32]) -> npt.NDArray[np.uint64]:
    flat = low.reshape(len(low), SIDE * SIDE)
    bits = flat > np.median(flat, axis=1, keepdims=True)
    return np.asarray((bits * PLACES).sum(axis=1, dtype=np.uint64), np.uint64)
