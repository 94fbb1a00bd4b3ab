"""Paint: a canvas of floats, soft-edged shapes, natural noise, and the camera that photographs it.

Everything is numpy in float64 and drawn at twice the final size, so that edges come out antialiased
and a last-digit difference between two processors stays far below one grey level. Positions are in
units of half the short side: y runs from the top (negative) to the bottom, (0, 0) is the centre.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Colour = tuple[float, float, float]
Box = tuple[float, float, float, float]
OVERSAMPLE = 2
LUMA = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True)
class Picture:
    """A finished photograph: uint8 pixels (height, width, 3), its subject's box x, y, w, h."""

    pixels: NDArray[np.uint8]
    box: Box

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, px."""
        return self.pixels.shape[1], self.pixels.shape[0]


@dataclass(frozen=True)
class Camera:
    """What the picture's statistics should be, whatever was drawn.

    Every class draws its camera from one distribution, so that no class is brighter, noisier or
    more colourful than another unless that is planted. Luma is 0..1.
    """

    brightness: float
    contrast: float
    saturation: float
    noise: float
    cast: tuple[float, float]


class Canvas:
    """A picture being painted: rgb (H, W, 3) in 0..1 and the mask of its subject."""

    def __init__(self, rng: np.random.Generator, width: int, height: int) -> None:
        """Start with black; width and height are those of the final picture, px."""
        self.rng = rng
        self.shape = (height * OVERSAMPLE, width * OVERSAMPLE)
        short = min(width, height)
        self.px = 1.0 / short
        self.right, self.bottom = width / short, height / short
        rows, columns = np.indices(self.shape, dtype=np.float64)
        self.x = (columns + 0.5) * self.px - self.right
        self.y = (rows + 0.5) * self.px - self.bottom
        self.rgb: Array = np.zeros((*self.shape, 3))
        self.subject: Array = np.zeros(self.shape)

    def paint(self, mask: Array, colour: Colour | Array, *, subject: bool = False) -> None:
        """Lay a colour (one, or an H x W x 3 field) over the picture where the mask is."""
        place = _extent(mask)
        part, over = self.rgb[place], mask[place]
        field = np.asarray(colour, dtype=np.float64)
        part += over[..., None] * ((field[place] if field.ndim > 1 else field) - part)
        if subject:
            self.subject[place] = np.maximum(self.subject[place], over)

    def darken(self, mask: Array, amount: float) -> None:
        """Multiply the light by 1 - amount where the mask is: a cast shadow."""
        place = _extent(mask)
        self.rgb[place] *= 1.0 - amount * mask[place][..., None]

    def local(
        self, cx: float, cy: float, scale: float = 1.0, turn: float = 0.0
    ) -> tuple[Array, Array]:
        """Return the coordinates of an object at (cx, cy), `scale` large, turned by radians."""
        dx, dy = (self.x - cx) / scale, (self.y - cy) / scale
        return dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)

    def edge(self, distance: Array, scale: float = 1.0, blur: float = 0.0) -> Array:
        """Return the mask, 0..1, of a signed distance (negative inside) given in local units."""
        width = self.px * 1.0 + blur
        return np.clip(0.5 - distance * scale / width, 0.0, 1.0)

    def noise(self, beta: float = 1.0, stretch: float = 1.0) -> Array:
        """Return 1/f**beta noise of unit deviation; stretch > 1 makes it wider than high."""
        fy = np.fft.fftfreq(self.shape[0])[:, None] * max(self.shape)
        fx = np.fft.rfftfreq(self.shape[1])[None, :] * max(self.shape) * stretch
        amplitude = 1.0 / np.maximum(np.hypot(fx, fy), 1.0) ** beta
        amplitude[0, 0] = 0.0
        spectrum = np.fft.rfft2(self.rng.standard_normal(self.shape)) * amplitude
        values: Array = np.fft.irfft2(spectrum, self.shape)
        values /= values.std()
        return values

    def subject_box(self) -> Box:
        """Return the subject's box in pixels of the final picture."""
        rows = np.flatnonzero((self.subject > 0.5).any(axis=1)) // OVERSAMPLE
        columns = np.flatnonzero((self.subject > 0.5).any(axis=0)) // OVERSAMPLE
        if not rows.size:
            return 0.0, 0.0, 1.0, 1.0
        x, y = int(columns[0]), int(rows[0])
        return float(x), float(y), float(columns[-1] + 1 - x), float(rows[-1] + 1 - y)


def _extent(mask: Array) -> tuple[slice, slice]:
    """Return the rows and columns outside which the mask is nought: painting there is waiting."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return slice(0), slice(0)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def circle(u: Array, v: Array, radius: float = 1.0) -> Array:
    """Return the signed distance to a circle about the origin."""
    return np.hypot(u, v) - radius


def ellipse(u: Array, v: Array, a: float, b: float) -> Array:
    """Return the approximate signed distance to an ellipse with half axes a and b."""
    near = np.hypot(u / a, v / b)
    slope = np.hypot(u / a**2, v / b**2) / np.maximum(near, 1e-9)
    return (near - 1.0) / np.maximum(slope, 1e-9)


def box(u: Array, v: Array, a: float | Array, b: float, corner: float = 0.0) -> Array:
    """Return the signed distance to a box with half sides a and b and rounded corners."""
    du, dv = np.abs(u) - a + corner, np.abs(v) - b + corner
    outside = np.hypot(np.maximum(du, 0.0), np.maximum(dv, 0.0))
    return outside + np.minimum(np.maximum(du, dv), 0.0) - corner


def capsule(u: Array, v: Array, start: tuple[float, float], end: tuple[float, float]) -> Array:
    """Return the distance to a line segment; subtract a radius for a rod."""
    du, dv = end[0] - start[0], end[1] - start[1]
    along = np.clip(((u - start[0]) * du + (v - start[1]) * dv) / (du * du + dv * dv), 0.0, 1.0)
    return np.hypot(u - start[0] - along * du, v - start[1] - along * dv)


def polygon(u: Array, v: Array, points: Sequence[tuple[float, float]]) -> Array:
    """Return the signed distance to a closed polygon (crossing-number rule)."""
    distance = np.full(u.shape, np.inf)
    inside = np.zeros(u.shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
        distance = np.minimum(distance, capsule(u, v, (x0, y0), (x1, y1)))
        if y0 != y1:
            crossing = (x1 - x0) * (v - y0) / (y1 - y0) + x0
            inside ^= ((y0 > v) != (y1 > v)) & (u < crossing)
    return np.where(inside, -distance, distance)


def hsv(hue: float, saturation: float, value: float) -> Colour:
    """Return an RGB colour from hue (turns), saturation and value, 0..1."""
    return colorsys.hsv_to_rgb(hue % 1.0, min(max(saturation, 0.0), 1.0), min(max(value, 0.0), 1.0))


def mix(first: Colour, second: Colour, share: Array) -> Array:
    """Return the field of colours that goes from the first (0) to the second (1)."""
    t = np.clip(share, 0.0, 1.0)[..., None]
    return np.asarray(first) * (1.0 - t) + np.asarray(second) * t


def shaded(colour: Colour | Array, light: Array) -> Array:
    """Return the colour under a light field; 1 leaves it as it is."""
    return np.asarray(colour, dtype=np.float64) * light[..., None]


def soft_shadow(canvas: Canvas, u: Array, v: Array, a: float, b: float, amount: float) -> None:
    """Darken a soft ellipse, as under an object in diffuse light."""
    near = np.hypot(u / a, v / b)
    canvas.darken(np.clip(1.35 - near, 0.0, 1.0) ** 1.5, amount)


def photograph(canvas: Canvas, camera: Camera) -> Picture:
    """Downsample, set the tones the camera asks for, add sensor noise, round to 8 bits."""
    h, w = canvas.shape[0] // OVERSAMPLE, canvas.shape[1] // OVERSAMPLE
    rgb = canvas.rgb.reshape(h, OVERSAMPLE, w, OVERSAMPLE, 3).mean(axis=(1, 3))
    rgb = _tones(np.clip(rgb, 0.0, 1.2), camera)
    # Shot noise: stronger in the light; mostly luma, as after a camera's own chroma filter.
    level = camera.noise * (0.6 + 0.8 * np.sqrt(np.clip(rgb @ LUMA, 0.0, 1.0)))
    grain = canvas.rng.standard_normal((h, w, 1)) + 0.25 * canvas.rng.standard_normal((h, w, 3))
    rgb = np.clip(rgb + level[..., None] * grain, 0.0, 1.0)
    return Picture(np.round(rgb * 255.0).astype(np.uint8), canvas.subject_box())


def _bell(values: Array) -> Array:
    """Return the values' ranks as quantiles of (nearly) a normal distribution (Tukey's lambda)."""
    # Counted in bins, so that neither ties nor last digits decide the order of equal pixels.
    bins = np.clip(np.round(values * 2048.0), 0, 4095).astype(np.int64)
    counts = np.bincount(bins.ravel(), minlength=4096)
    share: Array = ((np.cumsum(counts) - counts / 2.0) / values.size)[bins]
    return 4.91 * (share**0.14 - (1.0 - share) ** 0.14)


def _tones(rgb: Array, camera: Camera) -> Array:
    luma = rgb @ LUMA
    z = (luma - luma.mean()) / luma.std()
    # Part of the way to a bell-shaped histogram: no sky or floor takes all the tones for itself.
    z = 0.6 * z + 0.4 * _bell(luma)
    z = 2.6 * np.tanh(z / 2.6)  # a film's shoulders: no burnt-out sky, no blocked shadow
    z = (z - z.mean()) / z.std()
    target = np.clip(camera.brightness + camera.contrast * z, 0.015, 0.985)
    chroma = np.clip(rgb / np.maximum(luma, 1e-3)[..., None], 0.0, 3.0)
    # White balance: of the scene's own cast a bounded part stays; the camera adds its own.
    cast = (chroma * luma[..., None]).mean(axis=(0, 1)) / luma.mean() - 1.0
    chroma = chroma - cast + 0.16 * np.tanh(cast / 0.3)
    chroma = chroma * (1.0 + np.array([camera.cast[0], 0.0, camera.cast[1]]))
    for _ in range(3):  # saturation is not linear in the gain: three steps come close enough
        out = np.clip(target[..., None] * chroma, 0.0, 1.0)
        seen = ((out.max(2) - out.min(2)) / np.maximum(out.max(2), 1e-3)).mean()
        gain = np.clip(camera.saturation / max(float(seen), 1e-3), 0.1, 2.0)
        chroma = np.clip(1.0 + (chroma - chroma @ LUMA[:, None]) * gain, 0.02, 3.5)
    toned: Array = np.clip(target[..., None] * chroma, 0.0, 1.0)
    return toned
