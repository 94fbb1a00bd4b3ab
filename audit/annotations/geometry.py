"""Outlines in numbers: rings of polygons and masks as run lengths, with area, extent and crossings.

A ring is a slice of one array of coordinates x, y, x, y, ... Crossing sides are counted by
comparing all pairs, which is quadratic: rings above `MOST_SIDES` are not counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from audit.annotations.box_pairs import Flags, Integers, Numbers
from audit.annotations.sink import Reading

MOST_SIDES = 3000
BLOCK = 1 << 16  # coordinates of rings that are measured together
FACTS = ("area", "x", "y", "width", "height", "crossings")


def ring_facts(flat: Numbers, offsets: Integers) -> Numbers:
    """Return (rings, 6) `FACTS`, NaN: unknown, of rings flat[offsets[r]:offsets[r + 1]]."""
    facts, corners = np.full((len(offsets) - 1, len(FACTS)), np.nan), np.diff(offsets) // 2
    blocks = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], BLOCK))
    with np.errstate(all="ignore"):
        for block in np.split(np.arange(len(facts)), np.unique(blocks)):
            rings = block[corners[block] > 0]
            if len(rings):
                facts[rings] = _facts_of(flat, offsets[rings], corners[rings])
    return facts


def _facts_of(flat: Numbers, offsets: Integers, corners: Integers) -> Numbers:
    """Return the facts of rings with some `corners` each, from `offsets` on."""
    first = np.cumsum(corners) - corners
    ring = np.repeat(np.arange(len(corners)), corners)
    at = np.arange(len(ring)) - first[ring]
    x, y = (flat[offsets[ring] + 2 * at + k] for k in (0, 1))
    following = np.where(at + 1 < corners[ring], np.arange(1, len(ring) + 1), first[ring])
    twice = np.add.reduceat(x * y[following] - x[following] * y, first)
    low_x, low_y = (np.minimum.reduceat(v, first) for v in (x, y))
    wide, tall = (np.maximum.reduceat(v, first) - low for v, low in ((x, low_x), (y, low_y)))
    finite = np.logical_and.reduceat(np.isfinite(x) & np.isfinite(y), first)
    counted = finite & (corners <= MOST_SIDES)
    crossings = _count_crossings(x, y, following, ring, (first + corners)[ring], counted)
    return np.stack([np.abs(twice) / 2, low_x, low_y, wide, tall, crossings], axis=1)


def _count_crossings(
    x: Numbers, y: Numbers, following: Integers, ring: Integers, end: Integers, counted: Flags
) -> Numbers:
    """Return for each ring the pairs of sides that cross properly: each divides the other."""
    found = np.where(counted, 0.0, np.nan)
    extents = [f(v, v[following]) for v in (x, y) for f in (np.minimum, np.maximum)]
    left, right, top, bottom = extents
    i, step = np.flatnonzero(counted[ring]), 2
    while len(i := i[i + step < end[i]]):
        k = i + step
        near = (right[k] >= left[i]) & (left[k] <= right[i])
        a, c = i[near], k[near]
        near = (bottom[c] >= top[a]) & (top[c] <= bottom[a]) & (following[c] != a)
        a, c = a[near], c[near]
        b, d = following[a], following[c]
        one, two = _turn(x, y, a, b, c) * _turn(x, y, a, b, d), _turn(x, y, c, d, a)
        crossing = (one < 0) & (two * _turn(x, y, c, d, b) < 0)
        found += np.bincount(ring[a[crossing]], minlength=len(found))
        step += 1
    return found


def _turn(x: Numbers, y: Numbers, a: Integers, b: Integers, c: Integers) -> Numbers:
    """Return twice the area of triangles of corners, positive where these turn left."""
    return np.asarray((x[b] - x[a]) * (y[c] - y[a]) - (y[b] - y[a]) * (x[c] - x[a]))


def unpack_runs(text: str) -> Integers | None:
    """Return the run lengths of COCO's compressed text, None if it is none.

    A run has 5 bits a character, lowest first, and a sign; from the fourth on it is a difference.
    """
    codes = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    last = np.flatnonzero((codes & 32) == 0)
    first = np.append(0, last + 1)
    lengths = np.diff(first)
    if ((codes < 0) | (codes > 63)).any() or first[-1] < len(codes) or (lengths > 12).any():
        return None
    shifts = 5 * (np.arange(len(codes)) - np.repeat(first[:-1], lengths))
    runs: Integers = codes
    if len(codes):
        runs = np.add.reduceat((codes & 31) << shifts, first[:-1])
    runs -= ((codes[last] & 16) != 0) * (np.int64(1) << np.minimum(5 * lengths, 63))
    runs[1::2], runs[2::2] = np.cumsum(runs[1::2]), np.cumsum(runs[2::2])
    return runs


def read_runs(counts: Any) -> Integers | None:
    """Return the run lengths of a mask, a text or a list of numbers; None where one is none."""
    if isinstance(counts, str):
        runs = unpack_runs(counts)
        return None if runs is None or (runs < 0).any() else runs
    numbers = [number(v)[0] for v in counts] if isinstance(counts, list) else [None]
    good = all(n is not None and 0 <= n < 1e15 for n in numbers)
    return np.array(numbers, np.float64).astype(np.int64) if good else None


def run_extent(runs: Integers, height: int) -> Numbers:
    """Return area, x, y, width, height (px) of runs down the columns; NaN for an empty extent."""
    height, ends = max(int(height), 1), np.cumsum(runs)[1::2]
    drawn = runs[1::2] > 0
    first, last = (ends - runs[1::2])[drawn], ends[drawn] - 1
    if not len(first):
        return np.array([0, *[np.nan] * 4])
    (left, top), (right, bottom) = (np.divmod(at, height) for at in (first, last))
    whole = left != right
    top, bottom = np.where(whole, 0, top).min(), np.where(whole, height - 1, bottom).max()
    x, width = left.min(), right.max() - left.min() + 1
    return np.array([(last - first + 1).sum(), x, top, width, bottom - top + 1], np.float64)


Point = tuple[float, float]
Corners = tuple[float, float, float, float]


def clip_box(box: Corners, width: float, height: float) -> Corners | None:
    """Return the part of a box (x, y, width, height) inside the picture, None without any."""
    x, y, w, h = box
    left, top = max(x, 0.0), max(y, 0.0)
    w, h = min(x + w, width) - left, min(y + h, height) - top
    return (left, top, w, h) if w > 0 and h > 0 else None


def clip_ring(ring: Sequence[float], width: float, height: float) -> list[float]:
    """Return the part of a polygon x, y, ... inside the picture; [] without any.

    Sutherland and Hodgman, "Reentrant polygon clipping", CACM 1974: edge by edge.
    """
    points: list[Point] = list(zip(ring[0::2], ring[1::2], strict=False))
    for axis, limit, sign in ((0, 0.0, 1), (0, width, -1), (1, 0.0, 1), (1, height, -1)):
        inside: list[Point] = []
        for i, (x, y) in enumerate(points):
            before = points[i - 1]
            a, b = (sign * (point[axis] - limit) for point in (before, (x, y)))
            if (a < 0) != (b < 0):
                t = a / (a - b)
                inside.append((before[0] + t * (x - before[0]), before[1] + t * (y - before[1])))
            if b >= 0:
                inside.append((x, y))
        points = inside
    return [value for point in points for value in point]


def ring_area(ring: Sequence[float]) -> float:
    """Return the area of one ring x, y, x, y, ..."""
    x, y = np.asarray(ring[0::2], float), np.asarray(ring[1::2], float)
    x = x[: len(y)]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


RINGS = pl.List(pl.List(pl.Float64))
RING_ROW: dict[str, Any] = {
    "image_key": pl.String, "entry": pl.Int64, "part": pl.Int32, "points": pl.List(pl.Float64),
}  # fmt: skip
OUTLINE = ("outline_x", "outline_y", "outline_width", "outline_height")
_KEYS = ("image_key", "entry")


def loads(raw: bytes) -> Any:
    """Parse one JSON value, NaN and Infinity included; raises ValueError."""
    try:
        return json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise ValueError("it nests too deep") from None


def number(value: Any) -> tuple[float | None, str | None]:
    """Return a value as a float and, where it is not plainly one, what it is instead."""
    if isinstance(value, bool) or value is None:
        return None, "null" if value is None else "true or false"
    if isinstance(value, int | float):
        try:
            return float(value), None
        except OverflowError:
            return math.inf, "too large a number"
    if isinstance(value, str):
        try:
            return float(value.strip()), "a text"
        except ValueError:
            return None, "a text"
    return None, "a list" if isinstance(value, list) else "an object"


def add_segmentations(reading: Reading, frame: pl.DataFrame) -> pl.DataFrame:
    """Append the outlines of COCO entries; returns the extent of each: `entry`, `outline_x`, ...

    `segmentation` is JSON, or `RINGS` where all of the frame have polygons.
    """
    if frame.schema["segmentation"] == RINGS:
        given = frame.filter(pl.col("segmentation").list.len() > 0)
        points = given.select("entry", image_key="image_id", points="segmentation")
        return _add_polygons(reading, points)
    given = frame.filter(
        pl.col("segmentation").is_not_null() & ~pl.col("segmentation").is_in(["[]", "null", "{}"])
    ).select("entry", "line", "segmentation", image_key="image_id")
    polygons = given.filter(pl.col("segmentation").str.starts_with("["))
    masks = given.filter(pl.col("segmentation").str.starts_with("{"))
    for row in given.filter(~pl.col("segmentation").str.contains(r"^[\[{]")).iter_rows(named=True):
        _note(reading, row, "wrong-type", "is not an outline")
    decoded = polygons.with_columns(points=_decoded(reading, polygons))
    return pl.concat([_add_polygons(reading, decoded), _add_masks(reading, masks)])


def _note(reading: Reading, row: dict[str, Any], kind: str, what: str) -> None:
    place = f"annotations[{row['entry']}], line {row['line']}"
    reading.note(kind, f"`segmentation` {what}", place, row["image_key"])


def _decoded(reading: Reading, polygons: pl.DataFrame) -> pl.Series:
    """Return the rings of polygons that are JSON."""
    try:
        return polygons["segmentation"].str.json_decode(RINGS)
    except pl.exceptions.PolarsError:
        decoded = [_rings(row, reading) for row in polygons.iter_rows(named=True)]
        return pl.Series(decoded, dtype=RINGS)


def _add_polygons(reading: Reading, polygons: pl.DataFrame) -> pl.DataFrame:
    rings = polygons.select(*_KEYS, "points").explode("points").drop_nulls("points")
    part = pl.int_range(pl.len(), dtype=pl.Int32).over("entry")
    return add_rings(reading, rings.with_columns(part=part))


def _rings(row: dict[str, Any], reading: Reading) -> list[list[float | None]]:
    """Return what are numbers of a polygon that the strict parser refused."""
    value = json.loads(row["segmentation"])
    nested = value if any(isinstance(ring, list) for ring in value) else [value]
    rings, wrong = [], nested is not value
    for ring in nested:
        items = [number(item) for item in ring] if isinstance(ring, list) else []
        wrong = wrong or not isinstance(ring, list) or any(what for _, what in items)
        rings.append([item for item, _ in items])
    if wrong:
        _note(reading, row, "wrong-type", "is not a list of rings of numbers")
    return rings


def add_rings(
    reading: Reading, rings: pl.DataFrame, entries: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Append rings (`image_key`, `entry`, `part`, `points`); returns extents by entry.

    `entries` maps `entry` to `line`, what is stored for it where `entry` is a number made up.
    """
    lengths = rings["points"].list.len().fill_null(0).to_numpy()
    flat = rings["points"].explode(empty_as_null=False).fill_null(float("nan")).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    facts = ring_facts(flat, offsets)
    shapes = rings.with_columns(
        *(pl.Series(name, facts[:, i]) for i, name in enumerate(FACTS)),
        kind=pl.lit("polygon"), n_points=pl.col("points").list.len() // 2,
    ).with_columns(pl.col("crossings").fill_nan(None).cast(pl.Int64))  # fmt: skip
    stored = shapes
    if entries is not None:
        stored = shapes.join(entries, on="entry").drop("entry").rename({"line": "entry"})
    reading.add_frame("annotation_shapes", stored)
    finite = shapes.filter(pl.all_horizontal(pl.col("x", "y", "width", "height").is_finite()))
    x, y = pl.col("x"), pl.col("y")
    right, bottom = (x + pl.col("width")).max(), (y + pl.col("height")).max()
    extents = (x.min(), y.min(), right - x.min(), bottom - y.min())
    return (
        finite.group_by("entry", maintain_order=True)
        .agg(extent.alias(name) for extent, name in zip(extents, OUTLINE, strict=True))
        .with_columns(pl.col("entry").cast(pl.Int64))
    )


def _add_masks(reading: Reading, masks: pl.DataFrame) -> pl.DataFrame:
    extents: list[tuple[Any, ...]] = []
    for row in masks.iter_rows(named=True):
        if (shape := _mask(json.loads(row["segmentation"]), row, reading)) is None:
            continue
        reading.add("annotation_shapes", **{k: row[k] for k in _KEYS}, **shape)
        if shape["x"] is not None:
            extents.append((row["entry"], *(shape[k] for k in ("x", "y", "width", "height"))))
    schema = {"entry": pl.Int64, **dict.fromkeys(OUTLINE, pl.Float64)}
    return pl.DataFrame(extents, schema=schema, orient="row")


def _mask(value: dict[str, Any], row: dict[str, Any], reading: Reading) -> dict[str, Any] | None:
    size, runs = value.get("size"), read_runs(value.get("counts"))
    sides = [number(v)[0] for v in size] if isinstance(size, list) else []
    whole = len(sides) == 2 and all(s is not None and 0 <= s < 1e9 for s in sides)
    if runs is None or not whole:
        what = "is not a mask: it needs `size` [height, width] and `counts`"
        _note(reading, row, "malformed-mask", what)
        return None
    return mask_shape(runs, int(sides[1] or 0), int(sides[0] or 0))


def mask_shape(runs: Integers, width: int, height: int) -> dict[str, Any]:
    """Return a mask as a row of shapes: extent, area, size, run lengths."""
    area, x, y, w, h = (None if np.isnan(v) else float(v) for v in run_extent(runs, height))
    return {
        "kind": "mask", "part": 0, "n_points": int(runs.sum()), "area": area, "x": x, "y": y,
        "width": w, "height": h, "mask_width": width, "mask_height": height,
        "points": runs.astype(np.float64).tolist(),
    }  # fmt: skip


def add_keypoints(reading: Reading, frame: pl.DataFrame) -> None:
    """Append the keypoints of COCO entries: x, y, visibility; those not marked have 0."""
    given = frame.filter(pl.col("keypoints").list.len() > 0)
    shapes = given.select(
        "entry", image_key="image_id", kind=pl.lit("keypoints"), part=pl.lit(0, pl.Int32),
        n_points=pl.col("keypoints").list.len() // 3, points="keypoints",
    )  # fmt: skip
    reading.add_frame("annotation_shapes", shapes)
