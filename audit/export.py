"""Export: what a run found, as plain tables for other tools. Nothing of the user's is touched.

`pairs` gives one row for each verified pair of samples that show one picture. Inside a set of
copies that would be quadratic (1,000 copies are half a million pairs), so copies are written as a
star: each with the first of them. Near-duplicates likewise, one sample standing for each picture.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from audit.errors import UsageError
from audit.runs import open_run
from audit.store import Store

COLUMNS = (
    "a", "b", "split_a", "split_b", "label_a", "label_b", "kind", "distance", "similarity",
    "transformation", "score", "verified", "path_a", "path_b",
)  # fmt: skip
WRITERS = (".csv", ".parquet")
# A spreadsheet runs a cell that begins so; a leading apostrophe makes it text.
FORMULA = r"^[=+\-@\t\r]"

STARS = """
    WITH files AS (
        SELECT i.id, i.uri, i.split, i.label, i.content_hash, i.pixel_hash, p.blank,
            min(i.id) OVER (PARTITION BY i.content_hash) AS first_bytes,
            min(i.id) OVER (PARTITION BY i.pixel_hash) AS first_pixels
        FROM images i JOIN pictures p USING (id) WHERE i.pixel_hash IS NOT NULL
    ), found AS (
        SELECT first_bytes AS x, id AS y, 'bytes' AS kind, 0 AS distance, 1.0 AS similarity,
            'same bytes' AS transformation, NULL::DOUBLE AS score
        FROM files WHERE content_hash IS NOT NULL AND id <> first_bytes
        UNION ALL
        SELECT first_pixels, id, 'pixels', 0, 1.0, 'same pixels, other bytes', NULL
        FROM files WHERE id = first_bytes AND id <> first_pixels AND NOT blank
        UNION ALL
        SELECT x.id, y.id, 'near', p.distance, p.similarity, p.transformation, p.score
        FROM pairs p
        JOIN files x ON x.pixel_hash = p.a AND x.id = x.first_pixels
        JOIN files y ON y.pixel_hash = p.b AND y.id = y.first_pixels
    )
    SELECT x AS a, y AS b, s.split AS split_a, t.split AS split_b, s.label AS label_a,
        t.label AS label_b, kind, distance, similarity, transformation, score, true AS verified,
        s.uri AS path_a, t.uri AS path_b
    FROM found JOIN samples s ON s.id = x JOIN samples t ON t.id = y
    ORDER BY list_position(['bytes', 'pixels', 'near'], kind), a, b
"""


def pairs(store: Store) -> pl.DataFrame:
    """Return one row a verified pair (`COLUMNS`): `distance` in bits of the perceptual hash,
    `similarity` a correlation, `score` log odds, `transformation` what turns a into b.
    """
    return store.query(STARS).select(COLUMNS)


def export_pairs(run: Path, target: Path) -> int:
    """Write the verified pairs of a run to a .csv or .parquet file; returns their number.

    Raises UsageError for another extension or a place that cannot be written.
    """
    if target.suffix.lower() not in WRITERS:
        raise UsageError(f"{target} should end in {' or '.join(WRITERS)}.")
    with open_run(run) as store:
        found = pairs(store)
    try:
        if target.suffix.lower() == ".csv":
            _neutral(found).write_csv(target)
        else:
            found.write_parquet(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}.") from None
    return found.height


def _neutral(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with text cells that a spreadsheet would run made plain text."""
    text = pl.col(pl.String)
    return frame.with_columns(
        pl.when(text.str.contains(FORMULA)).then(pl.lit("'") + text).otherwise(text).name.keep()
    )
