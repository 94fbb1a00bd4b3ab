"""Synthetic duplicates: the changes a near-duplicate search is expected to see through.

`measure_recall` makes them of a sample of the user's own pictures. All are seeded, all work on
uint8 RGB at the size of the file, and lengths scale with the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Change = Callable[[Picture, np.random.Generator], Picture]


def _resize(factor: float, picture: Picture, _rng: np.random.Generator) -> Picture:
    height, width = picture.shape[:2]
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def _encode(
    suffix: str, parameters: Sequence[int], picture: Picture, _rng: np.random.Generator
) -> Picture:
    _, coded = cv2.imencode(suffix, picture[..., ::-1], parameters)
    decoded = cv2.imdecode(coded, cv2.IMREAD_COLOR)
    assert decoded is not None
    return np.ascontiguousarray(decoded[..., ::-1], np.uint8)


def _crop(share: float, picture: Picture, rng: np.random.Generator) -> Picture:
    """Keep `share` of each side, at a random place."""
    height, width = picture.shape[:2]
    h, w = max(2, round(height * share)), max(2, round(width * share))
    y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    return picture[y : y + h, x : x + w].copy()


def _stretch(picture: Picture, rng: np.random.Generator) -> Picture:
    """Make one side 10 % longer."""
    height, width = picture.shape[:2]
    wide = bool(rng.integers(2))
    size = (round(width * 1.1), height) if wide else (width, round(height * 1.1))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_LINEAR), np.uint8)


def _rotate_3(picture: Picture, rng: np.random.Generator) -> Picture:
    """Turn by 3 degrees either way about the middle; the corners become black."""
    height, width = picture.shape[:2]
    angle = 3.0 if rng.integers(2) else -3.0
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
    return np.asarray(cv2.warpAffine(picture, turn, (width, height)), np.uint8)


def _rotate_90(picture: Picture, rng: np.random.Generator) -> Picture:
    return np.ascontiguousarray(np.rot90(picture, 1 if rng.integers(2) else 3))


def _rotate_180(picture: Picture, _rng: np.random.Generator) -> Picture:
    return np.ascontiguousarray(picture[::-1, ::-1])


def _mirror(picture: Picture, _rng: np.random.Generator) -> Picture:
    return np.ascontiguousarray(picture[:, ::-1])


def _levels(
    gain: float, bias: float, gamma: float, picture: Picture, _rng: np.random.Generator
) -> Picture:
    """Change contrast about mid-grey (gain), brightness (bias) and gamma."""
    level = np.arange(256) / 255.0
    curve = ((level**gamma - 0.5) * gain + 0.5 + bias) * 255.0
    return np.clip(np.rint(curve), 0, 255).astype(np.uint8)[picture]


def _hue_20(picture: Picture, rng: np.random.Generator) -> Picture:
    """Turn all hues by 20 degrees either way."""
    hsv = cv2.cvtColor(picture, cv2.COLOR_RGB2HSV)
    turn = 10 if rng.integers(2) else -10  # OpenCV counts in steps of two degrees
    hsv[..., 0] = (hsv[..., 0].astype(np.int16) + turn) % 180
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), np.uint8)


def _grey(picture: Picture, _rng: np.random.Generator) -> Picture:
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), np.uint8)


_WORDS = ("sample", "preview", "stock photo", "copyright", "draft", "archive")


def _text(canvas: Picture, words: str, x: float, y: float, width: float, colour: int) -> None:
    """Write `words` so that they are `width` of the canvas wide, baseline at share (x, y)."""
    h, w = canvas.shape[:2]
    font = cv2.FONT_HERSHEY_SIMPLEX
    (text_width, _), _ = cv2.getTextSize(words, font, 1.0, 2)
    scale = width * w / text_width
    thick = max(1, round(2.5 * scale))
    place = (round(x * w), round(y * h))
    cv2.putText(canvas, words, place, font, scale, (colour,) * 3, thick, cv2.LINE_AA)


def _watermark(picture: Picture, rng: np.random.Generator) -> Picture:
    """Write across the middle in white at 45 % opacity, 80 % of the width."""
    marked = picture.copy()
    words = _WORDS[int(rng.integers(len(_WORDS)))]
    _text(marked, words, 0.1, 0.45 + 0.2 * float(rng.random()), 0.8, 255)
    return np.asarray(cv2.addWeighted(picture, 0.55, marked, 0.45, 0.0), np.uint8)


def _caption(picture: Picture, rng: np.random.Generator) -> Picture:
    """Lay a strip with writing over 12 % of the height, at the bottom or the top."""
    captioned = picture.copy()
    height = picture.shape[0]
    strip = max(2, round(0.12 * height))
    bottom, dark = bool(rng.integers(2)), bool(rng.integers(2))
    start = height - strip if bottom else 0
    captioned[start : start + strip] = 0 if dark else 255
    words = _WORDS[int(rng.integers(len(_WORDS)))]
    _text(captioned, words, 0.05, (start + 0.75 * strip) / height, 0.45, 255 if dark else 0)
    return captioned


def _border(picture: Picture, rng: np.random.Generator) -> Picture:
    """Frame the picture with 8 % of its side in one colour."""
    height, width = picture.shape[:2]
    y, x = max(1, round(0.08 * height)), max(1, round(0.08 * width))
    level = int((0, 255, 128)[int(rng.integers(3))])
    framed = cv2.copyMakeBorder(picture, y, y, x, x, cv2.BORDER_CONSTANT, value=(level,) * 3)
    return np.asarray(framed, np.uint8)


def _blur(picture: Picture, _rng: np.random.Generator) -> Picture:
    """Blur with sigma 1 % of the shorter side, at least 0.7 px."""
    sigma = max(0.7, 0.01 * min(picture.shape[:2]))
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma), np.uint8)


def _noise(picture: Picture, rng: np.random.Generator) -> Picture:
    """Add Gaussian noise with a standard deviation of 12 levels."""
    noisy = picture + rng.normal(0.0, 12.0, picture.shape)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


_JPEG = cv2.IMWRITE_JPEG_QUALITY

TRANSFORMATIONS: Mapping[str, Change] = {
    "resize_50": partial(_resize, 0.5),
    "resize_25": partial(_resize, 0.25),
    "jpeg_70": partial(_encode, ".jpg", [_JPEG, 70]),
    "jpeg_50": partial(_encode, ".jpg", [_JPEG, 50]),
    "jpeg_30": partial(_encode, ".jpg", [_JPEG, 30]),
    "crop_95": partial(_crop, 0.95),
    "crop_90": partial(_crop, 0.90),
    "crop_80": partial(_crop, 0.80),
    "stretch_10": _stretch,
    "rotate_3": _rotate_3,
    "rotate_90": _rotate_90,
    "rotate_180": _rotate_180,
    "mirror": _mirror,
    "brighter": partial(_levels, 1.3, (1.3 - 1.0) / 2, 1.0),  # every level times 1.3
    "darker": partial(_levels, 0.7, (0.7 - 1.0) / 2, 1.0),
    "more_contrast": partial(_levels, 1.4, 0.0, 1.0),
    "less_contrast": partial(_levels, 0.6, 0.0, 1.0),
    "gamma_0.6": partial(_levels, 1.0, 0.0, 0.6),
    "gamma_1.6": partial(_levels, 1.0, 0.0, 1.6),
    "hue_20": _hue_20,
    "grey": _grey,
    "watermark": _watermark,
    "caption": _caption,
    "border": _border,
    "blur": _blur,
    "noise": _noise,
    "png": partial(_encode, ".png", []),
    "webp_50": partial(_encode, ".webp", [cv2.IMWRITE_WEBP_QUALITY, 50]),
}
"""Name -> change."""

FAMILIES: tuple[tuple[str, ...], ...] = (
    ("resize_50", "resize_25"),
    ("crop_95", "crop_90", "crop_80"),
    ("stretch_10",),
    ("rotate_3",),
    ("rotate_90", "rotate_180"),
    ("mirror",),
    ("brighter", "darker", "more_contrast", "less_contrast", "gamma_0.6", "gamma_1.6"),
    ("hue_20", "grey"),
    ("watermark", "caption"),
    ("border",),
    ("blur", "noise"),
    ("jpeg_70", "jpeg_50", "jpeg_30", "webp_50"),
)
"""Changes that exclude each other: a combination takes one from each of three families."""


def make_duplicate(picture: Picture, name: str, rng: np.random.Generator) -> Picture:
    """Apply one change by name; "combination" applies three of different families."""
    if name != "combination":
        return TRANSFORMATIONS[name](picture, rng)
    chosen = [FAMILIES[k] for k in np.sort(rng.choice(len(FAMILIES), 3, replace=False))]
    for change in [family[int(rng.integers(len(family)))] for family in chosen]:
        picture = TRANSFORMATIONS[change](picture, rng)
    return picture
