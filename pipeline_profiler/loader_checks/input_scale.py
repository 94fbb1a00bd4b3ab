"""LOAD008: inputs that are not scaled, scaled twice, or of another scale by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

RAW = 60.0  # above this deviation, or range of 200, values are those of files
SMALL = 0.02  # whole range of pictures in 0..1 that were divided by 255 once more: 1/255
TOO_WIDE = 3.0  # 0..1 normalised by a deviation of 0.2 has 2.5 at most
FAR_MEAN, WIDE = 1.5, 2.0  # no picture of 0..1, normalised once by 0.45 and 0.22, has both


class InputScale(Check):
    """Pixels that are not scaled, scaled twice, or off by channel.

    ## What it does
    Mean, deviation, least and largest value of each channel, over the pictures of the first
    batches, as the model gets them.

    ## Why is this bad
    Default initialisations expect inputs of about unit size: pixels up to 255 saturate the first
    layer, pixels of 1/255 vanish in its bias.

    ## How it decides
    Fails where floating-point pictures reach beyond 200 (never scaled), have a whole range below
    0.02 (divided twice), or a channel has a deviation above 3, or a mean beyond 1.5 and a
    deviation above 2: no values of 0..1 have these that were normalised once by usual numbers
    (normalised twice). 0..1, -1..1 and normalised pictures pass. Bytes are "cannot tell": they may
    be scaled on the device.

    ## What to do
    Scale once: `v2.ToDtype(torch.float32, scale=True)`, then `Normalize`.

    ## Limits
    Only pictures (channels of 1, 3 or 4) of floating point. A model that scales its own input, as
    some of Keras do, is right with 0..255: then skip this check.
    """

    code = "LOAD008"
    name = "input-scale"

    def run(self, subject: LoaderSubject) -> Answer:
        """Judge the numbers."""
        channels = _by_channel(subject.inputs)
        if channels is None:
            return unclear("The inputs are no pictures of one size.")
        if channels.dtype.kind != "f":
            return unclear(
                f"The inputs are {channels.dtype}: they must become floats of unit size "
                "before the model.",
                dtype=str(channels.dtype),
            )
        values = channels[np.isfinite(channels).all(axis=1)]
        return _judge(values.astype(np.float64))

    @staticmethod
    def _scaled(factor: float, shift: float) -> Any:
        dataset = ToyImages()
        low, high = dataset.pixels.min(), dataset.pixels.max()
        dataset.pixels = ((dataset.pixels - low) / (high - low) * factor + shift).astype(np.float32)
        return toy_loader(dataset)

    PLANTED = (
        Example("0..255", lambda: InputScale._scaled(255, 0)),
        Example("divided twice", lambda: InputScale._scaled(1 / 255, 0)),
        Example("normalised twice", lambda: InputScale._scaled(1 / 0.22**2, -11.3)),
    )
    HEALTHY = (
        Example("normalised", lambda: toy_loader(ToyImages())),
        Example("0..1", lambda: InputScale._scaled(1, 0)),
        Example("-1..1", lambda: InputScale._scaled(2, -1)),
    )


def _by_channel(inputs: Any) -> NDArray[Any] | None:
    """(pixels, channels); None for what is no picture."""
    if inputs is None or inputs.ndim != 4:
        return None
    if inputs.shape[1] in (1, 3, 4):
        inputs = np.moveaxis(inputs, 1, 3)
    if inputs.shape[3] not in (1, 3, 4):
        return None
    flat: NDArray[Any] = inputs.reshape(-1, inputs.shape[3])
    return flat


def _judge(values: NDArray[np.float64]) -> Answer:
    if not len(values):
        return unclear("No pixel of the first batches is finite.")
    means, spreads = values.mean(axis=0), values.std(axis=0)
    low, high = float(values.min()), float(values.max())
    numbers: dict[str, Any] = {
        "mean": [round(float(m), 4) for m in means],
        "deviation": [round(float(s), 4) for s in spreads],
        "least": low,
        "largest": high,
    }
    said = (
        f"values from {low:.4g} to {high:.4g}, mean {_list(means)}, deviation {_list(spreads)} "
        "by channel"
    )
    if high - low > 200 or spreads.max() > RAW:
        return wrong(
            f"The pictures are not scaled: {said}.",
            [
                "pixels were turned into floats without dividing by 255",
                "the transform runs before the conversion",
            ],
            "Divide by 255 (ToDtype(torch.float32, scale=True)), then normalise.",
            **numbers,
        )
    if 0 < high - low < SMALL:
        return wrong(
            f"The pictures have hardly any range: {said}.",
            ["they were divided by 255 twice (ToTensor on floats, then / 255)"],
            "Scale in one place only.",
            **numbers,
        )
    far = np.abs(means).max() > FAR_MEAN and spreads.max() > WIDE
    if far or spreads.max() > TOO_WIDE:
        return wrong(
            f"The pictures lie far from zero and are spread wide: {said}.",
            [
                "they were normalised twice",
                "mean and deviation of 0..1 were taken for pictures of another range",
            ],
            "Normalise in one place only.",
            **numbers,
        )
    return passed(f"{said[0].upper()}{said[1:]}.", **numbers)


def _list(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{v:.3g}" for v in values)
