"""Paint: a canvas of floats, soft-edged shapes, natural noise, and the camera that photographs it.

Everything is numpy in float64 and drawn at twice the final size, so that edges come out antialiased
and a last-digit difference between two processors stays far below one grey level. Positions are in
units of half the short side: y runs from the top (negative) to the bottom, (0, 0) is the centre.

Two things keep it quick: colours are planes (3, H, W), and a field that depends on x or on y alone
is one row (1, W) or one column (H, 1).
"""

from __future__ import annotations

import colorsys
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Colour = tuple[float, float, float]
Box = tuple[float, float, float, float]
OVERSAMPLE = 2
LUMA = np.array([0.299, 0.587, 0.114])
EVERYWHERE: Array = np.ones((1, 1))


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
    """A picture being painted: rgb (3, H, W) in 0..1 and the mask of its subject."""

    def __init__(self, rng: np.random.Generator, width: int, height: int) -> None:
        """Start with black; width and height are those of the final picture, px."""
        self.rng = rng
        self.shape = (height * OVERSAMPLE, width * OVERSAMPLE)
        short = min(width, height)
        self.px = 1.0 / short
        self.right, self.bottom = width / short, height / short
        self.x = (np.arange(self.shape[1])[None, :] + 0.5) * self.px - self.right
        self.y = (np.arange(self.shape[0])[:, None] + 0.5) * self.px - self.bottom
        self.rgb: Array = np.zeros((3, *self.shape))
        self.subject: Array = np.zeros(self.shape)
        self._window = slice(None), slice(None)

    def near(self, x: float, y: float, reach: float) -> Canvas:
        """Return the part of this canvas that a thing of this reach about (x, y) can touch.

        It paints into the same picture. What lies outside the part need not be computed.
        """
        part, reach = copy.copy(self), reach + self.px  # the soft edge
        rows = _inside(self.y[:, 0], y, reach)
        columns = _inside(self.x[0], x, reach)
        part.x, part.y = self.x[:, columns], self.y[rows]
        part.rgb, part.subject = self.rgb[:, rows, columns], self.subject[rows, columns]
        part._window = rows, columns
        return part

    def paint(self, mask: Array, colour: Colour | Array, *, subject: bool = False) -> None:
        """Lay a colour (one, or a field of planes) over the picture where the mask is."""
        place = _extent(mask)
        part, over = self.rgb[:, *place], np.broadcast_to(mask, self.subject.shape)[place]
        field = _planes(colour)
        if field.size > len(field):
            field = np.broadcast_to(field, self.rgb.shape)[:, *place]
        part += over * (field - part)
        if subject:
            self.subject[place] = np.maximum(self.subject[place], over)

    def darken(self, mask: Array, amount: float) -> None:
        """Multiply the light by 1 - amount where the mask is: a cast shadow."""
        place = _extent(mask)
        self.rgb[:, *place] *= 1.0 - amount * np.broadcast_to(mask, self.subject.shape)[place]

    def local(
        self, cx: float, cy: float, scale: float = 1.0, turn: float = 0.0
    ) -> tuple[Array, Array]:
        """Return the coordinates of an object at (cx, cy), `scale` large, turned by radians."""
        dx, dy = (self.x - cx) / scale, (self.y - cy) / scale
        if not turn:
            return dx, dy
        return dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)

    def edge(self, distance: Array, scale: float = 1.0, blur: float = 0.0) -> Array:
        """Return the mask, 0..1, of a signed distance (negative inside) given in local units."""
        width = self.px * 1.0 + blur
        return np.clip(0.5 - distance * scale / width, 0.0, 1.0)

    def noise(self, beta: float = 1.0, stretch: float = 1.0) -> Array:
        """Return 1/f**beta noise of unit deviation; stretch > 1 makes it wider than high."""
        spectrum = np.fft.rfft2(self.rng.standard_normal(self.shape))
        spectrum *= _amplitude(self.shape, beta, stretch)
        values: Array = np.fft.irfft2(spectrum, self.shape)
        return values[self._window] / np.sqrt(np.vdot(values, values) / values.size)

    def subject_box(self) -> Box:
        """Return the subject's box in pixels of the final picture."""
        rows = np.flatnonzero((self.subject > 0.5).any(axis=1)) // OVERSAMPLE
        columns = np.flatnonzero((self.subject > 0.5).any(axis=0)) // OVERSAMPLE
        if not rows.size:
            return 0.0, 0.0, 1.0, 1.0
        x, y = int(columns[0]), int(rows[0])
        return float(x), float(y), float(columns[-1] + 1 - x), float(rows[-1] + 1 - y)


def _inside(places: Array, centre: float, reach: float) -> slice:
    first, last = np.searchsorted(places, (centre - reach, centre + reach))
    return slice(int(first), int(last))


def _extent(mask: Array) -> tuple[slice, slice]:
    """Return the rows and columns outside which the mask is nought: painting there is waiting."""
    rows, columns = (_filled(mask, axis) for axis in (0, 1))
    return rows, columns


def _filled(mask: Array, axis: int) -> slice:
    if mask.shape[axis] == 1:  # the same all along this axis
        return slice(None)
    places = np.flatnonzero(mask.max(axis=1 - axis, initial=0.0))
    return slice(places[0], places[-1] + 1) if places.size else slice(0)


@lru_cache(maxsize=64)
def _amplitude(shape: tuple[int, int], beta: float, stretch: float) -> Array:
    fy = np.fft.fftfreq(shape[0])[:, None] * max(shape)
    fx = np.fft.rfftfreq(shape[1])[None, :] * max(shape) * stretch
    amplitude: Array = 1.0 / np.maximum(length(fx, fy), 1.0) ** beta
    amplitude[0, 0] = 0.0  # so that the noise has mean 0
    return amplitude


def length(u: Array, v: Array) -> Array:
    """Return the distance from the origin; numpy's own hypot is several times slower."""
    return np.sqrt(u * u + v * v)


def circle(u: Array, v: Array, radius: float = 1.0) -> Array:
    """Return the signed distance to a circle about the origin."""
    return length(u, v) - radius


def ellipse(u: Array, v: Array, a: float, b: float) -> Array:
    """Return the approximate signed distance to an ellipse with half axes a and b."""
    near = length(u / a, v / b)
    slope = length(u / a**2, v / b**2) / np.maximum(near, 1e-9)
    return (near - 1.0) / np.maximum(slope, 1e-9)


def box(u: Array, v: Array, a: float | Array, b: float, corner: float = 0.0) -> Array:
    """Return the signed distance to a box with half sides a and b and rounded corners."""
    du, dv = np.abs(u) - a + corner, np.abs(v) - b + corner
    outside = length(np.maximum(du, 0.0), np.maximum(dv, 0.0))
    return outside + np.minimum(np.maximum(du, dv), 0.0) - corner


def capsule(u: Array, v: Array, start: tuple[float, float], end: tuple[float, float]) -> Array:
    """Return the distance to a line segment; subtract a radius for a rod."""
    return np.sqrt(_squared(u, v, start, end))


def _squared(u: Array, v: Array, start: tuple[float, float], end: tuple[float, float]) -> Array:
    du, dv = end[0] - start[0], end[1] - start[1]
    u, v, square = u - start[0], v - start[1], du * du + dv * dv
    along = np.clip(u * (du / square) + v * (dv / square), 0.0, 1.0)
    return (u - along * du) ** 2 + (v - along * dv) ** 2


def polygon(u: Array, v: Array, points: Sequence[tuple[float, float]]) -> Array:
    """Return the signed distance to a closed polygon (crossing-number rule)."""
    squared: Array = np.array(np.inf)
    inside = np.array(False)
    for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
        squared = np.minimum(squared, _squared(u, v, (x0, y0), (x1, y1)))
        if y0 != y1:
            crossing = (x1 - x0) * (v - y0) / (y1 - y0) + x0
            inside = inside ^ (((y0 > v) != (y1 > v)) & (u < crossing))
    distance = np.sqrt(squared)
    return np.where(inside, -distance, distance)


def hsv(hue: float, saturation: float, value: float) -> Colour:
    """Return an RGB colour from hue (turns), saturation and value, 0..1."""
    return colorsys.hsv_to_rgb(hue % 1.0, min(max(saturation, 0.0), 1.0), min(max(value, 0.0), 1.0))


def mix(first: Colour, second: Colour, share: Array) -> Array:
    """Return the field of colours that goes from the first (0) to the second (1)."""
    t = np.clip(share, 0.0, 1.0)
    return _planes(first) * (1.0 - t) + _planes(second) * t


def shaded(colour: Colour | Array, light: Array) -> Array:
    """Return the colour under a light field; 1 leaves it as it is."""
    return _planes(colour) * light


def _planes(colour: Colour | Array) -> Array:
    field: Array = np.asarray(colour)
    return field if field.ndim > 1 else field[:, None, None]


def soft_shadow(canvas: Canvas, u: Array, v: Array, a: float, b: float, amount: float) -> None:
    """Darken a soft ellipse, as under an object in diffuse light."""
    soft = np.clip(1.35 - length(u / a, v / b), 0.0, 1.0)
    canvas.darken(soft * np.sqrt(soft), amount)


def photograph(canvas: Canvas, camera: Camera) -> Picture:
    """Downsample, set the tones the camera asks for, add sensor noise, round to 8 bits."""
    h, w = canvas.shape[0] // OVERSAMPLE, canvas.shape[1] // OVERSAMPLE
    corners = [canvas.rgb[:, i::OVERSAMPLE, j::OVERSAMPLE] for i, j in np.ndindex(2, 2)]
    rgb = _tones(np.clip(sum(corners) / len(corners), 0.0, 1.2), camera)
    # Shot noise: stronger in the light; mostly luma, as after a camera's own chroma filter.
    level = camera.noise * (0.6 + 0.8 * np.sqrt(np.clip(_luma(rgb), 0.0, 1.0)))
    grain = canvas.rng.standard_normal((h, w, 1)) + 0.25 * canvas.rng.standard_normal((h, w, 3))
    rgb = np.clip(np.moveaxis(rgb + level * np.moveaxis(grain, 2, 0), 0, 2), 0.0, 1.0)
    return Picture(np.round(rgb * 255.0).astype(np.uint8, order="C"), canvas.subject_box())


def _luma(rgb: Array) -> Array:
    red, green, blue = rgb
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def _bell(values: Array) -> Array:
    """Return the values' ranks as quantiles of (nearly) a normal distribution (Tukey's lambda)."""
    # Counted in bins, so that neither ties nor last digits decide the order of equal pixels.
    bins = np.clip(np.round(values * 2048.0), 0, 4095).astype(np.int64)
    counts = np.bincount(bins.ravel(), minlength=4096)
    share: Array = ((np.cumsum(counts) - counts / 2.0) / values.size)[bins]
    return 4.91 * (share**0.14 - (1.0 - share) ** 0.14)


def _tones(rgb: Array, camera: Camera) -> Array:
    luma = _luma(rgb)
    z = (luma - luma.mean()) / luma.std()
    # Part of the way to a bell-shaped histogram: no sky or floor takes all the tones for itself.
    z = 0.6 * z + 0.4 * _bell(luma)
    z = 2.6 * np.tanh(z / 2.6)  # a film's shoulders: no burnt-out sky, no blocked shadow
    z = (z - z.mean()) / z.std()
    target = np.clip(camera.brightness + camera.contrast * z, 0.015, 0.985)
    chroma = np.clip(rgb / np.maximum(luma, 1e-3), 0.0, 3.0)
    # White balance: of the scene's own cast a bounded part stays; the camera adds its own.
    cast = (chroma * luma).mean(axis=(1, 2)) / luma.mean() - 1.0
    chroma += _planes(0.16 * np.tanh(cast / 0.3) - cast)
    chroma *= _planes(1.0 + np.array([camera.cast[0], 0.0, camera.cast[1]]))
    for _ in range(3):  # saturation is not linear in the gain: three steps come close enough
        out = np.clip(target * chroma, 0.0, 1.0)
        most = out.max(axis=0)
        seen = ((most - out.min(axis=0)) / np.maximum(most, 1e-3)).mean()
        gain = np.clip(camera.saturation / max(float(seen), 1e-3), 0.1, 2.0)
        chroma = np.clip(1.0 + (chroma - _luma(chroma)) * gain, 0.02, 3.5)
    toned: Array = np.clip(target * chroma, 0.0, 1.0)
    return toned
