"""New against library: which of these images show a picture that an audited set already holds.

The library is not compared with itself, and its files are read for full-resolution checks only:
signatures, hashes and threshold are those of its scan. Cost grows with new x library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from audit.neighbors.candidates import merge_pairs, neighbour_pairs
from audit.neighbors.centres import (
    NONE,
    SameCentres,
    describe_by_middles,
    find_same_centres,
    framed_pairs,
)
from audit.neighbors.descriptor import describe
from audit.neighbors.drawings import Picture
from audit.neighbors.hamming import Codes, find_cross_pairs
from audit.neighbors.inspection import (
    Opener,
    Overruled,
    recheck_limit,
    select_rechecks,
)
from audit.neighbors.library import Library
from audit.neighbors.search import Completeness, SearchOptions, count_left_out, why_no_middles
from audit.neighbors.strangers import weigh
from audit.neighbors.verification import NOT_ALIGNED, VerifiedPairs, key_ranks, verify
from audit.picture.signatures import Signatures, is_comparable


def search_against(
    new: Signatures,
    new_keys: Sequence[bytes],
    new_hashes: Codes,
    library: Library,
    *,
    options: SearchOptions | None = None,
    open_new: Opener | None = None,
    open_library: Opener | None = None,
    quick: bool = False,
) -> tuple[VerifiedPairs, Completeness]:
    """Find which new images show a picture of the library; neither is compared with itself.

    The pairs are (new row, library row), best first per new image; and how complete they are.
    Full-resolution checks need both openers. `quick`: the nearest are those of a shortlist, and no
    pictures are looked for that share their middle only, for which the middles of the whole library
    are described anew.
    """
    chosen = options or SearchOptions()
    n, use_new, use_old = len(new), np.flatnonzero(is_comparable(new)), library.usable
    described = describe(new, use_new)
    near = library.nearest(described[use_new], chosen.nearest, listed=quick)
    by_likeness = neighbour_pairs(near)
    by_likeness = np.stack([use_new[by_likeness[:, 0]], n + by_likeness[:, 1]], axis=1)
    by_hash, _ = find_cross_pairs(new_hashes[use_new], library.hashes[use_old], chosen.radius)
    by_hash = np.stack([use_new[by_hash[:, 0]], n + use_old[by_hash[:, 1]]], axis=1)
    usable, alike = np.concatenate([use_new, n + use_old]), SameCentres(*NONE)
    most_middles = 0 if quick else chosen.exact_limit
    if len(usable) <= most_middles:
        both = np.concatenate([new[use_new], library.table[use_old]])
        alike = find_same_centres(both, new=len(use_new))
    wanted = merge_pairs(by_hash, by_likeness, usable[alike.pairs])
    # of the library only what is compared, or stands for strangers
    held = np.unique(np.concatenate([wanted[:, 1] - n, library.pool]))
    rows = np.concatenate([np.arange(n), n + held])
    candidates, pool = np.searchsorted(rows, wanted), np.searchsorted(rows, n + library.pool)
    framed = framed_pairs(alike, np.searchsorted(rows, usable))
    both = np.concatenate([new, library.table[held]])
    described = np.concatenate([described, library.descriptors[np.searchsorted(use_old, held)]])
    keys = [*new_keys, *(library.keys[row] for row in held)]
    background = None
    if len(use_old) >= chosen.gate_from:
        # what surrounds the library's pictures is not known here
        background = np.full(len(both), np.inf)
        background[use_new] = near.similarity[:, -1]
    examined = verify(both, described, candidates, key_ranks(keys), background=background)
    # those of the library's own search: its threshold comes from them
    verified = weigh(examined, both, described, pool)
    overruled, rechecks, uncertain = Overruled(keys, {}, framed), 0, np.zeros(0, np.intp)
    if open_new is not None and open_library is not None:

        def opener(row: int) -> Picture | None:
            return open_new(row) if row < n else open_library(int(held[row - n]))

        uncertain = select_rechecks(both, verified, library.threshold, chosen.uncertainty_band)
        most = recheck_limit(chosen.rechecks, n + len(library.keys))
        rechecks = overruled.check(verified, uncertain[:most], opener)
    score = overruled.scores(verified, library.threshold)
    found = np.flatnonzero(score >= library.threshold)
    found = found[np.lexsort((-score[found], verified.pairs[found, 0]))]
    same = describe_by_middles(verified.take(found), framed, library.threshold)
    in_input = rows[same.pairs] - np.array([0, n])
    completeness = Completeness(
        images=n + len(library.keys),
        compared_images=len(use_new) + len(use_old),
        radius=chosen.radius,
        hash_pairs=len(by_hash),
        hash_plan="every new code compared with every code of the library",
        nearest=chosen.nearest,
        exact=near.exact,
        recall=near.recall,
        recall_sample=len(use_new),
        verified_pairs=len(verified.pairs),
        gated_pairs=int((examined.score == NOT_ALIGNED).sum()),
        rechecks=rechecks,
        rechecks_wanted=len(uncertain),
        left_out=count_left_out(new["flags"]),
        middles=why_no_middles(len(usable), most_middles, alike.telling),
    )
    return replace(same, pairs=in_input, score=score[found]), completeness
