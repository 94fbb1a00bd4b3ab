"""Which pairs get a full-resolution check, and making them: bounded, counted, on all cores.

Pairs near the threshold, nearest first, whose files hold more than a signature shows. Decoders
change process-wide state while they listen for warnings, so files are opened one at a time; the
comparison, nine tenths of the time, runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import numpy.typing as npt

from audit.neighbors.inspection import LEAST_SIDE, Picture, check_full_size
from audit.neighbors.kernels.compiled import usable_threads
from audit.neighbors.signatures import Signatures
from audit.neighbors.verification import VerifiedPairs, kept_size

Opener = Callable[[int], Picture | None]
"""Row number -> picture (uint8 RGB, about 256 px), or None where it cannot be read any more."""


def select_rechecks(
    table: Signatures, verified: VerifiedPairs, threshold: float, band: float
) -> npt.NDArray[np.intp]:
    """Pairs within `band` of the threshold whose files hold more than signatures; nearest first."""
    away = np.abs(verified.score - threshold)
    rows = np.flatnonzero(away <= band)
    side: npt.NDArray[np.int64] = kept_size(table[verified.pairs[rows]]).min(axis=(1, 2))
    rows = rows[side >= LEAST_SIDE]
    return rows[np.argsort(away[rows], kind="stable")]


def recheck_limit(wanted: int | None, images: int) -> int:
    """Most full-resolution checks: as wanted, else 500 or one image in fifty."""
    return max(500, images // 50) if wanted is None else wanted


def recheck_pairs(
    verified: VerifiedPairs, rows: npt.NDArray[np.intp], opener: Opener
) -> list[float | None]:
    """Check several pairs (see `recheck_pair`) on all cores; files are opened one at a time."""
    lock = Lock()

    def open_one(row: int) -> Picture | None:
        with lock:
            return opener(row)

    with ThreadPoolExecutor(usable_threads()) as pool:
        return list(pool.map(lambda row: recheck_pair(verified, int(row), open_one), rows))


def recheck_pair(verified: VerifiedPairs, row: int, opener: Opener) -> float | None:
    """Open both files of a pair and compare: +1 the same, -1 not, 0 where that decides nothing.

    None where a file cannot be read: another time it may.
    """
    first, second = (int(r) for r in verified.pairs[row])
    if verified.template[row] == 1:
        first, second = second, first
    pictures = opener(first), opener(second)
    if pictures[0] is None or pictures[1] is None:
        return None
    check = check_full_size(
        pictures[0], pictures[1], int(verified.orientation[row]), verified.matrix[row]
    )
    if not check.decided:
        return 0.0
    return 1.0 if check.same else -1.0
