"""Training beside evaluation: how inputs are prepared, and which number each class has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.check import Answer, Check, passed, skipped, unclear
from pipeline_profiler.checks.loader_subject import LoaderSubject, dataset_layers, same_files

NOTHING_BESIDE = (
    "There is no loader for evaluation to compare with.",
    "Give it: --eval train.py:make_eval_loader.",
)
LEAST = 32
FILES, FEWEST_FILES = 40, 12
FAR_T, LEAST_SHIFT = 5.5, 0.05  # deviations of the paired mean; deviations of pixels
APART = 1.0  # deviations of pictures' means
RATIO = 1.5


class TrainAndEval(Check):
    """Evaluation inputs with other colours, scales or types than training inputs.

    ## What it does
    Passes 40 files through both transforms if both datasets have files and a `transform`. Else
    compares type, channels, mean and deviation of the center of images of both loaders.

    ## Why is this bad
    Inputs unlike the training inputs lower the metric, and nothing else reveals it.

    ## How it decides
    Fails if types or numbers of channels differ. Fails if deviations within images differ by a
    factor above 1.5, or means by one deviation of images (99.99% interval). With pairs, means may
    differ by 0.05 deviations of pixels beyond 5.5 standard errors. With pairs, also fails if
    reversed channels agree better in nine of ten coloured files.

    ## Limits
    Without pairs, small differences are not seen (one channel divided by 1.1). Inconclusive if a
    script evaluates several loaders.
    """

    code = "LOAD013"
    name = "train-and-eval-differ"
    entering = True
    causes = (
        "Normalize is missing, or has other numbers, in one of the transforms",
        "one of them reads BGR (OpenCV), the other RGB (Pillow)",
        "one of them does not divide by 255",
    )
    next_step = "Build both transforms from one function; load one file through both and compare."

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.make_eval is None:
            return skipped(*NOTHING_BESIDE)
        sets = [getattr(x, "dataset", None) for x in (subject.loader, subject.eval_loader)]
        if subject.pairs is None:
            found = _judge_pairs(same_files(sets[0], sets[1], FILES))
            if found is not None:
                return found
        ours, theirs = _stack(subject.batches), _stack(subject.eval_batches)
        if ours is None or theirs is None:
            return unclear("The inputs of one loader are no images of one size.")
        if ours.dtype != theirs.dtype or ours.shape[1] != theirs.shape[1]:
            return TrainAndEval.failed(
                f"Training gets {ours.dtype} of shape {ours.shape[1:]}, evaluation "
                f"{theirs.dtype} of shape {theirs.shape[1:]}."
            )
        if min(len(ours), len(theirs)) < LEAST:
            return unclear(f"{len(ours)} and {len(theirs)} images are too few to compare.")
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        means = [a.mean(axis=2) for a in (ours, theirs)]
        inner = [np.median(a.std(axis=2), axis=0) for a in (ours, theirs)]
        pooled = np.sqrt(
            (means[0].var(axis=0) + means[1].var(axis=0)) / 2 + np.square(inner).mean()
        )
        distance = np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) / np.maximum(pooled, 1e-12)
        error = 3.9 * np.sqrt(1 / len(ours) + 1 / len(theirs))
        ratio = float(
            np.max(np.maximum(inner[0], inner[1]) / np.maximum(np.minimum(*inner), 1e-12))
        )
        numbers = {"distance": round(float(distance.max()), 3), "ratio": round(ratio, 3)}
        said = (
            f"Means of images are {distance.max():.2f} deviations apart, and deviations within "
            f"images differ by a factor of {ratio:.2f}"
        )
        apart = APART if np.allclose(inner[0], inner[1], rtol=0.3) else APART / 4
        if distance.max() - error > apart or ratio > RATIO:
            if subject.evaluations > 1:
                return unclear(f"{said}: your script evaluates several loaders.", **numbers)
            return TrainAndEval.failed(
                f"{said}: training and evaluation prepare images differently.", **numbers
            )
        return passed(f"{said}.", **numbers)


def _judge_pairs(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> Answer | None:
    """The same files through both transforms: paired, so that what the files show cancels."""
    if len(pairs) < FEWEST_FILES:
        return None
    one, two = pairs[0]
    if one.dtype != two.dtype or one.shape[0] != two.shape[0]:
        return TrainAndEval.failed(
            f"Training makes {one.dtype} of shape {one.shape} of a file, evaluation {two.dtype} of "
            f"shape {two.shape}."
        )
    ours, theirs = (np.array([pair[i].mean(axis=(1, 2)) for pair in pairs]) for i in (0, 1))
    inner = np.array([[picture.std() for picture in pair] for pair in pairs])
    apart = (ours - theirs) / (inner[:, 0].mean() + 1e-12)
    shift = float(np.abs(apart.mean(axis=0)).max())
    error = float(apart.std(axis=0).max() / math.sqrt(len(pairs)))
    typical = float(np.median(np.abs(apart)))
    ratio = float(np.median(inner[:, 0]) / max(1e-12, np.median(inner[:, 1])))
    numbers = {"files": len(pairs), "shift": round(shift, 4), "ratio": round(ratio, 4)}
    said = (
        f"The same {len(pairs)} files have means that lie {shift:.2f} deviations apart by channel "
        f"({typical:.2f} within a file), and deviations of a ratio of {ratio:.2f}"
    )
    swapped = _better_reversed(ours, theirs)
    if swapped or shift - FAR_T * error > LEAST_SHIFT or not 1 / RATIO < ratio < RATIO:
        what = "with the channels in another order" if swapped else "differently"
        return TrainAndEval.failed(
            f"{said}: training and evaluation prepare one file {what}.", **numbers
        )
    return passed(f"{said}.", **numbers)


def _better_reversed(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Whether nearly all pictures agree better once the channels are turned round."""
    if ours.shape[1] != 3:
        return False
    plain = np.abs(ours - theirs).sum(axis=1)
    turned = np.abs(ours - theirs[:, ::-1]).sum(axis=1)
    coloured = np.abs(ours[:, 0] - ours[:, 2]) > 1e-3
    return bool(coloured.sum() >= FEWEST_FILES and (turned < 0.25 * plain)[coloured].mean() > 0.9)


def _stack(batches: Any) -> NDArray[Any] | None:
    """(images, channels, pixels) of the central half by each axis: a crop may pad the border."""
    parts = [b.inputs for b in batches if b.inputs is not None and b.inputs.ndim == 4]
    if not parts or len({p.shape[1:] for p in parts}) != 1:
        return None
    height, width = (size // 4 for size in parts[0].shape[2:])
    stacked = np.concatenate(parts)[:, :, height : -height or None, width : -width or None]
    return stacked.reshape(*stacked.shape[:2], -1)


LISTS = ("classes", "class_names", "label_names")
MOST_SHOWN = 5


class LabelNumbers(Check):
    """Training and evaluation that number one class differently.

    ## What it does
    Reads the number of each class name from both datasets and their wrappers (`Subset`):
    `class_to_idx`, `label2id`, `id2label`, `classes`, `class_names`, `label_names`, `features` of
    Hugging Face.

    ## Why is this bad
    Folders are numbered alphabetically. If one class is missing, all later numbers shift by one,
    and correct predictions count as wrong.

    ## How it decides
    Fails if a common name has different numbers. Exact. Classes in one dataset only are ignored.
    Inconclusive without a common name, or if a `target_transform` may renumber the classes.

    ## Limits
    The datasets must keep their class names. Names with several numbers are ignored.
    """

    code = "LOAD018"
    name = "labels-numbered-apart"
    causes = (
        "a folder of a class is missing in one of them, and the rest moved up",
        "names are sorted differently, or come from a set",
        "two tables of labels",
    )
    next_step = "Number both by the table of the training set."

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.make_eval is None:
            return skipped(*NOTHING_BESIDE)
        sets = [getattr(x, "dataset", x) for x in (subject.loader, subject.eval_loader)]
        ours, theirs = (_numbers_of(dataset) for dataset in sets)
        if not ours or not theirs:
            return unclear("The datasets keep no names of classes, so numbers cannot be compared.")
        shared = [name for name in ours if name in theirs]
        numbers: dict[str, Any] = {
            "train": len(ours), "evaluation": len(theirs), "shared": len(shared),
        }  # fmt: skip
        if not shared:
            return unclear("The two datasets have no name of a class in common.", **numbers)
        apart = [(name, ours[name], theirs[name]) for name in shared if ours[name] != theirs[name]]
        if not apart:
            return passed(
                f"{len(shared)} names of classes have one number in training and evaluation.",
                **numbers,
            )
        numbers["apart"] = apart
        said = ", ".join(f"{name}: {a} and {b}" for name, a, b in apart[:MOST_SHOWN])
        more = f" and {len(apart) - MOST_SHOWN} more" if len(apart) > MOST_SHOWN else ""
        text = (
            f"{len(apart)} of {len(shared)} classes have another number in training than in "
            f"evaluation ({said}{more})"
        )
        layers = [layer for dataset in sets for layer in dataset_layers(dataset)]
        if any(getattr(layer, "target_transform", None) is not None for layer in layers):
            return unclear(f"{text}; a target_transform may number them anew.", **numbers)
        return self.failed(f"{text}.", **numbers)


def _numbers_of(dataset: Any) -> dict[str, int]:
    """Number by name, of the outermost dataset that has names; empty where none has."""
    for layer in dataset_layers(dataset):
        pairs = _pairs_of(layer)
        often = Counter(name for name, _ in pairs)
        if pairs:
            return {name: number for name, number in pairs if often[name] == 1}
    return {}


def _pairs_of(layer: Any) -> list[tuple[str, int]]:
    for key in ("class_to_idx", "label2id", "id2label"):
        if isinstance(table := getattr(layer, key, None), Mapping):
            pairs = [pair[::-1] if key == "id2label" else pair for pair in table.items()]
            try:
                return [(str(name), int(number)) for name, number in pairs]
            except (TypeError, ValueError):
                return []
    features = getattr(layer, "features", None)
    for key in ("label", "labels", "fine_label"):
        part = features.get(key) if isinstance(features, Mapping) else None
        if names := getattr(part, "names", None):
            return [(str(name), number) for number, name in enumerate(names)]
    for key in LISTS:
        names = getattr(layer, key, None)
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            continue
        if not hasattr(layer, "__len__") or len(names) != len(
            layer
        ):  # else it is a name for each sample
            return [(name, number) for number, name in enumerate(names)]
    return []
