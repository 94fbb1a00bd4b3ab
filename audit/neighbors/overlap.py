"""New against library: which of these images show a picture that an audited set already holds.

The library is not compared with itself and none of its files is read again, except for
full-resolution checks: its signatures, hashes and threshold are what its own scan stored. Cost
grows with new x library: 10,000 new images against a million take about ten thousand million hash
comparisons and as many descriptor products, minutes rather than hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from audit.neighbors.candidates import merge_pairs, neighbour_pairs
from audit.neighbors.centres import (
    NONE,
    SameCentres,
    describe_by_middles,
    find_same_centres,
    framed_pairs,
)
from audit.neighbors.dense import find_nearest_in
from audit.neighbors.descriptor import describe
from audit.neighbors.hamming import Codes, find_cross_pairs
from audit.neighbors.inspection import (
    Opener,
    Overruled,
    Picture,
    recheck_limit,
    select_rechecks,
)
from audit.neighbors.pair_cache import key_codes
from audit.neighbors.search import Completeness, SearchOptions, count_left_out, why_no_middles
from audit.neighbors.strangers import choose_pool, weigh
from audit.neighbors.verification import NOT_ALIGNED, VerifiedPairs, key_ranks, verify
from audit.picture.signatures import Signatures, is_comparable


@dataclass(frozen=True, slots=True)
class LibraryMatches:
    """Which new images are in a library already: (new row, library row) of `pairs`, best first per
    new image.
    """

    pairs: VerifiedPairs
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
    options: SearchOptions | None = None,
    open_new: Opener | None = None,
    open_library: Opener | None = None,
) -> LibraryMatches:
    """Find which new images show a picture of the library; neither is compared with itself.

    `threshold` is that of the library's calibration. Full-resolution checks need both openers.
    """
    chosen = options or SearchOptions()
    both = np.concatenate([new, library])
    keys = [*new_keys, *library_keys]
    descriptors = describe(both)
    ranks, n = key_ranks(keys), len(new)
    use_new, use_old = np.flatnonzero(is_comparable(new)), np.flatnonzero(is_comparable(library))
    near = find_nearest_in(descriptors[use_new], descriptors[n + use_old], chosen.nearest)
    by_likeness = neighbour_pairs(near)
    by_likeness = np.stack([use_new[by_likeness[:, 0]], n + use_old[by_likeness[:, 1]]], axis=1)
    by_hash, _ = find_cross_pairs(new_hashes[use_new], library_hashes[use_old], chosen.radius)
    by_hash = np.stack([use_new[by_hash[:, 0]], n + use_old[by_hash[:, 1]]], axis=1)
    usable = np.concatenate([use_new, n + use_old])
    alike = SameCentres(*NONE)
    if len(usable) <= chosen.exact_limit:
        alike = find_same_centres(both[usable], new=len(use_new), seed=chosen.seed)
    framed = framed_pairs(alike, usable)
    candidates = merge_pairs(by_hash, by_likeness, usable[alike.pairs])
    background = None
    if len(use_old) >= chosen.gate_from:
        # what surrounds the library's pictures is not known here
        background = np.full(len(both), np.inf)
        background[use_new] = near.similarity[:, -1]
    examined = verify(both, descriptors, candidates, ranks, background=background)
    # those of the library's own search: its threshold comes from them
    verified = weigh(examined, both, descriptors, choose_pool(n + use_old, key_codes(keys)))
    overruled, rechecks, uncertain = Overruled(keys, {}, framed), 0, np.zeros(0, np.intp)
    if open_new is not None and open_library is not None:

        def opener(row: int) -> Picture | None:
            return open_new(row) if row < n else open_library(row - n)

        uncertain = select_rechecks(both, verified, threshold, chosen.uncertainty_band)
        most = recheck_limit(chosen.rechecks, len(both))
        rechecks = overruled.check(verified, uncertain[:most], opener)
    score = overruled.scores(verified, threshold)
    rows = np.flatnonzero(score >= threshold)
    rows = rows[np.lexsort((-score[rows], verified.pairs[rows, 0]))]
    same = describe_by_middles(verified.take(rows), framed, threshold)
    pairs = replace(same, pairs=same.pairs - np.array([0, n]), score=score[rows])
    completeness = Completeness(
        images=n + len(library),
        compared_images=len(use_new) + len(use_old),
        radius=chosen.radius,
        hash_pairs=len(by_hash),
        hash_plan="every new code compared with every code of the library",
        nearest=chosen.nearest,
        exact=True,
        recall=1.0,
        recall_sample=len(use_new),
        verified_pairs=len(verified.pairs),
        gated_pairs=int((examined.score == NOT_ALIGNED).sum()),
        rechecks=rechecks,
        rechecks_wanted=len(uncertain),
        left_out=count_left_out(new["flags"]),
        middles=why_no_middles(len(usable), chosen.exact_limit, alike.telling),
    )
    return LibraryMatches(pairs, completeness)
