"""What a scan stored about pairs, read back for the next scan: light, because every scan asks.

The search itself (`relate`) loads numba, OpenCV and SciPy; this file loads none of them.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from audit.neighbors.pair_cache import KnownNeighbours, KnownPairs, KnownRecall, PairCache
from audit.run.store import Store

RELATE_VERSION = 7
"""Raised when the tables of pairs mean something else: nothing of an older one is carried over."""


VERDICTS = {True: 1.0, False: -1.0, None: 0.0}


def load_pair_cache(store: Store, schema: str = "") -> PairCache:
    """Return what a scan decided about pairs of pixel hashes: to pass as `known`."""
    rechecks = store.query(f"SELECT a, b, same FROM {schema}rechecks")
    rejected = store.query(f"SELECT pair FROM {schema}rejected_pairs ORDER BY pair")
    return PairCache(
        {
            (bytes.fromhex(a), bytes.fromhex(b)): VERDICTS[same]
            for a, b, same in rechecks.iter_rows()
        },
        rejected["pair"].to_numpy().astype(np.uint64),
        _load_recall(store, schema),
        *unpack_search_state(store.scalar(f"SELECT arrays FROM {schema}search_state")),
    )


def pack_search_state(cache: PairCache) -> bytes:
    """Return neighbours and near pairs as one file; nothing where they are not kept."""
    near, pairs = cache.neighbours, cache.pairs
    if near is None or pairs is None:
        return b""
    file = io.BytesIO()
    np.savez(
        file, codes=near.codes, index=near.index, similarity=near.similarity, prints=pairs.prints,
        score=pairs.score, weighed=pairs.weighed, packed=pairs.packed, pool=np.array(pairs.pool),
    )  # fmt: skip
    return file.getvalue()


def unpack_search_state(state: bytes | None) -> tuple[KnownNeighbours | None, KnownPairs | None]:
    """Return neighbours and near pairs from what `pack_search_state` made."""
    if state is None:
        return None, None
    with np.load(io.BytesIO(state), allow_pickle=False) as held:
        arrays: dict[str, Any] = dict(held)
    near = KnownNeighbours(*(arrays[name] for name in ("codes", "index", "similarity")))
    pairs = KnownPairs(
        arrays["prints"], arrays["score"], arrays["weighed"], arrays["packed"], str(arrays["pool"])
    )
    return near, pairs


def _load_recall(store: Store, schema: str) -> KnownRecall | None:
    """Return the recall that a scan measured, and how many pictures came or went since."""
    facts = {
        row["key"]: row["value"]
        for row in store.rows(f"SELECT * FROM {schema}relate_facts WHERE key LIKE 'recall%'")
    }
    recall = json.loads(facts.get("recall", "{}"))
    if not recall or "recall_copies" not in facts:
        return None
    now, then = (
        f"SELECT DISTINCT pixel_hash FROM {where}features WHERE pixel_hash IS NOT NULL"
        for where in ("", schema)
    )
    changed = (
        store.scalar(f"SELECT count(*) FROM (({one} EXCEPT {other}))")
        for one, other in ((now, then), (then, now))
    )
    return KnownRecall(recall, int(facts["recall_copies"]), int(facts["recall_age"]) + sum(changed))
