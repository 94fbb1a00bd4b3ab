"""The inputs as the model gets them: finite, distinct, channels in place, scaled once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import (
    Answer,
    Check,
    Judgement,
    absent,
    passed,
    skipped,
    unclear,
)
from pipeline_profiler.checks.loader_subject import LoaderSubject, byte_step, decisive

CHANNELS = (1, 3, 4)  # of images
MIN_INPUTS, MAX_CONSTANT, MAX_EQUAL, SOME = 8, 0.2, 0.5, 0.02
MIN_COLOURED, MIXED_SHARE = 12, 0.8  # images for the sign test: chance 2**-12
RAW = 60.0  # above this deviation, or range of 200, values are those of files
SMALL = 0.02  # whole range of images in 0..1 that were divided by 255 once more: 1/255
FLAT, NARROW = 0.03, 0.25  # deviation and range, both below which images show nothing
TOO_WIDE = 3.0  # 0..1 normalised by a deviation of 0.2 has 2.5 at most
FAR_MEAN, WIDE = 1.5, 2.0  # no image of 0..1, normalised once by 0.45 and 0.22, has both
CENTRED = -0.3  # least value below which a loader has normalised
USUAL = ((0.03, 0.75), (0.1, 0.75))  # means and deviations that images of 0..1 are normalised by
NO_IMAGES = "The inputs are no images of one size."


class InputScale(Check):
    """Inputs that are not finite, not distinct, misplaced or not scaled once.

    ## How it decides
    Reads the first batches, also as they enter the model in your step. Fails with NaN or infinity
    in inputs or targets, or if over 20% of the inputs are constant, or 50% equal another. Fails if
    torch images have their channels last, or pixels three columns apart are more alike than
    neighbours in 80% of at least 12 coloured images (a reshape). Fails for floating-point images
    with a range above 200 or a deviation above 60 (not scaled), a range below 0.02, or below 0.25
    with no deviation above 0.03 (divided twice), a deviation above 3, or a mean beyond 1.5 with a
    deviation above 2, or a step that normalises centred images again (normalised twice).

    ## Limits
    A model of torch that scales its inputs expects 0..255: skip this check there.
    """

    code = "LOAD008"
    name = "input-scale"
    next_step = "Scale once: divide by 255 (ToDtype(torch.float32, scale=True)), then normalise."

    def run(self, subject: LoaderSubject) -> Answer:
        answers, view = [], subject.at_model
        for judge in (_judge_finite, _judge_repeated, _judge_layout, _judge_scale):
            answer = judge(subject)
            bad = judge is _judge_repeated and answer.judgement is Judgement.FAIL  # noise stays so
            answers.append(answer if view is None or bad else self._both(answer, judge(view)))
        return decisive(answers)


def _judge_finite(subject: LoaderSubject) -> Answer:
    where, count, bad = list[str](), 0, 0
    for number, batch in enumerate(subject.batches):
        for part, array in (("inputs", batch.inputs), ("targets", batch.targets)):
            if array is None or array.dtype.kind != "f":
                continue
            found = ~np.isfinite(np.atleast_1d(array))
            count, bad = count + array.size, bad + int(found.sum())
            indices = dict(enumerate(record.index for record in batch.records))
            for row in np.flatnonzero(found.reshape(len(found), -1).any(axis=1)).tolist():
                known = row in indices
                source = f"sample {indices[row]}" if known else f"batch {number} row {row}"
                where.append(f"the {part} of {source}")
    if not count:
        return absent("The loader gives no floating-point numbers.")
    if bad:
        return InputScale.failed(
            f"{bad} of {count:,} values are NaN or infinite, in {', '.join(where[:3])}.",
            "a division by a deviation of zero, or a logarithm of zero",
            "missing values in a table",
        )
    return passed(f"All {count:,} values of {len(subject.batches)} batches are finite.")


def _judge_repeated(subject: LoaderSubject) -> Answer:
    inputs = subject.inputs
    if inputs is None or len(inputs) < MIN_INPUTS or inputs.ndim < 2:
        return absent("There are fewer than 8 inputs of one shape.")
    flat = inputs.reshape(len(inputs), -1)
    constant = float((flat == flat[:, :1]).all(axis=1).mean()) if flat.shape[1] > 1 else 0.0
    distinct_by, marks = _sample_marks(subject, len(inputs))
    digests = [digest_of(np.ascontiguousarray(row)) for row in inputs]
    pairs = Counter(digest for digest, _ in set(zip(digests, marks, strict=True)))
    equal = float(np.mean([pairs[digest] > 1 for digest in digests]))
    text = (
        f"{constant:.0%} of {len(inputs)} inputs are constant, {equal:.0%} equal an input "
        f"of another {distinct_by}."
    )
    if constant > MAX_CONSTANT or equal > MAX_EQUAL:
        return InputScale.failed(
            text,
            "reading fails and zeros are returned",
            "a buffer or cache hands out one image, or the index is not used",
        )
    if constant > SOME or equal > SOME:
        return unclear(text, "See which: audit scan FOLDER names copies and empty images.")
    return passed(text)


def _sample_marks(subject: LoaderSubject, count: int) -> tuple[str, list[str]]:
    """What distinguishes samples, by name and for each input: the index, else the target."""
    found = [str(r.index) for batch in subject.batches for r in batch.records]
    if subject.has_indices and len(found) == count:
        return "index", found
    labels = subject.labels
    if labels is not None and len(labels) == count:
        return "target", [str(label) for label in labels]
    return "place", [str(number) for number in range(count)]


def _judge_layout(subject: LoaderSubject) -> Answer:
    inputs = subject.inputs
    if inputs is None or inputs.ndim != 4:
        return absent(NO_IMAGES)
    shape = tuple(int(n) for n in inputs.shape[1:])
    if shape[0] not in CHANNELS and shape[2] in CHANNELS and subject.is_torch:
        return InputScale.failed(
            f"Images are {shape}: the channels come last, torch's convolutions expect them first.",
            "the transform that moves channels is missing: permute(2, 0, 1)",
        )
    mixed, coloured = _count_mixed(inputs.astype(np.float32)) if shape[0] == 3 else (0, 0)
    if coloured >= MIN_COLOURED and mixed > MIXED_SHARE * coloured:
        return InputScale.failed(
            f"In {mixed} of {coloured} images, pixels three columns apart are more "
            "alike than neighbours: colours take turns along the rows.",
            "view or reshape instead of permute(2, 0, 1)",
        )
    return passed(f"Images are {shape}, with the channels in place.")


def _count_mixed(images: NDArray[np.float32]) -> tuple[int, int]:
    """(images whose colours take turns, images whose neighbouring pixels differ)."""
    if images.shape[3] < 7:
        return 0, 0
    near = np.abs(np.diff(images, axis=3)).mean(axis=(1, 2, 3))
    apart = np.abs(images[:, :, :, 3:] - images[:, :, :, :-3]).mean(axis=(1, 2, 3))
    return int((apart < 0.8 * near).sum()), int((near > 0).sum())


def _judge_scale(subject: LoaderSubject) -> Answer:
    inputs = subject.inputs
    if inputs is not None and inputs.ndim == 4 and inputs.shape[1] in CHANNELS:
        inputs = np.moveaxis(inputs, 1, 3)
    if inputs is None or inputs.ndim != 4 or inputs.shape[3] not in CHANNELS:
        return absent(NO_IMAGES)
    if inputs.dtype.kind != "f":
        return unclear(
            f"The inputs are {inputs.dtype}: they must become floats of unit size before the model."
        )
    if subject.scaled_later:
        return unclear(f"The model scales its inputs itself, in {subject.scaled_later}.")
    channels = inputs.reshape(-1, inputs.shape[3])
    values = channels[np.isfinite(channels).all(axis=1)].astype(np.float64)
    if not len(values):
        return unclear("No pixel of the first batches is finite.")
    means, spreads = values.mean(axis=0), values.std(axis=0)
    low, high = float(values.min()), float(values.max())
    text = f"values from {low:.4g} to {high:.4g}, mean {_list(means)}, deviation {_list(spreads)}"
    failed = InputScale.failed
    if high - low > 200 or spreads.max() > RAW:
        cause = "pixels were turned into floats without dividing by 255"
        return failed(f"The images are not scaled: {text}.", cause)
    if (again := _normalised_again(subject)) is not None:
        return failed(
            f"The images are normalised twice: the loader has centred them, and your step "
            f"subtracts {_list(again[0])} and divides by {_list(again[1])} once more: {text}.",
            "Normalize in the dataset's transform and again in the step",
        )
    flat = spreads.max() < FLAT
    if flat and high - low >= NARROW:
        return unclear(
            f"The images are nearly the same everywhere: {text}.",
            "Right for sparse drawings and dark images; else look where they lose contrast.",
        )
    if 0 < high - low < SMALL or flat:
        cause = "they were divided by 255 twice, or by a deviation of 0..255 after scaling"
        return failed(f"The images have hardly any range: {text}.", cause)
    if spreads.max() > TOO_WIDE or (np.abs(means).max() > FAR_MEAN and spreads.max() > WIDE):
        if (channels == channels[:, :1]).all() and not byte_step(values):
            return unclear(f"One channel off the levels of a byte, as spectrograms have: {text}.")
        cause = "they were normalised twice, or by the mean and deviation of another range"
        return failed(f"The images lie far from zero and are spread wide: {text}.", cause)
    return passed(f"{text[0].upper()}{text[1:]}.")


def _normalised_again(subject: LoaderSubject) -> tuple[NDArray[np.float64], ...] | None:
    """Return (means, deviations) by which a step normalises normalised inputs again; else None."""
    fits = []
    for given, entered in (subject.pairs or ())[:4]:
        one, two = given.inputs, entered.inputs
        if one is None or two is None or one.shape != two.shape or one.ndim != 4:
            return None
        if one.dtype.kind != "f" or one.shape[1] not in CHANNELS or not one.min() <= CENTRED:
            return None
        x, y = (np.moveaxis(a, 1, 0).reshape(a.shape[1], -1).astype(np.float64) for a in (one, two))
        slopes = np.array([np.polyfit(*both, 1) for both in zip(x, y, strict=True)])
        if np.abs(slopes[:, :1] * x + slopes[:, 1:] - y).max() > 1e-3 * y.std():
            return None
        fits.append(slopes)
    if not fits:
        return None
    slope, shift = np.mean(fits, axis=0).T
    found = -shift / slope, 1 / slope
    usual = (((a < v) & (v < b)).all() for v, (a, b) in zip(found, USUAL, strict=True))
    return found if all(usual) else None


def _list(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{v:.4g}" for v in values)


SLACK = 0.05  # of the range 0..1, for resampling that overshoots
MULTIPLES = (1, 2, 3, 4, 5)  # an image of few levels may use each second level only
SAME_STEP, SAME_LEVEL = 0.005, 0.1  # of the deviation; of a level


class DeclaredScale(Check):
    """Images that are not normalised with the declared mean and deviation.

    ## How it decides
    Undoes the normalisation that a pretrained model declares: `check.pretrained`, `make_model` in
    the loader's file (timm, torchvision, transformers), or `check.mean` and `check.std`. Fails if
    pixels exceed 0..1 by more than 5%, or fill less than half of it. If values keep the 256 levels
    of a byte, the deviation must agree to 0.5%, and pixels to a tenth of a level.

    ## Limits
    Images without contrast (fog, scans) may fill less than half of the range.
    """

    code = "LOAD014"
    name = "not-as-declared"
    entering = True
    causes = (
        "Normalize is missing, runs twice or has other numbers",
        "pixels are not divided by 255, or channels are BGR",
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
        means, deviations = (np.array(part)[:, None] for part in declared[:2])
        pixels = channels * deviations + means
        low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
        text = (
            f"Un-normalised by the declared numbers ({declared.source}), pixels run from {low:.3f} "
            f"to {high:.3f}"
        )
        if low < -SLACK or high > 1 + SLACK or high - low < 0.5:
            return self.failed(f"{text}, and should fill 0 to 1.")
        steps = [byte_step(channel) for channel in channels]
        if not all(steps):
            return passed(f"{text}.")
        own = np.array([1 / (255 * step) for step in steps])
        if any(map(_unlike, own, declared.deviation, pixels)):
            return self.failed(
                f"{text}; the deviations that the images were divided by are {_list(own)}, "
                f"declared are {_list(deviations[:, 0])}."
            )
        return passed(f"{text}, on the levels of a byte.")


def _unlike(own: float, declared: float, pixels: Any) -> bool:
    """Whether a channel was divided by another number, or lies between the levels."""
    if all(abs(own * multiple / declared - 1) > SAME_STEP for multiple in MULTIPLES):
        return True
    levels = pixels[:: max(1, pixels.size // 4096)] * 255
    return float(np.median(np.abs(levels - levels.round()))) > SAME_LEVEL
