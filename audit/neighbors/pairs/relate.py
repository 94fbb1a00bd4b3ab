"""Relate: which pictures of a dataset show the same thing, once a scan, stored for all to read.

Rows are distinct pictures (pixel hashes), not files, in the order of their hashes. Results go into
the tables `pairs`, `groups` and `relate_facts`; `rechecks`, `rejected_pairs` and `search_state`
carry work over to the next scan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.machine.executors import Executor
from audit.neighbors.calibration import SCORE_DECIMALS, Calibration
from audit.neighbors.pair_cache import PairCache
from audit.neighbors.pairs.signature_store import load_signatures
from audit.neighbors.pairs.stored_pairs import RELATE_VERSION, pack_search_state
from audit.neighbors.search import (
    Relation,
    SearchOptions,
    expect_recall,
    find_near_duplicates,
)
from audit.neighbors.transformation import describe_pair
from audit.picture.decode import Limits
from audit.picture.preview import feature_pictures
from audit.picture.signatures import Signatures
from audit.run.store import Store, identifier
from audit.sources.paths import reading_place

TABLES = ("pairs", "groups", "rechecks", "rejected_pairs", "search_state", "relate_facts")
# The file that stands for a picture is the one with the smallest content hash, then id.
PICTURES = """
    SELECT pixel_hash, min_by(content_hash, (content_hash, id)) AS content_hash,
        min_by(uri, (content_hash, id)) AS uri, min_by(phash, (content_hash, id)) AS phash
    FROM images
    WHERE pixel_hash IS NOT NULL AND phash IS NOT NULL AND status IN ('ok', 'damaged')
    GROUP BY pixel_hash ORDER BY pixel_hash
"""


def relate_pictures(
    store: Store,
    run: Path,
    limits: Limits,
    executor: Executor,
    *,
    options: SearchOptions | None = None,
    more_hashes: Sequence[str] = (),
    known: PairCache | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Fill `pairs`, `groups` and `relate_facts` from the measured pictures of `store`.

    `run` holds the signatures; `executor` opens files for full-resolution checks; `more_hashes`:
    measured columns whose close pairs are candidates as well; `known`: see `load_pair_cache`;
    `progress` gets (pictures done, all), by the share of the work.
    """
    pictures = store.query(PICTURES)
    progress(0, len(pictures))
    store.give_back_memory()
    with store.transaction():
        table, stored = load_signatures(run, pictures["content_hash"])
        missing = int((~stored).sum())
        if missing:
            table = table[stored]
        rows = pictures.filter(pl.Series(stored)) if missing else pictures
        hashes = rows["pixel_hash"]
        for name in TABLES:
            store.execute(f"DELETE FROM {name}")
        relation = find_near_duplicates(
            table,
            [bytes.fromhex(h) for h in hashes],
            rows["phash"].to_numpy().astype(np.uint64),
            open_picture=picture_opener(rows["uri"], rows["content_hash"], limits, executor),
            more_hashes=_more_hashes(store, rows, more_hashes),
            options=options,
            known=known,
            advance=lambda share: progress(int(share * len(pictures)), len(pictures)),
        )
        words = None if known is None else known.words
        phashes = rows["phash"].to_numpy()
        store.append("pairs", pair_rows(relation, table, hashes, phashes, words))
        store.append("groups", _group_rows(relation, hashes))
        store.append("rechecks", _recheck_rows(relation))
        rejected = pl.DataFrame({"pair": relation.cache.rejected_pairs})
        store.append("rejected_pairs", rejected)
        if state := pack_search_state(relation.cache):
            store.execute("INSERT INTO search_state VALUES (?)", [state])
        store.append("relate_facts", _facts(relation, len(pictures), missing))
    progress(len(pictures), len(pictures))


def recall_facts(
    store: Store, run: Path, limits: Limits, executor: Executor, options: SearchOptions
) -> dict[str, str]:
    """Return those of `relate_facts` that a measured recall changes; reads a few pictures."""
    pictures = store.query(PICTURES)
    table, stored = load_signatures(run, pictures["content_hash"])
    rows = pictures.filter(pl.Series(stored))
    facts = dict(store.query("SELECT key, value FROM relate_facts").iter_rows())
    opener = picture_opener(rows["uri"], rows["content_hash"], limits, executor)
    threshold, error, false = (
        float(facts[name]) for name in ("threshold", "threshold_error", "false_expected")
    )
    reason = json.loads(facts["calibration"])[0]
    calibration = expect_recall(
        Calibration(threshold, error, false, 0, reason),
        table[stored],
        [bytes.fromhex(h) for h in rows["pixel_hash"]],
        opener,
        options,
    )
    return _calibration_facts(calibration)


def _more_hashes(
    store: Store, rows: pl.DataFrame, names: Sequence[str]
) -> dict[str, npt.NDArray[np.uint64]]:
    """Return further hashes by column, row by row of the pictures."""
    if not names:
        return {}
    columns = ", ".join(f"any_value({identifier(name)}) AS {identifier(name)}" for name in names)
    stored = store.query(f"SELECT pixel_hash, {columns} FROM features GROUP BY pixel_hash")
    joined = rows.select("pixel_hash").join(stored, on="pixel_hash", how="left")
    return {name: joined[name].fill_null(0).to_numpy().astype(np.uint64) for name in names}


def picture_opener(
    uris: Sequence[str] | pl.Series,
    content_hashes: Sequence[str] | pl.Series,
    limits: Limits,
    executor: Executor,
) -> Callable[[int], npt.NDArray[np.uint8] | None]:
    """Return a function from row number to feature picture; None where the file is not that any
    more.
    """
    open_one = feature_pictures(executor, limits)

    @lru_cache(maxsize=64)
    def open_picture(row: int) -> npt.NDArray[np.uint8] | None:
        preview = open_one(reading_place(uris[row]))
        return preview.pixels if preview.content_hash == content_hashes[row] else None

    return open_picture


def pair_rows(
    relation: Relation,
    table: Signatures,
    hashes: pl.Series,
    phashes: npt.NDArray[np.uint64],
    known: Mapping[tuple[str, str, float, float], str] | None = None,
) -> pl.DataFrame:
    """Return the rows of `pairs`, a < b; `hashes` are sorted, so rows and hashes order alike.

    `known` are words of an earlier scan (`PairCache.words`).
    """
    verified = relation.pairs
    first, second = verified.pairs[:, 0], verified.pairs[:, 1]
    similarity, overlap = (x.round(SCORE_DECIMALS) for x in (verified.similarity, verified.overlap))
    said = zip(hashes.gather(first), hashes.gather(second), similarity, overlap, strict=True)
    words = [
        (known or {}).get((a, b, float(s), float(o)))
        or describe_pair(table[i], table[j], verified, row).words
        for row, ((a, b, s, o), (i, j)) in enumerate(
            zip(said, verified.pairs.tolist(), strict=True)
        )
    ]
    rows = pl.DataFrame(
        {
            "a": hashes.gather(first),
            "b": hashes.gather(second),
            "kind": pl.Series(["near"] * len(first), dtype=pl.String),
            "score": verified.score.round(SCORE_DECIMALS),
            "similarity": similarity,
            "distance": np.bitwise_count(phashes[first] ^ phashes[second]).astype(np.int32),
            "overlap": overlap,
            "transformation": pl.Series(words, dtype=pl.String),
            "verified_full_size": relation.verified_full_size,
        }
    )
    return rows.sort("a", "b")


def _group_rows(relation: Relation, hashes: pl.Series) -> pl.DataFrame:
    rows = [
        (
            hashes[group.representative],
            hashes[member],
            position,
            round(float(score), SCORE_DECIMALS),
        )
        for group in relation.grouping.groups
        for position, (member, score) in enumerate(zip(group.members, group.scores, strict=True))
    ]
    schema = {
        "representative": pl.String,
        "pixel_hash": pl.String,
        "position": pl.Int32,
        "score": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _recheck_rows(relation: Relation) -> pl.DataFrame:
    seen = sorted(relation.cache.rechecks.items())
    return pl.DataFrame(
        {
            "a": [a.hex() for (a, _), _ in seen],
            "b": [b.hex() for (_, b), _ in seen],
            "same": [relation.verdicts.get(pair) for pair, _ in seen],
            "contrast": [None if math.isnan(contrast) else contrast for _, contrast in seen],
        },
        schema={"a": pl.String, "b": pl.String, "same": pl.Boolean, "contrast": pl.Float64},
    )


def _facts(relation: Relation, pictures: int, missing: int) -> list[dict[str, str]]:
    sentences = list(relation.completeness.sentences())
    if missing:
        sentences.append(
            f"{missing:,} of {pictures:,} images were compared with nothing, because their "
            "stored signatures are absent or damaged: scan into a new run directory."
        )
    calibration = relation.calibration
    facts = {
        "version": str(RELATE_VERSION),
        "pictures": str(pictures),
        "missing_signatures": str(missing),
        "threshold": repr(float(calibration.threshold)),
        "threshold_error": repr(float(calibration.uncertainty)),
        "false_expected": repr(float(calibration.false_expected)),
        "completeness": json.dumps(sentences, ensure_ascii=False),
        **_calibration_facts(calibration),
    }
    return [{"key": key, "value": value} for key, value in facts.items()]


def _calibration_facts(calibration: Calibration) -> dict[str, str]:
    return {
        "recall": json.dumps(dict(calibration.recall)),
        "recall_copies": str(calibration.synthetic_copies),
        "recall_age": str(calibration.recall_age),
        "calibration": json.dumps(list(calibration.sentences()), ensure_ascii=False),
    }
