"""Scenes: one function a class that paints its subject, another way each time, on a background.

A person tells the classes apart by shape alone. Colour, light, place, size and background vary so
widely within each that no single measured number does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from landmarks import boat, bridge, cactus, house, tree
from paint import Camera, Canvas, Picture, photograph
from things import apple, fish, flower, leaf, mushroom

SIZES = (
    (160, 120), (120, 160), (144, 144), (176, 132), (132, 176), (168, 112),
    (128, 128), (192, 128), (128, 192), (152, 114), (160, 160), (112, 168),
)  # fmt: skip


def any_camera(rng: np.random.Generator) -> Camera:
    """Draw a camera's settings: broad, with no tails, the same for every class."""
    return Camera(
        brightness=float(rng.uniform(0.36, 0.56)),
        contrast=float(rng.uniform(0.15, 0.21)),
        saturation=float(rng.uniform(0.24, 0.50)),
        noise=float(rng.uniform(0.013, 0.023)),
        cast=(float(rng.uniform(-0.08, 0.08)), float(rng.uniform(-0.08, 0.08))),
    )


def draw(
    label: str,
    rng: np.random.Generator,
    camera: Camera | None = None,
    size: tuple[int, int] | None = None,
) -> Picture:
    """Return a new photograph of the subject."""
    width, height = size or SIZES[int(rng.integers(len(SIZES)))]
    canvas = Canvas(rng, width, height)
    SUBJECTS[label](canvas)
    return photograph(canvas, camera or any_camera(rng))


CLASSES = ("apple", "boat", "bridge", "fish", "flower", "house", "leaf", "tree")
SUBJECTS: Mapping[str, Callable[[Canvas], None]] = {
    "apple": apple, "boat": boat, "bridge": bridge, "fish": fish, "flower": flower,
    "house": house, "leaf": leaf, "tree": tree, "mushroom": mushroom, "cactus": cactus,
}  # fmt: skip
