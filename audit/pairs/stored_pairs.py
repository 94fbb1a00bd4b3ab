"""What a scan stored about pairs, read back for the next scan: light, because every scan asks.

The search itself (`relate`) loads numba, OpenCV and SciPy; this file loads none of them.
"""

from __future__ import annotations

import numpy as np

from audit.neighbors.pair_cache import PairCache
from audit.run.store import Store

RELATE_VERSION = 5
"""Raised when the tables of pairs mean something else: nothing of an older one is carried over."""


def load_pair_cache(store: Store, schema: str = "") -> PairCache:
    """Return what a scan decided about pairs of pixel hashes: to pass as `known`."""
    rechecks = store.query(f"SELECT a, b, same FROM {schema}rechecks")
    rejected = store.query(f"SELECT pair FROM {schema}rejected_pairs ORDER BY pair")
    return PairCache(
        {
            (bytes.fromhex(a), bytes.fromhex(b)): 1.0 if same else -1.0
            for a, b, same in rechecks.iter_rows()
        },
        rejected["pair"].to_numpy().astype(np.uint64),
    )
