"""Backgrounds: skies, waters, grounds and walls, each with its own colours and texture.

Every subject can stand before several of them, and most of them behind several subjects, so that no
background gives a class away.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from paint import EVERYWHERE, Canvas, box, circle, hsv, length, mix, shaded


def sky(canvas: Canvas) -> None:
    """Paint a sky of one of five hours, with clouds."""
    rng = canvas.rng
    hour = rng.integers(5)
    top, low = _SKIES[hour]
    jitter = rng.uniform(-0.03, 0.03)
    t = (canvas.y / canvas.bottom + 1.0) / 2.0 + rng.uniform(-0.2, 0.2)
    canvas.paint(
        EVERYWHERE,
        mix(hsv(top[0] + jitter, *top[1:]), hsv(low[0] + jitter, *low[1:]), t),
    )
    clouds = canvas.noise(1.6, stretch=rng.uniform(1.2, 3.0)) + rng.uniform(-1.0, 0.6)
    light = 0.85 + 0.12 * canvas.noise(1.6, stretch=2.0)
    cloud = hsv(low[0] + jitter, 0.12, 0.95)
    canvas.paint(np.clip(clouds * 0.7, 0.0, 0.9), shaded(cloud, np.clip(light, 0.4, 1.1)))


_SKIES: tuple[tuple[tuple[float, float, float], tuple[float, float, float]], ...] = (
    ((0.59, 0.65, 0.75), (0.57, 0.20, 0.95)),  # noon
    ((0.62, 0.45, 0.45), (0.07, 0.55, 0.95)),  # sunset
    ((0.60, 0.15, 0.55), (0.58, 0.06, 0.80)),  # overcast
    ((0.70, 0.50, 0.30), (0.93, 0.35, 0.70)),  # dusk
    ((0.13, 0.20, 0.90), (0.09, 0.40, 0.80)),  # haze
)


def hills(canvas: Canvas, horizon: float) -> None:
    """Paint one to three ridges behind the horizon."""
    rng = canvas.rng
    hue, layers = rng.uniform(0.2, 0.65), int(rng.integers(1, 4))
    for layer in range(layers):
        wave = sum(
            rng.uniform(0.02, 0.12) / k * np.sin(k * 2.0 * canvas.x + rng.uniform(0, 6.3))
            for k in (1, 2, 4, 7)
        )
        ridge = horizon - rng.uniform(0.05, 0.35) * (layers - layer) / layers + wave
        light = 0.9 + 0.25 * canvas.noise(1.2)
        colour = hsv(hue, 0.15 + 0.15 * layer, 0.65 - 0.13 * layer)
        canvas.paint(canvas.edge(ridge - canvas.y), shaded(colour, light))


def water(canvas: Canvas, horizon: float) -> None:
    """Paint rippled water from the horizon down, in perspective."""
    rng = canvas.rng
    hue, sat = rng.choice([0.50, 0.55, 0.58, 0.62, 0.42, 0.1]), rng.uniform(0.15, 0.6)
    depth = np.clip((canvas.y - horizon) / (canvas.bottom - horizon + 1e-6), 0.0, 1.0)
    ripple = canvas.noise(0.9, stretch=rng.uniform(3.0, 7.0)) * (0.35 + 0.65 * depth)
    swell = np.sin(
        np.sqrt(np.maximum(canvas.y - horizon + 0.15, 0.0)) * rng.uniform(25, 60)
        + canvas.noise(1.5)
    )
    light = 0.62 + 0.20 * ripple + 0.07 * swell * depth
    colour = mix(hsv(hue, sat * 0.5, 0.95), hsv(hue + 0.03, sat, 0.65), depth)
    canvas.paint(canvas.edge(horizon - canvas.y), shaded(colour, np.clip(light, 0.1, 1.4)))


def grass(canvas: Canvas, horizon: float) -> None:
    """Paint a meadow: green, hay, or heather, with blades."""
    rng = canvas.rng
    hue = rng.choice([0.22, 0.28, 0.33, 0.13, 0.10, 0.85], p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.1])
    depth = np.clip((canvas.y - horizon) / (canvas.bottom - horizon + 1e-6), 0.0, 1.0)
    blades = canvas.noise(0.5, stretch=0.3) * (0.4 + 0.6 * depth)
    light = 0.65 + 0.16 * blades + 0.14 * canvas.noise(1.4, stretch=2.0)
    colour = mix(
        hsv(hue, 0.45, 0.85),
        hsv(hue + rng.uniform(-0.04, 0.04), rng.uniform(0.5, 0.75), 0.55),
        depth,
    )
    canvas.paint(canvas.edge(horizon - canvas.y), shaded(colour, np.clip(light, 0.1, 1.5)))


def soil(canvas: Canvas) -> None:
    """Paint bare ground with pebbles: earth, sand, asphalt or snow."""
    rng = canvas.rng
    hue, sat, val = (
        (0.07, 0.45, 0.45), (0.10, 0.35, 0.80), (0.60, 0.08, 0.45), (0.58, 0.07, 0.92)
    )[rng.integers(4)]  # fmt: skip
    light = 0.85 + 0.11 * canvas.noise(0.8) + 0.13 * canvas.noise(1.5)
    canvas.paint(EVERYWHERE, shaded(hsv(hue, sat, val), np.clip(light, 0.1, 1.5)))
    for _ in range(int(rng.integers(0, 30))):
        _pebble(canvas, hue, sat, val)


def _pebble(canvas: Canvas, hue: float, sat: float, val: float) -> None:
    rng = canvas.rng
    radius = rng.uniform(0.02, 0.09)
    x, y = rng.uniform(-canvas.right, canvas.right), rng.uniform(-canvas.bottom, canvas.bottom)
    canvas = canvas.near(x, y, 2.0 * radius)
    u, v = canvas.local(x, y, radius)
    v = v * rng.uniform(1.1, 1.8)
    canvas.darken(np.clip(1.4 - length(u - 0.3, v - 0.4), 0.0, 1.0), 0.4)
    light = 0.8 - 0.3 * u - 0.3 * v
    tone = hsv(
        hue + rng.uniform(-0.04, 0.04), sat * rng.uniform(0.3, 1.0), val * rng.uniform(0.7, 1.3)
    )
    canvas.paint(canvas.edge(circle(u, v), radius), shaded(tone, np.clip(light, 0.2, 1.4)))


def wood(canvas: Canvas) -> None:
    """Paint planks with grain, seen from above, rotated at random."""
    rng = canvas.rng
    u, v = canvas.local(0.0, 0.0, 1.0, rng.uniform(0, np.pi))
    warp = 0.06 * canvas.noise(1.8)
    plank = rng.uniform(0.3, 0.8)
    row = np.floor((v + 5.0) / plank)
    grain = np.sin(
        (v + warp + 0.13 * np.sin(1.7 * u + row * 2.4)) * rng.uniform(50, 90) + row * 7.0
    )
    light = 0.85 + 0.08 * grain + 0.10 * np.sin(row * 12.9898) + 0.10 * canvas.noise(0.6)
    seam = np.abs((v + 5.0) / plank - np.round((v + 5.0) / plank)) * plank
    light *= 1.0 - 0.55 * np.clip(1.0 - seam / 0.018, 0.0, 1.0)
    hue, sat = rng.choice([0.06, 0.09, 0.11, 0.58]), rng.uniform(0.1, 0.6)
    colour = hsv(hue, sat, rng.uniform(0.5, 0.9))
    canvas.paint(EVERYWHERE, shaded(colour, np.clip(light, 0.1, 1.4)))


def cloth(canvas: Canvas) -> None:
    """Paint a checked or striped cloth with folds."""
    rng = canvas.rng
    u, v = canvas.local(0.0, 0.0, 1.0, rng.uniform(0, np.pi))
    bend = 0.10 * canvas.noise(2.2)
    period = rng.uniform(0.12, 0.4)
    stripes = (np.sin((u + bend) * np.pi / period) > 0).astype(float)
    if rng.random() < 0.6:
        stripes = (stripes + (np.sin((v + bend) * np.pi / period) > 0)) / 2.0
    hue = rng.random()
    pair = hsv(hue, rng.uniform(0.3, 0.7), rng.uniform(0.4, 0.7)), hsv(hue + 0.05, 0.1, 0.92)
    light = 0.82 + 0.16 * canvas.noise(2.0) + 0.06 * canvas.noise(0.3)
    canvas.paint(EVERYWHERE, shaded(mix(*pair, stripes), np.clip(light, 0.2, 1.3)))


def bricks(canvas: Canvas) -> None:
    """Paint a wall of bricks or tiles."""
    rng = canvas.rng
    height = rng.uniform(0.12, 0.3)
    width = height * rng.uniform(1.0, 2.4)
    row = np.floor((canvas.y + 9.0) / height)
    shift = 0.5 * (row % 2.0)
    column = np.floor((canvas.x + 9.0) / width + shift)
    u = ((canvas.x + 9.0) / width + shift - column - 0.5) * width
    v = ((canvas.y + 9.0) / height - row - 0.5) * height
    gap = canvas.edge(box(u, v, width * 0.46, height * 0.44, 0.01))
    tone = np.modf(np.abs(np.sin(row * 12.9898 + column * 78.233)) * 4375.85)[0]
    hue, sat, val = rng.choice([0.02, 0.05, 0.1, 0.55, 0.35]), rng.uniform(0.1, 0.55), 0.7
    light = 0.62 + 0.35 * tone + 0.10 * canvas.noise(0.8) - 1.2 * v
    canvas.paint(EVERYWHERE, shaded(hsv(0.1, 0.06, 0.7), 0.9 + 0.1 * canvas.noise(0.7)))
    canvas.paint(gap, shaded(hsv(hue, sat, val), np.clip(light, 0.15, 1.4)))


def bokeh(canvas: Canvas) -> None:
    """Paint a garden far out of focus: overlapping discs of light."""
    rng = canvas.rng
    hue = rng.choice([0.25, 0.33, 0.1, 0.58, 0.75])
    light = 0.45 + 0.18 * canvas.noise(2.0) + 0.05 * canvas.noise(0.4)
    canvas.paint(EVERYWHERE, shaded(hsv(hue, 0.5, 0.9), np.clip(light, 0.05, 1.2)))
    for _ in range(int(rng.integers(12, 45))):
        x, y = rng.uniform(-canvas.right, canvas.right), rng.uniform(-canvas.bottom, canvas.bottom)
        tone = hsv(hue + rng.uniform(-0.15, 0.15), rng.uniform(0.1, 0.6), rng.uniform(0.5, 1.0))
        radius, blur = rng.uniform(0.05, 0.25), rng.uniform(0.01, 0.05)
        part = canvas.near(x, y, radius + blur)
        disc = part.edge(circle(*part.local(x, y), radius), blur=blur)
        part.paint(disc * rng.uniform(0.15, 0.5), tone)


def wall(canvas: Canvas) -> None:
    """Paint a plastered wall with the light of a window on it."""
    rng = canvas.rng
    u, v = canvas.local(rng.uniform(-0.6, 0.6), rng.uniform(-0.6, 0.6), 1.0, rng.uniform(-0.5, 0.5))
    light = 0.7 + 0.10 * canvas.noise(1.1) + 0.06 * canvas.noise(0.5)
    window = box(u, v, rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.8))
    bars = np.minimum(np.abs(u), np.abs(v)) - 0.03
    light += 0.3 * canvas.edge(np.maximum(window, -bars), blur=0.03)
    colour = hsv(rng.random(), rng.uniform(0.1, 0.5), rng.uniform(0.5, 0.85))
    canvas.paint(EVERYWHERE, shaded(colour, np.clip(light, 0.1, 1.4)))


def table(canvas: Canvas) -> None:
    """Paint a table top before something further back."""
    BACKDROPS[canvas.rng.integers(len(BACKDROPS))](canvas)
    above = canvas.rgb.copy()
    TOPS[canvas.rng.integers(len(TOPS))](canvas)
    edge = canvas.rng.uniform(-0.75, 0.1)
    top = canvas.edge(edge - canvas.y)
    canvas.rgb = canvas.rgb * top + above * (1.0 - top) * canvas.rng.uniform(0.6, 1.1)


BACKDROPS: tuple[Callable[[Canvas], None], ...] = (wall, bokeh, bricks, cloth)
TOPS: tuple[Callable[[Canvas], None], ...] = (wood, cloth, soil)
GROUNDS: tuple[Callable[[Canvas], None], ...] = (soil, wood, cloth, bokeh, table, bricks)
"""Backgrounds for things that lie or stand near the camera."""


def landscape(canvas: Canvas, *, wet: bool) -> float:
    """Paint sky, perhaps hills, and water or meadow; return the horizon's y."""
    rng = canvas.rng
    horizon = float(rng.uniform(-0.45, 0.4)) * canvas.bottom
    sky(canvas)
    if rng.random() < 0.65:
        hills(canvas, horizon)
    (water if wet else grass)(canvas, horizon)
    return horizon
