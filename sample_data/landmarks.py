"""Landmarks: what stands or floats in a landscape: boats, bridges, houses, trees, cactuses."""

from __future__ import annotations

import numpy as np
from backgrounds import landscape, sky
from paint import (
    Array,
    Canvas,
    box,
    capsule,
    circle,
    ellipse,
    hsv,
    length,
    polygon,
    shaded,
    soft_shadow,
)


def boat(canvas: Canvas) -> None:
    """Paint a sailing boat or a motor boat on water."""
    rng = canvas.rng
    horizon = landscape(canvas, wet=True)
    scale = rng.uniform(0.45, 0.85)
    x = rng.uniform(-1.0, 1.0) * max(canvas.right - 0.6 * scale, 0.1)
    y = min(horizon + rng.uniform(0.08, 0.6), canvas.bottom - 0.25 * scale)
    flip = float(rng.choice([-1.0, 1.0]))
    u, v = canvas.local(x, y, scale, rng.uniform(-0.08, 0.08))
    u = u * flip
    soft_shadow(canvas, u, v - 0.24, 0.95, 0.2, 0.65)
    (_sails if rng.random() < 0.65 else _cabin)(canvas, u, v, scale)
    _hull(canvas, u, v, scale)
    gleam = np.clip(1.0 - length(u / 0.9, (v - 0.30) / 0.06), 0.0, 1.0)
    canvas.paint(gleam * np.clip(canvas.noise(0.7, stretch=5.0), 0.0, 0.8), (0.95, 0.97, 1.0))


def _hull(canvas: Canvas, u: Array, v: Array, scale: float) -> None:
    rng = canvas.rng
    shape = [
        (-0.80, -0.10),
        (0.95, -0.20),
        (0.70, 0.18),
        (0.50, 0.24),
        (-0.55, 0.24),
        (-0.72, 0.15),
    ]
    hull = polygon(u, v, shape)
    colour = hsv(rng.random(), rng.uniform(0.2, 0.85), rng.uniform(0.35, 0.95))
    light = 0.95 - 1.1 * (v - 0.0) + 0.15 * u + 0.04 * canvas.noise(0.8)
    canvas.paint(canvas.edge(hull, scale), shaded(colour, np.clip(light, 0.2, 1.3)), subject=True)
    stripe = np.maximum(hull, np.abs(v + 0.05 + 0.05 * u) - 0.03)
    canvas.paint(canvas.edge(stripe, scale), hsv(rng.random(), 0.3, 0.95))


def _sails(canvas: Canvas, u: Array, v: Array, scale: float) -> None:
    rng = canvas.rng
    tall, mast = rng.uniform(1.1, 1.6), rng.uniform(-0.1, 0.2)
    hue, sat = rng.random(), float(rng.choice([0.05, 0.1, 0.6]))
    pole = capsule(u, v, (mast, -0.1), (mast, -tall)) - 0.022
    canvas.paint(canvas.edge(pole, scale), (0.35, 0.25, 0.18), subject=True)
    main = [
        (mast - 0.04, -tall + 0.05),
        (mast - 0.04, -0.24),
        (mast - rng.uniform(0.5, 0.75), -0.22),
    ]
    jib = [
        (mast + 0.04, -tall + 0.15),
        (mast + 0.04, -0.28),
        (mast + rng.uniform(0.4, 0.65), -0.26),
    ]
    for points, bulge in ((main, 0.5), (jib, -0.4)):
        light = 0.95 + bulge * (u - mast) + 0.10 * np.sin(v * 9) * 0.5 + 0.03 * canvas.noise(0.8)
        sail = canvas.edge(polygon(u, v, points), scale)
        colour = shaded(hsv(hue, sat, 0.97), np.clip(light, 0.3, 1.15))
        canvas.paint(sail, colour, subject=True)


def _cabin(canvas: Canvas, u: Array, v: Array, scale: float) -> None:
    rng = canvas.rng
    light = 0.9 + 0.2 * u + 0.03 * canvas.noise(0.8)
    wall = polygon(u, v, [(-0.5, -0.1), (-0.42, -0.52), (0.22, -0.52), (0.38, -0.15)])
    paint = hsv(rng.random(), rng.uniform(0.05, 0.3), 0.92)
    canvas.paint(canvas.edge(wall, scale), shaded(paint, light), subject=True)
    roof = box(u + 0.1, v + 0.55, 0.42, 0.045, 0.02)
    canvas.paint(canvas.edge(roof, scale), hsv(rng.random(), 0.6, 0.55), subject=True)
    for at in (-0.32, -0.10, 0.12):
        canvas.paint(canvas.edge(box(u - at, v + 0.36, 0.07, 0.08, 0.02), scale), (0.1, 0.15, 0.2))
    funnel = box(u + 0.25, v + 0.72, 0.07, 0.16, 0.01)
    canvas.paint(canvas.edge(funnel, scale), hsv(rng.random(), 0.8, 0.7), subject=True)


def bridge(canvas: Canvas) -> None:
    """Paint a stone bridge with arches or a suspension bridge, over water or a valley."""
    rng = canvas.rng
    horizon = landscape(canvas, wet=bool(rng.random() < 0.75))
    y = horizon + rng.uniform(-0.35, 0.05)
    u, v = canvas.local(rng.uniform(-0.45, 0.45), y, 1.0, rng.uniform(-0.13, 0.13))
    # Seen from one side: what is nearer is drawn larger, in both directions.
    near = np.clip(1.0 + rng.uniform(-0.3, 0.3) * u, 0.6, 1.6)
    u, v = u / near, v / near
    foot = max(min(horizon + rng.uniform(0.2, 0.5), canvas.bottom * 0.95) - y, 0.3)
    (_arches if rng.random() < 0.55 else _cables)(canvas, u, v, foot)


def _arches(canvas: Canvas, u: Array, v: Array, foot: float) -> None:
    rng = canvas.rng
    span, deck = rng.uniform(0.38, 0.8), rng.uniform(0.07, 0.14)
    n = np.round(u / span)
    a = u - n * span
    curve = 0.10 * rng.uniform(0.0, 1.0) * u * u
    w = v + curve - 0.0
    rise = max(min(span * 0.40, 0.8 * foot - deck), 0.1)
    body = np.maximum(np.maximum(-deck - w, w - foot), np.abs(u) - span * 2.5)
    spring = deck + rise
    hole = np.minimum(
        ellipse(a, w - spring, span * 0.40, rise), box(a, w - spring - 2.0, span * 0.40, 2.0)
    )
    stone = hsv(
        float(rng.choice([0.08, 0.1, 0.6, 0.02])), rng.uniform(0.08, 0.45), rng.uniform(0.5, 0.85)
    )
    joints = 1.0 - 0.25 * ((np.abs(np.sin(w * 45)) < 0.16) | (np.abs(np.sin(u * 24)) < 0.07))
    light = (0.85 + 0.13 * canvas.noise(0.8)) * joints - 0.25 * np.clip(w, 0.0, 1.0)
    far = np.minimum(
        ellipse(a - 0.05, w - spring, span * 0.40, rise),
        box(a - 0.05, w - spring - 2.0, span * 0.40, 2.0),
    )
    vault = np.maximum(np.maximum(body, hole), -far)
    canvas.paint(canvas.edge(vault), shaded(stone, 0.4 * light))
    wall = canvas.edge(np.maximum(body, -hole))
    canvas.paint(wall, shaded(stone, np.clip(light, 0.15, 1.3)), subject=True)
    rail = np.maximum(np.abs(w + deck + 0.02) - 0.025, np.abs(u) - span * 2.5)
    canvas.paint(canvas.edge(rail), shaded(stone, 1.15 * light), subject=True)


def _cables(canvas: Canvas, u: Array, v: Array, foot: float) -> None:
    rng = canvas.rng
    half, tall = rng.uniform(0.35, 0.85), rng.uniform(0.4, 0.85)
    steel = hsv(
        float(rng.choice([0.01, 0.58, 0.35, 0.1])), rng.uniform(0.15, 0.8), rng.uniform(0.35, 0.75)
    )
    side = np.abs(u) - half
    sag = np.where(side < 0, tall * (u / half) ** 2 * 0.92 + 0.04, tall * (1 - side / half * 0.9))
    cable = np.abs(v + np.clip(sag, 0.02, tall)) - 0.017
    canvas.paint(canvas.edge(np.maximum(cable, side - half)), steel, subject=True)
    hang = np.abs(u - np.round(u / 0.09) * 0.09) - 0.005
    rods = np.maximum(np.maximum(hang, v), -v - sag)
    canvas.paint(canvas.edge(rods) * 0.8, shaded(steel, 0.9 + 0.0 * u))
    deck = box(u, v, 4.0, 0.04)
    light = 0.95 - 5.0 * v + 0.06 * canvas.noise(0.8)
    canvas.paint(canvas.edge(deck), shaded(steel, np.clip(light, 0.4, 1.3)), subject=True)
    for at in (-half, half):
        tower = np.maximum(np.abs(u - at) - 0.045, np.maximum(-v - tall - 0.04, v - foot))
        shade = 0.75 + 6.0 * (u - at) + 0.06 * canvas.noise(0.8)
        canvas.paint(canvas.edge(tower), shaded(steel, np.clip(shade, 0.3, 1.3)), subject=True)


def house(canvas: Canvas) -> None:
    """Paint a house with a pitched roof, seen a little from the side."""
    rng = canvas.rng
    horizon = landscape(canvas, wet=False)
    scale = rng.uniform(0.5, 0.8)
    x = rng.uniform(-1.0, 1.0) * max(canvas.right - 0.75 * scale, 0.1)
    y = min(horizon + rng.uniform(-0.05, 0.25), canvas.bottom - 0.55 * scale)
    u, v = canvas.local(x, y, scale)
    u = u * float(rng.choice([-1.0, 1.0]))
    soft_shadow(canvas, u + 0.1, v - 0.56, 1.25, 0.16, 0.6)
    corner = float(rng.uniform(-0.3, 0.25))
    _walls(canvas, u, v, scale, corner)
    _openings(canvas, u, v, scale, corner)


def _walls(canvas: Canvas, u: Array, v: Array, scale: float, corner: float) -> None:
    # `corner` is where the gabled front ends and the long side begins.
    rng = canvas.rng
    plaster = hsv(
        float(rng.choice([0.1, 0.05, 0.58, 0.3, 0.97])),
        rng.uniform(0.05, 0.5),
        rng.uniform(0.6, 0.97),
    )
    tiles = hsv(
        float(rng.choice([0.02, 0.06, 0.6, 0.35])), rng.uniform(0.2, 0.7), rng.uniform(0.3, 0.65)
    )
    grain, top, middle = 0.06 * canvas.noise(0.7), rng.uniform(-1.0, -0.65), (corner - 0.85) / 2
    pipe = box(u - rng.uniform(corner, 0.65), v - top - 0.05, 0.07, 0.24)
    canvas.paint(canvas.edge(pipe, scale), shaded(hsv(0.03, 0.5, 0.5), 0.9 + grain), subject=True)
    outline = [(-0.85, 0.55), (-0.85, -0.25), (middle, top), (corner, -0.25), (corner, 0.55)]
    front = polygon(u, v, outline)
    flank = polygon(u, v, [(corner, 0.55), (corner, -0.25), (0.91, -0.25), (0.91, 0.55)])
    course = 1.0 - 0.12 * (np.abs(np.sin(v * 40)) < 0.2)
    canvas.paint(canvas.edge(flank, scale), shaded(plaster, (0.62 + grain) * course), subject=True)
    canvas.paint(canvas.edge(front, scale), shaded(plaster, (0.98 + grain) * course), subject=True)
    ridge, low = rng.uniform(0.6, 0.95), rng.uniform(-0.25, -0.12)
    edge = [(middle, top - 0.04), (ridge, top - 0.04), (1.0, low), (corner + 0.05, low)]
    rows = 0.8 + 0.22 * np.sin(v * 55) * np.sin(u * 40 + v * 25) + grain
    slope = canvas.edge(polygon(u, v, edge), scale)
    canvas.paint(slope, shaded(tiles, rows), subject=True)
    for end in ((-0.95, -0.17), (corner + 0.05, -0.19)):
        eave = capsule(u, v, (middle, top - 0.04), end) - 0.035
        canvas.paint(canvas.edge(eave, scale), shaded(tiles, 0.6 + grain), subject=True)


def _openings(canvas: Canvas, u: Array, v: Array, scale: float, corner: float) -> None:
    rng = canvas.rng
    paint = hsv(rng.random(), rng.uniform(0.3, 0.8), rng.uniform(0.25, 0.7))
    door_at = rng.uniform(-0.65, corner - 0.2)
    door = box(u - door_at, v - 0.33, 0.11, 0.22)
    canvas.paint(canvas.edge(door, scale), shaded(paint, 0.9 + 2.0 * (u - door_at)))
    glass = hsv(0.58, 0.3, float(rng.choice([0.25, 0.4, 0.9])))
    wide, high = rng.uniform(0.06, 0.12), rng.uniform(0.09, 0.16)
    columns = np.linspace(corner + 0.18, 0.74, int(rng.integers(1, 5)))
    spots = [(x, y) for x in columns for y in rng.permutation([0.02, 0.33])[: rng.integers(1, 3)]]
    spots += [(x, -0.08) for x in ((corner - 0.85) / 2 - 0.18, (corner - 0.85) / 2 + 0.18)]
    for at_x, at_y in spots:
        a, b = u - at_x, v - at_y
        canvas.paint(canvas.edge(box(a, b, wide, high * 0.9), scale), (0.93, 0.92, 0.88))
        pane = box(a, b, wide - 0.025, high * 0.9 - 0.025)
        cross = 0.014 - np.minimum(np.abs(a), np.abs(b))
        lit = shaded(glass, 0.9 - 1.5 * (a + b))
        canvas.paint(canvas.edge(np.maximum(pane, cross), scale), lit)


def tree(canvas: Canvas) -> None:
    """Paint a broad-leaved tree or a conifer in a meadow or by a lake."""
    rng = canvas.rng
    horizon = landscape(canvas, wet=bool(rng.random() < 0.15))
    scale = rng.uniform(0.75, 1.05)
    x = rng.uniform(-1.0, 1.0) * max(canvas.right - 0.5 * scale, 0.1)
    foot = min(horizon + rng.uniform(0.1, 0.5), canvas.bottom * 0.97)
    u, v = canvas.local(x, foot, scale, rng.uniform(-0.05, 0.05))
    soft_shadow(canvas, u - rng.uniform(-0.4, 0.4), v, 0.7, 0.09, 0.6)
    bark = hsv(rng.uniform(0.04, 0.1), rng.uniform(0.15, 0.5), rng.uniform(0.25, 0.5))
    trunk = capsule(u, v, (0.0, 0.02), (0.0, -0.7)) - 0.07 + 0.05 * np.clip(-v, 0.0, 1.0)
    light = 0.9 - 5.0 * u + 0.2 * canvas.noise(0.6, stretch=0.2)
    canvas.paint(canvas.edge(trunk, scale), shaded(bark, np.clip(light, 0.2, 1.5)), subject=True)
    (_crown if rng.random() < 0.6 else _needles)(canvas, u, v, scale)


def _crown(canvas: Canvas, u: Array, v: Array, scale: float) -> None:
    rng = canvas.rng
    hue = float(rng.choice([0.3, 0.26, 0.2, 0.08, 0.04, 0.93]))
    for _ in range(int(rng.integers(1, 4))):
        tip = rng.uniform(-0.4, 0.4), rng.uniform(-1.1, -0.7)
        branch = canvas.edge(capsule(u, v, (0.0, -0.45), tip) - 0.025, scale)
        canvas.paint(branch, (0.25, 0.2, 0.15))
    clumps = [
        (rng.normal(0, 0.24), rng.normal(-1.0, 0.2), rng.uniform(0.16, 0.34)) for _ in range(16)
    ]
    rough = 0.05 * canvas.noise(0.7)
    for a, b, radius in sorted(clumps, key=lambda clump: clump[1]):
        p, q = u - a, v - b
        light = 0.62 - 0.7 * (p * 0.5 + q) + 3.4 * rough + rng.uniform(-0.1, 0.1)
        tone = hsv(hue + rng.uniform(-0.03, 0.03), 0.65, 0.7)
        mask = canvas.edge(circle(p, q, radius) + rough, scale)
        canvas.paint(mask, shaded(tone, np.clip(light, 0.1, 1.4)), subject=True)


def _needles(canvas: Canvas, u: Array, v: Array, scale: float) -> None:
    rng = canvas.rng
    hue, tiers = rng.uniform(0.28, 0.48), int(rng.integers(4, 8))
    rough = 0.02 * canvas.noise(0.5)
    snow = rng.random() < 0.3
    for tier in range(tiers):
        low, high = -0.2 - 1.2 * tier / tiers, -0.2 - 1.2 * (tier + 1.7) / tiers
        half = 0.52 * (1.0 - 0.85 * tier / tiers)
        shape = polygon(u, v + 0.04 * np.cos(u * 16), [(-half, low), (0.0, high), (half, low)])
        light = 0.55 + 1.1 * (low - v) - 0.5 * u + 7.0 * rough
        tone = hsv(0.58, 0.08, 0.95) if snow and tier % 2 else hsv(hue, 0.55, 0.5)
        mask = canvas.edge(shape + rough, scale)
        canvas.paint(mask, shaded(tone, np.clip(light, 0.1, 1.3)), subject=True)


def cactus(canvas: Canvas) -> None:
    """Paint a cactus with two arms in a desert."""
    rng = canvas.rng
    sky(canvas)
    horizon = rng.uniform(0.0, 0.5)
    light = 0.8 + 0.12 * canvas.noise(0.8) + 0.08 * canvas.noise(1.6)
    canvas.paint(canvas.edge(horizon - canvas.y), shaded(hsv(0.09, 0.4, 0.8), light))
    scale = rng.uniform(0.6, 0.8)
    u, v = canvas.local(rng.uniform(-0.4, 0.4), horizon + 0.2, scale)
    soft_shadow(canvas, u - 0.2, v, 0.5, 0.1, 0.6)
    high, low = rng.uniform(0.55, 0.8), rng.uniform(0.3, 0.5)
    rods = (
        ((0.0, 0.0), (0.0, -1.35), 0.17), ((0.0, -high), (0.45, -high), 0.11),
        ((0.45, -high), (0.45, -1.1), 0.11), ((0.0, -low), (-0.42, -low), 0.10),
        ((-0.42, -low), (-0.42, -0.8), 0.10),
    )  # fmt: skip
    for start, end, radius in rods:
        shape = capsule(u, v, start, end) - radius
        ribs = 0.75 + 0.18 * np.cos(u * 70) - 0.7 * (u - end[0])
        canvas.paint(canvas.edge(shape, scale), shaded(hsv(0.33, 0.5, 0.6), ribs), subject=True)
