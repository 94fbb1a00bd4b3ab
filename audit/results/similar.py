"""More like this: which pictures of a run look like one of them, by its stored neighbours.

Neighbours are read in both directions, because rare pictures are nobody's nearest.
"""

from __future__ import annotations

import polars as pl

from audit.embeddings.label_tables import PICTURES
from audit.embeddings.vectors import PictureVectors, stored_vectors
from audit.results.reader import RunReader, reads
from audit.run.store import Store

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
