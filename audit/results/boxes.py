"""Annotated images, those with findings first, and what is drawn on them.

The unit and frame of outlines and keypoints are applied to the images of a page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cv2
import numpy as np

from audit.picture.pixels import Pixels
from audit.records import Severity
from audit.results.filters import Where, all_of
from audit.results.images import cards
from audit.results.reader import reads
from audit.results.report_data import Card
from audit.run.store import Store

MOST = 1000  # objects drawn of one picture
MOST_NUMBERS = 20_000  # coordinates of outlines drawn of one page
Points = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A box in px of the shown picture: top left corner and size.

    `rings`: outlines x, y, x, y, ...; `keypoints`: x, y, visibility, ...; `file`, `entry`: source.
    The size class is COCO's: small, medium, large, "" without area.
    """

    label: str
    x: float
    y: float
    width: float
    height: float
    size: str = ""
    rings: tuple[Points, ...] = ()
    keypoints: Points = ()
    file: str = field(default="", compare=False)
    entry: int = field(default=-1, compare=False)


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


@reads()
def load_boxes(store: Store, samples: Sequence[str]) -> dict[str, tuple[Box, ...]]:
    """Return the boxes of some samples by id; a sample without any, and a run without, has none."""
    # Not DESCRIBE: where there is no such table, DuckDB would look for a Python variable.
    asked = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'boxes'"
    if not samples or store.scalar(asked) is None:
        return {}
    rows = store.rows(_BOXES, [min(samples), max(samples), list(samples)])
    keys = sorted({row["image_key"] for row in rows})
    shapes: dict[tuple[str, str, int], list[tuple[str, list[float | None]]]] = {}
    for shape in store.rows(_SHAPES, [keys]) if keys else ():
        place = (shape["file"], shape["image_key"], shape["entry"])
        shapes.setdefault(place, []).append((shape["kind"], shape["points"] or []))
    found: dict[str, list[Box]] = {}
    for row in rows:
        outlined = shapes.get((row["file"], row["image_key"], row["entry"]), [])
        numbers = [_placed(points, 2, row) for kind, points in outlined if kind == "polygon"]
        keypoints = [_placed(points, 3, row) for kind, points in outlined if kind == "keypoints"]
        found.setdefault(row["sample_id"], []).append(
            Box(
                row["label"], row["x"], row["y"], row["width"], row["height"], row["size"],
                tuple(numbers), sum(keypoints, ()), row["file"], row["entry"],
            )
        )  # fmt: skip
    return {sample: tuple(boxes) for sample, boxes in found.items()}


def box_of_finding(evidence: Mapping[str, Any]) -> Callable[[Box], bool] | None:
    """Return what tells the box that a finding is about; None where it is about no box."""
    place = (evidence.get("file"), evidence.get("entry"))
    return None if None in place else lambda box: (box.file, box.entry) == place


def boxes_after(boxes: Sequence[Box], fixes: Sequence[Mapping[str, Any]]) -> tuple[Box, ...] | None:
    """Return the boxes of a picture after `fixes`; None where no fix applies to these boxes."""
    left = {(box.file, box.entry): box for box in boxes}
    for fix in fixes:
        place = (fix["file"], fix.get("entry", -1))
        box, before, after = left.get(place), fix["before"], fix["after"]
        if box is None:
            return None
        if fix["what"] == "class":
            left[place] = replace(box, label=after)
        elif not np.allclose(before, (box.x, box.y, box.width, box.height), atol=0.5):
            return None
        elif after is None:
            del left[place]
        else:
            x, y, wide, high = after
            left[place] = replace(box, x=x, y=y, width=wide, height=high, rings=())
    return tuple(left.values())


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


INDEX = "memory.main.box_index"
SIZES = ("small", "medium", "large")
UNLISTED = "(not in the list)"
FAMILY = "BOX"
_INDEX_SQL = f"""
    CREATE OR REPLACE TABLE {INDEX} AS
    WITH worst AS (
        SELECT m.sample_id, count(*) AS findings, list_sort(list(DISTINCT f.code)) AS codes,
            min(CASE f.severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END) AS rank
        FROM findings f JOIN finding_samples m USING (fingerprint)
        WHERE starts_with(f.code, '{FAMILY}') GROUP BY m.sample_id
    )
    SELECT row_number() OVER (ORDER BY w.rank NULLS LAST, w.findings DESC, b.sample_id) AS place,
        b.sample_id, b.n_boxes, s.split, w.rank, coalesce(w.findings, 0) AS findings,
        coalesce(w.codes, []) AS codes
    FROM box_images b JOIN samples s ON s.id = b.sample_id
    LEFT JOIN worst w ON w.sample_id = b.sample_id
    ORDER BY place
"""


def index_boxes(store: Store) -> None:
    """Make the index of annotated images, the worst findings first."""
    store.execute(_INDEX_SQL)


@dataclass(frozen=True, slots=True)
class BoxFilter:
    """Which pictures: with a box of a class and size, in a split, with a finding; "" for any."""

    label: str = ""
    size: str = ""
    split: str = ""
    code: str = ""

    def holds(self, box: Box) -> bool:
        """Say whether a box is one of those asked for."""
        wanted = "" if self.label == UNLISTED else self.label
        right_class = not self.label or box.label == wanted
        return right_class and (not self.size or box.size == self.size)


@dataclass(frozen=True, slots=True)
class AnnotatedPicture:
    """A picture of a page, its boxes, and what the checks of boxes say of it."""

    place: int
    card: Card
    boxes: tuple[Box, ...]
    severity: Severity | None
    findings: int
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnotatedPage:
    """A page of pictures, whether there are more before and after, and how many fit in all."""

    pictures: tuple[AnnotatedPicture, ...]
    before: bool
    after: bool
    total: int


@dataclass(frozen=True, slots=True)
class BoxChoices:
    """What can be chosen: classes (the most frequent first), splits, codes of findings."""

    labels: tuple[str, ...]
    splits: tuple[str, ...]
    codes: tuple[str, ...]


def read_box_labels(store: Store) -> tuple[str, ...]:
    """Return the classes of boxes, the most frequent first."""
    labels = store.query(
        "SELECT label FROM box_classes GROUP BY label ORDER BY sum(boxes) DESC, label"
    )["label"].to_list()
    return tuple(UNLISTED if label is None else label for label in labels)


@reads(index_boxes)
def box_choices(store: Store) -> BoxChoices:
    """Return what the filters offer."""
    splits = store.query(
        f"SELECT DISTINCT split FROM {INDEX} WHERE split IS NOT NULL ORDER BY split"
    )["split"].to_list()
    codes = store.query(f"SELECT DISTINCT unnest(codes) AS code FROM {INDEX} ORDER BY code")
    return BoxChoices(read_box_labels(store), tuple(splits), tuple(codes["code"].to_list()))


@reads(index_boxes)
def annotated_page(
    store: Store, filters: BoxFilter, *, start: int = 0, back: bool = False, size: int = 24
) -> AnnotatedPage:
    """Return the pictures from place `start` on, or (back) those before it, worst first.

    A place that the filter excludes gives the first page.
    """
    sql, values = _pictures_where(filters)
    beyond, way = ("x.place < ?", "DESC") if back else ("x.place >= ?", "ASC")
    # One pass finds the page, how many images there are and whether some lie before.
    rows = store.rows(
        f"WITH fit AS MATERIALIZED (SELECT * FROM {INDEX} x WHERE {sql}) "
        "SELECT x.*, (SELECT min(place) FROM fit) AS first, (SELECT count(*) FROM fit) AS total "
        "FROM fit x "
        f"WHERE {beyond} ORDER BY x.place {way} LIMIT {size + 1}",
        [*values, start],
    )
    if not rows and start:
        return annotated_page(store, filters, size=size)
    more = len(rows) > size
    shown = sorted(rows[:size], key=lambda row: int(row["place"]))
    before = more if back else bool(shown) and shown[0]["place"] > shown[0]["first"]
    total = shown[0]["total"] if shown else 0
    return AnnotatedPage(_pictures(store, shown), before, True if back else more, total)


def _pictures(store: Store, rows: Sequence[dict[str, Any]]) -> tuple[AnnotatedPicture, ...]:
    ids = [row["sample_id"] for row in rows]
    boxes, known = load_boxes(store, ids), {card.id: card for card in cards(store, ids)}
    severities = list(Severity)
    return tuple(
        AnnotatedPicture(
            row["place"], known[row["sample_id"]], boxes.get(row["sample_id"], ()),
            None if row["rank"] is None else severities[row["rank"]], row["findings"],
            tuple(row["codes"]),
        )
        for row in rows
        if row["sample_id"] in known
    )  # fmt: skip


def _pictures_where(filters: BoxFilter) -> Where:
    label = "label IS NULL AND ? <> ''" if filters.label == UNLISTED else "label = ?"
    of_boxes = ((label, filters.label), (f"{SIZE} = ?", filters.size))
    of_images = (("x.split = ?", filters.split), ("list_contains(x.codes, ?)", filters.code))
    inner, images = ([(sql, [v]) for sql, v in some if v] for some in (of_boxes, of_images))
    if inner:
        sql, values = all_of(inner)
        images.append((f"x.sample_id IN (SELECT sample_id FROM boxes WHERE {sql})", values))
    return all_of(images)


COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0),
           (204, 121, 167), (0, 114, 178), (153, 153, 51), (160, 50, 100), (68, 170, 153),
           (120, 94, 240), (221, 204, 119))  # fmt: skip
GREY = (150, 150, 150)
THICK = 2  # px, a line of a chosen box
FAR = 20_000.0  # px: beyond it nothing is seen, and the drawing library overflows


def draw_boxes(
    pixels: Pixels,
    scale: float,
    boxes: Sequence[Box],
    names: Sequence[str] = (),
    chosen: Callable[[Box], bool] | None = None,
) -> Pixels:
    """Return the picture with boxes, whose coordinates are multiplied by `scale`.

    `names`: classes in the order of colours (default: of these boxes). All but `chosen` are grey.
    """
    canvas = np.ascontiguousarray(pixels).copy()
    order = list(names) or sorted({box.label for box in boxes})
    ranked = sorted(boxes, key=lambda box: chosen is None or chosen(box))
    for box in ranked:
        lit = chosen is None or chosen(box)
        named = lit and box.label in order
        colour = COLOURS[order.index(box.label) % len(COLOURS)] if named else GREY
        _draw_one(canvas, scale, box, colour, THICK if lit else 1)
    return canvas


def _draw_one(
    canvas: Pixels, scale: float, box: Box, colour: tuple[int, int, int], thickness: int
) -> None:
    corners = (box.x, box.y, box.x + box.width, box.y + box.height)
    left, top, right, bottom = (_px(v, scale) for v in corners)
    # A dark line below the coloured one: it shows on any picture.
    cv2.rectangle(canvas, (left, top), (right, bottom), (0, 0, 0), thickness + 1)
    cv2.rectangle(canvas, (left, top), (right, bottom), colour, thickness)
    for ring in box.rings:
        if len(ring) >= 4:
            flat = [_px(value, scale) for value in ring[: len(ring) - len(ring) % 2]]
            outline = np.asarray(flat, np.int32).reshape(-1, 1, 2)
            cv2.polylines(canvas, [outline], True, (0, 0, 0), thickness + 1)
            cv2.polylines(canvas, [outline], True, colour, max(thickness - 1, 1))
    for x, y, seen in zip(*(box.keypoints[i::3] for i in range(3)), strict=True):
        if seen > 0:
            place = (_px(x, scale), _px(y, scale))
            cv2.circle(canvas, place, thickness + 2, (0, 0, 0), -1)
            cv2.circle(canvas, place, thickness + 1, colour, -1 if seen >= 2 else 1)


def _px(value: float, scale: float) -> int:
    if not math.isfinite(value):
        return 0
    return round(min(max(value * scale, -FAR), FAR))
