"""Boxes, outlines and keypoints of some pictures, in px of the shown picture: what is drawn.

Boxes are stored in px; outlines and keypoints as their file has them, so the unit and the frame
that were decided for the file are applied here, to the few pictures of a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.run.store import Store

MOST = 1000  # objects drawn of one picture
MOST_NUMBERS = 20_000  # coordinates of outlines drawn of one page
Points = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A box in px of the shown picture: top left corner and size.

    `rings` are outlines x, y, x, y, ...; `keypoints` x, y, visibility, ...; `small`, `medium` or
    `large` is its size class by COCO's bounds, "" without area.
    """

    label: str
    x: float
    y: float
    width: float
    height: float
    size: str = ""
    rings: tuple[Points, ...] = ()
    keypoints: Points = ()


SIZE = (
    "CASE WHEN NOT (width > 0 AND height > 0) THEN '' "
    "WHEN (CASE WHEN area > 0 THEN area ELSE width * height END) < 1024 THEN 'small' "
    "WHEN (CASE WHEN area > 0 THEN area ELSE width * height END) <= 9216 THEN 'medium' "
    "ELSE 'large' END"
)
_BOXES = f"""
    SELECT b.sample_id, b.file, b.image_key, b.entry, coalesce(b.label, '') AS label, b.x, b.y,
        b.width, b.height, b.size, b.picture_width, b.picture_height,
        ends_with(f.reading, ' share') <> coalesce(b.other_unit, false) AS shares,
        f.frame = 'stored' AS stored, coalesce(p.orientation, 1) AS orientation
    FROM (SELECT *, {SIZE} AS size FROM boxes
        WHERE sample_id BETWEEN ? AND ? AND sample_id IN (SELECT unnest(?))
        QUALIFY row_number() OVER (PARTITION BY sample_id ORDER BY file, entry) <= {MOST}) b
    JOIN annotation_files f ON f.file = b.file
    LEFT JOIN features p ON p.sample_id = b.sample_id
    WHERE isfinite(b.x) AND isfinite(b.y) AND isfinite(b.width) AND isfinite(b.height)
    ORDER BY b.sample_id, b.file, b.entry
"""
_SHAPES = f"""
    SELECT file, image_key, entry, kind, points FROM annotation_shapes
    WHERE kind IN ('polygon', 'keypoints') AND image_key IN (SELECT unnest(?))
    QUALIFY sum(len(points)) OVER (ORDER BY file, image_key, entry, part
        ROWS UNBOUNDED PRECEDING) <= {MOST_NUMBERS}
    ORDER BY file, image_key, entry, part
"""


def load_boxes(store: Store, samples: Sequence[str]) -> dict[str, tuple[Box, ...]]:
    """Return the boxes of some samples by id; a sample without any, and a run without, has none."""
    # Not DESCRIBE: where there is no such table, DuckDB would look for a Python variable.
    asked = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'boxes'"
    if not samples or store.scalar(asked) is None:
        return {}
    rows = store.rows(_BOXES, [min(samples), max(samples), list(samples)])
    shapes = _shapes(store, rows)
    found: dict[str, list[Box]] = {}
    for row in rows:
        outlined = shapes.get((row["file"], row["image_key"], row["entry"]), [])
        numbers = [_placed(points, 2, row) for kind, points in outlined if kind == "polygon"]
        keypoints = [_placed(points, 3, row) for kind, points in outlined if kind == "keypoints"]
        found.setdefault(row["sample_id"], []).append(
            Box(
                row["label"], row["x"], row["y"], row["width"], row["height"], row["size"],
                tuple(numbers), sum(keypoints, ()),
            )
        )  # fmt: skip
    return {sample: tuple(boxes) for sample, boxes in found.items()}


def _shapes(
    store: Store, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str, int], list[tuple[str, list[float | None]]]]:
    keys = sorted({row["image_key"] for row in rows})
    shapes: dict[tuple[str, str, int], list[tuple[str, list[float | None]]]] = {}
    for row in store.rows(_SHAPES, [keys]) if keys else ():
        place = (row["file"], row["image_key"], row["entry"])
        shapes.setdefault(place, []).append((row["kind"], row["points"] or []))
    return shapes


def _placed(points: Sequence[float | None], step: int, row: Mapping[str, Any]) -> Points:
    """Return points in px of the shown picture; `step` numbers a point, x and y first."""
    if not row["picture_width"] or any(value is None for value in points):
        return ()
    wide, tall = float(row["picture_width"]), float(row["picture_height"])
    turned = row["stored"] and row["orientation"] > 1
    # The stored picture of one that lies on its side is as wide as the shown one is tall.
    on_side = row["stored"] and row["orientation"] >= 5
    across, down = (tall, wide) if on_side else (wide, tall)
    placed: list[float] = []
    for at in range(0, len(points) - len(points) % step, step):
        x, y = float(points[at] or 0), float(points[at + 1] or 0)
        if row["shares"]:
            x, y = x * across, y * down
        if turned:
            x, y = _turned(x, y, across, down, row["orientation"])
        placed += [x, y, *(float(v or 0) for v in points[at + 2 : at + step])]
    return tuple(placed)


def _turned(
    x: float, y: float, across: float, down: float, orientation: int
) -> tuple[float, float]:
    """Return a point of the stored picture in the shown one, by EXIF orientation 2 to 8."""
    shown = {
        2: (across - x, y), 3: (across - x, down - y), 4: (x, down - y), 5: (y, x),
        6: (down - y, x), 7: (down - y, across - x), 8: (y, across - x),
    }  # fmt: skip
    return shown[orientation]
