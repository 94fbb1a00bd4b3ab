"""What the loader makes of its picture files, beside the same files decoded here.

Which file a sample is made of is seen where Python, OpenCV or torchvision opens it. Crops and flips
move pixels, so pictures are compared by the means of their channels over many files.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, digest_of, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    ProbedDataset,
    byte_step,
    held_objects,
)
from pipeline_profiler.checks.opened_files import note_opened
from pipeline_profiler.checks.user_code import Patience, batches_of, seed_everything, users_code

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


SAMPLES, SECONDS, MOST_ROUNDS, STDERR = 64, 1.5, 64, 2
CONNECTED = ("av", "cv2", "decord", "h5py", "lmdb", "netCDF4", "rasterio", "sqlite3", "tables")


class SharedHandle(Check):
    """An open file or connection that forked workers share.

    ## What it does
    Finds open files in the dataset. Compares up to 64 samples of one worker with those that all
    workers read at once, each after the same seed.

    ## Why is this bad
    Forked workers share the position in an open file, so one reads where another moved it.

    ## How it decides
    Fails if samples that repeat in one worker have other bytes or an error where several read, and
    the dataset holds an open file. Inconclusive for an open file alone.

    ## Limits
    Forked workers, datasets with indices. The race may not show in the time of the check.
    """

    code = "LOAD028"
    name = "shared-handle"
    recorded = True  # first: other checks open in this process what a worker opens itself
    causes = ("the file is opened in __init__ or in the main process, before workers are forked",)
    next_step = "Open it in each worker at the first access: if self.file is None: self.file = ..."

    def run(self, subject: LoaderSubject) -> Answer:
        loader, workers = subject.loader, subject.workers
        context = getattr(loader, "multiprocessing_context", None) or multiprocessing
        if not subject.has_indices or workers < 2 or context.get_start_method() != "fork":
            return absent("No two forked workers read a dataset with indices.")
        known = getattr(getattr(type(loader.dataset), "__getitem__", None), "__globals__", {})
        handles = list(held_objects(loader.dataset, _is_handle))
        handles += [name for name, value in known.items() if _is_handle(value)]
        indices = np.unique(np.linspace(0, len(loader.dataset) - 1, SAMPLES).astype(int)).tolist()
        alone = _read(loader, indices, 1, 2)
        right = [i for i, found in alone.items() if len(found) == 1]
        together = _read(loader, right, workers, MOST_ROUNDS)
        bad = [i for i in right if together[i] - alone[i]]
        said = f"{len(bad)} of {len(right)} samples differ where {workers} workers read at once; "
        said += f"{', '.join(handles[:3]) or 'no file'} is open before they are forked."
        if bad and handles and _read(loader, bad, 1, 1) == {i: alone[i] for i in bad}:
            return self.failed(said, handles=handles)
        return (unclear if bad or handles or not right else passed)(said, handles=handles)


def _is_handle(value: Any) -> bool:
    with contextlib.suppress(OSError, ValueError):  # closed, or in memory
        if hasattr(type(value), "fileno"):
            return bool(value.fileno() > STDERR)
    return type(value).__module__.lstrip("_").partition(".")[0] in CONNECTED


def _pause_after_seek(_: Any, event: str, function: Any) -> None:
    if event == "c_return" and function.__name__ == "seek":
        sleep(1e-3)


class _Digests(ProbedDataset):
    """A dataset of (index, digest or kind of error); another worker runs after each seek()."""

    def __getitem__(self, index: int) -> Any:
        seed_everything(0)
        sys.setprofile(_pause_after_seek)
        try:
            return int(index), digest_of(self._probed[int(index)])
        except Exception as error:  # noqa: BLE001 - in a worker it is a result
            return int(index), type(error).__name__


def _read(loader: Any, indices: Sequence[int], workers: int, rounds: int) -> dict[int, set[str]]:
    """What workers make of these samples in some time, by index: digests, and kinds of errors."""
    clone, random = copy.copy(loader), np.random.default_rng(0)
    order = np.concatenate([random.permutation(indices) for _ in range(rounds)])
    clone.__dict__ |= {
        "dataset": _Digests(loader.dataset), "collate_fn": list, "num_workers": workers,
        "batch_sampler": np.array_split(order, 1 + len(order) // 8),
        "persistent_workers": False, "_iterator": None,
    }  # fmt: skip
    found, patience = defaultdict[int, set[str]](set), Patience(SECONDS, 2 * SECONDS)
    for batch in batches_of(clone):
        for index, digest in batch:
            found[index].add(digest)
        if patience.over:
            break
    return found
