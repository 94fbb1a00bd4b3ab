"""The evidence between two files: what they share, how they align, and how sure that is.

A score that the scan stored decides; else thumbnails are aligned here. Opens no image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from audit.neighbors.descriptor import describe
from audit.neighbors.pairs.signature_store import load_signatures
from audit.neighbors.transformation import describe_pair
from audit.neighbors.verification import key_ranks, verify
from audit.picture.signatures import is_comparable
from audit.results.file_details import find_sample
from audit.results.reader import RunReader

RECHECKED = {True: "the same image", False: "different images", None: "inconclusive"}
_STORED = "SELECT score, similarity, overlap, verified_full_size FROM pairs WHERE a = ? AND b = ?"
_GROUP_SCORES = """
    SELECT score FROM groups WHERE pixel_hash IN (?, ?) AND position > 0 ORDER BY pixel_hash
"""
_ROW = """
    SELECT i.id, i.content_hash, i.pixel_hash, i.phash, p.representative
    FROM images i JOIN pictures p USING (id) WHERE i.id = ?
"""


@dataclass(frozen=True, slots=True)
class PairCard:
    """Two samples of a run and what they share.

    `kind`: bytes | pixels | near | different. `score`: log odds of one picture, of the scan or from
    thumbnails (None where missing or blank), against `threshold`. `rechecked`: result of a
    full-resolution check; `looked`: it decided. `transformation` turns the first into the second.
    `grouped`: in one group with `representative`; `group_scores`: of each against it.
    """

    first: str
    second: str
    kind: str
    distance: int | None
    score: float | None
    threshold: float | None
    similarity: float | None
    overlap: float | None
    transformation: str
    looked: bool
    grouped: bool
    representative: str | None
    thumbnail_score: float | None = None
    stored: bool = False
    rechecked: str = ""
    group_scores: tuple[float, ...] = ()


def show_pair(results: RunReader, first: str, second: str) -> PairCard:
    """Return the evidence between two samples; UsageError where a name fits none or several."""
    with results.connection() as store:
        rows = [store.rows(_ROW, [find_sample(store, words)])[0] for words in (first, second)]
        threshold = store.scalar("SELECT value FROM relate_facts WHERE key = 'threshold'")
        pair = sorted(row["pixel_hash"] or "" for row in rows)
        stored = next(iter(store.rows(_STORED, pair)), {})
        rechecks = store.rows("SELECT same FROM rechecks WHERE a = ? AND b = ?", pair)
        scores = store.query(_GROUP_SCORES, pair)["score"]
        computed = _aligned(results.run, *rows)
        aligned = computed | stored  # a full-resolution check overrules the thumbnails
        same = rows[0]["representative"]
        grouped = same is not None and same == rows[1]["representative"]
        named = "SELECT min(id) FROM pictures WHERE pixel_hash = ?"
        phashes = [row["phash"] for row in rows]
        hashes = (("bytes", "content_hash"), ("pixels", "pixel_hash"))
        equal = (kind for kind, key in hashes if rows[0][key] == rows[1][key] is not None)
        return PairCard(
            first=rows[0]["id"],
            second=rows[1]["id"],
            kind=next(equal, "near" if stored else "different"),
            distance=None if None in phashes else int(phashes[0] ^ phashes[1]).bit_count(),
            score=aligned.get("score"),
            threshold=None if threshold is None else float(threshold),
            similarity=aligned.get("similarity"),
            overlap=aligned.get("overlap"),
            transformation=aligned.get("transformation", ""),
            looked=bool(aligned.get("verified_full_size", False)),
            grouped=grouped,
            representative=store.scalar(named, [same]) if grouped else None,
            thumbnail_score=computed.get("score"),
            stored=bool(stored),
            rechecked=RECHECKED[rechecks[0]["same"]] if rechecks else "",
            # neither of them is the representative
            group_scores=tuple(scores) if grouped and len(scores) == 2 else (),
        )


def _aligned(run: Path, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Align the two thumbnails; {} where one is missing or blank."""
    names = [first["content_hash"], second["content_hash"]]
    if None in names:
        return {}
    table, found = load_signatures(run, list(dict.fromkeys(names)))
    # Two samples with the same bytes share one signature, which is compared with itself.
    table = table if len(table) == 2 else np.repeat(table, 2)
    if not found.all() or not is_comparable(table).all():
        return {}
    keys = [bytes.fromhex(row["pixel_hash"]) for row in (first, second)]
    seen = verify(table, describe(table), np.array([[0, 1]]), key_ranks(keys))
    return {
        "score": float(seen.score[0]),
        "similarity": float(seen.similarity[0]),
        "overlap": float(seen.overlap[0]),
        "transformation": describe_pair(table[0], table[1], seen, 0).words,
    }
