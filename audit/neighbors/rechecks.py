"""Which pairs get a full-resolution check, and making them: bounded, counted, on all cores.

Pairs near the threshold, nearest first, whose files hold more than a signature shows. Decoders
change process-wide state while they listen for warnings, so files are opened one at a time; the
comparison, nine tenths of the time, runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import numpy.typing as npt

from audit.neighbors.candidates import contains_pairs
from audit.neighbors.dense import STRETCH
from audit.neighbors.inspection import LEAST_SIDE, Picture, check_full_size
from audit.neighbors.kernels.compiled import usable_threads
from audit.neighbors.sharing import RowTable
from audit.neighbors.verification import NO_MATCH, Floats, VerifiedPairs, kept_size

Opener = Callable[[int], Picture | None]
"""Row number -> picture (uint8 RGB, about 256 px), or None where it cannot be read any more."""


def select_rechecks(
    table: RowTable, verified: VerifiedPairs, threshold: float, band: float
) -> npt.NDArray[np.intp]:
    """Pairs within `band` of the threshold whose files hold more than signatures; nearest first."""
    away = np.abs(verified.score - threshold)
    rows = np.flatnonzero(away <= band)
    used, place = np.unique(verified.pairs[rows], return_inverse=True)
    side = np.zeros(len(used), np.int64)
    for start in range(0, len(used), STRETCH):
        part = slice(start, start + STRETCH)
        side[part] = kept_size(table[used[part]]).min(axis=1)
    large = rows[side[place].reshape(-1, 2).min(axis=1) >= LEAST_SIDE]
    return np.asarray(large[np.argsort(away[large], kind="stable")], np.intp)


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


class Overruled:
    """What has the last word on a pair of rows: full-resolution checks, and middles that are one.

    `keys`: of the rows, in their order. `framed`: similarity of the middles of pairs that only
    share these.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        known: Mapping[tuple[bytes, bytes], float],
        framed: Mapping[tuple[int, int], float],
    ) -> None:
        """Begin with the verdicts of earlier checks, which are given by keys."""
        self._keys, self.framed = keys, framed
        self.verdicts: dict[tuple[int, int], float] = {}
        row = {key: k for k, key in enumerate(keys)} if known else {}
        for (a, b), verdict in known.items():
            if a in row and b in row:
                self.verdicts[min(row[a], row[b]), max(row[a], row[b])] = verdict

    def check(
        self, verified: VerifiedPairs, places: npt.NDArray[np.intp], opener: Opener | None
    ) -> int:
        """Check pairs at full resolution, if there is an opener; return how many are decided."""
        if opener is None:
            return 0
        pairs = [tuple(sorted(pair)) for pair in verified.pairs[places].tolist()]
        fresh = [k for k, pair in enumerate(pairs) if pair not in self.verdicts]
        verdicts = recheck_pairs(verified, places[fresh], opener)
        for k, verdict in zip(fresh, verdicts, strict=True):
            if verdict is not None:
                self.verdicts[pairs[k]] = verdict
        # verdicts from the cache count against the bound too, or each scan would check 500 more
        return len(places)

    def scores(self, verified: VerifiedPairs, threshold: float) -> Floats:
        """Return the scores, overruled where something else decides."""
        score = verified.score.copy()
        for k in np.flatnonzero(self.concerns(verified.pairs)).tolist():
            a, b = sorted(verified.pairs[k].tolist())
            verdict = self.verdicts.get((a, b))
            if (a, b) in self.framed:
                # whatever the whole says: the frame is what differs there
                score[k] = max(score[k], threshold)
            elif verdict:
                # at least the threshold, not more: the check says same, not how surely
                score[k] = max(score[k], threshold) if verdict > 0 else NO_MATCH
        return score

    def concerns(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say for which pairs (m, 2) something else may decide."""
        known = np.array([*self.framed, *self.verdicts], np.int64).reshape(-1, 2)
        return contains_pairs(pairs, known)

    def by_check(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say which pairs (m, 2) a full-resolution check decided."""
        decided = [bool(self.verdicts.get((min(p), max(p)))) for p in pairs.tolist()]
        return np.array(decided, np.bool_)

    def by_keys(self) -> dict[tuple[bytes, bytes], float]:
        """Return the verdicts of checks by keys, for the next search."""
        return {(self._keys[a], self._keys[b]): v for (a, b), v in self.verdicts.items()}
