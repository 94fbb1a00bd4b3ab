"""The measured tables of a run as one split of a larger dataset, and its labelled images."""

from __future__ import annotations

import polars as pl

from audit.errors import UsageError
from audit.picture.features import FEATURE_ROW
from audit.results.reader import RunReader, reads
from audit.run.store import Store, identifier

BY_SAMPLE = ("several_labels", "object_labels", "box_images")
# One file an image; an image with two labels teaches neither.
LABELLED = """
    SELECT min(i.id) AS id, min_by(i.uri, i.id) AS uri,
        min_by(i.content_hash, i.id) AS content_hash, any_value(p.unit) AS unit,
        min(trim(i.label)) AS label, any_value(i.width) AS width, any_value(i.height) AS height
    FROM images i JOIN pictures p USING (id)
    WHERE i.status = 'ok' AND i.pixel_hash IS NOT NULL AND trim(coalesce(i.label, '')) <> ''
        AND NOT p.blank
    GROUP BY i.pixel_hash HAVING count(DISTINCT trim(i.label)) = 1 ORDER BY i.pixel_hash
"""


def read_feature_tables(results: RunReader, split: str, prefix: str) -> dict[str, pl.DataFrame]:
    """Return samples, features, labels and groups in one split, `prefix` before each id.

    Raises UsageError for a run that lacks measured columns.
    """
    columns = ", ".join(identifier(c.name) for c in FEATURE_ROW if c.name != "sample_id")
    with results.connection() as store:
        missing = {c.name for c in FEATURE_ROW} - store.columns("features").keys()
        if missing:
            raise UsageError(
                f"{results.run} was scanned by a version that did not measure "
                f"{', '.join(sorted(missing))}: scan its source into it again."
            )
        named = "SELECT * REPLACE (concat(?, id) AS id, ? AS split) FROM samples"
        measured = f"SELECT concat(?, sample_id) AS sample_id, {columns} FROM features"
        renamed = "SELECT * REPLACE (concat(?, sample_id) AS sample_id) FROM"
        return {
            "samples": store.query(named, [prefix, split]),
            "features": store.query(measured, [prefix]),
            **{table: store.query(f"{renamed} {table}", [prefix]) for table in BY_SAMPLE},
            "groups": store.query("SELECT * FROM groups"),
        }


@reads()
def read_labelled_images(store: Store) -> pl.DataFrame:
    """Return id, uri, content_hash, unit, label, width and height of the labelled images."""
    return store.query(LABELLED)
