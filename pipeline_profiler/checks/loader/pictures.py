"""The inputs as the model gets them: finite, distinct, channels in place, scaled once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, Judgement, absent, passed, unclear
from pipeline_profiler.checks.loader_subject import LoaderSubject, byte_step, decisive

CHANNELS = (1, 3, 4)  # of images
MIN_INPUTS, MAX_CONSTANT, MAX_EQUAL = 8, 0.2, 0.5
MIN_COLOURED, MIXED_SHARE = 12, 0.8  # images for the sign test: chance 2**-12
RAW_DEVIATION, RAW_RANGE = 60.0, 200  # above these, values are those of files
SMALL_RANGE = 0.02  # images in 0..1 that were divided by 255 once more reach 1/255
FLAT, NARROW = 0.03, 0.25  # deviation and range, both below which images show nothing
TOO_WIDE = 3.0  # 0..1 normalised by a deviation of 0.2 has 2.5 at most
FAR_MEAN, WIDE = 1.5, 2.0  # no image of 0..1, normalised once by 0.45 and 0.22, has both
CENTRED = -0.3  # least value below which a loader has normalised
USUAL_MEANS, USUAL_DEVIATIONS = (0.03, 0.75), (0.1, 0.75)  # that normalise images of 0..1
SLACK = 0.05  # of the range 0..1, for resampling that overshoots
MIN_FILLED, OFF_LEVEL = 0.5, 0.1  # of the range 0..1; of a level of a byte
NO_IMAGES = absent("The inputs are no images of one size.")


class InputScale(Check):
    """Inputs that are not finite, distinct, or scaled as the model expects.

    ## How it decides
    Reads the first batches, also as they enter the model. Fails with NaN, 20% constant or 50% equal
    inputs, channels out of place, a range above 200 or below 0.02, a deviation above 3, or centred
    images that the step normalises again. If a pretrained model declares mean and deviation,
    undoing them must give pixels that fill 0..1, on the levels of a byte.

    ## Limits
    A model of torch that scales its inputs expects 0..255: skip this check there.
    """

    code = "LOAD008"
    name = "input-scale"
    next_step = "Scale once: divide by 255 (ToDtype(torch.float32, scale=True)), then normalise."

    def run(self, subject: LoaderSubject) -> Answer:
        answers = list[Answer]()
        for judge in (_judge_finite, _judge_repeated, _judge_layout, _judge_scale, _judge_declared):
            answer = judge(subject)
            stays = judge is _judge_repeated and answer.judgement is Judgement.FAIL  # with noise
            answers.append(answer if stays else self.as_entered(subject, answer, judge))
        return decisive(answers)


def _judge_finite(subject: LoaderSubject) -> Answer:
    sources, count, bad = list[str](), 0, 0
    parts = [(n, b, part) for n, b in enumerate(subject.batches) for part in ("inputs", "targets")]
    for number, batch, part in parts:
        array = getattr(batch, part)
        if array is not None and array.dtype.kind == "f":
            missing = ~np.isfinite(np.atleast_1d(array))
            count, bad = count + array.size, bad + int(missing.sum())
            names = dict(enumerate(f"sample {record.index}" for record in batch.records))
            rows = np.flatnonzero(missing.reshape(len(missing), -1).any(axis=1)).tolist()
            sources += [f"the {part} of {names.get(i, f'batch {number} row {i}')}" for i in rows]
    if bad:
        return InputScale.failed(
            f"{bad} of {count:,} values are NaN or infinite, in {', '.join(sources[:3])}.",
            "a division by a deviation of zero, or a logarithm of zero",
            "missing values in a table",
        )
    if not count:
        return absent("The loader gives no floating-point numbers.")
    return passed(f"All {count:,} values of {len(subject.batches)} batches are finite.")


def _judge_repeated(subject: LoaderSubject) -> Answer:
    inputs, labels = subject.inputs, subject.labels
    if inputs is None or len(inputs) < MIN_INPUTS or inputs.ndim < 2:
        return absent("There are fewer than 8 inputs of one shape.")
    count, flat = len(inputs), inputs.reshape(len(inputs), -1)
    constant = float((flat == flat[:, :1]).all(axis=1).mean()) if flat.shape[1] > 1 else 0.0
    kind, samples = "row", list[Any](range(count))
    indices = [record.index for batch in subject.batches for record in batch.records]
    if subject.has_indices and len(indices) == count:
        kind, samples = "index", list(map(str, indices))
    elif labels is not None and len(labels) == count:
        kind, samples = "target", labels.tolist()
    digests = [digest_of(np.ascontiguousarray(row)) for row in inputs]
    sources = Counter(digest for digest, _ in set(zip(digests, samples, strict=True)))
    equal = float(np.mean([sources[digest] > 1 for digest in digests]))
    text = f"{constant:.0%} of {count} inputs are constant, {equal:.0%} equal an input of another "
    if constant > MAX_CONSTANT or equal > MAX_EQUAL:
        return InputScale.failed(
            f"{text}{kind}.",
            "reading fails and zeros are returned",
            "a buffer or cache hands out one image, or the index is not used",
        )
    return passed(f"{text}{kind}.")


def _judge_layout(subject: LoaderSubject) -> Answer:
    inputs = subject.inputs
    if inputs is None or inputs.ndim != 4:
        return NO_IMAGES
    shape = tuple(int(n) for n in inputs.shape[1:])
    if shape[0] not in CHANNELS and shape[2] in CHANNELS and subject.is_torch:
        return InputScale.failed(
            f"Images are {shape}: the channels come last, torch's convolutions expect them first.",
            "the transform that moves channels is missing: permute(2, 0, 1)",
        )
    if shape[0] == 3 and shape[2] > 6:
        images = inputs.astype(np.float32)
        near = np.abs(np.diff(images, axis=3)).mean(axis=(1, 2, 3))
        apart = np.abs(images[..., 3:] - images[..., :-3]).mean(axis=(1, 2, 3))
        mixed, coloured = int((apart < 0.8 * near).sum()), int((near > 0).sum())
        if coloured >= MIN_COLOURED and mixed > MIXED_SHARE * coloured:
            return InputScale.failed(
                f"In {mixed} of {coloured} images, pixels three columns apart are more alike than "
                "neighbours: colours take turns along the rows.",
                "view or reshape instead of permute(2, 0, 1)",
            )
    return passed(f"Images are {shape}, with the channels in place.")


def _by_channel(images: NDArray[Any]) -> NDArray[np.float64]:
    """(channels, pixels) of images with the channels first."""
    return np.moveaxis(images, 1, 0).reshape(images.shape[1], -1).astype(np.float64)


def _judge_scale(subject: LoaderSubject) -> Answer:
    inputs = subject.inputs
    if inputs is not None and inputs.ndim == 4 and inputs.shape[1] not in CHANNELS:
        inputs = np.moveaxis(inputs, 3, 1)
    if inputs is None or inputs.ndim != 4 or inputs.shape[1] not in CHANNELS:
        return NO_IMAGES
    if inputs.dtype.kind != "f":
        return unclear(f"The inputs are {inputs.dtype}: the model needs floats of unit size.")
    if subject.scaled_later:
        return unclear(f"The model scales its inputs itself, in {subject.scaled_later}.")
    channels = _by_channel(inputs)
    channels = channels[:, np.isfinite(channels).all(axis=0)]
    if not channels.size:
        return unclear("No pixel of the first batches is finite.")
    means, spreads = channels.mean(axis=1), channels.std(axis=1)
    low, high, spread = float(channels.min()), float(channels.max()), spreads.max()
    text = f"values from {low:.4g} to {high:.4g}, mean {_list(means)}, deviation {_list(spreads)}"
    fault, cause = "", "they were normalised twice, or by the mean and deviation of another range"
    if high - low > RAW_RANGE or spread > RAW_DEVIATION:
        fault, cause = "are not scaled", "pixels became floats without a division by 255"
    elif again := _normalised_again(subject):
        fault = f"are normalised twice: the loader has centred them, and your step {again} again"
    elif spread < FLAT and high - low >= NARROW:
        return unclear(f"The images are nearly the same everywhere, or drawings: {text}.")
    elif 0 < high - low < SMALL_RANGE or spread < FLAT:
        fault, cause = "have hardly any range", "they were divided by 255 or a deviation twice"
    elif spread > TOO_WIDE or (np.abs(means).max() > FAR_MEAN and spread > WIDE):
        if (channels == channels[:1]).all() and not byte_step(channels):
            return unclear(f"One channel off the levels of a byte, as spectrograms have: {text}.")
        fault = "lie far from zero and are spread wide"
    if fault:
        return InputScale.failed(f"The images {fault}: {text}.", cause)
    return passed(f"{text[0].upper()}{text[1:]}.")


def _normalised_again(subject: LoaderSubject) -> str:
    """Return how a step normalises images that the loader has centred, or ""."""
    if not subject.pairs:
        return ""
    loaded, entered = (part.inputs for part in subject.pairs[0])
    if loaded is None or entered is None or loaded.shape != entered.shape or loaded.ndim != 4:
        return ""
    if loaded.dtype.kind != "f" or loaded.shape[1] not in CHANNELS or loaded.min() > CENTRED:
        return ""
    given, made = _by_channel(loaded), _by_channel(entered)
    slope, shift = np.transpose([np.polyfit(*both, 1) for both in zip(given, made, strict=True)])
    if np.abs(slope[:, None] * given + shift[:, None] - made).max() > 1e-3 * made.std():
        return ""
    means, deviations = -shift / slope, 1 / slope
    for values, (least, most) in ((means, USUAL_MEANS), (deviations, USUAL_DEVIATIONS)):
        if values.min() <= least or values.max() >= most:
            return ""
    return f"subtracts {_list(means)} and divides by {_list(deviations)}"


def _judge_declared(subject: LoaderSubject) -> Answer:
    """Whether undoing the declared normalisation gives pixels of 0..1."""
    declared, inputs = subject.declared, subject.inputs
    if declared is None:
        return absent("No mean and deviation are declared.")
    count = len(declared.mean)
    shape = inputs.shape if inputs is not None and inputs.ndim == 4 else ()
    if inputs is None or count not in (shape[1:2] + shape[3:]):
        return unclear(f"The inputs are no images of {count} channels.")
    channels = _by_channel(inputs if shape[1] == count else np.moveaxis(inputs, 3, 1))
    means, deviations = (np.array(part)[:, None] for part in declared[:2])
    pixels = channels * deviations + means
    low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
    text = f"Un-normalised by the declared numbers ({declared.source}), pixels "
    text += f"run from {low:.3f} to {high:.3f}"
    fault = ""
    if low < -SLACK or high > 1 + SLACK or high - low < MIN_FILLED:
        fault = ", and should fill 0 to 1"
    elif all(byte_step(channel) for channel in channels):
        levels = pixels[:, :: max(1, pixels.shape[1] // 4096)] * 255
        if np.median(np.abs(levels - levels.round()), axis=1).max() > OFF_LEVEL:
            fault = ", between the levels of a byte: other numbers normalised them"
    if not fault:
        return passed(f"{text}.")
    return InputScale.failed(
        f"{text}{fault}.",
        "Normalize is missing, runs twice or has other numbers than the pretrained model",
        "pixels are not divided by 255, or channels are BGR",
    )


def _list(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{v:.4g}" for v in values)
