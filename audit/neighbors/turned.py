"""Perceptual hashes of a picture in its eight orientations, from its signature alone.

The hash keeps the signs of 64 low frequencies against their median. Mirroring a picture changes
the sign of its odd frequencies and turning it swaps the axes, so that one cosine transform of the
grey plane gives all eight hashes. Mirror images and quarter turns are then as completely searched
as plain copies are, at eight times the codes: on request, because the dense descriptor already
proposes nearly all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit.neighbors.hamming import Codes, find_code_pairs
from audit.neighbors.orientations import ORIENTATIONS, orient_frequencies
from audit.neighbors.signatures import GREY_SIDE, Signatures

SIDE = 8
BATCH = 20_000
PLACES = np.uint64(1) << np.arange(63, -1, -1, dtype=np.uint64)


def hash_orientations(table: Signatures) -> npt.NDArray[np.uint64]:
    """Return (8, n) codes: row 0 as is, then mirrored and turned in all ways.

    The hash is pHash [Zauner 2010] of the grey plane, borders cut; it differs by a few bits
    from the hash of the whole picture, so its codes are compared with each other only.
    """
    out = np.empty((len(ORIENTATIONS), len(table)), np.uint64)
    for start in range(0, len(table), BATCH):
        rows = slice(start, start + BATCH)
        low = _low_frequencies(table["grey"][rows])
        for k in range(len(ORIENTATIONS)):
            out[k, rows] = _codes(orient_frequencies(low, k))
    return out


def find_turned_pairs(table: Signatures, radius: int) -> npt.NDArray[np.int64]:
    """Return every pair of rows (m, 2), first < second, within `radius` bits in some orientation.

    Rows whose codes are equal are each paired with the first of them only.
    """
    n = len(table)
    if n < 2:
        return np.zeros((0, 2), np.int64)
    codes: Codes = hash_orientations(table).ravel()
    rows, _ = find_code_pairs(codes, radius).rows(chain_equal=True)
    pairs = np.sort(rows % n, axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def _low_frequencies(grey: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the 8x8 lowest cosine frequencies (n, 8, 8) of grey planes."""
    at = (2 * np.arange(GREY_SIDE) + 1) * np.pi / (2 * GREY_SIDE)
    basis = np.cos(np.arange(SIDE)[:, None] * at[None, :]).astype(np.float32)
    return np.asarray(basis @ grey.astype(np.float32) @ basis.T, np.float32)


def _codes(low: npt.NDArray[np.float32]) -> npt.NDArray[np.uint64]:
    flat = low.reshape(len(low), SIDE * SIDE)
    bits = flat > np.median(flat, axis=1, keepdims=True)
    return np.asarray((bits * PLACES).sum(axis=1, dtype=np.uint64), np.uint64)
