"""Vectors of a run's pictures, and what they say of labels: once a scan, stored for all to read.

Rows are distinct pictures (pixel hashes), as for near-duplicates; `labelled` says which labels are
judged. What is found goes into narrow tables of the measurements database: `label_scores`,
`vector_neighbours`, `embedding_map`, `label_facts`; vectors themselves are not kept where they are
cheaper to make again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from threadpoolctl import threadpool_limits

from audit.class_names import fold_name
from audit.embeddings.flat_map import place_on_map
from audit.embeddings.isolation import Isolated, distance_scores, find_isolated
from audit.embeddings.judged import JudgedLabels, judge_probabilities, judge_vectors
from audit.embeddings.labelled import Labelled, find_atypical, label_pictures
from audit.embeddings.nearest import Nearest, nearest_rows, vote_shares
from audit.embeddings.ridge import decompose
from audit.embeddings.settings import VectorOptions
from audit.embeddings.vectors import Opening, PictureVectors, load_vectors
from audit.errors import UsageError
from audit.run.store import Store
from audit.spacings import LEAST

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Advance = Callable[[float], None]
TABLES = (
    "label_scores", "vector_neighbours", "embedding_map", "label_facts", "vector_failures",
    "vector_outliers",
)  # fmt: skip
FEW_PICTURES = 3_000
SHOWN_NEIGHBOURS = 5
NEIGHBOURS_OF_ALL = 200_000
"""Pictures up to which the neighbours of all are stored; beyond, of the most doubtful."""
DOUBTFUL = 10_000
STORED_CHANCE = 0.05
"""Outliers of up to this chance are stored; the check has a smaller threshold."""

# The sample that stands for a picture is the one with the smallest id. Pictures that are nearly
# black or white (IMG001, IMG002) look like each other, whatever they show.
PICTURES = """
    SELECT i.pixel_hash, min(i.id) AS id, min_by(i.content_hash, i.id) AS content_hash,
        min_by(i.uri, i.id) AS uri,
        any_value(g.representative) AS representative,
        list(DISTINCT trim(i.group_key)) FILTER (WHERE trim(coalesce(i.group_key, '')) <> '')
            AS group_keys,
        list(DISTINCT i.label) FILTER (WHERE trim(coalesce(i.label, '')) <> '') AS labels
    FROM images i LEFT JOIN groups g ON g.pixel_hash = i.pixel_hash
    WHERE i.pixel_hash IS NOT NULL AND i.status = 'ok' AND i.phash IS NOT NULL
        AND coalesce(i.contrast, 1) >= 0.004 AND coalesce(i.transparent, 0) <= 0.999
        AND coalesce(i.brightness_p99, 1) >= 0.16 AND coalesce(i.brightness_p1, 0) <= 0.7
    GROUP BY i.pixel_hash ORDER BY i.pixel_hash
"""


def relate_labels(
    store: Store,
    run: Path,
    options: VectorOptions,
    *,
    advance: Advance = lambda share: None,
    opening: Opening | None = None,
) -> None:
    """Fill the tables of labels and vectors from the measured pictures of `store`.

    `run` holds the signatures; a model needs an `opening`. Raises UsageError where the user's own
    vectors, probabilities or model cannot be used.
    """
    pictures = store.query(PICTURES)
    store.give_back_memory()
    # on few rows more threads only wait for each other
    with threadpool_limits(1 if len(pictures) < FEW_PICTURES else None, "blas"):
        _relate(store, load_vectors(store, run, pictures, options, advance, opening))
    advance(1.0)


def _relate(store: Store, found: PictureVectors) -> None:
    known = label_pictures(found.rows, find_atypical(found.views[0]), found.probabilities)
    judged = nearest = decomposition = None
    odd: list[Isolated] = []
    scores = np.zeros(0)
    places, how = np.zeros((0, 2)), ""
    if len(known.rows) > 2:
        decomposition = decompose(found.whole())
        nearest = nearest_rows(decomposition, known.groups)
        scores = distance_scores(decomposition, known.groups)
        places, how = place_on_map(decomposition)
        odd = find_isolated(scores, known.classes, known.groups, STORED_CHANCE)
    if not known.reason and nearest is not None:
        if found.probabilities is not None:
            judged = _judge_own(found, known, nearest)
        else:
            judged = judge_vectors(
                found.views, nearest, known.labels, known.groups, len(known.names), decomposition,
            )  # fmt: skip
    with store.transaction():
        for name in TABLES:
            store.execute(f"DELETE FROM {name}")
        failed = [{"sample_id": s, "reason": why} for s, why in found.failures.items()]
        store.append("vector_failures", failed)
        facts = {
            "vectors": found.source,
            "map": how,
            **found.facts,
            **_facts(known, judged, nearest),
        }
        store.append("label_facts", [{"key": k, "value": str(v)} for k, v in facts.items()])
        if judged is not None:
            _store_by_picture(store, "label_scores", _score_rows(known, judged))
        if nearest is not None and decomposition is not None:
            _store_neighbours(store, known, nearest, judged, odd)
            store.append("vector_outliers", _outlier_rows(known, odd))
            _store_by_picture(store, "embedding_map", _map_rows(known, places, scores))


def _judge_own(found: PictureVectors, known: Labelled, nearest: Nearest) -> JudgedLabels:
    """Judge by the user's probabilities; the neighbours only show what the picture looks like."""
    assert found.probabilities is not None
    columns = {fold_name(name): number for number, name in enumerate(found.classes)}
    missing = [name for name in known.names if fold_name(name) not in columns]
    if missing:
        raise UsageError(
            f"The predictions have no column for the class {missing[0]!r}: give one column of "
            f"probabilities a class, named like it ({len(missing)} of {len(known.names)} missing)."
        )
    rows = np.flatnonzero(known.labels >= 0)
    own = found.probabilities[rows][:, [columns[fold_name(name)] for name in known.names]]
    own /= own.sum(1, keepdims=True) + np.float32(1e-12)
    votes, _ = vote_shares(nearest, known.labels, len(known.names), rows)
    return judge_probabilities(own, known.labels[rows], votes)


# ---- rows ----


def _score_rows(known: Labelled, judged: JudgedLabels) -> pl.DataFrame:
    rows = np.flatnonzero(known.labels >= 0)
    labels = known.labels[rows]
    doubted = np.bincount(labels, judged.error_chance > 0.5, len(known.names))
    names = np.asarray(known.names, object)
    return pl.DataFrame(
        {
            "pixel_hash": known.rows["pixel_hash"].gather(rows),
            "label_quality": judged.quality,
            "suggested_label": pl.Series(names[judged.suggested].tolist(), dtype=pl.String),
            "probability": judged.probability,
            "suggested_probability": judged.suggested_probability,
            "error_chance": judged.error_chance,
            "neighbours": judged.neighbours.astype(np.int32),
            "neighbours_given": judged.votes[:, 0].astype(np.int32),
            "neighbours_suggested": judged.votes[:, 1].astype(np.int32),
            "class_doubt": (doubted / np.bincount(labels, minlength=len(names)))[labels],
        }
    )


def _map_rows(
    known: Labelled, places: npt.NDArray[np.float64], scores: npt.NDArray[np.float64]
) -> pl.DataFrame:
    """Return the place of each picture on the map, and how far it is from others (1: typical)."""
    isolation = np.exp(scores - np.median(scores))
    columns = {"x": places[:, 0], "y": places[:, 1], "isolation": isolation}
    return pl.DataFrame({"pixel_hash": known.rows["pixel_hash"], **columns})


def _outlier_rows(known: Labelled, odd: list[Isolated]) -> list[dict[str, Any]]:
    ids = known.rows["id"]
    return [
        {
            "sample_id": ids[one.row],
            "compared_with": known.names[one.group] if one.group >= 0 else None,
            **{name: getattr(one, name) for name in ("n", "chance", "distance", "rest", "typical")},
        }
        for one in odd
    ]


def _store_by_picture(store: Store, table: str, rows: pl.DataFrame) -> None:
    """Give every sample of a picture the picture's row."""
    store.create_from("by_picture", rows)
    others = ", ".join(f"r.{name}" for name in rows.columns if name != "pixel_hash")
    wanted = "AND f.label IS NOT NULL" if table == "label_scores" else ""
    store.execute(
        f"INSERT INTO {table} BY NAME SELECT f.id AS sample_id, {others} FROM images f "
        f"JOIN by_picture r USING (pixel_hash) WHERE f.status = 'ok' {wanted} ORDER BY f.id"
    )
    store.execute("DROP TABLE by_picture")


def _store_neighbours(
    store: Store,
    known: Labelled,
    nearest: Nearest,
    judged: JudgedLabels | None,
    odd: list[Isolated],
) -> None:
    rows = np.arange(len(known.rows))
    if len(rows) > NEIGHBOURS_OF_ALL:
        doubtful = judged.order()[:DOUBTFUL] if judged is not None else rows[:0]
        rows = np.flatnonzero(known.labels >= 0)[doubtful]
        rows = np.union1d(rows, np.array([one.row for one in odd], np.int64))
    index = nearest.index[rows, :SHOWN_NEIGHBOURS]
    there = index >= 0
    ids = known.rows["id"]
    place = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    frame = pl.DataFrame(
        {
            "sample_id": ids.gather(np.broadcast_to(rows[:, None], index.shape)[there]),
            "position": place[there].astype(np.int32),
            "neighbour_id": ids.gather(index[there]),
            "similarity": nearest.similarity[rows, :SHOWN_NEIGHBOURS][there].astype(np.float64),
        }
    )
    store.append("vector_neighbours", frame)


def _facts(
    known: Labelled, judged: JudgedLabels | None, nearest: Nearest | None
) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        "judged": int((known.labels >= 0).sum()),
        "classes": len(known.names),
        "conflicting": known.conflicting,
        "in_small_classes": known.in_small_classes,
        "atypical": known.atypical,
        "not_drawn": known.not_drawn,
        "reason": known.reason,
        "compared": len(np.unique(known.groups)),
        "least_compared": LEAST,
    }
    if nearest is not None:
        facts["references"] = nearest.references
    if judged is None:
        return facts
    # a model that is no better than naming the largest class knows nothing of the pictures
    labels = known.labels[known.labels >= 0]
    return facts | {
        "share": judged.share,
        "share_limit": judged.share_limit,
        "gain": judged.gain,
        "accuracy": judged.accuracy,
        "largest_class": float(np.bincount(labels).max() / len(labels)),
        "expected": json.dumps({str(n): s for n, s in judged.expected_shares().items()}),
    }
