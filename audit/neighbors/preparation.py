"""Load the search while the files are still being read.

The kernels are compiled at their first use after an installation, 10 s of one core, and loaded from
the cache later, a second. A scan waits for its worker processes meanwhile, so both are done in a
thread of their own: a search among a few made-up pictures uses everything that a real one does.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import numpy as np

from audit.picture.signatures import GREY_SIDE, SIGNATURE_DTYPE, Signatures

N_PICTURES = 40


_prepared: set[bool] = set()
"""Of searches with the gate and of those without it: which this process has loaded."""


def start_preparation(pictures: int) -> Thread:
    """Start loading what a search among so many pictures needs; join the thread before that."""
    thread = Thread(target=_search_noise, args=(pictures,), name="prepare search", daemon=True)
    thread.start()
    return thread


def _search_noise(pictures: int) -> None:
    # imported in the thread, because the import alone takes half a second
    from audit.neighbors.search import GATE_FROM, SearchOptions, find_near_duplicates

    gated = pictures >= GATE_FROM
    if gated in _prepared:
        return
    table = _noise()
    hashes = np.random.default_rng(0).integers(0, 2**63, len(table)).astype(np.uint64)
    keys = [row.tobytes() for row in table]
    options = SearchOptions(synthetic_sources=0, gate_from=0 if gated else GATE_FROM)
    # what fails here fails again in the search itself, where somebody is told
    with suppress(Exception):
        find_near_duplicates(table, keys, hashes, options=options)
        _prepared.add(gated)


def _noise() -> Signatures:
    table = np.zeros(N_PICTURES, SIGNATURE_DTYPE)
    grey = np.random.default_rng(0).integers(0, 255, (N_PICTURES // 2, GREY_SIDE, GREY_SIDE))
    # every picture twice, nearly: so that some pairs go through to the end
    table["grey"] = np.concatenate([grey, grey + 1]).astype(np.uint8)
    table["size"] = GREY_SIDE
    return table
