"""Planted faults and healthy twins for `loader/pictures.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import ToyImages, changed_images, toy_loader


def _planted() -> Any:
    dataset = ToyImages()
    dataset.pixels[10, 0, 0, 0] = np.nan
    return toy_loader(dataset)


def _unit(pixels: Any) -> Any:
    return (pixels - pixels.min()) / (pixels.max() - pixels.min())


def _scaled(factor: float, shift: float) -> Any:
    return toy_loader(changed_images(lambda p: (_unit(p) * factor + shift).astype(np.float32)))


def _stepped(factor: float, shift: float, mean: float, deviation: float) -> LoaderSubject:
    """Pictures scaled by the loader, and by the user's step as they enter the model."""
    loader = _scaled(factor, shift)
    steps = [(batch, (batch[0] - mean) / deviation, batch[1]) for batch in loader]
    return LoaderSubject(lambda: loader, entered=lambda: (steps, []))


def _coloured(reshape: bool) -> Any:
    rng = np.random.default_rng(0)
    dataset = ToyImages(64)
    slope = rng.uniform(-1, 1, (64, 16, 1, 3)).cumsum(axis=1).repeat(16, axis=2)
    pictures = slope + rng.uniform(-3, 3, (64, 1, 1, 3)) + rng.normal(0, 0.1, slope.shape)
    pictures += rng.uniform(-1, 1, (64, 1, 16, 1)).cumsum(axis=2)
    chw = pictures.reshape(64, 3, 16, 16) if reshape else pictures.transpose(0, 3, 1, 2)
    dataset.pixels = chw.astype(np.float32)
    return toy_loader(dataset)


def _filled(every: int, value: Any) -> Any:
    dataset = ToyImages()
    dataset.pixels[::every] = value
    return toy_loader(dataset)


def _stream(labels_go_on: bool) -> Any:
    rows = np.arange(64)
    pictures = ToyImages(16).pixels[rows * 0 if labels_go_on else rows % 16]
    labels = rows % (4 if labels_go_on else 16)
    return list(zip(np.split(pictures, 8), np.split(labels, 8), strict=True))


def _declared(mean: float, deviation: float = 0.22, levels: bool = False) -> LoaderSubject:
    """Normalised with 0.45 and 0.22; declared are other numbers, by a model of timm's form."""

    class Model:
        pretrained_cfg = {"mean": (mean,) * 3, "std": (deviation,) * 3}  # noqa: RUF012

    def change(pixels: Any) -> Any:
        made = np.round(_unit(pixels) * 255) / 255 if levels else _unit(pixels)
        return ((made - 0.45) / 0.22).astype(np.float32)

    return LoaderSubject(lambda: toy_loader(changed_images(change)), make_model=Model)


EXAMPLES = {
    "LOAD007": Examples(planted=(("one NaN", lambda: _planted()),)),
    "LOAD008": Examples(
        planted=(
            ("0..255", lambda: _scaled(255, 0)),
            ("divided twice", lambda: _scaled(1 / 255, 0)),
            ("normalised twice", lambda: _scaled(1 / 0.22**2, -11.3)),
            ("a sixtieth of a normalised image", lambda: _scaled(0.08, -0.03)),
            ("normalised in the step again", lambda: _stepped(2.0, -1.0, 0.5, 0.5)),
            ("scaled to nothing in the step", lambda: _stepped(1.0, 0.0, 0.0, 255.0)),
        ),
        healthy=(
            ("0..1", lambda: _scaled(1, 0)),
            ("normalised in the step", lambda: _stepped(255.0, 0.0, 120.0, 58.0)),
            ("centred, then moved to 0..1", lambda: _stepped(2.0, -1.0, -1.0, 2.0)),
        ),
    ),
    "LOAD009": Examples(
        planted=(
            (
                "channels last",
                lambda: toy_loader(changed_images(lambda p: p.transpose(0, 2, 3, 1))),
            ),
            ("reshaped", lambda: _coloured(True)),
        ),
        healthy=(("transposed", lambda: _coloured(False)),),
    ),
    "LOAD010": Examples(
        planted=(
            ("every second is zeros", lambda: _filled(2, 0)),
            ("one image for all", lambda: _filled(1, np.eye(8))),
            ("a stream with one buffer", lambda: _stream(True)),
        ),
        healthy=(("a stream that repeats a small set", lambda: _stream(False)),),
    ),
    "LOAD014": Examples(
        planted=(
            ("another mean", lambda: _declared(0.0)),
            ("another deviation", lambda: _declared(0.45, 0.225, True)),
            ("half a level off", lambda: _declared(0.452, 0.22, True)),
        ),
        healthy=(
            ("as declared", lambda: _declared(0.45)),
            ("as declared, bytes", lambda: _declared(0.45, 0.22, True)),
        ),
    ),
}
