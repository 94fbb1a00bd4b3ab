"""Which pairs get a second look, and taking them: bounded, counted, on all cores.

Pairs near the threshold, nearest first, whose files hold more than a thumbnail shows. Decoders
change process-wide state while they listen for warnings, so files are opened one at a time; the
comparison, nine tenths of the time, runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import numpy.typing as npt

from audit.neighbors.inspection import LEAST_SIDE, Picture, second_look
from audit.neighbors.kernels.compiled import usable_threads
from audit.neighbors.thumbnails import Signatures
from audit.neighbors.verification import Verified, kept_size

Opener = Callable[[int], Picture | None]
"""Row number -> picture (uint8 RGB, about 256 px), or None where it cannot be read any more."""


def worth_a_look(
    table: Signatures, verified: Verified, threshold: float, band: float
) -> npt.NDArray[np.intp]:
    """Pairs within `band` of the threshold whose files hold more than thumbnails; nearest first."""
    side = kept_size(table[verified.pairs]).min(axis=(1, 2))
    away = np.abs(verified.score - threshold)
    rows = np.flatnonzero((away <= band) & (side >= LEAST_SIDE))
    return rows[np.argsort(away[rows], kind="stable")]


def look_bound(asked: int | None, images: int) -> int:
    """Most second looks: as asked, else 500 or one image in fifty."""
    return max(500, images // 50) if asked is None else asked


def look_at_all(
    verified: Verified, rows: npt.NDArray[np.intp], opener: Opener
) -> list[bool | None]:
    """Look at several pairs, on all cores; files are opened one at a time."""
    lock = Lock()

    def open_one(row: int) -> Picture | None:
        with lock:
            return opener(row)

    with ThreadPoolExecutor(usable_threads()) as pool:
        return list(pool.map(lambda row: look_at(verified, int(row), open_one), rows))


def look_at(verified: Verified, row: int, opener: Opener) -> bool | None:
    """Open both files of a pair and look: same, different, or None where that decides nothing."""
    first, second = (int(r) for r in verified.pairs[row])
    if verified.template[row] == 1:
        first, second = second, first
    pictures = opener(first), opener(second)
    if pictures[0] is None or pictures[1] is None:
        return None
    look = second_look(
        pictures[0], pictures[1], int(verified.orientation[row]), verified.matrix[row]
    )
    return look.same if look.decided else None
