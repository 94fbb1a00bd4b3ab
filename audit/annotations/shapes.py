"""Outlines of objects: rings of polygons, masks as run lengths, keypoints; with their extents."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl

from audit.annotations.coco_entry import number
from audit.annotations.geometry import FACTS, Numbers, ring_facts, run_extent, unpack_runs
from audit.annotations.problems import ProblemLog
from audit.annotations.sink import Sink

RINGS = pl.List(pl.List(pl.Float64))
_OUTLINE = ("outline_x", "outline_y", "outline_width", "outline_height")
_KEYS = ("file", "image_key", "entry")


def add_segmentations(sink: Sink, problems: ProblemLog, frame: pl.DataFrame) -> pl.DataFrame:
    """Append the outlines of COCO entries; returns the extent of each: `entry`, `outline_x`, ..."""
    given = frame.filter(
        pl.col("segmentation").is_not_null() & ~pl.col("segmentation").is_in(["[]", "null", "{}"])
    ).select("file", "entry", "line", "segmentation", image_key="image_id")
    polygons = given.filter(pl.col("segmentation").str.starts_with("["))
    masks = given.filter(pl.col("segmentation").str.starts_with("{"))
    for row in given.filter(~pl.col("segmentation").str.contains(r"^[\[{]")).iter_rows(named=True):
        problems.add("wrong-type", "`segmentation` is no outline", _place(row), row["image_key"])
    extents = [_add_polygons(sink, problems, polygons), _add_masks(sink, problems, masks)]
    return pl.concat(extents)


def _place(row: dict[str, Any]) -> str:
    return f"annotations[{row['entry']}], line {row['line']}"


def _add_polygons(sink: Sink, problems: ProblemLog, polygons: pl.DataFrame) -> pl.DataFrame:
    try:
        rings = polygons["segmentation"].str.json_decode(RINGS)
    except pl.exceptions.PolarsError:
        rings = pl.Series(
            [_rings(row, problems) for row in polygons.iter_rows(named=True)], dtype=RINGS
        )
    exploded = (
        polygons.select(_KEYS)
        .with_columns(points=rings)
        .explode("points")
        .filter(pl.col("points").is_not_null())
        .with_columns(part=pl.int_range(pl.len(), dtype=pl.Int32).over("entry"))
    )
    return add_rings(sink, exploded)


def _rings(row: dict[str, Any], problems: ProblemLog) -> list[list[float | None]]:
    """Return what are numbers of a polygon that the strict parser refused."""
    value = json.loads(row["segmentation"])
    nested = value if any(isinstance(ring, list) for ring in value) else [value]
    rings, wrong = [], nested is not value
    for ring in nested:
        items = [number(item) for item in ring] if isinstance(ring, list) else []
        wrong = wrong or not isinstance(ring, list) or any(what for _, what in items)
        rings.append([item for item, _ in items])
    if wrong:
        said = "`segmentation` is no list of rings of numbers"
        problems.add("wrong-type", said, _place(row), row["image_key"])
    return rings


def add_rings(sink: Sink, rings: pl.DataFrame, entries: pl.DataFrame | None = None) -> pl.DataFrame:
    """Append rings (`file`, `image_key`, `entry`, `part`, `points`); returns extents by entry.

    `entries` maps `entry` to `line`, what is stored for it where `entry` is a number made up.
    """
    lengths = rings["points"].list.len().fill_null(0).to_numpy()
    flat = rings["points"].explode(empty_as_null=False).fill_null(float("nan")).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    facts = _facts(flat, offsets)
    shapes = rings.with_columns(
        *(pl.Series(name, facts[:, i]) for i, name in enumerate(FACTS)),
        kind=pl.lit("polygon"), n_points=pl.col("points").list.len() // 2,
    ).with_columns(pl.col("crossings").fill_nan(None).cast(pl.Int64))  # fmt: skip
    if entries is None:
        sink.add_frame("annotation_shapes", shapes)
    else:
        stored = shapes.join(entries, on="entry").drop("entry").rename({"line": "entry"})
        sink.add_frame("annotation_shapes", stored)
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


def _facts(flat: Numbers, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> Numbers:
    if len(offsets) == 1:
        return np.empty((0, len(FACTS)))
    return ring_facts(flat, offsets)


# ---- masks ----


def _add_masks(sink: Sink, problems: ProblemLog, masks: pl.DataFrame) -> pl.DataFrame:
    extents: list[tuple[Any, ...]] = []
    for row in masks.iter_rows(named=True):
        shape = _mask(json.loads(row["segmentation"]), row, problems)
        if shape is None:
            continue
        sink.add("annotation_shapes", {**{k: row[k] for k in _KEYS}, **shape})
        if shape["x"] is not None:
            extents.append((row["entry"], *(shape[k] for k in ("x", "y", "width", "height"))))
    schema = {"entry": pl.Int64, **dict.fromkeys(_OUTLINE, pl.Float64)}
    return pl.DataFrame(extents, schema=schema, orient="row")


def _mask(
    value: dict[str, Any], row: dict[str, Any], problems: ProblemLog
) -> dict[str, Any] | None:
    size, counts = value.get("size"), value.get("counts")
    sides = [number(v)[0] for v in size] if isinstance(size, list) else []
    runs = unpack_runs(counts) if isinstance(counts, str) else None
    if isinstance(counts, list):
        numbers = [number(v)[0] for v in counts]
        good = all(n is not None and 0 <= n < 1e15 for n in numbers)
        runs = np.array(numbers, np.float64).astype(np.int64) if good else None
    whole = len(sides) == 2 and all(s is not None and 0 <= s < 1e9 for s in sides)
    if runs is None or not whole or (runs < 0).any():
        said = "`segmentation` is no mask: it needs `size` [height, width] and `counts`"
        problems.add("malformed-mask", said, _place(row), row["image_key"])
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


# ---- keypoints ----


def add_keypoints(sink: Sink, frame: pl.DataFrame) -> None:
    """Append the keypoints of COCO entries: x, y, visibility; those not marked have 0."""
    given = frame.filter(pl.col("keypoints").list.len() > 0)
    if given.height:
        sink.add_frame(
            "annotation_shapes",
            given.select(
                "file", "entry", image_key="image_id", kind=pl.lit("keypoints"),
                part=pl.lit(0, pl.Int32), n_points=pl.col("keypoints").list.len() // 3,
                points="keypoints",
            ),
        )  # fmt: skip
