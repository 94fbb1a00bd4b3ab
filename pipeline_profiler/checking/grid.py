"""A grid of pictures as the model gets them, with their labels: PNG bytes.

Values are shown as they are: 0..1 and 0..255 by their own scale, anything else stretched over the
range of the batch, unless mean and deviation are given to undo a normalisation.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.loader_subject import SeenBatch

MOST_PICTURES, COLUMNS, CELL, CAPTION = 48, 8, 96, 14


def grid_png(
    batches: Sequence[SeenBatch], mean: Sequence[float] = (), deviation: Sequence[float] = ()
) -> bytes | None:
    """The grid; None where the inputs are no pictures."""
    cells = [cell for batch in batches for cell in _cells(batch, mean, deviation)][:MOST_PICTURES]
    if not cells:
        return None
    from PIL import Image, ImageDraw

    rows = -(-len(cells) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * CELL, rows * (CELL + CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (pixels, caption) in enumerate(cells):
        left, top = number % COLUMNS * CELL, number // COLUMNS * (CELL + CAPTION)
        picture = Image.fromarray(pixels).resize((CELL - 4, CELL - 4), Image.Resampling.NEAREST)
        sheet.paste(picture, (left + 2, top + 2))
        draw.text((left + 3, top + CELL - 2), caption[:14], fill="black")
    out = io.BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def _cells(
    batch: SeenBatch, mean: Sequence[float], deviation: Sequence[float]
) -> list[tuple[NDArray[np.uint8], str]]:
    inputs = batch.inputs
    if inputs is None or inputs.ndim not in (3, 4) or inputs.dtype.kind not in "biuf":
        return []
    pictures = [_as_hwc(picture) for picture in inputs]
    if any(p is None for p in pictures):
        return []
    low, high = float(np.nanmin(inputs)), float(np.nanmax(inputs))
    labels: Any = batch.targets if batch.targets is not None else [""] * len(pictures)
    simple = batch.targets is None or batch.targets.size == len(pictures)
    return [
        (_visible(p, low, high, mean, deviation), str(np.squeeze(labels[i])) if simple else "")
        for i, p in enumerate(pictures)
        if p is not None
    ]


def _as_hwc(picture: NDArray[Any]) -> NDArray[Any] | None:
    if picture.ndim == 2:
        return picture[:, :, None]
    if picture.shape[0] in (1, 3, 4) and picture.shape[2] not in (1, 3, 4):
        return picture.transpose(1, 2, 0)
    if picture.shape[2] in (1, 3, 4):
        return picture
    return picture.transpose(1, 2, 0) if picture.shape[0] in (1, 3, 4) else None


def _visible(
    pixels: NDArray[Any],
    low: float,
    high: float,
    mean: Sequence[float],
    deviation: Sequence[float],
) -> NDArray[np.uint8]:
    values = pixels.astype(np.float64)[:, :, :3]
    if len(mean) == values.shape[2] == len(deviation):
        values = (values * np.asarray(deviation) + np.asarray(mean)) * 255
    elif low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:
        values = (values - low) / max(high - low, 1e-12) * 255
    if values.shape[2] != 3:
        values = values[:, :, :1].repeat(3, axis=2)
    return np.nan_to_num(values).clip(0, 255).astype(np.uint8)
