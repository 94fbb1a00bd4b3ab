"""Planted faults and healthy twins for `loader/labels.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import ChangedImages, ToyImages, changed_images, toy_loader


def _shifted(classes: int | None, shift: int) -> Any:
    dataset = changed_images(labels=lambda labels: labels + shift)
    return LoaderSubject(lambda: toy_loader(dataset), classes=classes)


def _targets(make: Callable[[int], Any]) -> Any:
    placed = ChangedImages(lambda pixels, label: (pixels, make(label)))
    if isinstance(make(1), np.ndarray):
        return toy_loader(placed)
    return LoaderSubject(lambda: toy_loader(placed, collate_fn=list), split=lambda rows: (
        np.stack([x for x, _ in rows]), [y for _, y in rows]))  # fmt: skip


def _mask(label: int) -> NDArray[Any]:
    return np.pad(np.full((3, 3), label), ((1, 4), (2, 3)))


def _boxes(count: int) -> dict[str, NDArray[Any]]:
    return {"boxes": np.ones((count, 4), np.float32), "labels": np.arange(count)}


def _resized(how: str, border: bool = False) -> Any:
    from PIL import Image

    rng, (rows, cols) = np.random.default_rng(0), np.mgrid[:48, :48]
    masks = []
    for _ in range(32):
        mask = np.zeros((48, 48), np.uint8)
        for number in (1, 2):
            top, left = rng.integers(12, 36, 2)
            far = np.hypot(rows - top, cols - left)
            mask[far < 9] = 1 if border else number
            mask[far < 7.5] = 2 if border else number
        small = Image.fromarray(mask).resize((32, 32), Image.Resampling[how])
        masks.append(mask[:32, :32] if border else np.asarray(small))
    pictures = np.zeros((32, 3, 8, 8), np.float32)
    return list(zip(np.split(pictures, 4), np.split(np.array(masks), 4), strict=True))


def _nested() -> Any:
    rng, (rows, cols) = np.random.default_rng(0), np.mgrid[:48, :48]
    masks = np.zeros((256, 48, 48), np.int64)
    for mask in masks:
        for top, left, radius in rng.uniform((8, 8, 5), (40, 40, 9), (4, 3)):
            far = np.hypot(rows - top, cols - left)
            mask[far < radius], mask[far < 0.45 * radius] = 1, 2
    pictures = np.zeros((256, 3, 8, 8), np.float32)
    return list(zip(np.split(pictures, 4), np.split(masks, 4), strict=True))


def _scenes(smooth: bool) -> Any:
    """Rectangles of five classes, 72 pixels made 48; else with thin lines of any class."""
    import torch

    rng, masks = np.random.default_rng(0), np.zeros((48, 72, 72), np.float32)
    for mask in masks:
        for number in rng.permutation(5):
            (y, x), (height, width) = rng.integers(0, 50, 2), rng.integers(12, 40, 2)
            mask[y : y + height, x : x + width] = number
        for number in range(0 if smooth else 5):
            at = int(rng.integers(0, 70))
            mask[at : at + 2] = number
    small = torch.nn.functional.interpolate(
        torch.from_numpy(masks)[:, None], (48, 48), mode="bilinear" if smooth else "nearest"
    )
    pictures = np.zeros((48, 3, 8, 8), np.float32)
    found = small[:, 0].long().numpy()
    return list(zip(np.split(pictures, 4), np.split(found, 4), strict=True))


def _masked(follow: bool) -> Any:
    def change(pixels: Any, label: int) -> Any:
        mask = np.zeros((8, 8), np.int64)
        mask[label : label + 3, label : label + 2] = 1
        if np.random.random() < 0.5:
            pixels = pixels[..., ::-1].copy()
            mask = mask[..., ::-1].copy() if follow else mask
        return pixels, mask

    return toy_loader(ChangedImages(change))


def _boxed(follow: bool) -> Any:
    def change(pixels: Any, label: int) -> Any:
        box: Any = np.array([[label % 3, 1, label % 3 + 2, 5]], np.float32)
        if np.random.random() < 0.5:
            pixels = pixels[..., ::-1].copy()
            box = box[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [8, 0, 8, 0] if follow else box
        return pixels, {"boxes": box, "labels": np.array([label])}

    return toy_loader(ChangedImages(change))


EXAMPLES = {
    "LOAD011": Examples(
        planted=(
            ("1 to K", lambda: _shifted(4, 1)),
            ("negative", lambda: _shifted(None, -3)),
        ),
        healthy=(
            ("0 to K-1", lambda: _shifted(4, 0)),
            ("K is not known", lambda: _shifted(None, 1)),
        ),
    ),
    "LOAD012": Examples(
        planted=(
            ("one label", lambda: toy_loader(changed_images(labels=lambda y: 0 * y + 2))),
            ("masks of zeros", lambda: _targets(lambda y: np.zeros((8, 8), np.int64))),
            (
                "masks like pixels",
                lambda: _targets(lambda y: _mask(y) / np.float32(255)),
            ),
            ("no boxes", lambda: _targets(lambda y: _boxes(0))),
        ),
        healthy=(
            ("few samples", lambda: toy_loader(ToyImages(16))),
            ("masks", lambda: _targets(_mask)),
            ("masks of 0 and 1", lambda: _targets(lambda y: np.float32(_mask(y) > 0))),
            ("boxes", lambda: _targets(_boxes)),
        ),
    ),
    "LOAD023": Examples(
        planted=(
            ("bilinear", lambda: _resized("BILINEAR")),
            ("bilinear, to two thirds", lambda: _scenes(True)),
        ),
        healthy=(
            ("nearest", lambda: _resized("NEAREST")),
            ("a border of its own", lambda: _resized("NEAREST", True)),
            ("a cell around its nucleus", lambda: _nested()),
            ("thin lines", lambda: _scenes(False)),
        ),
    ),
    "LOAD015": Examples(
        planted=(
            ("only the image", lambda: _masked(False)),
            ("boxes stay", lambda: _boxed(False)),
        ),
        healthy=(
            ("both", lambda: _masked(True)),
            ("boxes follow", lambda: _boxed(True)),
        ),
    ),
}
