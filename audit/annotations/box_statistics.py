"""Statistics of boxes as tables: counts, sizes, aspects, positions, pairs of classes, overlap.

Made once a scan, after near-duplicates are known, in SQL over `boxes`; the pages of the app and the
report then read small tables. Sizes are COCO's: an area below 32 x 32 px is small,
above 96 x 96 px large, where the area is the one that the file gives, else that of the box. Two
million boxes take about 10 s of one core.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from audit.annotations.box_cover import cover_and_overlap
from audit.run.statistics_tables import BOX_STATISTICS_TABLES
from audit.run.store import Store

SAME_OBJECT = 0.9  # IoU from which boxes of two files, with one class, are one object
SMALL, LARGE = 32**2, 96**2  # px, from the evaluation code of COCO
OVERLAPS = 0.5  # IoU
GRID = 16
STEEPEST = 4  # log2 of width / height

# Each object once: `boxes` in another file of the same picture, class and place are the same.
_COUNTED = f"""
    CREATE OR REPLACE TEMP TABLE counted AS
    WITH shared AS (
        SELECT sample_id FROM (SELECT DISTINCT sample_id, file FROM boxes WHERE sample_id NOT NULL)
        GROUP BY sample_id HAVING count(*) > 1
    ), several AS (SELECT * FROM boxes SEMI JOIN shared USING (sample_id)),
    repeated AS (
        SELECT DISTINCT b.file, b.sample_id, b.image_key, b.entry FROM several b JOIN several a
            ON a.sample_id = b.sample_id AND a.label = b.label AND a.file < b.file
        WHERE least(a.x + a.width, b.x + b.width) > greatest(a.x, b.x)
            AND least(a.y + a.height, b.y + b.height) > greatest(a.y, b.y)
            AND (least(a.x + a.width, b.x + b.width) - greatest(a.x, b.x))
                * (least(a.y + a.height, b.y + b.height) - greatest(a.y, b.y))
                * (1 + {SAME_OBJECT})
                >= {SAME_OBJECT} * (a.width * a.height + b.width * b.height)
    )
    SELECT b.sample_id, b.label, b.width, b.height,
        CASE WHEN b.area > 0 THEN b.area ELSE b.width * b.height END AS area,
        (b.x + b.width / 2) / b.picture_width AS centre_x,
        (b.y + b.height / 2) / b.picture_height AS centre_y, b.crowd,
        least(greatest(b.x, 0), b.picture_width)::DOUBLE AS x0,
        least(greatest(b.y, 0), b.picture_height)::DOUBLE AS y0,
        least(greatest(b.x + b.width, 0), b.picture_width)::DOUBLE AS x1,
        least(greatest(b.y + b.height, 0), b.picture_height)::DOUBLE AS y1,
        b.picture_width * b.picture_height AS pixels
    FROM boxes b ANTI JOIN repeated r
        ON r.file = b.file AND r.sample_id = b.sample_id AND r.image_key = b.image_key
        AND r.entry = b.entry
    WHERE b.sample_id IS NOT NULL AND b.width > 0 AND b.height > 0 AND b.picture_width > 0
        AND b.picture_height > 0 AND isfinite(b.x) AND isfinite(b.y) AND isfinite(b.width)
        AND isfinite(b.height)
    ORDER BY b.sample_id, y0
"""
_IMAGES = """
    INSERT INTO box_images BY NAME
    SELECT sample_id, coalesce(n, 0) AS n_boxes, coalesce(covered / pixels, 0) AS box_cover,
        smallest_box
    FROM (SELECT DISTINCT sample_id FROM annotated_images WHERE sample_id NOT NULL) a
    LEFT JOIN (
        SELECT sample_id, count(*) AS n, any_value(pixels) AS pixels,
            min(least(width, height)) AS smallest_box
        FROM counted GROUP BY sample_id
    ) c USING (sample_id) LEFT JOIN covers USING (sample_id)
    ORDER BY sample_id
"""
# A row a picture and class: what is counted by picture needs no pass over all boxes.
_HELD = """
    CREATE OR REPLACE TEMP TABLE held AS
    SELECT h.sample_id, p.split, p.unit, h.label, h.n FROM (
        SELECT sample_id, label, count(*) AS n FROM counted GROUP BY sample_id, label
    ) h JOIN units p ON p.id = h.sample_id
"""
_CLASSES = f"""
    INSERT INTO box_classes BY NAME
    WITH measured AS (
        SELECT p.split, c.label, count(*) AS boxes,
            count(*) FILTER (WHERE c.area < {SMALL}) AS small,
            count(*) FILTER (WHERE c.area BETWEEN {SMALL} AND {LARGE}) AS medium,
            count(*) FILTER (WHERE c.area > {LARGE}) AS large,
            quantile_cont(sqrt(c.width * c.height), [0.1, 0.5, 0.9]) AS sides,
            quantile_cont(c.width / c.height, [0.1, 0.5, 0.9]) AS aspects,
            count(*) FILTER (WHERE o.overlap >= {OVERLAPS}) AS overlapping,
            count(*) FILTER (WHERE c.crowd) AS crowds
        FROM counted c JOIN box_iou o ON o.rowid = c.rowid JOIN units p ON p.id = c.sample_id
        GROUP BY p.split, c.label
    ), alone AS (
        SELECT split, label, sum(pictures) AS pictures, count(*) AS effective_pictures,
            sum(n) AS effective_boxes
        FROM (
            SELECT split, label, unit, count(*) AS pictures, max(n) AS n FROM held
            GROUP BY split, label, unit
        ) GROUP BY split, label
    )
    SELECT m.* EXCLUDE (sides, aspects), a.pictures, a.effective_pictures, a.effective_boxes,
        sides[1] AS side_low, sides[2] AS side_median, sides[3] AS side_high,
        aspects[1] AS aspect_low, aspects[2] AS aspect_median, aspects[3] AS aspect_high
    FROM measured m JOIN alone a ON a.split IS NOT DISTINCT FROM m.split
        AND a.label IS NOT DISTINCT FROM m.label
    ORDER BY m.label, m.split
"""
_REST = (
    "INSERT INTO box_counts BY NAME SELECT s.split, b.n_boxes AS boxes, count(*) AS pictures "
    "FROM box_images b JOIN samples s ON s.id = b.sample_id GROUP BY ALL ORDER BY ALL",
    "INSERT INTO box_ratios BY NAME SELECT p.split, floor(4 * least(greatest(log2(c.width / "
    f"c.height), -{STEEPEST}), {STEEPEST} - 0.01)) / 4 AS low, count(*) AS boxes "
    "FROM counted c JOIN units p ON p.id = c.sample_id GROUP BY ALL ORDER BY ALL",
    "INSERT INTO box_overlaps BY NAME SELECT p.split, CASE WHEN o.overlap > 0 THEN "
    "floor(least(o.overlap, 0.999) * 10) / 10 ELSE -1 END AS low, count(*) AS boxes "
    "FROM counted c JOIN box_iou o ON o.rowid = c.rowid JOIN units p ON p.id = c.sample_id "
    "GROUP BY ALL ORDER BY ALL",
    "INSERT INTO box_positions BY NAME SELECT p.split, c.label, "
    f"least(greatest(floor(c.centre_x * {GRID}), 0), {GRID - 1})::INTEGER AS cell_x, "
    f"least(greatest(floor(c.centre_y * {GRID}), 0), {GRID - 1})::INTEGER AS cell_y, "
    "count(*) AS boxes FROM counted c JOIN units p ON p.id = c.sample_id GROUP BY ALL ORDER BY ALL",
    "INSERT INTO box_pairs BY NAME SELECT a.label, b.label AS other, "
    "count(*) AS pictures FROM held a JOIN held b ON a.sample_id = b.sample_id "
    "AND a.label < b.label GROUP BY ALL ORDER BY pictures DESC, 1, 2",
)


def measure_boxes(store: Store) -> None:
    """Fill the tables of statistics from `boxes`, the samples and the groups of near-duplicates."""
    for table in BOX_STATISTICS_TABLES:
        store.execute(f"DELETE FROM {table}")
    if not store.scalar("SELECT count(*) FROM annotated_images WHERE sample_id IS NOT NULL"):
        return
    store.execute(_COUNTED)
    store.execute("CREATE OR REPLACE TEMP TABLE units AS SELECT id, split, unit FROM pictures")
    _measure_cover(store)
    for sql in (_HELD, _IMAGES, _CLASSES, *_REST):
        store.execute(sql)
    for table in ("counted", "held", "units", "covers", "box_iou"):
        store.execute(f"DROP TABLE {table}")


def _measure_cover(store: Store) -> None:
    """Make `covers` (a row a picture) and `box_iou` (a row a box, in the order of `counted`)."""
    frame = store.query("SELECT sample_id, x0, y0, x1, y1 FROM counted ORDER BY rowid")
    pictures = frame.select(pl.col("sample_id").rle()).unnest("sample_id")
    offsets = np.concatenate([[0], np.cumsum(pictures["len"].to_numpy().astype(np.int64))])
    cover, overlap = cover_and_overlap(frame.drop("sample_id").to_numpy(), offsets)
    store.create_from("box_iou", pl.DataFrame({"overlap": overlap}))
    store.create_from("covers", pl.DataFrame({"sample_id": pictures["value"], "covered": cover}))
