"""Annotations of the kept pictures as they are written out: px in the frame of their own file.

Two passes over one annotation file: its pictures (`list_pictures`) and its objects (`list_objects`,
streamed). A box is what its numbers mean (`boxes`), not the numbers as written.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, NamedTuple

from audit.annotations.geometry import ring_area
from audit.run.store import Store

Box = tuple[float, float, float, float]
# It needs the table `decided`, made of `apply_decisions`.
KEPT_PICTURES = """
    CREATE OR REPLACE TEMP TABLE kept_pictures AS
    WITH firsts AS (
        SELECT file, image_key, min(entry) AS entry FROM annotated_images GROUP BY ALL
    )
    SELECT e.file, e.image_key, e.entry, e.byte, e.file_name, e.sample_id, e.attributes,
        e.width AS declared_width, e.height AS declared_height, s.source, s.split, s.uri,
        coalesce(d.split, s.split) AS split_now,
        f.orientation > 1 AND g.frame = 'stored' AS is_stored,
        CASE WHEN f.orientation >= 5 AND g.frame = 'stored' THEN f.height ELSE f.width END AS width,
        CASE WHEN f.orientation >= 5 AND g.frame = 'stored' THEN f.width ELSE f.height END AS height
    FROM annotated_images e JOIN firsts USING (file, image_key, entry)
    JOIN annotation_files g ON g.file = e.file
    JOIN samples s ON s.id = e.sample_id
    LEFT JOIN features f ON f.sample_id = e.sample_id
    LEFT JOIN decided d ON d.id = e.sample_id
    WHERE NOT coalesce(d.dropped, false)
"""
_OBJECTS = """
    WITH shapes AS (
        SELECT image_key, entry, list({{'kind': kind, 'points': points,
            'mask_width': mask_width, 'mask_height': mask_height}} ORDER BY part) AS shapes
        FROM annotation_shapes WHERE file = $1 GROUP BY ALL
    ), a AS (
        SELECT *, row_number() OVER (PARTITION BY image_key, entry, annotation_id ORDER BY rowid)
            AS nth FROM annotations WHERE file = $1
    ), b AS (
        SELECT *, row_number() OVER (PARTITION BY image_key, entry, annotation_id ORDER BY rowid)
            AS nth FROM boxes WHERE file = $1
    ), labels AS (
        SELECT category_key, min_by(label, entry) AS label FROM categories WHERE file = $1
        GROUP BY category_key
    )
    SELECT a.image_key, a.entry, a.byte, a.annotation_id, a.category_key, l.label, a.kind,
        a.angle, a.area, coalesce(a.crowd, false), a.n_keypoints, a.track, a.attributes,
        coalesce(b.other_unit, false),
        CASE WHEN p.is_stored THEN b.stored_x ELSE b.x END AS x,
        CASE WHEN p.is_stored THEN b.stored_y ELSE b.y END AS y,
        CASE WHEN p.is_stored THEN b.stored_width ELSE b.width END AS width,
        CASE WHEN p.is_stored THEN b.stored_height ELSE b.height END AS height, s.shapes
    FROM a JOIN kept_pictures p ON p.file = $1 AND p.image_key = a.image_key
    LEFT JOIN b ON b.image_key = a.image_key AND b.entry = a.entry AND b.nth = a.nth
        AND b.annotation_id IS NOT DISTINCT FROM a.annotation_id
    LEFT JOIN shapes s ON s.image_key = a.image_key AND s.entry = a.entry
    LEFT JOIN labels l ON l.category_key = a.category_key
    {where} ORDER BY {order}
"""
_ORDERS = {"entry": "a.entry, p.entry", "picture": "p.entry, a.entry"}


class AnnotationFile(NamedTuple):
    """One annotation file of a run."""

    file: str
    format: str
    form: str
    reading: str
    frame: str
    file_key: str


@dataclass(slots=True)
class PictureEntry:
    """A picture of an annotation file: `width` and `height` are measured, in the file's frame."""

    image_key: str
    entry: int
    byte: int | None
    file_name: str
    sample_id: str
    attributes: str | None
    declared_width: float | None
    declared_height: float | None
    source: str
    split: str | None
    uri: str
    split_now: str | None
    width: int | None
    height: int | None
    resized: bool = False  # a decision corrected the declared size

    @property
    def path(self) -> str:
        """The picture's path below the root of its source."""
        return self.sample_id[len(self.source) + 1 :] if self.source else self.sample_id

    def sides(self) -> tuple[float, float] | None:
        """Return width and height in px: measured, else as declared; None where unknown."""
        width = self.width if self.width is not None else self.declared_width
        height = self.height if self.height is not None else self.declared_height
        if width is None or height is None or not (width > 0 and height > 0):
            return None
        return float(width), float(height)


@dataclass(slots=True)
class ObjectEntry:
    """An annotation in px of the file's frame; `box` is None where it has no numbers.

    `rings` are polygons (x, y, ...), `mask` (width, height, runs), `keypoints` (x, y, visibility);
    `changed` names what a decision changed: `box`, `class`.
    """

    file: str
    image_key: str
    entry: int
    byte: int | None
    annotation_id: str | None
    category_key: str | None
    label: str | None
    kind: str
    angle: float | None
    area: float | None
    crowd: bool
    n_keypoints: float | None
    track: str | None
    attributes: str | None
    other_unit: bool
    box: Box | None
    rings: list[list[float]] = field(default_factory=list)
    mask: tuple[int, int, list[int]] | None = None
    keypoints: list[float] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)


def list_files(store: Store) -> list[AnnotationFile]:
    """Return the annotation files of the run in the order in which they were read."""
    if not store.columns("annotation_files"):
        return []
    rows = store.query(
        "SELECT file, format, form, coalesce(reading, form) AS reading, "
        "coalesce(frame, 'displayed') AS frame, file_key FROM annotation_files ORDER BY rowid"
    )
    return [AnnotationFile(*row) for row in rows.iter_rows()]


def list_pictures(store: Store, file: str) -> list[PictureEntry]:
    """Return the kept pictures of a file, in its order."""
    rows = store.query(
        "SELECT image_key, entry, byte, coalesce(file_name, ''), sample_id, attributes, "
        "declared_width, declared_height, source, split, uri, split_now, width, height "
        "FROM kept_pictures WHERE file = ? ORDER BY entry",
        [file],
    )
    return [PictureEntry(*row) for row in rows.iter_rows()]


def list_objects(
    store: Store,
    file: AnnotationFile,
    sides: dict[str, tuple[float, float] | None],
    order: str = "entry",
    samples: Sequence[str] | None = None,
) -> Iterator[ObjectEntry]:
    """Yield the annotations of a file by `entry` or `picture`, maybe of some `samples` alone."""
    where, params = "", [file.file]
    if samples is not None:
        where = "WHERE list_contains($2, p.sample_id)"
        params.append(list(samples))  # type: ignore[arg-type]
    sql = _OBJECTS.format(where=where, order=_ORDERS[order])
    for key, *head, x, y, width, height, shapes in store.query(sql, params).iter_rows():
        box = (x, y, width, height)
        finite = all(v is not None and math.isfinite(v) for v in box)
        columns: list[Any] = [file.file, key, *head, box if finite else None]
        thing = ObjectEntry(*columns)
        own_sides = sides.get(key) if file.reading.endswith("share") else None
        _add_shapes(thing, shapes or (), own_sides or (1.0, 1.0))
        yield thing


def _add_shapes(
    thing: ObjectEntry, shapes: Sequence[dict[str, Any]], scale: tuple[float, float]
) -> None:
    """Give an annotation its outlines, mask and keypoints: numbers times `scale` are px."""
    for shape in shapes:
        points: list[float] = shape["points"] or []  # null where a text stood for a number
        if shape["kind"] == "mask":
            thing.mask = (shape["mask_width"], shape["mask_height"], [int(v) for v in points])
            continue
        is_ring = shape["kind"] == "polygon"
        factors = cycle(scale if is_ring else (*scale, 1.0))
        # a point that is no number stays none, and its ring is not used
        px = [v if v is None else v * factor for v, factor in zip(points, factors, strict=False)]
        if is_ring:
            thing.rings.append(px)
        else:
            thing.keypoints = px


def class_list(store: Store, file: str) -> list[tuple[str, str, str | None, str | None]]:
    """Return the classes of a file in its order: key, name, parent, names of keypoints."""
    rows = store.query(
        "SELECT category_key, min_by(label, entry), min_by(parent, entry), "
        "min_by(keypoints, entry) FROM categories WHERE file = ? AND category_key IS NOT NULL "
        "GROUP BY category_key ORDER BY min(entry)",
        [file],
    )
    return rows.rows()


def object_area(thing: ObjectEntry) -> float | None:
    """Return the area of an object in px: of its mask, its rings, else its box."""
    if thing.mask is not None:
        return float(sum(thing.mask[2][1::2]))
    rings = [ring for ring in thing.rings if len(ring) >= 6 and None not in ring]
    if rings:
        return sum(map(ring_area, rings))
    return thing.box[2] * thing.box[3] if thing.box else None


def attributes_of(text: str) -> Any:
    """Return attributes as they were: most are JSON, a plain text stands for itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Losses:
    """What a format cannot hold, counted by sentence, in which `{n}` stands for the number."""

    NO_NUMBERS = "{n} annotations without finite numbers (BOX007) are left out."
    NO_BOX = "{n} annotations without a box (points, lines) are left out: {form} stores boxes only."
    CROWDS = "{n} crowd regions are left out: {form} has no crowd flag."
    NO_CLASS = "{n} annotations of an unnamed class (BOX003) are left out."
    NO_SIZE = "{n} images of unknown size are left out: their boxes cannot be normalised."
    POLYGONS = "{n} outlines are not written: {form} stores boxes only."
    MASKS = "{n} masks are not written: {form} stores boxes only."
    KEYPOINTS = "The keypoints of {n} objects are not written: {form} stores boxes only."
    ANGLES = "{n} rotated boxes are written upright: {form} stores no angle."
    TRACKS = "The tracks of {n} annotations are not written: {form} cannot store them."
    ATTRIBUTES = "Attributes of {n} annotations are not written: {form} cannot store them."
    PICTURE_ATTRIBUTES = "Attributes of {n} images are not written: {form} cannot store them."
    MOVED = "{n} images moved to another split stay in the same annotation file."
    ANEW = "{n} files are rewritten because of decisions: parts that audit does not read are lost."
    UNITS = "{n} boxes that were in another unit than their file are written in its unit (BOX009)."

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, sentence: str, n: int = 1, form: str = "{form}") -> None:
        """Count `n` more of what the sentence is about; `form` is the format that it names."""
        if n:
            self._counts[sentence.replace("{form}", form)] += n

    def merge(self, other: Losses) -> None:
        """Count what another has counted."""
        self._counts.update(other._counts)

    def sentences(self) -> list[str]:
        """Return a sentence per kind, the most frequent first."""
        return [text.format(n=f"{n:,}") for text, n in self._counts.most_common()]
