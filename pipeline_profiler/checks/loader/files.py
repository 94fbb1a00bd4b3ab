"""What the loader makes of its picture files, beside the same files decoded here.

Which file a sample is made of is seen where Python, OpenCV or torchvision opens it. Crops and flips
move pixels, so pictures are compared by the means of their channels over many files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear
from pipeline_profiler.checks.loader_subject import LoaderSubject, byte_step
from pipeline_profiler.checks.opened_files import note_opened
from pipeline_profiler.checks.user_code import users_code

Array = NDArray[Any]
FILES, FEWEST = 40, 12
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm")
SURE = 0.8  # correlation of red minus blue, in file and sample
COLOURED = 0.1  # deviation of red minus blue over files, in deviations of a channel
SAME_SCALE, SAME_MEAN = 0.01, 0.05
NUMBERS = {  # (mean, deviation) by channel, for pixels of 0..1
    "0.5, 0.5": ((0.5,) * 3, (0.5,) * 3),
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CLIP's": ((0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}


class FilesBeside(Check):
    """Channels in another order than in the file, or pixels that are normalised twice.

    ## What it does
    Decodes the image file that each of 40 samples opens, and compares the channels. Red minus blue
    gives the order, the steps between values the scale, the rest the mean.

    ## Why is this bad
    OpenCV reads BGR, while pretrained weights and the ImageNet numbers expect RGB. Images
    normalised twice by 0.5 range from -3 to 1.

    ## How it decides
    Fails if red minus blue of at least 12 samples and files correlates below -0.8, and RGB numbers
    are used: declared, or deviations of ImageNet, CLIP or CIFAR. Otherwise BGR is inconclusive, as
    for Caffe weights or new models.

    Fails if mean and deviation of each channel equal two known normalisations in sequence (to 0.05
    and 1%). One normalisation, or the numbers of the files, pass.

    ## What to do
    `cv2.cvtColor(image, cv2.COLOR_BGR2RGB)` after `imread`. Normalise once.

    ## Limits
    torch datasets with indices whose `__getitem__` opens one coloured file. The scale is known only
    if values keep the steps of a byte (resized before the conversion to float).
    """

    code = "LOAD024"
    name = "unlike-its-files"
    causes = (
        "OpenCV reads BGR, and nothing turns the channels round",
        "Normalize stands in two places of the transform",
    )
    next_step = "Show one sample beside its file; turn BGR to RGB, and normalise once."

    def run(self, subject: LoaderSubject) -> Answer:
        if not subject.has_indices:
            return unclear("Samples have no index, so none can be loaded beside its file.")
        rows = list(_rows(subject))
        if len(rows) < FEWEST:
            return (unclear if rows else absent)(
                f"Of {FILES} samples {len(rows)} open one coloured image file as they are loaded."
            )
        files, samples = (np.array([row[i] for row in rows]) for i in (0, 1))
        spread = [a.std(axis=0) for a in (files, samples)]
        if min(s.min() for s in spread) == 0:
            return unclear("A channel has one mean in all files.")
        scored = [(a - a.mean(axis=0)) / s for a, s in zip((files, samples), spread, strict=True)]
        apart = [a[:, 0] - a[:, 2] for a in scored]
        coloured = min(a.std() for a in apart) > COLOURED
        share = float(np.corrcoef(*apart)[0, 1]) if coloured else 0.0
        values = np.concatenate([row[2] for row in rows], axis=1)
        deviation = np.array([1 / (255 * s) if (s := byte_step(v)) else 0.0 for v in values])
        mean = files.mean(axis=0) - deviation * samples.mean(axis=0)
        numbers: dict[str, Any] = {"files": len(rows), "red_minus_blue": round(share, 3)}
        known = bool((deviation > 0).all() and deviation.max() < 1)
        if known:
            numbers |= {"mean": mean.round(3).tolist(), "deviation": deviation.round(4).tolist()}
        if known and (twice := _twice(mean, deviation, files, values)):
            return self.failed(
                f"Of {len(rows)} files' pixels (0 to 1) the loader subtracts {_list(mean)} and "
                f"divides by {_list(deviation)}: {twice}.",
                "Normalize stands in two places of the transform",
                **numbers,
            )
        if share < -SURE:
            said = f"Red and blue have changed places in {len(rows)} samples, beside their files"
            ordered = known and _in_order(deviation)
            if subject.declared is not None or ordered:
                given = f"{ordered} numbers are" if ordered else "the declared numbers are"
                return self.failed(f"{said}, and {given} in the order of RGB.", **numbers)
            return unclear(
                f"{said}: right for weights of Caffe or a model that starts anew, else wrong.",
                "For other pretrained weights turn BGR to RGB.",
                **numbers,
            )
        if share < SURE:
            return unclear(
                f"{len(rows)} files are too grey to show the order of channels.", **numbers
            )
        scale = f", minus {_list(mean)}, over {_list(deviation)}" if known else ""
        return passed(f"{len(rows)} samples have the channels of their files{scale}.", **numbers)


def _rows(subject: LoaderSubject) -> Iterator[tuple[Array, Array, Array]]:
    """(means of the file's channels, of the sample's, the sample's values by channel)."""
    from PIL import Image

    dataset = subject.loader.dataset
    for index in np.unique(np.linspace(0, len(dataset) - 1, FILES).astype(int)).tolist():
        if subject.time_is_short():
            return
        with users_code(f"The dataset at index {index}"), note_opened() as opened:
            sample = dataset[index]
        names = dict.fromkeys(name for name in opened if name.lower().endswith(ENDINGS))
        inputs = as_array(inputs_and_targets(sample, subject.split)[0])
        if not names or inputs is None or inputs.ndim != 3 or 3 not in inputs.shape[::2]:
            continue
        pixels = (inputs if inputs.shape[0] == 3 else inputs.transpose(2, 0, 1)).reshape(3, -1)
        coloured = []
        for name in names:
            with contextlib.suppress(OSError, ValueError), Image.open(name) as picture:
                if picture.mode in ("RGB", "RGBA", "CMYK", "YCbCr"):
                    coloured.append(np.asarray(picture.convert("RGB"), np.float64) / 255)
        if len(coloured) == 1:
            yield coloured[0].mean(axis=(0, 1)), pixels.mean(axis=1), pixels


def _twice(mean: Array, deviation: Array, files: Array, values: Array) -> str:
    """Two known normalisations that together are this one; '' where one is enough."""
    own = files.mean(axis=0), deviation * values.std(axis=1)  # as a set's own numbers would be

    def fits(m: Any, d: Any) -> bool:
        near = np.abs(deviation / np.asarray(d) - 1).max() < SAME_SCALE
        return bool(near and np.abs(mean - np.asarray(m)).max() < SAME_MEAN)

    if np.abs(mean - own[0]).max() < SAME_MEAN or any(fits(*one) for one in NUMBERS.values()):
        return ""
    for first, (m1, d1) in NUMBERS.items():
        for second, (m2, d2) in NUMBERS.items():
            if fits(np.add(m1, np.multiply(d1, m2)), np.multiply(d1, d2)):
                return f"by {first} and then by {second} numbers"
    return ""


def _in_order(deviation: Array) -> str:
    """The known numbers whose deviations these are, in the order of RGB and not turned round."""
    for name, (_, known) in NUMBERS.items():
        off, turned = (np.abs(deviation / np.array(k) - 1).max() for k in (known, known[::-1]))
        if off < SAME_SCALE and off < turned / 2:
            return name
    return ""


def _list(values: Array) -> str:
    return ", ".join(f"{v:.3g}" for v in values)
