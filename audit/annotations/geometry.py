"""Outlines in numbers: rings of polygons and masks as run lengths, with area, extent and crossings.

Compiled, over flat arrays: a ring is a slice of one array of coordinates x, y, x, y, ... Crossing
sides are counted by comparing all pairs, which is quadratic: rings above `MOST_SIDES` are not
counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.annotations.sink import Reading
from audit.kernels.library import find_kernel

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_SIDES = 3000
FACTS = ("area", "x", "y", "width", "height", "crossings")


def _turn(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def _count_crossings(ring: Numbers) -> int:
    """Count pairs of sides of one ring that cross properly: each divides the other."""
    n, count = len(ring) // 2, 0
    for i in range(n):
        ax, ay = ring[2 * i], ring[2 * i + 1]
        j = (i + 1) % n
        bx, by = ring[2 * j], ring[2 * j + 1]
        low_x, high_x = min(ax, bx), max(ax, bx)
        low_y, high_y = min(ay, by), max(ay, by)
        for k in range(i + 2, n):
            m = (k + 1) % n
            if m == i:
                continue
            cx, cy, dx, dy = ring[2 * k], ring[2 * k + 1], ring[2 * m], ring[2 * m + 1]
            if max(cx, dx) < low_x or min(cx, dx) > high_x:
                continue
            if max(cy, dy) < low_y or min(cy, dy) > high_y:
                continue
            one = _turn(ax, ay, bx, by, cx, cy) * _turn(ax, ay, bx, by, dx, dy)
            two = _turn(cx, cy, dx, dy, ax, ay) * _turn(cx, cy, dx, dy, bx, by)
            if one < 0 and two < 0:
                count += 1
    return count


def _ring_facts(flat: Numbers, offsets: Integers, facts: Numbers) -> None:
    for r in range(len(offsets) - 1):
        ring = flat[offsets[r] : offsets[r + 1] - (offsets[r + 1] - offsets[r]) % 2]
        n = len(ring) // 2
        if n == 0:
            facts[r, :] = np.nan
            continue
        twice, finite = 0.0, True
        for i in range(n):
            j = (i + 1) % n
            twice += ring[2 * i] * ring[2 * j + 1] - ring[2 * j] * ring[2 * i + 1]
            finite = finite and np.isfinite(ring[2 * i]) and np.isfinite(ring[2 * i + 1])
        facts[r, 0] = abs(twice) / 2
        facts[r, 1], facts[r, 2] = ring[0::2].min(), ring[1::2].min()
        facts[r, 3], facts[r, 4] = ring[0::2].max() - facts[r, 1], ring[1::2].max() - facts[r, 2]
        facts[r, 5] = _count_crossings(ring) if finite and n <= 3000 else np.nan


def ring_facts(flat: Numbers, offsets: Integers) -> Numbers:
    """Return (rings, 6): area, x, y, width, height, crossing pairs of sides; NaN: not known.

    `offsets` (rings + 1) are positions in `flat`, where ring r is flat[offsets[r]:offsets[r + 1]].
    """
    facts = np.empty((len(offsets) - 1, len(FACTS)))
    flat = np.ascontiguousarray(flat, np.float64)
    offsets = np.ascontiguousarray(offsets, np.int64)
    if kernel := find_kernel("ring_facts"):
        kernel(flat, facts, offsets)
    else:
        with np.errstate(all="ignore"):
            _ring_facts(flat, offsets, facts)
    return facts


def _unpack_runs(text: NDArray[np.uint8], runs: Integers) -> int:
    """Read COCO's short form: 5 bits a character, differences to the run before the last."""
    n, at = 0, 0
    while at < len(text):
        value, shift, more = np.int64(0), 0, True
        while more:
            if at >= len(text) or shift > 55:
                return -1
            c = np.int64(text[at]) - 48
            if c < 0 or c > 63:
                return -1
            value |= (c & 31) << shift
            more = (c & 32) != 0
            at += 1
            shift += 5
            if not more and (c & 16):
                value |= np.int64(-1) << shift
        if n > 2:
            value += runs[n - 2]
        runs[n] = value
        n += 1
    return n


def unpack_runs(text: str) -> Integers | None:
    """Return the run lengths of COCO's compressed text, None if it is none."""
    raw = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    runs = np.zeros(len(raw) + 1, np.int64)
    n = (find_kernel("unpack_runs") or _unpack_runs)(raw, runs)
    return None if n < 0 else runs[:n]


def _run_extent(runs: Integers, height: int, box: Numbers) -> None:
    """Fill area, x, y, width, height of a mask; runs go down the columns, background first."""
    at, area = 0, 0
    low_x, low_y, high_x, high_y = 1 << 60, 1 << 60, -1, -1
    for i in range(len(runs)):
        if i % 2 == 1 and runs[i] > 0:
            area += runs[i]
            end = at + runs[i] - 1
            low_x, high_x = min(low_x, at // height), max(high_x, end // height)
            if at // height == end // height:
                low_y, high_y = min(low_y, at % height), max(high_y, end % height)
            else:
                low_y, high_y = 0, height - 1
        at += runs[i]
    box[0] = area
    if area:
        box[1], box[2], box[3], box[4] = low_x, low_y, high_x - low_x + 1, high_y - low_y + 1
    else:
        box[1:] = np.nan


def run_extent(runs: Integers, height: int) -> Numbers:
    """Return area, x, y, width, height of a mask in px; NaN for the extent of an empty one."""
    box = np.zeros(5)
    fill = find_kernel("run_extent") or _run_extent
    fill(np.ascontiguousarray(runs, np.int64), max(int(height), 1), box)
    return box


# ---- cut at the edge of the picture ----


Point = tuple[float, float]
Corners = tuple[float, float, float, float]


def clip_box(box: Corners, width: float, height: float) -> Corners | None:
    """Return the part of a box (x, y, width, height) inside the picture, None without any."""
    x, y, w, h = box
    left, top = max(x, 0.0), max(y, 0.0)
    right, bottom = min(x + w, width), min(y + h, height)
    if right <= left or bottom <= top:
        return None
    return left, top, right - left, bottom - top


def clip_ring(ring: Sequence[float], width: float, height: float) -> list[float]:
    """Return the part of a polygon x, y, ... inside the picture; [] without any.

    Sutherland and Hodgman, "Reentrant polygon clipping", CACM 1974: edge by edge.
    """
    points: list[Point] = list(zip(ring[0::2], ring[1::2], strict=False))
    for axis, limit, sign in ((0, 0.0, 1), (0, width, -1), (1, 0.0, 1), (1, height, -1)):
        points = _cut(points, _depth(axis, limit, sign))
    return [value for point in points for value in point]


def _depth(axis: int, limit: float, sign: int) -> Callable[[Point], float]:
    return lambda point: sign * (point[axis] - limit)


def _cut(points: Sequence[Point], depth: Callable[[Point], float]) -> list[Point]:
    """Keep the side of a line on which `depth` is not negative."""
    kept: list[Point] = []
    for i, point in enumerate(points):
        before = points[i - 1]
        a, b = depth(before), depth(point)
        if (a < 0) != (b < 0):
            t = a / (a - b)
            kept.append(
                (before[0] + t * (point[0] - before[0]), before[1] + t * (point[1] - before[1]))
            )
        if b >= 0:
            kept.append(point)
    return kept


def ring_area(ring: Sequence[float]) -> float:
    """Return the area of one ring x, y, x, y, ..."""
    x, y = np.asarray(ring[0::2], float), np.asarray(ring[1::2], float)
    n = min(len(x), len(y))
    x, y = x[:n], y[:n]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


# ---- outlines into tables ----


RINGS = pl.List(pl.List(pl.Float64))
RING_ROW: dict[str, Any] = {
    "image_key": pl.String, "entry": pl.Int64, "part": pl.Int32, "points": pl.List(pl.Float64),
}  # fmt: skip
_OUTLINE = ("outline_x", "outline_y", "outline_width", "outline_height")
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
        return _add_polygons(
            reading, given.select("entry", image_key="image_id", points="segmentation")
        )
    given = frame.filter(
        pl.col("segmentation").is_not_null() & ~pl.col("segmentation").is_in(["[]", "null", "{}"])
    ).select("entry", "line", "segmentation", image_key="image_id")
    polygons = given.filter(pl.col("segmentation").str.starts_with("["))
    masks = given.filter(pl.col("segmentation").str.starts_with("{"))
    for row in given.filter(~pl.col("segmentation").str.contains(r"^[\[{]")).iter_rows(named=True):
        reading.note(
            "wrong-type", "`segmentation` is not an outline", _place(row), row["image_key"]
        )
    decoded = polygons.with_columns(points=_decoded(reading, polygons))
    return pl.concat([_add_polygons(reading, decoded), _add_masks(reading, masks)])


def _place(row: dict[str, Any]) -> str:
    return f"annotations[{row['entry']}], line {row['line']}"


def _decoded(reading: Reading, polygons: pl.DataFrame) -> pl.Series:
    """Return the rings of polygons that are JSON."""
    try:
        return polygons["segmentation"].str.json_decode(RINGS)
    except pl.exceptions.PolarsError:
        decoded = [_rings(row, reading) for row in polygons.iter_rows(named=True)]
        return pl.Series(decoded, dtype=RINGS)


def _add_polygons(reading: Reading, polygons: pl.DataFrame) -> pl.DataFrame:
    exploded = (
        polygons.select(*_KEYS, "points")
        .explode("points")
        .filter(pl.col("points").is_not_null())
        .with_columns(part=pl.int_range(pl.len(), dtype=pl.Int32).over("entry"))
    )
    return add_rings(reading, exploded)


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
        said = "`segmentation` is not a list of rings of numbers"
        reading.note("wrong-type", said, _place(row), row["image_key"])
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
    x, y, w, h = _OUTLINE
    return (
        finite.group_by("entry", maintain_order=True)
        .agg(
            pl.col("x").min().alias(x),
            pl.col("y").min().alias(y),
            (pl.col("x") + pl.col("width")).max().alias(w),
            (pl.col("y") + pl.col("height")).max().alias(h),
        )
        .with_columns(pl.col(w) - pl.col(x), pl.col(h) - pl.col(y))
        .select(pl.col("entry").cast(pl.Int64), *_OUTLINE)
    )


def _add_masks(reading: Reading, masks: pl.DataFrame) -> pl.DataFrame:
    extents: list[tuple[Any, ...]] = []
    for row in masks.iter_rows(named=True):
        shape = _mask(json.loads(row["segmentation"]), row, reading)
        if shape is None:
            continue
        reading.add("annotation_shapes", **{k: row[k] for k in _KEYS}, **shape)
        if shape["x"] is not None:
            extents.append((row["entry"], *(shape[k] for k in ("x", "y", "width", "height"))))
    schema = {"entry": pl.Int64, **dict.fromkeys(_OUTLINE, pl.Float64)}
    return pl.DataFrame(extents, schema=schema, orient="row")


def _mask(value: dict[str, Any], row: dict[str, Any], reading: Reading) -> dict[str, Any] | None:
    size, counts = value.get("size"), value.get("counts")
    sides = [number(v)[0] for v in size] if isinstance(size, list) else []
    runs = unpack_runs(counts) if isinstance(counts, str) else None
    if isinstance(counts, list):
        numbers = [number(v)[0] for v in counts]
        good = all(n is not None and 0 <= n < 1e15 for n in numbers)
        runs = np.array(numbers, np.float64).astype(np.int64) if good else None
    whole = len(sides) == 2 and all(s is not None and 0 <= s < 1e9 for s in sides)
    if runs is None or not whole or (runs < 0).any():
        said = "`segmentation` is not a mask: it needs `size` [height, width] and `counts`"
        reading.note("malformed-mask", said, _place(row), row["image_key"])
        return None
    return mask_shape(runs, int(sides[1] or 0), int(sides[0] or 0))


def mask_shape(
    runs: np.ndarray[Any, np.dtype[np.int64]], width: int, height: int
) -> dict[str, Any]:
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
