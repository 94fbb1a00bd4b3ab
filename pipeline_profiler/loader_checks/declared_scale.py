"""LOAD014: inputs that are not normalised as the pretrained model declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

SLACK = 0.05  # of the range 0..1, for resampling that overshoots


class DeclaredScale(Check):
    """Pictures that, un-normalised by the declared numbers, are no pictures in 0..1.

    ## What it does
    Undoes the declared normalisation (`--mean`, `--std`) and looks whether the pictures fill 0..1.

    ## Why is this bad
    A pretrained network gets inputs of another scale than it learned on: it still works, worse.

    ## How it decides
    Fails where the least or largest value lies beyond 0..1 by more than 5 %, or where the range is
    less than half of it. Exact for pictures that were normalised with these numbers.

    ## What to do
    Take mean and deviation from the checkpoint's own documentation, once for all loaders.

    ## Limits
    Needs `--mean` and `--std`. Very flat pictures (fog, scans) may not fill half of the range.
    """

    code = "LOAD014"
    name = "not-as-declared"

    def run(self, subject: LoaderSubject) -> Answer:
        """Undo and look."""
        mean, deviation, inputs = subject.mean, subject.deviation, subject.inputs
        if not mean or not deviation:
            return unclear("No mean and deviation are declared (--mean, --std).")
        if inputs is None or inputs.ndim != 4 or inputs.shape[1] != len(mean):
            return unclear(f"The inputs are no pictures of {len(mean)} channels.")
        shape = (1, -1, 1, 1)
        pixels = inputs * np.reshape(deviation, shape) + np.reshape(mean, shape)
        low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
        numbers = {"least": round(low, 4), "largest": round(high, 4)}
        said = f"Un-normalised by the declared numbers, pixels run from {low:.3f} to {high:.3f}"
        if low < -SLACK or high > 1 + SLACK or high - low < 0.5:
            return wrong(
                f"{said}, and should fill 0 to 1.",
                [
                    "Normalize is missing or has other numbers",
                    "pixels are not divided by 255",
                    "the normalisation runs twice",
                ],
                "Normalise with exactly the declared numbers, after scaling to 0..1.",
                **numbers,
            )
        return passed(f"{said}.", **numbers)

    @staticmethod
    def _declared(mean: float) -> LoaderSubject:
        def make() -> Any:
            dataset = ToyImages()
            low, high = dataset.pixels.min(), dataset.pixels.max()
            dataset.pixels = ((dataset.pixels - low) / (high - low) - 0.45) / 0.22
            return toy_loader(dataset)

        return LoaderSubject(make, mean=(mean,) * 3, deviation=(0.22,) * 3)

    PLANTED = (Example("another mean", lambda: DeclaredScale._declared(0.0)),)
    HEALTHY = (
        Example("as declared", lambda: DeclaredScale._declared(0.45)),
        Example("nothing declared", lambda: toy_loader(ToyImages())),
    )
