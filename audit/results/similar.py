"""Images that look like an image, by stored neighbours; columns in which models fail.

Neighbours are read in both directions, because rare pictures are nobody's nearest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.embeddings.label_tables import PICTURES
from audit.embeddings.vectors import PictureVectors, stored_vectors
from audit.results.filters import Kind, list_columns, source_of
from audit.results.reader import RunReader, reads
from audit.run.store import Store, identifier

# Neighbours are stored for one sample of each distinct picture; equal pixels share them.
_SQL = """
    WITH twins AS (
        SELECT id FROM images
        WHERE id = $1 OR pixel_hash = (SELECT pixel_hash FROM images WHERE id = $1)
    ), near AS (
        SELECT neighbour_id AS other, similarity FROM vector_neighbours
        WHERE sample_id IN (SELECT id FROM twins)
        UNION ALL
        SELECT sample_id, similarity FROM vector_neighbours
        WHERE neighbour_id IN (SELECT id FROM twins)
    )
    SELECT i.id AS sample_id, i.label, i.split, max(near.similarity) AS similarity
    FROM near JOIN images i ON i.id = near.other
    WHERE i.id NOT IN (SELECT id FROM twins)
    GROUP BY ALL ORDER BY similarity DESC, sample_id LIMIT $2
"""


@reads()
def similar_pictures(store: Store, sample_id: str, limit: int = 24) -> pl.DataFrame:
    """Return `sample_id, label, split, similarity` (cosine, -1..1), the most alike first.

    Without near-duplicates. Empty for a picture without a vector or stored neighbours.
    """
    return store.query(_SQL, [sample_id, limit])


def stored_embeddings(results: RunReader) -> PictureVectors:
    """Return the stored embeddings of the images of a run."""
    with results.connection() as store:
        return stored_vectors(store, results.run, store.query(PICTURES))


NEAREST = """
    WITH near AS (
        SELECT sample_id AS one, neighbour_id AS other, similarity FROM vector_neighbours
        UNION SELECT neighbour_id, sample_id, similarity FROM vector_neighbours
    ), training AS (
        SELECT one AS sample_id, s.id, s.label, max(similarity) AS similarity
        FROM near JOIN samples s ON s.id = near.other
        WHERE one IN (SELECT unnest(?)) AND s.split IN ('train', 'training')
        GROUP BY one, s.id, s.label
    )
    SELECT * FROM training
    QUALIFY row_number() OVER (PARTITION BY sample_id ORDER BY similarity DESC, id) <= ?
    ORDER BY sample_id, similarity DESC, id
"""
CLUSTER = "cluster of the map"
MIN_CLUSTER_IMAGES = 40
MAX_CLUSTERS = 40


@reads()
def nearest_training(store: Store, ids: Sequence[str], most: int = 3) -> pl.DataFrame:
    """Return `sample_id, id, label, similarity`: for each id its nearest training images."""
    return store.query(NEAREST, [list(ids), most])


@reads()
def columns_of_images(store: Store, ids: Sequence[str]) -> pl.DataFrame:
    """Return a row for each id, in this order: columns in which slices are looked for."""
    known = list_columns(store)
    wanted = {
        name: one for name, one in known.items()
        if one.kind is not Kind.TEXT and not name.startswith(("map.", "label.", "nearest."))
    }  # fmt: skip
    named = ", ".join(f"{one.sql} AS {identifier(name)}" for name, one in wanted.items())
    maps = ', e.x AS "map.x", e.y AS "map.y"' if "map.x" in known else ""
    source = source_of(store, [*wanted, *(["map.x"] if maps else [])])
    asked = pl.DataFrame({"id": list(ids)}, schema={"id": pl.String})
    found = store.query(
        f"SELECT i.id, {named}{maps} FROM {source} WHERE i.id IN (SELECT unnest(?))", [list(ids)]
    )
    rows = asked.join(found.unique("id"), on="id", how="left", maintain_order="left").drop("id")
    if not maps:
        return rows
    places = rows.select("map.x", "map.y").to_numpy()
    return rows.drop("map.x", "map.y").with_columns(clusters(places).alias(CLUSTER))


def clusters(places: NDArray[np.float64]) -> pl.Series:
    """Return the cluster (text; null without a place) of points (n, 2), the same every time."""
    from scipy.cluster.vq import kmeans2

    known = np.isfinite(places).all(axis=1)
    k = min(MAX_CLUSTERS, int(known.sum()) // MIN_CLUSTER_IMAGES)
    if k < 2:
        return pl.Series([None] * len(places), dtype=pl.String)
    _, found = kmeans2(places[known], k, minit="++", seed=0, missing="warn")
    names = np.full(len(places), -1)
    names[known] = found
    return pl.Series(names).replace(-1, None).cast(pl.String)
