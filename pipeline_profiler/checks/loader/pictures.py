"""The inputs as the model gets them: finite, scaled once, channels in place, each its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, passed, skipped, unclear, wrong
from pipeline_profiler.checks.loader_subject import LoaderSubject, byte_step


class Finite(Check):
    """NaN or infinity in inputs or targets.

    ## What it does
    Counts the NaN and infinite values of the first batches, for inputs and targets.

    ## Why is this bad
    One NaN makes the loss, the gradients and, after one step, all weights NaN.

    ## How it decides
    Fails with one NaN or infinite value. Exact.

    ## Limits
    Reads only the first batches (about 512 samples).
    """

    code = "LOAD007"
    name = "not-finite"
    entering = True
    causes = (
        "a division by a deviation of zero",
        "a logarithm of zero",
        "missing values in a table of targets",
    )
    next_step = "Load these samples by themselves, and guard the division."

    def run(self, subject: LoaderSubject) -> Answer:
        counts = {"inputs": 0, "targets": 0}
        where: list[str] = []
        looked = 0
        for number, batch in enumerate(subject.batches):
            for part in counts:
                array = getattr(batch, part)
                if array is None or array.dtype.kind != "f":
                    continue
                looked += array.size
                bad = ~np.isfinite(array)
                counts[part] += int(bad.sum())
                rows = bad.reshape(len(array), -1).any(axis=1) if array.ndim else np.array([])
                seen = dict(enumerate(batch.records))
                where += [
                    f"sample {seen[row].index}" if row in seen else f"batch {number} row {row}"
                    for row in np.flatnonzero(rows).tolist()
                ]
        if not looked:
            return unclear("The loader gives no floating-point numbers.")
        if any(counts.values()):
            return self.failed(
                f"{counts['inputs']} values of the inputs and {counts['targets']} of the targets "
                f"are NaN or infinite, in {', '.join(where[:3])}.",
                **counts,
                samples=where[:20],
            )
        return passed(
            f"All {looked:,} values of {len(subject.batches)} batches are finite.", values=looked
        )


CHANNELS = (1, 3, 4)  # of pictures

RAW = 60.0  # above this deviation, or range of 200, values are those of files
SMALL = 0.02  # whole range of pictures in 0..1 that were divided by 255 once more: 1/255
FLAT, NARROW = 0.03, 0.25  # deviation and range, both below which pictures show nothing
TOO_WIDE = 3.0  # 0..1 normalised by a deviation of 0.2 has 2.5 at most
FAR_MEAN, WIDE = 1.5, 2.0  # no picture of 0..1, normalised once by 0.45 and 0.22, has both
CENTRED = -0.3  # least value below which a loader has normalised
MEANS, DEVIATIONS = (0.03, 0.75), (0.1, 0.75)  # that pictures of 0..1 are normalised by


class InputScale(Check):
    """Pixels that are not scaled, scaled twice, or wrong in one channel.

    ## What it does
    Computes mean, deviation, minimum and maximum of each channel over the first batches, as the
    model receives them.

    ## Why is this bad
    Pixels up to 255 saturate the first layer. Pixels divided twice vanish beside its bias.

    ## How it decides
    Fails for floating-point images on any of these:

    - a range above 200 or a deviation above 60 (not scaled),
    - a range below 0.02, or below 0.25 with no deviation above 0.03 (divided twice),
    - a deviation above 3, or a mean beyond 1.5 with a deviation above 2 (normalised twice),
    - a step that normalises images again that the loader has centred: means of 0.03 to 0.75,
      deviations of 0.1 to 0.75.

    If your step is seen, the input of the model decides. Images in 0..1, in -1..1 or normalised
    pass. Bytes are inconclusive: the device may scale them.

    ## What to do
    Scale once: `v2.ToDtype(torch.float32, scale=True)`, then `Normalize`.

    ## Limits
    Floating-point images with 1, 3 or 4 channels. One channel off the levels of a byte may be a
    spectrogram, and is never normalised twice. A model that scales its own input expects 0..255.
    Only a script's `fit` shows this (Rescaling, Normalization of Keras). Else skip this check.
    """

    code = "LOAD008"
    name = "input-scale"
    entering = True

    def run(self, subject: LoaderSubject) -> Answer:
        inputs = subject.inputs
        if inputs is not None and inputs.ndim == 4 and inputs.shape[1] in CHANNELS:
            inputs = np.moveaxis(inputs, 1, 3)
        if inputs is None or inputs.ndim != 4 or inputs.shape[3] not in CHANNELS:
            return unclear("The inputs are no images of one size.")
        if inputs.dtype.kind != "f":
            return unclear(
                f"The inputs are {inputs.dtype}: they must become floats of unit size "
                "before the model.",
                dtype=str(inputs.dtype),
            )
        if subject.scaled_later:
            return unclear(f"The model scales its inputs itself, in {subject.scaled_later}.")
        channels = inputs.reshape(-1, inputs.shape[3])
        values = channels[np.isfinite(channels).all(axis=1)].astype(np.float64)
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
                f"The images are not scaled: {said}.",
                [
                    "pixels were turned into floats without dividing by 255",
                    "the transform runs before the conversion",
                ],
                "Divide by 255 (ToDtype(torch.float32, scale=True)), then normalise.",
                **numbers,
            )
        if (again := _normalised_again(subject)) is not None:
            return wrong(
                f"The images are normalised twice: the loader has centred them, and your step "
                f"subtracts {_list(again[0])} and divides by {_list(again[1])} once more: {said}.",
                ["Normalize in the dataset's transform and again in the step"],
                "Normalise in one place only.",
                **numbers,
            )
        flat = spreads.max() < FLAT
        if flat and high - low >= NARROW:
            return unclear(
                f"The images are nearly the same everywhere: {said}.",
                "Right for sparse drawings and dark images; else look where they lose contrast.",
                **numbers,
            )
        if 0 < high - low < SMALL or flat:
            return wrong(
                f"The images have hardly any range: {said}.",
                [
                    "they were divided by 255 twice (ToTensor on floats, then / 255)",
                    "they were divided by a deviation of 0..255 after they were scaled to 0..1",
                ],
                "Scale in one place only.",
                **numbers,
            )
        far = np.abs(means).max() > FAR_MEAN and spreads.max() > WIDE
        measured = (channels == channels[:, :1]).all() and not byte_step(values)
        if (far or spreads.max() > TOO_WIDE) and measured:
            said = f"One channel off the levels of a byte, as spectrograms have: {said}."
            return unclear(said, **numbers)
        if far or spreads.max() > TOO_WIDE:
            return wrong(
                f"The images lie far from zero and are spread wide: {said}.",
                [
                    "they were normalised twice",
                    "mean and deviation of 0..1 were taken for images of another range",
                ],
                "Normalise in one place only.",
                **numbers,
            )
        return passed(f"{said[0].upper()}{said[1:]}.", **numbers)


def _normalised_again(subject: LoaderSubject) -> tuple[NDArray[np.float64], ...] | None:
    """Return (means, deviations) by which a step normalises normalised inputs again; else None."""
    fits = []
    for given, entered in (subject.pairs or ())[:4]:
        one, two = given.inputs, entered.inputs
        if one is None or two is None or one.shape != two.shape or one.ndim != 4:
            return None
        if one.dtype.kind != "f" or one.shape[1] not in CHANNELS or one.min() > CENTRED:
            return None
        x, y = (np.moveaxis(a, 1, 0).reshape(a.shape[1], -1).astype(np.float64) for a in (one, two))
        slopes = np.array([np.polyfit(*both, 1) for both in zip(x, y, strict=True)])
        if np.abs(slopes[:, :1] * x + slopes[:, 1:] - y).max() > 1e-3 * y.std():
            return None
        fits.append(slopes)
    if not fits:
        return None
    slope, shift = np.mean(fits, axis=0).T
    means, deviations = -shift / slope, 1 / slope
    usual = [
        ((low < v) & (v < high)).all()
        for v, (low, high) in ((means, MEANS), (deviations, DEVIATIONS))
    ]
    return (means, deviations) if all(usual) else None


def _list(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{v:.3g}" for v in values)


LEAST_LAYOUT = 12  # coloured pictures for the sign test: chance 2**-12
TURNS = 0.8  # of the pictures: some are nearly grey, and show no turns


class Layout(Check):
    """HWC images passed as CHW, or reshaped into CHW instead of transposed.

    ## What it does
    Reads the shape of torch batches. Compares neighbouring pixels with pixels three columns apart.

    ## Why is this bad
    A reshape keeps every value but mixes rows, columns and colours. Training works, but worse.

    ## How it decides
    Fails if only the last axis has 1, 3 or 4 entries. Fails if pixels three columns apart are more
    alike than neighbours in over 80% of at least 12 coloured images.

    ## Limits
    torch tensors only, because torch convolutions expect CHW. Grey images show no mixing.
    """

    code = "LOAD009"
    name = "channels-misplaced"
    entering = True
    causes = (
        "view or reshape instead of permute",
        "the transform that moves channels is missing",
    )
    next_step = "Use permute(2, 0, 1) on each image; look at --images."

    def run(self, subject: LoaderSubject) -> Answer:
        inputs = subject.inputs
        if inputs is None or inputs.ndim != 4:
            return unclear("The inputs are no images of one size.")
        shape = tuple(int(n) for n in inputs.shape[1:])
        if inputs.shape[1] not in CHANNELS and inputs.shape[3] in CHANNELS:
            if not subject.is_torch:
                return passed(f"Images are {shape}, channels last, in arrays.", shape=shape)
            return Layout.failed(
                f"Images are {shape}: the channels come last, torch's convolutions "
                "expect them first.",
                shape=shape,
            )
        if inputs.shape[1] != 3:
            return passed(f"Images are {shape}, channels first.", shape=shape)
        mixed, judged = _mixed(inputs.astype(np.float32))
        if judged >= LEAST_LAYOUT and mixed > TURNS * judged:
            return Layout.failed(
                f"In {mixed} of {judged} images, pixels three columns apart are more "
                "alike than neighbours: colours take turns along the rows.",
                shape=shape,
            )
        return passed(
            f"Images are {shape}, channels first; neighbouring pixels are alike in "
            f"{judged - mixed} of {judged} coloured images.",
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


LEAST_REPEATS = 8
MOST_CONSTANT, MOST_EQUAL, SOME = 0.2, 0.5, 0.02


class RepeatedPictures(Check):
    """Inputs without content, or one input for many samples.

    ## What it does
    Counts inputs with a single value, and inputs of different indices with equal bytes.

    ## Why is this bad
    A one-slot cache, a reused buffer, or a failed read that returns zeros pairs the labels with
    wrong inputs.

    ## How it decides
    Fails if more than 20% of the inputs are constant, or more than 50% equal an input with another
    index. More than 2% is inconclusive, because datasets can contain copies and empty images.
    `audit scan` lists these.

    ## Limits
    In streams, equal inputs count only if their targets differ, because a stream may repeat a small
    dataset on purpose. Augmented copies differ and are not seen.
    """

    code = "LOAD010"
    name = "inputs-repeated"
    entering = True
    healed = False
    causes = (
        "reading fails and zeros are returned",
        "a buffer or cache hands out one image",
        "the index is not used",
    )
    next_step = "Compare dataset[0] with dataset[1]; look at --images."

    def run(self, subject: LoaderSubject) -> Answer:
        inputs = subject.inputs
        if inputs is None or len(inputs) < LEAST_REPEATS or inputs.ndim < 2:
            return unclear("There are fewer than 8 inputs of one shape.")
        flat = inputs.reshape(len(inputs), -1)
        constant = float((flat == flat[:, :1]).all(axis=1).mean()) if flat.shape[1] > 1 else 0.0
        told_apart_by, marks = _marks(subject, len(inputs))
        digests = [digest_of(np.ascontiguousarray(picture)) for picture in inputs]
        pairs = Counter(digest for digest, _ in set(zip(digests, marks, strict=True)))
        equal = float(np.mean([pairs[digest] > 1 for digest in digests]))
        numbers = {"inputs": len(inputs), "constant": constant, "equal": equal}
        said = (
            f"{constant:.0%} of {len(inputs)} inputs are constant, {equal:.0%} equal an input "
            f"of another {told_apart_by}."
        )
        if constant > MOST_CONSTANT or equal > MOST_EQUAL:
            return self.failed(said, **numbers)
        if constant > SOME or equal > SOME:
            return unclear(
                said, "See which: audit scan FOLDER names copies and empty images.", **numbers
            )
        return passed(said, **numbers)


def _marks(subject: LoaderSubject, count: int) -> tuple[str, list[str]]:
    """Return what tells samples apart, by name and for each input: the index, or the target."""
    if subject.has_indices:
        found = [str(r.index) for batch in subject.batches for r in batch.records]
        if len(found) == count:
            return "index", found
    labels = subject.labels
    if labels is not None and len(labels) == count:
        return "target", [str(label) for label in labels]
    return "place", [str(number) for number in range(count)]


SLACK = 0.05  # of the range 0..1, for resampling that overshoots
SKIPPED = (1, 2, 3, 4, 5)  # a picture of few levels may use each second one only
SAME_STEP, SAME_PLACE = 0.005, 0.1  # of the deviation; of a level


class DeclaredScale(Check):
    """Images that are not normalised with the declared mean and deviation of the model.

    ## What it does
    Undoes the declared normalisation and reads the pixel range. Sources are the setting
    `check.pretrained`, `make_model` in the loader's file (timm, torchvision, transformers), or
    `check.mean` and `check.std`.

    ## Why is this bad
    A pretrained network with inputs of another scale works, but worse.

    ## How it decides
    Fails if pixels exceed 0..1 by more than 5%, or fill less than half of it. If values keep the
    256 levels of a byte, the scale is exact. It must then agree to 0.5%, and pixels to a tenth of a
    level.

    ## Limits
    Not applicable without declared numbers. Images without contrast (fog, scans) may fill less than
    half of the range. A mean off by whole levels shows only in the range.
    """

    code = "LOAD014"
    name = "not-as-declared"
    entering = True
    causes = (
        "Normalize is missing or has other numbers",
        "pixels are not divided by 255",
        "the normalisation runs twice, or channels are BGR",
    )
    next_step = "Normalise with exactly the declared numbers, after scaling to 0..1."

    def run(self, subject: LoaderSubject) -> Answer:
        declared, inputs = subject.declared, subject.inputs
        if declared is None:
            return skipped(
                "No mean and deviation are declared.",
                "Set check.pretrained, or check.mean and check.std.",
            )
        count = len(declared.mean)
        shape = inputs.shape if inputs is not None and inputs.ndim == 4 else ()
        axis = next((i for i in (1, 3) if shape[i : i + 1] == (count,)), None)  # NCHW before NHWC
        if inputs is None or axis is None:
            return unclear(f"The inputs are no images of {count} channels.")
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
            return DeclaredScale.failed(f"{said}, and should fill 0 to 1.", **numbers)
        steps = [byte_step(channel) for channel in channels]
        own = [1 / (255 * step) if step else 0.0 for step in steps]
        rows = list(zip(own, declared.deviation, pixels, strict=True))
        if all(own) and any(_unlike(*row) for row in rows):
            numbers["deviations"] = str([round(value, 4) for value in own])
            return DeclaredScale.failed(
                f"{said}; the deviations that the images were divided by are "
                f"{', '.join(f'{v:.4g}' for v in own)}, declared are "
                f"{', '.join(f'{v:.4g}' for v in declared.deviation)}.",
                **numbers,
            )
        exact = ", on the levels of a byte" if all(own) else ""
        return passed(f"{said}{exact}.", **numbers)


def _unlike(own: float, declared: float, pixels: Any) -> bool:
    """Whether a channel was divided by another number, or lies between the levels."""
    if all(abs(own * skipped / declared - 1) > SAME_STEP for skipped in SKIPPED):
        return True
    places = pixels[:: max(1, pixels.size // 4096)] * 255
    return float(np.median(np.abs(places - places.round()))) > SAME_PLACE
