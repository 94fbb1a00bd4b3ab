"""What a scan stored about pairs, read back for the next scan: light, because every scan asks.

The search itself (`relate`) loads OpenCV and SciPy; this file loads none of them.
"""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np

from audit.neighbors.pair_cache import (
    KnownCentres,
    KnownCodes,
    KnownNeighbours,
    KnownPairs,
    KnownRecall,
    PairCache,
)
from audit.run.store import Store

RELATE_VERSION = 10
"""Raised when the tables of pairs mean something else: nothing of an older one is carried over."""


def load_pair_cache(store: Store, schema: str = "") -> PairCache:
    """Return what a scan decided about pairs of pixel hashes: to pass as `known`."""
    rechecks = store.query(f"SELECT a, b, contrast FROM {schema}rechecks")
    rejected = store.query(f"SELECT pair FROM {schema}rejected_pairs ORDER BY pair")
    said = store.query(f"SELECT a, b, similarity, overlap, transformation FROM {schema}pairs")
    return PairCache(
        {
            (bytes.fromhex(a), bytes.fromhex(b)): math.nan if contrast is None else contrast
            for a, b, contrast in rechecks.iter_rows()
        },
        rejected["pair"].to_numpy().astype(np.uint64),
        _load_recall(store, schema),
        **unpack_search_state(store.scalar(f"SELECT arrays FROM {schema}search_state")),
        words={(a, b, float(s), float(o)): words for a, b, s, o, words in said.iter_rows()},
    )


PARTS: dict[str, Any] = {
    "neighbours": KnownNeighbours, "pairs": KnownPairs, "hashes": KnownCodes,
    "centres": KnownCentres,
}  # fmt: skip
"""Parts of a `PairCache` that are stored as arrays."""


def pack_search_state(cache: PairCache) -> bytes:
    """Return what is kept as arrays as one file; nothing where it is not kept."""
    if cache.neighbours is None:
        return b""
    file = io.BytesIO()
    arrays: dict[str, Any] = {}
    for name, kind in PARTS.items():
        if (part := getattr(cache, name)) is not None:
            arrays |= {f"{name}.{key}": getattr(part, key) for key in kind.__slots__}
    np.savez(file, **arrays)
    return file.getvalue()


def unpack_search_state(state: bytes | None) -> dict[str, Any]:
    """Return the parts of a `PairCache` from what `pack_search_state` made."""
    if state is None:
        return {}
    with np.load(io.BytesIO(state), allow_pickle=False) as held:
        arrays: dict[str, Any] = dict(held)
    return {
        name: kind(*(arrays[f"{name}.{key}"] for key in kind.__slots__))
        for name, kind in PARTS.items()
        if f"{name}.codes" in arrays or f"{name}.prints" in arrays
    }


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
