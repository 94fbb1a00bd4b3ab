"""Read predicted masks: COCO segmentations, and PNG files whose pixels are numbers of classes."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.annotations.geometry import read_runs, run_extent
from audit.errors import UsageError
from dataset_preflight.foundation.files import read_regular

MOST_PIXELS = 200_000_000


def segment(value: Any) -> tuple[tuple[int, int, int, int] | None, Any] | None:
    """Return the size and run lengths of a segmentation, or its rings; None for what is neither.

    The first is (x, y, width, height) in whole px around it, None where it is empty.
    """
    if isinstance(value, dict):
        size, runs = value.get("size"), read_runs(value.get("counts"))
        if not isinstance(size, list) or len(size) != 2 or runs is None:
            return None
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


def read_png(path: Path) -> NDArray[np.uint8]:
    """Return the class numbers of a mask, (height, width); raises UsageError for another file."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(read_regular(path)), formats=("PNG",)) as image:
                if image.mode not in ("P", "L"):
                    problem = f"has pixels of mode {image.mode}, not class numbers (P, L)"
                elif image.width * image.height > MOST_PIXELS:
                    problem = f"has over {MOST_PIXELS // 10**6} megapixels"
                else:
                    return np.asarray(image, np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        problem = f"cannot be read as PNG ({str(error)[:80]})"
    raise UsageError(f"{path} {problem}.")
