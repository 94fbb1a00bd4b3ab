"""LOAD009: channels in the wrong place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

CHANNELS = (1, 3, 4)
LEAST = 12  # coloured pictures for the sign test: chance 2**-12


class Layout(Check):
    """HWC pictures given as CHW, or reshaped into CHW instead of transposed.

    ## What it does
    Reads the shape of batches of torch tensors, and compares the difference of neighbouring pixels
    with that of pixels three columns apart.

    ## Why is this bad
    A reshape keeps every value and mixes rows, columns and colours: training works, only worse.

    ## How it decides
    Fails where the last axis is the one with 1, 3 or 4 entries, or where in at least 12 coloured
    pictures, and in 95 % of them, pixels three apart are more alike than neighbours, as happens
    when colours take turns along a row. In photographs neighbours are the most alike.

    ## What to do
    `permute(2, 0, 1)` or `transpose`, never `view` or `reshape`.

    ## Limits
    Tensors of torch only, whose convolutions expect CHW; grey pictures show no mixing.
    """

    code = "LOAD009"
    name = "channels-misplaced"

    def run(self, subject: LoaderSubject) -> Answer:
        """Shape first, then the mixing of colours."""
        inputs = subject.inputs
        if inputs is None or inputs.ndim != 4:
            return unclear("The inputs are no pictures of one size.")
        shape = tuple(int(n) for n in inputs.shape[1:])
        if inputs.shape[1] not in CHANNELS and inputs.shape[3] in CHANNELS:
            if not subject.is_torch:
                return passed(f"Pictures are {shape}, channels last, in arrays.", shape=shape)
            return _failed(
                f"Pictures are {shape}: the channels come last, torch's convolutions "
                "expect them first.",
                shape,
            )
        if inputs.shape[1] != 3:
            return passed(f"Pictures are {shape}, channels first.", shape=shape)
        mixed, judged = _mixed(inputs.astype(np.float32))
        if judged >= LEAST and mixed > 0.95 * judged:
            return _failed(
                f"In {mixed} of {judged} pictures, pixels three columns apart are more "
                "alike than neighbours: colours take turns along the rows.",
                shape,
            )
        return passed(
            f"Pictures are {shape}, channels first; neighbouring pixels are alike in "
            f"{judged - mixed} of {judged} coloured pictures.",
            shape=shape,
        )

    @staticmethod
    def _coloured(reshape: bool) -> Any:
        rng = np.random.default_rng(0)
        dataset = ToyImages(64)
        slope = rng.uniform(-1, 1, (64, 16, 1, 3)).cumsum(axis=1).repeat(16, axis=2)
        pictures = slope + rng.uniform(-3, 3, (64, 1, 1, 3)) + rng.normal(0, 0.1, slope.shape)
        pictures += rng.uniform(-1, 1, (64, 1, 16, 1)).cumsum(axis=2)
        chw = pictures.reshape(64, 3, 16, 16) if reshape else pictures.transpose(0, 3, 1, 2)
        dataset.pixels = chw.astype(np.float32)
        return toy_loader(dataset)

    @staticmethod
    def _hwc() -> Any:
        dataset = ToyImages()
        dataset.pixels = dataset.pixels.transpose(0, 2, 3, 1)
        return toy_loader(dataset)

    PLANTED = (
        Example("channels last", _hwc),
        Example("reshaped", lambda: Layout._coloured(True)),
    )
    HEALTHY = (
        Example("transposed", lambda: Layout._coloured(False)),
        Example("small pictures of noise", lambda: toy_loader(ToyImages())),
    )


def _failed(text: str, shape: tuple[int, ...]) -> Answer:
    return wrong(
        text,
        ["view or reshape instead of permute", "the transform that moves channels is missing"],
        "Use permute(2, 0, 1) on each picture; look at --grid.",
        shape=shape,
    )


def _mixed(pictures: NDArray[np.float32]) -> tuple[int, int]:
    """(pictures whose colours take turns, pictures that are coloured at all)."""
    if pictures.shape[3] < 7:
        return 0, 0
    near = np.abs(np.diff(pictures, axis=3)).mean(axis=(1, 2, 3))
    apart = np.abs(pictures[:, :, :, 3:] - pictures[:, :, :, :-3]).mean(axis=(1, 2, 3))
    by_channel = pictures.reshape(*pictures.shape[:2], -1)
    coloured = np.abs(by_channel - by_channel.mean(axis=1, keepdims=True)).mean(axis=(1, 2)) > 1e-3
    coloured |= near > 0
    return int((coloured & (apart < 0.8 * near)).sum()), int(coloured.sum())
