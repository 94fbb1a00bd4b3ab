"""Soft frames and a replaced background: changes that spoil half of a picture."""

from __future__ import annotations

from collections.abc import Mapping

import cv2
import numpy as np
import numpy.typing as npt

from audit.neighbors.synthetic import Change, Picture

Share = npt.NDArray[np.float64]


def _lay_around(picture: Picture, shown: Share, around: Picture) -> Picture:
    """Show `shown` (height, width; 0 to 1) of the picture and `around` in the rest."""
    shown = shown[..., None]
    return np.rint(shown * picture + (1 - shown) * around).astype(np.uint8)


def _plain(picture: Picture, rng: np.random.Generator) -> Picture:
    """White, black or any colour, as large as the picture."""
    kind = int(rng.integers(3))
    colour = rng.integers(0, 256, 3) if kind == 2 else (255, 0)[kind]
    return np.full_like(picture, colour)


def _places(picture: Picture) -> tuple[Share, Share]:
    """Coordinates of the pixels, -1 to 1 across (1, width) and down (height, 1)."""
    height, width = picture.shape[:2]
    across = ((np.arange(width) + 0.5) / width * 2 - 1)[None, :]
    return across, ((np.arange(height) + 0.5) / height * 2 - 1)[:, None]


def _fade(place: Share, full: float, gone: float) -> Share:
    """1 up to `full`, 0 from `gone`, smooth between."""
    t = np.clip((gone - place) / (gone - full), 0.0, 1.0)
    return np.asarray(t * t * (3 - 2 * t), np.float64)


def _vignette(picture: Picture, rng: np.random.Generator) -> Picture:
    """Fade everything outside an oval into one colour: whole up to 0.7 of the half sides."""
    x, y = _places(picture)
    shown = _fade(np.hypot(x, y), 0.7, 1.0)
    return _lay_around(picture, shown, _plain(picture, rng))


def _feather(picture: Picture, rng: np.random.Generator) -> Picture:
    """Fade a frame of 15 % of each side into one colour or into the blurred picture."""
    x, y = _places(picture)
    shown = _fade(np.abs(x), 0.7, 1.0) * _fade(np.abs(y), 0.7, 1.0)
    if rng.integers(2):
        return _lay_around(picture, shown, _plain(picture, rng))
    sigma = max(1.5, 0.08 * min(picture.shape[:2]))
    return _lay_around(picture, shown, np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma)))


def _background(picture: Picture, rng: np.random.Generator) -> Picture:
    """Cut an object of irregular outline from the middle and lay it on one colour."""
    x, y = _places(picture)
    angle = np.arctan2(y, x)
    outline = 0.7 + sum(
        float(rng.uniform(-0.2, 0.2)) / k * np.cos(k * angle + float(rng.uniform(0, 2 * np.pi)))
        for k in (2, 3, 4, 5)
    )
    shown = _fade(np.hypot(x, y) - outline, -0.04, 0.04)
    return _lay_around(picture, shown, _plain(picture, rng))


FRAMES: Mapping[str, Change] = {
    "vignette": _vignette,
    "feather": _feather,
    "background": _background,
}
"""Name -> change."""
