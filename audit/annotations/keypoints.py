"""Keypoints of objects beside their boxes, in px; and which of them are left and right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit.run.store import Store

if TYPE_CHECKING:
    import polars as pl

_KEYPOINTS = """
    WITH placed AS (
        SELECT s.points, s.file, s.image_key, s.entry, b.line, b.byte, b.sample_id, b.label,
            b.category_key, i.subject, c.keypoints AS names, a.n_keypoints,
            ends_with(coalesce(f.reading, f.form), ' share') <> coalesce(b.other_unit, false)
                AS in_shares,
            f.frame = 'stored' AND i.orientation > 1 AS is_stored,
            f.frame = 'stored' AND i.orientation >= 5 AS sides_stored,
            coalesce(b.picture_width, b.declared_width) AS shown_width,
            coalesce(b.picture_height, b.declared_height) AS shown_height,
            CASE WHEN sides_stored THEN shown_height ELSE shown_width END AS w0,
            CASE WHEN sides_stored THEN shown_width ELSE shown_height END AS h0,
            CASE WHEN is_stored THEN b.stored_x ELSE b.x END AS x,
            CASE WHEN is_stored THEN b.stored_y ELSE b.y END AS y,
            CASE WHEN is_stored THEN b.stored_width ELSE b.width END AS width,
            CASE WHEN is_stored THEN b.stored_height ELSE b.height END AS height
        FROM annotation_shapes s JOIN boxes b
            ON b.file = s.file AND b.image_key = s.image_key AND b.entry = s.entry
        JOIN annotation_files f ON f.file = s.file
        JOIN images i ON i.id = b.sample_id
        LEFT JOIN annotations a
            ON a.file = s.file AND a.image_key = s.image_key AND a.entry = s.entry
        LEFT JOIN (SELECT file, category_key, any_value(keypoints) AS keypoints FROM categories
            GROUP BY file, category_key) c ON c.file = b.file AND c.category_key = b.category_key
        WHERE s.kind = 'keypoints'
    )
    SELECT * REPLACE (CASE WHEN in_shares THEN list_transform(points, lambda v, i:
        v * CASE i % 3 WHEN 1 THEN w0 WHEN 2 THEN h0 ELSE 1 END) ELSE points END AS points)
    FROM placed WHERE {where} ORDER BY sample_id, file, entry
"""


def keypoint_rows(store: Store, where: str = "TRUE") -> pl.DataFrame:
    """Return the keypoints of each object, its box and the picture's size `w0`, `h0`.

    All are px in the frame of the annotation file; `names` are those of its class, JSON or null.
    """
    return store.query(_KEYPOINTS.format(where=where))


def flip_names(flip: Sequence[int]) -> list[str]:
    """Return names that tell which keypoints are a pair, where none are given."""
    return [
        f"point {i}" if i == j else f"left {i}" if i < j else f"right {j}"
        for i, j in enumerate(flip)
    ]


def pairs_of(names: Sequence[object]) -> list[tuple[int, int]]:
    """Return (left, right) positions of the names that differ in that word alone."""
    texts = [str(name).lower() for name in names]
    return [
        (i, texts.index(text.replace("left", "right")))
        for i, text in enumerate(texts)
        if "left" in text and text.replace("left", "right") in texts
    ]
