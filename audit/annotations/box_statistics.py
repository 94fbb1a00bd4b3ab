"""Statistics of boxes as tables: counts, sizes, aspects, positions, pairs of classes, overlap.

Made once a scan in SQL over `boxes`. Sizes are COCO's: an area below 32 x 32 px is small, above 96
x 96 px large, of the file's area, else of the box. The union of the boxes of a picture is measured
on the grid of their edges; greatest overlaps are those with the next `MOST_NEXT` boxes below.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from audit.annotations.box_pairs import Integers, Numbers, areas_of, compare_next
from audit.run.annotation_tables import BOX_STATISTICS_TABLES
from audit.run.store import Store

SAME_OBJECT = 0.9  # IoU from which boxes of two files, with one class, are one object
SMALL, LARGE = 32**2, 96**2  # px, from the evaluation code of COCO
OVERLAPS = 0.5  # IoU
GRID = 16
STEEPEST = 4  # log2 of width / height
MOST = 2000  # boxes of one class, picture and file that are compared with those of other files
FEW = 64  # boxes whose union is measured on one grid
MOST_CLASSES = 300  # classes of one picture of which all pairs are counted

# Each object once: `boxes` in another file of the same picture, class and place are the same; of
# more than `MOST` of one class in one picture and file, those with the same numbers.
_COUNTED = f"""
    CREATE OR REPLACE TEMP TABLE counted AS
    WITH shared AS (
        SELECT sample_id FROM (SELECT DISTINCT sample_id, file FROM boxes WHERE sample_id NOT NULL)
        GROUP BY sample_id HAVING count(*) > 1
    ), shaped AS (
        SELECT file, image_key, entry,
            CASE WHEN bool_or(kind = 'keypoints') THEN 'keypoints' ELSE 'mask' END AS kind
        FROM annotation_shapes GROUP BY ALL
    ), several AS (
        SELECT *, (count(*) OVER (PARTITION BY sample_id, file, label) > {MOST})::INT AS crowded
        FROM boxes SEMI JOIN shared USING (sample_id)
    ),
    repeated AS (
        SELECT DISTINCT b.file, b.sample_id, b.image_key, b.entry FROM several b JOIN several a
            ON a.sample_id = b.sample_id AND a.label = b.label AND a.file < b.file
        WHERE a.crowded + b.crowded = 0
            AND least(a.x + a.width, b.x + b.width) > greatest(a.x, b.x)
            AND least(a.y + a.height, b.y + b.height) > greatest(a.y, b.y)
            AND (least(a.x + a.width, b.x + b.width) - greatest(a.x, b.x))
                * (least(a.y + a.height, b.y + b.height) - greatest(a.y, b.y))
                * (1 + {SAME_OBJECT})
                >= {SAME_OBJECT} * (a.width * a.height + b.width * b.height)
        UNION
        SELECT b.file, b.sample_id, b.image_key, b.entry FROM several b JOIN (
            SELECT sample_id, label, x, y, width, height, min(file) AS file FROM several
            GROUP BY ALL
        ) a USING (sample_id, label, x, y, width, height) WHERE a.file < b.file
    )
    SELECT b.sample_id, b.label, b.width, b.height, coalesce(k.kind, 'box') AS kind,
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
    LEFT JOIN shaped k ON k.file = b.file AND k.image_key = b.image_key AND k.entry = b.entry
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
_OBJECTS = """
    INSERT INTO object_labels BY NAME
    SELECT sample_id, label, kind, count(*) AS n, avg(log2(width * height)) / 2 AS side,
        avg(log2(width / height)) AS aspect, avg(centre_x) AS x, avg(centre_y) AS y
    FROM counted GROUP BY sample_id, label, kind ORDER BY sample_id, label, kind
"""
_HELD = """
    CREATE OR REPLACE TEMP TABLE held AS
    SELECT h.sample_id, p.split, p.unit, h.label, h.n FROM (
        SELECT sample_id, label, sum(n)::BIGINT AS n FROM object_labels GROUP BY sample_id, label
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
    "INSERT INTO box_pairs BY NAME WITH few AS (SELECT * FROM held "
    f"QUALIFY count(*) OVER (PARTITION BY sample_id) <= {MOST_CLASSES}) "
    "SELECT a.label, b.label AS other, count(*) AS pictures FROM few a "
    "JOIN few b ON a.sample_id = b.sample_id AND a.label < b.label "
    "GROUP BY ALL ORDER BY pictures DESC, 1, 2",
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
    for sql in (_OBJECTS, _HELD, _IMAGES, _CLASSES, *_REST):
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


def cover_and_overlap(corners: Numbers, offsets: Integers) -> tuple[Numbers, Numbers]:
    """Return the area that the boxes of each image cover, and each box's greatest IoU (`sweep`)."""
    area, overlap = areas_of(corners), np.zeros(len(corners))
    none, limited, touching = np.zeros((3, len(corners)), np.bool_)
    for i, j, both in compare_next(corners, offsets, none, limited):
        iou = both / (area[i] + area[j] - both)
        for boxes in (i, j):
            overlap[boxes] = np.maximum(overlap[boxes], iou)
            touching[boxes] = True
    picture = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # none may count as alone that was not compared
    touching |= np.isin(picture, picture[limited])
    alone = np.bincount(picture, np.where(touching, 0.0, area), len(offsets) - 1)
    cover = np.asarray(alone, np.float64)
    for p in np.unique(picture[touching]):
        here = slice(offsets[p], offsets[p + 1])
        cover[p] += _union(corners[here][touching[here]])
    return cover, overlap


def _union(boxes: Numbers) -> float:
    """Return the area of the union of boxes: on the grid of their edges, of many in parts."""
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    if ((boxes[:, :2] == low) & (boxes[:, 2:] == high)).all(axis=1).any():
        return float(np.prod(high - low))
    x, y = np.unique(boxes[:, ::2]), np.unique(boxes[:, 1::2])
    if len(boxes) <= FEW:
        across = (boxes[:, :1] <= x[:-1]) & (boxes[:, 2:3] >= x[1:])
        down = (boxes[:, 1:2] <= y[:-1]) & (boxes[:, 3:] >= y[1:])
        covered = np.minimum(across.T.astype(np.float64) @ down.astype(np.float64), 1)
        return float(np.diff(x) @ covered @ np.diff(y))
    axis, edges = (0, x) if len(x) >= len(y) else (1, y)
    middle, total = edges[len(edges) // 2], 0.0
    for side, limit in ((axis + 2, np.minimum), (axis, np.maximum)):
        part = boxes.copy()
        part[:, side] = limit(part[:, side], middle)
        total += _union(part[part[:, axis] < part[:, axis + 2]])
    return total


T = TypeVar("T")
BY_SPLIT = (
    "CASE lower(split) WHEN 'train' THEN 0 WHEN 'val' THEN 1 WHEN 'valid' THEN 1 "
    "WHEN 'validation' THEN 1 WHEN 'test' THEN 2 ELSE 3 END, split"
)
_PLACES = "SELECT split, cell_x, cell_y, sum(boxes)::BIGINT AS n FROM box_positions GROUP BY ALL"
_PAIRS = """
    SELECT label, other, pictures FROM box_pairs ORDER BY pictures DESC, label, other LIMIT 200
"""


@dataclass(frozen=True, slots=True)
class BoxClass:
    """Boxes of one class in one split; the columns are those of the table `box_classes`."""

    split: str | None
    label: str | None
    boxes: int
    pictures: int
    effective_pictures: int
    effective_boxes: int
    small: int
    medium: int
    large: int
    side_low: float
    side_median: float
    side_high: float
    aspect_low: float
    aspect_median: float
    aspect_high: float
    overlapping: int
    crowds: int


class BoxBin(NamedTuple):
    """Boxes (or pictures) of one split from `low` on: a bin of a histogram."""

    split: str | None
    low: float
    n: int


class BoxPlace(NamedTuple):
    """Boxes of one split with their centre in one cell, sixteenths of the picture."""

    split: str | None
    cell_x: int
    cell_y: int
    n: int


@dataclass(frozen=True, slots=True)
class BoxStatistics:
    """Statistics of the boxes of a run; `annotated`: images that an annotation file lists.

    `counts`: images by number of boxes; `ratios`: boxes by log2 of width / height; `overlaps`:
    boxes by greatest IoU with another, -1: none; `places`: by centre; `pairs`: the most frequent of
    `n_pairs` pairs of classes, with the number of images that have both.
    """

    annotated: int
    classes: tuple[BoxClass, ...]
    counts: tuple[BoxBin, ...]
    ratios: tuple[BoxBin, ...]
    overlaps: tuple[BoxBin, ...]
    places: tuple[BoxPlace, ...]
    pairs: list[tuple[Any, ...]]
    n_pairs: int

    @property
    def boxes(self) -> int:
        """Boxes in all."""
        return sum(c.boxes for c in self.classes)

    def by_split(self) -> dict[str | None, int]:
        """Return boxes by split, train first."""
        return sum_by_key((c.split, c.boxes) for c in self.classes)

    def by_class(self) -> dict[str | None, int]:
        """Return boxes by class, the most frequent first."""
        totals = sum_by_key((c.label, c.boxes) for c in self.classes)
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0] or "")))


def load_box_statistics(store: Store) -> BoxStatistics | None:
    """Return the statistics of a run; None where it has no annotated pictures."""
    annotated = int(store.scalar("SELECT count(*) FROM box_images"))
    if not annotated:
        return None
    columns = ", ".join(field.name for field in fields(BoxClass))
    return BoxStatistics(
        annotated,
        _rows(store, BoxClass, f"SELECT {columns} FROM box_classes ORDER BY {BY_SPLIT}, label"),
        _bins(store, "box_counts", "boxes", "pictures"),
        _bins(store, "box_ratios", "low", "boxes"),
        _bins(store, "box_overlaps", "low", "boxes"),
        _rows(store, BoxPlace, f"FROM ({_PLACES}) ORDER BY {BY_SPLIT}, cell_y, cell_x"),
        store.query(_PAIRS).rows(),
        int(store.scalar("SELECT count(*) FROM box_pairs")),
    )


def _rows(store: Store, kind: type[T], sql: str) -> tuple[T, ...]:
    return tuple(kind(**row) for row in store.rows(sql))


def _bins(store: Store, table: str, low: str, n: str) -> tuple[BoxBin, ...]:
    sql = f"SELECT split, {low}::DOUBLE AS low, {n} AS n FROM {table} ORDER BY {BY_SPLIT}, low"
    return _rows(store, BoxBin, sql)


def sum_by_key(pairs: Iterable[tuple[str | None, int]]) -> dict[str | None, int]:
    """Return the sum of each key's counts, in the order in which keys come first."""
    totals: dict[str | None, int] = {}
    for key, count in pairs:
        totals[key] = totals.get(key, 0) + count
    return totals


_SQL = """
    SELECT format, sum(n_files) AS files, sum(pictures) AS pictures, sum(matched) AS matched,
        sum(objects) AS objects, count(*) AS groups, min(file) AS first,
        sum(n_files) FILTER (WHERE NOT complete) AS broken,
        string_agg(DISTINCT nullif(not_read, ''), '; ' ORDER BY nullif(not_read, '')) AS rest,
        (SELECT count(DISTINCT label) FROM categories c JOIN annotation_files g
            ON g.file = c.file WHERE g.format = f.format) AS classes
    FROM annotation_files f GROUP BY format ORDER BY format
"""


def annotation_sentences(store: Store) -> list[str]:
    """Return one sentence per format: pictures, boxes, classes, and what was not read."""
    if not store.columns("annotation_files"):
        return []
    sentences = []
    for row in store.rows(_SQL):
        more = f" and {row['groups'] - 1:,} more" if row["groups"] > 1 else ""
        said = (
            f"{row['format']} annotations: {_count(row['pictures'], 'image')}, "
            f"{_count(row['objects'], 'box', 'boxes')}, "
            f"{_count(row['classes'], 'class', 'classes')} (from {row['first']}{more})"
        )
        missing = int(row["pictures"] - row["matched"])
        if missing:
            said += f"; {_count(missing, 'image')} could not be found"
        if row["broken"]:
            said += f"; {_count(row['broken'], 'file')} could not be read completely"
        if row["rest"]:
            said += f"; skipped: {row['rest']}"
        sentences.append(f"{said}.")
    return sentences


def _count(n: int, one: str, many: str = "") -> str:
    return f"{int(n):,} {one if n == 1 else many or one + 's'}"
