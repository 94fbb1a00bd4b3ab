"""LOAD014: inputs that are not normalised as the pretrained model declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

SLACK = 0.05  # of the range 0..1, for resampling that overshoots
LEVELS, FEWEST_LEVELS = 256, 48
OFF_GRID = 0.02  # of a step: float32 rounding of 256 levels is a thousandth
SKIPPED = (1, 2, 3, 4, 5)  # a picture of few levels may use each second one only
SAME_STEP, SAME_PLACE = 0.005, 0.1  # of the deviation; of a level


class DeclaredScale(Check):
    """Pictures that are not normalised with the mean and deviation that the model declares.

    ## What it does
    Takes the numbers of the pretrained checkpoint: of `--pretrained` or of `make_model` beside the
    loader (timm's `pretrained_cfg`, torchvision's `weights.transforms()`, a processor of
    transformers and its preprocessor_config.json), or `--mean` and `--std`. Undoes them.

    ## Why is this bad
    A pretrained network gets inputs of another scale than it learned on: it still works, worse.

    ## How it decides
    Where the values of each channel are the 256 levels of a byte, shifted and scaled, the scale is
    known exactly: fails where it is more than 0.5 % off the declared deviation, or where
    un-normalised values lie between the levels by more than a tenth of one. Otherwise fails where
    the least or largest value lies beyond 0..1 by more than 5 %, or where the range is less than
    half of it.

    ## What to do
    Take mean and deviation from the checkpoint's own documentation, once for all loaders.

    ## Limits
    Nothing declared: cannot tell. Very flat pictures (fog, scans) may not fill half of the range.
    A mean that is off by whole levels is seen by the range only.
    """

    code = "LOAD014"
    name = "not-as-declared"

    def run(self, subject: LoaderSubject) -> Answer:
        """Undo and look."""
        declared, inputs = subject.declared, subject.inputs
        if declared is None:
            return unclear("No mean and deviation are declared (--pretrained, --mean, --std).")
        count = len(declared.mean)
        axis = _channel_axis(inputs, count)
        if inputs is None or axis is None:
            return unclear(f"The inputs are no pictures of {count} channels.")
        channels = np.moveaxis(inputs, axis, 0).reshape(count, -1).astype(np.float64)
        pairs = list(zip(declared.mean, declared.deviation, strict=True))
        pixels = np.stack([c * d + m for c, (m, d) in zip(channels, pairs, strict=True)])
        low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
        numbers = {"least": round(low, 4), "largest": round(high, 4), "source": declared.source}
        said = (
            f"Un-normalised by the declared numbers ({declared.source}), pixels run from {low:.3f} "
            f"to {high:.3f}"
        )
        if low < -SLACK or high > 1 + SLACK or high - low < 0.5:
            return _failed(f"{said}, and should fill 0 to 1.", numbers)
        steps = [_step_of(channel) for channel in channels]
        own = [1 / (255 * step) if step else 0.0 for step in steps]
        rows = list(zip(own, declared.deviation, pixels, strict=True))
        if all(own) and any(_unlike(*row) for row in rows):
            numbers["deviations"] = str([round(value, 4) for value in own])
            return _failed(
                f"{said}; the deviations that the pictures were divided by are "
                f"{', '.join(f'{v:.4g}' for v in own)}, declared are "
                f"{', '.join(f'{v:.4g}' for v in declared.deviation)}.",
                numbers,
            )
        exact = ", on the levels of a byte" if all(own) else ""
        return passed(f"{said}{exact}.", **numbers)

    @staticmethod
    def _declared(mean: float, deviation: float = 0.22, levels: bool = False) -> LoaderSubject:
        """Normalised with 0.45 and 0.22; declared are other numbers, by a model of timm's form."""

        class Model:
            pretrained_cfg = {"mean": (mean,) * 3, "std": (deviation,) * 3}  # noqa: RUF012

        def make() -> Any:
            dataset = ToyImages()
            low, high = dataset.pixels.min(), dataset.pixels.max()
            pixels = (dataset.pixels - low) / (high - low)
            if levels:
                pixels = np.round(pixels * 255) / 255
            dataset.pixels = ((pixels - 0.45) / 0.22).astype(np.float32)
            return toy_loader(dataset)

        return LoaderSubject(make, make_model=Model)

    PLANTED = (
        Example("another mean", lambda: DeclaredScale._declared(0.0)),
        Example("another deviation", lambda: DeclaredScale._declared(0.45, 0.225, True)),
        Example("half a level off", lambda: DeclaredScale._declared(0.452, 0.22, True)),
    )
    HEALTHY = (
        Example("as declared", lambda: DeclaredScale._declared(0.45)),
        Example("as declared, bytes", lambda: DeclaredScale._declared(0.45, 0.22, True)),
        Example("nothing declared", lambda: toy_loader(ToyImages())),
    )


def _channel_axis(inputs: Any, count: int) -> int | None:
    """Where the channels are: NCHW before NHWC; None for what is no batch of pictures."""
    if inputs is None or inputs.ndim != 4:
        return None
    return next((axis for axis in (1, 3) if inputs.shape[axis] == count), None)


def _step_of(values: Any) -> float:
    """The distance of two levels where the values are those of a byte, scaled; else 0."""
    found = np.unique(values[np.isfinite(values)].astype(np.float32)).astype(np.float64)
    if not FEWEST_LEVELS <= len(found) <= LEVELS:
        return 0.0
    least, span = float(np.diff(found).min()), float(found[-1] - found[0])
    count = round(span / least)
    if count >= LEVELS:
        return 0.0
    places = (found - found[0]) / span * count
    return span / count if float(np.abs(places - places.round()).max()) < OFF_GRID else 0.0


def _unlike(own: float, declared: float, pixels: Any) -> bool:
    """Whether a channel was divided by another number, or lies between the levels."""
    if all(abs(own * skipped / declared - 1) > SAME_STEP for skipped in SKIPPED):
        return True
    places = pixels[:: max(1, pixels.size // 4096)] * 255
    return float(np.median(np.abs(places - places.round()))) > SAME_PLACE


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [
            "Normalize is missing or has other numbers",
            "pixels are not divided by 255",
            "the normalisation runs twice, or channels are BGR",
        ],
        "Normalise with exactly the declared numbers, after scaling to 0..1.",
        **numbers,
    )
