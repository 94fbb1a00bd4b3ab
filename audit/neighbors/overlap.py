"""New against library: which of these images show a picture that an audited set already holds.

The library is not compared with itself and none of its files is read again, except for second
looks: its signatures, hashes and threshold are what its own scan stored. Cost grows with new x
library: 10,000 new images against a million take about ten thousand million hash comparisons and
as many descriptor products, minutes rather than hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from audit.neighbors.dense import nearest_in
from audit.neighbors.descriptor import describe
from audit.neighbors.hamming import Codes, within_radius_of
from audit.neighbors.inspection import Picture
from audit.neighbors.rechecks import Opener, look_at_all, look_bound, worth_a_look
from audit.neighbors.search import Completeness, Options, left_out, neighbour_pairs, union
from audit.neighbors.thumbnails import Signatures, comparable
from audit.neighbors.verification import NO_MATCH, Floats, Verified, key_ranks, verify


@dataclass(frozen=True, slots=True)
class Overlap:
    """Which new images are in a library already.

    `pairs`: (new row, library row) at or above `threshold`, best first per new image.
    """

    pairs: Verified
    threshold: float
    completeness: Completeness


def search_against(
    new: Signatures,
    library: Signatures,
    new_keys: Sequence[bytes],
    library_keys: Sequence[bytes],
    new_hashes: Codes,
    library_hashes: Codes,
    threshold: float,
    *,
    options: Options | None = None,
    open_new: Opener | None = None,
    open_library: Opener | None = None,
) -> Overlap:
    """Find which new images show a picture of the library; neither is compared with itself.

    `threshold` is that of the library's calibration. Second looks need both openers.
    """
    chosen = options or Options()
    both = np.concatenate([new, library])
    keys = [*new_keys, *library_keys]
    descriptors = describe(both)
    ranks, n = key_ranks(keys), len(new)
    use_new, use_old = np.flatnonzero(comparable(new)), np.flatnonzero(comparable(library))
    near = nearest_in(descriptors[use_new], descriptors[n + use_old], chosen.nearest)
    by_look = neighbour_pairs(near)
    by_look = np.stack([use_new[by_look[:, 0]], n + use_old[by_look[:, 1]]], axis=1)
    by_hash, _ = within_radius_of(new_hashes[use_new], library_hashes[use_old], chosen.radius)
    by_hash = np.stack([use_new[by_hash[:, 0]], n + use_old[by_hash[:, 1]]], axis=1)
    verified = verify(both, descriptors, union(by_hash, by_look), ranks)
    score, looks, wanted = verified.score.copy(), 0, 0
    if open_new is not None and open_library is not None:

        def opener(row: int) -> Picture | None:
            return open_new(row) if row < n else open_library(row - n)

        score, looks, wanted = _look_again(both, verified, threshold, chosen, opener)
    rows = np.flatnonzero(score >= threshold)
    rows = rows[np.lexsort((-score[rows], verified.pairs[rows, 0]))]
    kept = verified.take(rows)
    pairs = replace(kept, pairs=kept.pairs - np.array([0, n]), score=score[rows])
    completeness = Completeness(
        n + len(library),
        len(use_new) + len(use_old),
        chosen.radius,
        len(by_hash),
        "every new code compared with every code of the library",
        chosen.nearest,
        True,
        1.0,
        len(use_new),
        len(verified.pairs),
        looks,
        wanted,
        left_out(new),
    )
    return Overlap(pairs, threshold, completeness)


def _look_again(
    table: Signatures, verified: Verified, threshold: float, options: Options, opener: Opener
) -> tuple[Floats, int, int]:
    """Second looks on pairs near the threshold; return scores, looks taken, looks wanted."""
    rows = worth_a_look(table, verified, threshold, options.look_band)
    score, looked = verified.score.copy(), rows[: look_bound(options.looks, len(table))]
    for row, same in zip(looked, look_at_all(verified, looked, opener), strict=True):
        if same is not None:
            score[row] = max(score[row], threshold) if same else NO_MATCH
    return score, len(looked), len(rows)
