"""Things: what is photographed from near: apples, fish, flowers, leaves, mushrooms."""

from __future__ import annotations

import numpy as np
from backgrounds import GROUNDS, grass, sky, soil
from paint import (
    EVERYWHERE,
    Array,
    Canvas,
    box,
    capsule,
    circle,
    ellipse,
    hsv,
    length,
    mix,
    polygon,
    shaded,
    soft_shadow,
)


def _place(canvas: Canvas, scale: float, spread: float = 0.75) -> tuple[float, float]:
    # Anywhere that keeps most of the subject in the frame.
    rng = canvas.rng
    free_x = max(canvas.right - scale * 0.7, 0.1) * spread
    free_y = max(canvas.bottom - scale * 0.7, 0.1) * spread
    return float(rng.uniform(-free_x, free_x)), float(rng.uniform(-free_y, free_y))


def _light(canvas: Canvas) -> tuple[float, float]:
    side = canvas.rng.uniform(-0.8, 0.8)
    return float(side), float(-np.sqrt(1.0 - side * side) * canvas.rng.uniform(0.4, 0.9))


def _ball_light(u: Array, v: Array, light: tuple[float, float], radius: float = 1.0) -> Array:
    # Lambert on a sphere, with the glow of the surroundings and a highlight.
    nx, ny = u / radius, v / radius
    nz = np.sqrt(np.clip(1.0 - nx * nx - ny * ny, 0.0, 1.0))
    lz = np.sqrt(max(0.05, 1.0 - light[0] ** 2 - light[1] ** 2))
    facing: Array = np.clip(nx * light[0] + ny * light[1] + nz * lz, 0.0, 1.0)
    return 0.28 + 0.8 * facing + 0.5 * facing**40


def apple(canvas: Canvas) -> None:
    """Paint one to three apples that lie on something."""
    rng = canvas.rng
    GROUNDS[rng.integers(len(GROUNDS))](canvas)
    light = _light(canvas)
    places: list[tuple[float, float, float]] = []
    for _ in range(int(rng.integers(1, 4))):
        scale = rng.uniform(0.38, 0.75)
        x, y = _place(canvas, scale, 0.9)
        if all(np.hypot(x - a, y - b) > 0.75 * (scale + c) for a, b, c in places):
            places.append((x, y, scale))
    for x, y, scale in sorted(places, key=lambda p: p[1]):
        _one_apple(canvas, x, y, scale, light)


def _one_apple(
    canvas: Canvas, x: float, y: float, scale: float, light: tuple[float, float]
) -> None:
    rng = canvas.rng
    canvas = canvas.near(x, y, 2.2 * scale)
    u, v = canvas.local(x, y, scale, rng.uniform(-0.5, 0.5))
    soft_shadow(canvas, u + light[0] * 0.5, v - 0.72, 1.15, 0.42, 0.7)
    angle = np.arctan2(v, np.abs(u))
    dent = 0.26 * np.exp(-((angle + np.pi / 2) ** 2) / 0.09) + 0.07 * np.exp(
        -((angle - np.pi / 2) ** 2) / 0.05
    )
    radius = 0.98 - dent + 0.05 * np.cos(angle - 0.3)
    hue = float(rng.choice([0.99, 0.02, 0.30, 0.22, 0.14]))
    skin = 0.5 + 0.5 * np.sin(9 * np.arctan2(u, -v - 0.6) + rng.uniform(0, 6)) * 0.5
    blush = np.clip(0.5 * u * rng.choice([-1, 1]) + 0.5 + 0.3 * (skin - 0.5), 0.0, 1.0)
    colour = mix(hsv(hue, 0.85, 0.85), hsv(hue + rng.uniform(0.02, 0.12), 0.75, 0.95), blush)
    body = canvas.edge(length(u, v) - radius, scale)
    canvas.paint(body, shaded(colour, _ball_light(u, v * 1.03, light, 1.02)), subject=True)
    pit = np.clip(1.0 - length(u / 0.32, (v + 0.72) / 0.16), 0.0, 1.0)
    canvas.darken(pit * body, 0.75)
    tip = rng.uniform(-0.2, 0.2), -1.08
    stem = capsule(u, v, (0.0, -0.66), tip) - 0.05
    canvas.paint(canvas.edge(stem, scale), shaded(hsv(0.08, 0.6, 0.35), 1.0 - 3.0 * (u - 0.02)))
    if rng.random() < 0.6:
        a, b = canvas.local(x, y, scale, rng.uniform(-0.5, 0.2))
        blade = np.maximum(circle(a - 0.3, b + 0.75, 0.36), circle(a - 0.3, b + 1.25, 0.36))
        rib = np.where(np.abs(b + 1.0) < 0.02, 0.7, 1.0)
        canvas.paint(canvas.edge(blade, scale), shaded(hsv(0.3, 0.7, 0.55), rib))


def fish(canvas: Canvas) -> None:
    """Paint one fish, sometimes with smaller ones, under water."""
    rng = canvas.rng
    _under_water(canvas)
    scale = rng.uniform(0.55, 0.9)
    x, y = _place(canvas, scale, 0.7)
    for _ in range(int(rng.integers(0, 4))):
        _one_fish(canvas, *_place(canvas, 0.2, 1.0), rng.uniform(0.13, 0.24))
    _one_fish(canvas, x, y, scale)


def _under_water(canvas: Canvas) -> None:
    rng = canvas.rng
    hue = float(rng.choice([0.53, 0.58, 0.45, 0.40, 0.63, 0.12, 0.05]))
    t = (canvas.y / canvas.bottom + 1.0) / 2.0
    rays = canvas.noise(1.2, stretch=0.2) * (1.0 - t) * 0.16
    light = 0.85 - 0.3 * t + rays + 0.07 * canvas.noise(0.7)
    colour = mix(hsv(hue, 0.25, 0.95), hsv(hue + rng.uniform(-0.05, 0.05), 0.65, 0.5), t)
    canvas.paint(EVERYWHERE, shaded(colour, np.clip(light, 0.1, 1.3)))
    floor = rng.uniform(0.2, 1.3) * canvas.bottom
    dunes = canvas.y - floor - 0.06 * np.sin(canvas.x * 4.0 + rng.uniform(0, 6))
    sand = 0.75 + 0.14 * canvas.noise(0.4) + 0.10 * canvas.noise(1.2)
    canvas.paint(canvas.edge(-dunes), shaded(hsv(rng.choice([0.1, 0.08, 0.5]), 0.3, 0.75), sand))
    for _ in range(int(rng.integers(0, 12))):
        _weed(canvas)


def _weed(canvas: Canvas) -> None:
    rng = canvas.rng
    x, top = rng.uniform(-canvas.right, canvas.right), rng.uniform(-0.3, 0.8) * canvas.bottom
    sway = 0.07 * np.sin(canvas.y * rng.uniform(4, 9) + rng.uniform(0, 6))
    width = 0.02 + 0.03 * np.clip(canvas.y - top, 0.0, 1.0)
    blade = np.maximum(np.abs(canvas.x - x - sway) - width, top - canvas.y)
    tone = hsv(
        float(rng.choice([0.3, 0.38, 0.97, 0.15])), rng.uniform(0.3, 0.7), rng.uniform(0.25, 0.6)
    )
    canvas.paint(canvas.edge(blade, blur=0.01), shaded(tone, 0.8 + 6.0 * (canvas.x - x - sway)))


def _one_fish(canvas: Canvas, x: float, y: float, scale: float) -> None:
    rng = canvas.rng
    canvas = canvas.near(x, y, 1.2 * scale)
    u, v = canvas.local(x, y, scale, rng.uniform(-0.5, 0.5))
    u = u * float(rng.choice([-1.0, 1.0]))
    deep, hue = rng.uniform(0.30, 0.52), rng.random()
    first = hsv(hue, rng.uniform(0.4, 0.9), rng.uniform(0.55, 0.95))
    second = hsv(hue + rng.uniform(0.08, 0.5), rng.uniform(0.2, 0.8), rng.uniform(0.3, 0.95))
    fork = [(-0.62, 0.0), (-1.05, -0.42), (-0.92, 0.0), (-1.05, 0.42)]
    top = [(0.35, -deep * 0.7), (-0.05, -deep - 0.25), (-0.5, -deep - 0.05), (-0.45, -deep * 0.4)]
    low = [(0.1, deep * 0.8), (-0.25, deep + 0.22), (-0.35, deep * 0.5)]
    for fin in (fork, top, low):
        rays = 0.75 + 0.15 * np.sin(40 * np.arctan2(v, u + 0.4))
        mask = canvas.edge(polygon(u, v, fin), scale)
        canvas.paint(mask, shaded(second, rays), subject=True)
    body = ellipse(u - 0.05, v, 0.78, deep * (1.0 - 0.15 * 0.0))
    stripes = np.clip(np.sin(u * rng.uniform(6, 22) + v * rng.uniform(-4, 4)) * 2.5, 0.0, 1.0)
    scales = 0.10 * np.sin(u * 38 + (np.round(v * 19) % 2) * 3.1) * np.cos(v * 60)
    light = 0.95 - 0.9 * v / deep * 0.5 + scales + 0.25 * np.clip(-v / deep, 0, 1) ** 3
    colour = mix(first, second, stripes * rng.uniform(0.3, 1.0))
    mask = canvas.edge(body, scale)
    canvas.paint(mask, shaded(colour, np.clip(light, 0.2, 1.4)), subject=True)
    canvas.darken(
        canvas.edge(np.abs(circle(u - 0.25, v, 0.32)) - 0.012, scale) * mask * (u > 0.45), 0.5
    )
    canvas.paint(canvas.edge(circle(u - 0.58, v + 0.09, 0.085), scale), (0.95, 0.93, 0.85))
    canvas.paint(canvas.edge(circle(u - 0.59, v + 0.09, 0.05), scale), (0.03, 0.03, 0.05))


def flower(canvas: Canvas) -> None:
    """Paint one large flower or several small ones."""
    rng = canvas.rng
    (GROUNDS[rng.integers(len(GROUNDS))] if rng.random() < 0.6 else _meadow)(canvas)
    count = int(rng.choice([1, 1, 1, 2, 3, 5]))
    for _ in range(count):
        scale = rng.uniform(0.55, 0.85) if count == 1 else rng.uniform(0.28, 0.5)
        _one_flower(canvas, *_place(canvas, scale), scale)


def _meadow(canvas: Canvas) -> None:
    sky(canvas)
    grass(canvas, canvas.rng.uniform(-1.2, 0.2) * canvas.bottom)


def _one_flower(canvas: Canvas, x: float, y: float, scale: float) -> None:
    rng = canvas.rng
    bend = rng.uniform(-0.4, 0.4)
    stem = capsule(canvas.x, canvas.y, (x, y), (x + bend, y + 2.5)) - 0.035 * (0.5 + scale)
    canvas.paint(canvas.edge(stem), shaded(hsv(0.3, 0.6, 0.45), 1.0 - 4.0 * (canvas.x - x) * 0.1))
    canvas = canvas.near(x, y, 1.4 * scale)
    u, v = canvas.local(x, y, scale, rng.uniform(0, 6.3))
    v = v * rng.uniform(1.0, 1.5)
    soft_shadow(canvas, u - 0.1, v - 0.1, 0.9, 0.9, 0.4)
    petals, hue = int(rng.choice([5, 6, 8, 12, 16])), rng.random()
    tone = hsv(hue, rng.uniform(0.1, 0.85), rng.uniform(0.7, 1.0))
    inner = hsv(hue + rng.uniform(-0.12, 0.12), rng.uniform(0.3, 0.9), rng.uniform(0.5, 0.9))
    angle, far = np.arctan2(v, u), length(u, v)
    for ring, size in ((0.5, 1.0), (0.0, 0.86)):
        wave = np.abs(np.cos((angle + ring * 2 * np.pi / petals) * petals / 2.0))
        reach = size * (0.35 + 0.65 * wave ** rng.uniform(0.35, 0.8))
        veins = 0.05 * np.sin(angle * petals * 6)
        light = 0.55 + 0.5 * wave - 0.15 * (ring > 0) + veins - 0.12 * (far < 0.45)
        colour = mix(inner, tone, far * 1.6 - 0.35)
        canvas.paint(canvas.edge(far - reach, scale), shaded(colour, light), subject=True)
    core = rng.uniform(0.18, 0.32)
    seeds = 0.75 + 0.25 * np.sin(far * 70) * np.sin(angle * 13) - 0.6 * (u + v) * 0.5
    heart = hsv(float(rng.choice([0.13, 0.08, 0.22, 0.9])), 0.75, rng.uniform(0.45, 0.9))
    canvas.paint(canvas.edge(far - core, scale), shaded(heart, seeds))


def leaf(canvas: Canvas) -> None:
    """Paint one to three leaves with ribs, lying on the ground."""
    rng = canvas.rng
    GROUNDS[rng.integers(len(GROUNDS))](canvas)
    count = int(rng.choice([1, 1, 2, 3]))
    maple = rng.random() < 0.4
    for _ in range(count):
        scale = rng.uniform(0.7, 1.0) if count == 1 else rng.uniform(0.4, 0.65)
        _one_leaf(canvas, *_place(canvas, scale), scale, maple=maple)


def _one_leaf(canvas: Canvas, x: float, y: float, scale: float, *, maple: bool) -> None:
    rng = canvas.rng
    canvas = canvas.near(x, y, 1.4 * scale)
    u, v = canvas.local(x, y, scale, rng.uniform(0, 6.3))
    hue = float(rng.choice([0.30, 0.25, 0.14, 0.08, 0.03, 0.99]))
    soft_shadow(canvas, u - 0.08, v - 0.08, 0.85, 0.75 if maple else 0.5, 0.45)
    if maple:
        angle, far = np.arctan2(v, u), length(u, v)
        lobe = np.abs(np.cos(angle * 2.5)) ** 0.9
        teeth = 0.05 * np.abs(np.sin(angle * 20))
        shape = far - (0.38 + 0.52 * lobe + teeth) * (1.0 - 0.2 * (np.abs(angle) > 2.7))
        ribs = np.abs(np.sin(angle * 2.5)) * far
    else:
        width = rng.uniform(0.28, 0.45)
        wave = width * np.clip(1.0 - (u * 1.1) ** 2, 0.0, 1.0) ** 0.8 * (1.0 - 0.25 * u)
        teeth = 0.022 * np.abs(np.sin(u * rng.uniform(15, 30)))
        shape = np.maximum(np.abs(v) - wave - teeth, np.abs(u) - 0.92)
        slant = np.abs(v) * 0.8 - u
        ribs = np.minimum(np.abs(v), np.abs(np.sin(slant * 11)) * 0.09)
    blotch = 0.10 * canvas.noise(1.3) + 0.06 * canvas.noise(0.5)
    light = 0.78 + blotch + 0.25 * v * rng.choice([-1, 1])
    tone = mix(hsv(hue, 0.75, 0.75), hsv(hue + 0.06, 0.8, 0.6), 0.5 + 0.5 * canvas.noise(1.7))
    canvas.paint(canvas.edge(shape, scale), shaded(tone, np.clip(light, 0.2, 1.3)), subject=True)
    vein = canvas.edge(ribs - 0.016, scale) * canvas.edge(shape + 0.03, scale)
    canvas.paint(vein * 0.7, hsv(hue + 0.03, 0.4, 0.92))
    stalk = capsule(u, v, (-0.3 if maple else -0.85, 0.0), (-1.2, 0.08)) - 0.022
    canvas.paint(canvas.edge(stalk, scale), hsv(hue, 0.5, 0.4), subject=True)


def mushroom(canvas: Canvas) -> None:
    """Paint a mushroom with a spotted cap."""
    rng = canvas.rng
    (soil if rng.random() < 0.5 else _meadow)(canvas)
    scale = rng.uniform(0.55, 0.85)
    u, v = canvas.local(*_place(canvas, scale, 0.6), scale, rng.uniform(-0.2, 0.2))
    soft_shadow(canvas, u, v - 0.85, 0.6, 0.18, 0.6)
    foot = box(u, v - 0.35, 0.19 + 0.06 * np.clip(v, 0, 1), 0.52, 0.15)
    light = 0.9 - 1.2 * u + 0.06 * canvas.noise(0.7, stretch=0.3)
    canvas.paint(canvas.edge(foot, scale), shaded((0.93, 0.88, 0.78), light), subject=True)
    cap = np.maximum(ellipse(u, v, 0.92, 0.78), v - 0.05 - 0.06 * np.cos(u * 3))
    tone = hsv(float(rng.choice([0.0, 0.06, 0.09, 0.75])), 0.7, 0.75)
    canvas.paint(
        canvas.edge(cap, scale), shaded(tone, _ball_light(u, v, _light(canvas))), subject=True
    )
    for _ in range(int(rng.integers(5, 12))):
        dot = ellipse(u - rng.uniform(-0.7, 0.7), v + rng.uniform(0.05, 0.65), 0.09, 0.06)
        canvas.paint(canvas.edge(np.maximum(dot, cap + 0.03), scale), (0.95, 0.93, 0.88))
