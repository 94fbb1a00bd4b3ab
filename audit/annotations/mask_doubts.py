"""A model's masks read, and compared with the annotated ones of the same pictures.

Predictions are COCO's results with a `segmentation` (polygons or run lengths) in each entry, or a
folder of PNG masks, one a picture with its name, whose pixels are numbers of classes, 255 for void.
They are compared as maps (`audit.annotations.mask_overlaps`), some hundred pictures at a time; what
an instance's score is worth is its pixels' probability, and a PNG's pixels have 1. A picture whose
predicted mask has another size is left out and counted.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.annotations.geometry import number, run_extent, unpack_runs
from audit.annotations.mask_overlaps import (
    VOID,
    Floats,
    Ints,
    Mask,
    MaskParts,
    compare_maps,
    fill_rings,
    fill_runs,
)
from audit.errors import UsageError
from audit.run.store import Store
from preflight.files import read_regular

TOGETHER = 500
"""Pictures whose objects are read together."""
LOW = 0.5
"""Score below which an instance only makes background less sure."""
PNG_VOID = 255
MOST_PIXELS = 200_000_000
Instance = tuple[int, float, str]  # class, score, segmentation as JSON
_PICTURES = """
    SELECT a.image_key, min_by(a.sample_id, a.entry) AS sample_id,
        coalesce(any_value(a.width), any_value(i.width)) AS width,
        coalesce(any_value(a.height), any_value(i.height)) AS height
    FROM annotated_images a JOIN images i ON i.id = a.sample_id
    WHERE a.file = ? AND a.image_key IN (SELECT unnest(?::VARCHAR[])) GROUP BY a.image_key
"""
_OBJECTS = """
    SELECT s.image_key, s.entry, s.kind, s.points, s.mask_width, s.mask_height, b.label,
        coalesce(b.crowd, false) AS crowd, ends_with(f.reading, 'share') AS shares
    FROM annotation_shapes s JOIN boxes b USING (file, image_key, entry)
    JOIN annotation_files f USING (file)
    WHERE s.file = ? AND s.image_key IN (SELECT unnest(?::VARCHAR[]))
        AND s.kind IN ('polygon', 'mask') ORDER BY s.image_key, s.entry, s.part
"""


@dataclass(frozen=True, slots=True)
class MaskResults:
    """Predicted masks of pictures of one annotation file, by `image_key`.

    `classes`: names; `pictures`: the PNG file of each, or its instances. `numbers`: the class of a
    pixel of a PNG.
    """

    file: str
    classes: tuple[str, ...]
    pictures: Mapping[str, Path | list[Instance]]
    numbers: Mapping[int, int] = field(default_factory=dict)


class MasksCompared(NamedTuple):
    """One picture: its keys, the objects' entries and labels, and what was found of them."""

    image_key: str
    sample_id: str
    entries: list[int]
    labels: list[str]
    things: MaskParts


def segment(value: Any) -> tuple[tuple[int, int, int, int] | None, Any] | None:
    """Return the size and run lengths of a segmentation, or its rings; None for what is neither.

    The first is (x, y, width, height) in whole px around it, None where it is empty.
    """
    if isinstance(value, dict):
        size, counts = value.get("size"), value.get("counts")
        runs = unpack_runs(counts) if isinstance(counts, str) else None
        if isinstance(counts, list):
            numbers = [number(v)[0] for v in counts]
            runs = np.array([-1 if v is None else v for v in numbers], float).astype(np.int64)
        if not isinstance(size, list) or len(size) != 2 or runs is None or (runs < 0).any():
            return None
        size = list[Any](size)
        if int(runs.sum()) != size[0] * size[1]:
            return None
        box = run_extent(runs, int(size[0]))[1:]
        found = None if np.isnan(box).any() else tuple(int(v) for v in box)
        return found, (int(size[1]), int(size[0]), runs)  # type: ignore[return-value]
    rings = value if isinstance(value, list) else [None]
    try:
        made = [np.array(ring, float) for ring in rings]
    except (TypeError, ValueError):
        return None
    if not made or any(ring.ndim != 1 or ring.size < 6 or ring.size % 2 for ring in made):
        return None
    points = np.concatenate(made).reshape(-1, 2)
    if not np.isfinite(points).all():
        return None
    low, high = np.floor(points.min(0)), np.ceil(points.max(0))
    box = np.concatenate([low, np.maximum(high - low, 1)])
    return tuple(int(v) for v in box), made  # type: ignore[return-value]


def compare_masks(store: Store, results: MaskResults) -> Iterator[MasksCompared | None]:
    """Yield what each predicted picture shows, None for one whose mask has another size."""
    place = {label: number for number, label in enumerate(results.classes)}
    keys = list(results.pictures)
    for start in range(0, len(keys), TOGETHER):
        part = keys[start : start + TOGETHER]
        pictures = store.query(_PICTURES, [results.file, part])
        rows = store.query(_OBJECTS, [results.file, part]).partition_by("image_key", as_dict=True)
        for key, sample, width, height in pictures.iter_rows():
            given = rows.get((key,))
            size = _size(given, width, height)
            said = None if size is None else _said(results, key, *size)
            if size is None or said is None:
                yield None
                continue
            own, kinds, entries, labels = _own(given, size, place)
            predicted, sure = said
            things = compare_maps(own, kinds, predicted, sure, len(place))
            yield MasksCompared(key, sample, entries, labels, things)


def _size(given: pl.DataFrame | None, width: Any, height: Any) -> tuple[int, int] | None:
    masks = given.filter(kind="mask") if given is not None else pl.DataFrame()
    if len(masks):
        return int(masks["mask_width"][0]), int(masks["mask_height"][0])
    return (int(width), int(height)) if width and height else None


def _own(
    given: pl.DataFrame | None, size: tuple[int, int], place: Mapping[str, int]
) -> tuple[Ints, Ints, list[int], list[str]]:
    """Return the map of objects, and class, entry and label of each; small ones lie on top."""
    own = np.zeros(size[::-1], np.int64)
    masks: list[tuple[Mask, bool, int, str]] = []
    entries = [] if given is None else given.partition_by("entry", maintain_order=True)
    for rows in entries:
        row = rows.row(0, named=True)
        if row["kind"] == "mask":
            wide, high = int(row["mask_width"]), int(row["mask_height"])
            runs = np.array(row["points"], float).astype(np.int64)
            mask = fill_runs(runs, wide, high) if (wide, high) == size else np.zeros_like(own, bool)
        else:
            scale = np.array(size if row["shares"] else (1, 1), float)
            rings = [np.array(p, float)[: len(p) // 2 * 2] for p in rows["points"].to_list()]
            mask = fill_rings([(r.reshape(-1, 2) * scale).ravel() for r in rings], *size)
        known = row["label"] in place and not row["crowd"]
        masks.append((mask, known, row["entry"], str(row["label"])))
    masks.sort(key=lambda one: (one[1], -int(one[0].sum())))
    objects = [one for one in masks if one[1]]
    for mask, known, *_ in masks:
        if not known:
            own[mask] = VOID
    for i, (mask, *_) in enumerate(objects, 1):
        own[mask] = i
    kinds = np.array([place[label] for *_, label in objects], np.int64)
    return own, kinds, [entry for _, _, entry, _ in objects], [label for *_, label in objects]


def _said(results: MaskResults, key: str, width: int, height: int) -> tuple[Ints, Floats] | None:
    """Return the predicted class of each pixel, from 1, and its probability."""
    given = results.pictures[key]
    if isinstance(given, Path):
        pixels = read_png(given)
        if pixels.shape != (height, width):
            return None
        known = np.zeros(256, np.int64)
        for value, c in results.numbers.items():
            known[value] = c + 1
        return known[pixels], (pixels != PNG_VOID).astype(float)
    said, sure = np.zeros((height, width), np.int64), np.ones((height, width))
    for c, score, text in sorted(given, key=lambda one: one[1]):
        found = segment(json.loads(text))
        if found is None or found[0] is None:
            continue
        shape = found[1]
        if isinstance(shape, tuple):
            if shape[:2] != (width, height):
                return None
            mask = fill_runs(shape[2], width, height)
        else:
            mask = fill_rings(shape, width, height)
        if score >= LOW:
            said[mask], sure[mask] = c + 1, score
        else:
            sure[mask] = np.minimum(sure[mask], 1 - score)
    return said, sure


def read_png(path: Path) -> NDArray[np.uint8]:
    """Return the numbers of a mask, (height, width); raises UsageError for what is none."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(read_regular(path)), formats=("PNG",)) as image:
                if image.mode in ("P", "L") and image.width * image.height <= MOST_PIXELS:
                    return np.asarray(image, np.uint8)
                said = f"has pixels of mode {image.mode}, not one number of a class (P, L)"
    except (OSError, ValueError, SyntaxError) as error:
        said = f"cannot be read as PNG ({str(error)[:80]})"
    raise UsageError(f"{path} {said}.")
